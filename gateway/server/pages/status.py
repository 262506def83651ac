"""The facts of the status page: from the configuration in use, the numbers of all workers, and the history."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gateway.api.admin.status import GatewayStatusView, HistoryView, PointView, UpstreamStatusView
from gateway.api.admin.upstreams import UpstreamView
from gateway.config import LoadedConfig, iterate_secret_texts
from gateway.config.redacted_dump import redact_settings
from gateway.config.values.secret import MASK
from gateway.contracts.plugin import Clock
from gateway.contracts.views import fill_view
from gateway.server.context_lane import LaneServices
from gateway.server.lanes.upstreams import list_upstreams_in_use
from gateway.server.pages.upstream_facts import UpstreamNumbers, iterate_upstream_facts
from gateway.telemetry.exposition import Exposition
from gateway.telemetry.history import STEP_S, History


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The sources of one worker. `demo_url`: the address of the demo model, for a configuration without upstreams."""

    loaded: Callable[[], LoadedConfig]
    assembled: Callable[[], LaneServices]
    exposition: Exposition
    history: History
    clock: Clock
    started_s: float
    demo_url: str | None

    async def read(self) -> GatewayStatusView:
        """Return the status of this moment."""
        loaded = self.loaded()
        configuration = redact_settings(loaded.settings)
        numbers = UpstreamNumbers(*await self.exposition.read_numbers())
        return GatewayStatusView(
            started_at=self.started_s,
            uptime_s=max(self.clock.time() - self.started_s, 0.0),
            workers=loaded.settings.workers,
            upstreams=[
                _build_upstream_view(one.name, one.address, numbers)
                for one in list_upstreams_in_use(loaded.settings, demo_url=self.demo_url)
            ],
            configuration=configuration,
            problems=list(self._iterate_problems(loaded)),
            history=HistoryView(
                step_s=STEP_S, points=[fill_view(PointView, point) for point in self.history.list_points()]
            ),
        )

    async def list_upstreams(self) -> Sequence[UpstreamView]:
        """Return the upstreams of this moment."""
        numbers = UpstreamNumbers(*await self.exposition.read_numbers())
        settings, learnt = self.loaded().settings, self.assembled().core.quirks
        return tuple(iterate_upstream_facts(settings, demo_url=self.demo_url, numbers=numbers, learnt=learnt))

    def _iterate_problems(self, loaded: LoadedConfig) -> Iterator[str]:
        """Yield the warnings of the configuration, and why tools cannot run on this machine."""
        secrets = tuple(iterate_secret_texts(loaded.settings))
        for text in (*loaded.warnings, *self.assembled().obstacles):
            for secret in secrets:
                text = text.replace(secret, MASK)
            yield text


def _build_upstream_view(name: str, base_url: str, numbers: UpstreamNumbers) -> UpstreamStatusView:
    up = numbers.read_gauge("up", name)
    idle, busy = (int(numbers.read_gauge("pool_connections", name, state) or 0) for state in ("idle", "busy"))
    return UpstreamStatusView(name, base_url, None if up is None else bool(up), idle, busy)
