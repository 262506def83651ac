"""The usage of one worker: its ledger, the answers whose usage is read later, and the prices in use."""

import logging
from collections.abc import Iterable

from gateway.config import ConfigError, Settings
from gateway.contracts.figures import Counted
from gateway.features.usage.hook import UsageHook
from gateway.features.usage.observer import UsageFeature
from gateway.features.usage.observer_batch import UsageBatch
from gateway.features.usage.section_prices import load_prices
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.model.hooks import ContextHook
from gateway.server.feature import Feature, FeatureNeeds, FeatureService, WorkerFeatures
from gateway.usage.ledger import Ledger

log = logging.getLogger("gateway")


class UsageService(FeatureService):
    """The usage of one worker. Short answers of passthrough wait in `batch`, until `ledger` records what they used."""

    def __init__(self, needs: FeatureNeeds, others: WorkerFeatures) -> None:
        del others
        self.batch = UsageBatch()
        self.ledger = Ledger(
            needs.store,
            writer=needs.writer,
            counters=needs.counters,
            clock=needs.clock,
            catch_up=self.batch.read,
        )

    def apply_settings(self, settings: Settings) -> None:
        """Apply the configured usage. The prices were read before; if they cannot be now, the old ones stay in use."""
        section = settings.usage
        self.ledger.keep_days = section.keep_days
        try:
            self.ledger.prices = load_prices(section)
        except ConfigError as error:
            log.error("the old prices stay in use: %s", error)
        if section.enabled:
            self.ledger.start()

    def build_observer(self, settings: Settings) -> PassthroughFeature:
        """Return the feature even where nothing is recorded: others may need the tokens of an answer."""
        return UsageFeature(self.ledger.record if settings.usage.enabled else None, self.batch)

    def build_hook(self, settings: Settings) -> ContextHook | None:
        return UsageHook(self.ledger.record) if settings.usage.enabled else None

    def catch_up(self) -> None:
        self.batch.read()

    def collect_counts(self) -> Iterable[Counted]:
        return self.batch.undecoded.collect_counts()

    async def close(self) -> None:
        self.batch.finish()
        await self.ledger.close()


def check_prices_file(settings: Settings) -> None:
    """Raise ConfigError with every problem in the file of prices."""
    load_prices(settings.usage)


FEATURE = Feature(service=UsageService, check_files=check_prices_file)
