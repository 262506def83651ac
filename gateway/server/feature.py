"""A feature as a worker runs it: one record, of which `server` collects those of all features.

`service.py` in the folder of a feature (`gateway/features/`) makes the record, `FEATURE`. Its service is one object of
one worker, for all configurations. A worker goes through these phases, and each service hears of them in the order of
the features: it is built, `apply_settings` and `refresh` at the start and after each reload, `prepare` before the first
request, `close` in the opposite order. For each configuration a service builds what the lanes ask.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from prometheus_client.core import Metric

from gateway.config import Settings
from gateway.contracts.caller import Caller
from gateway.contracts.figures import Counted
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.contracts.tracing.tracer import Tracer
from gateway.features.registry import load_parts
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.limits.counter_registry import Meters
from gateway.model.hooks import ContextHook
from gateway.telemetry.logs import LogSink

S = TypeVar("S", bound="FeatureService")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcess:
    """The process of a worker: its log, and the counters of limits that it shares with others (None: it is alone)."""

    sink: LogSink
    meters: Meters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureNeeds:
    """The services that a feature is built with. Each use looks up the settings and the callers that are in use.

    `writer` is unique among all processes of the store. `process` is None where nothing is served: in a dry start.
    """

    store: Store
    clock: Clock
    counters: Counters
    writer: str
    settings: Callable[[], Settings]
    callers: Callable[[], Iterable[Caller]]
    process: ServingProcess | None = None


class FeatureService:
    """A feature in one worker. By itself it does nothing."""

    #: The maker of traces that the whole worker uses, if it is this feature that has one.
    tracer: Tracer | None = None

    def __init__(self, needs: FeatureNeeds, others: "WorkerFeatures") -> None:
        """`others` has the features before this one. Raises ConfigError: the worker cannot start."""

    def apply_settings(self, settings: Settings) -> None:
        """Apply a configuration."""

    async def refresh(self) -> None:
        """Read anew what depends on the settings or the callers in use."""

    async def prepare(self) -> None:
        """Wait for what the first request needs; the tasks run by now."""

    def list_tasks(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return what runs until the worker ends."""
        return ()

    def build_observer(self, settings: Settings) -> PassthroughFeature | None:
        """Return the feature of a configuration, as passthrough sees it; None: it follows no request."""
        del settings
        return None

    def build_hook(self, settings: Settings) -> ContextHook | None:
        """Return the feature of a configuration, as the context lane sees it; None: it follows no run."""
        del settings
        return None

    def catch_up(self) -> None:
        """Count what has ended and is not counted yet: metrics are read next."""

    def collect_counts(self) -> Iterable[Counted]:
        """Return the counts of this worker, which are added to those of the others."""
        return ()

    def collect_families(self) -> Iterable[Metric]:
        """Return the metrics that are read from one worker alone."""
        return ()

    async def close(self) -> None:
        """End what the feature has begun. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The record of a feature.

    `check_files` checks the files that settings name, and the libraries that they need. It raises ConfigError.
    """

    service: Callable[[FeatureNeeds, "WorkerFeatures"], FeatureService]
    check_files: Callable[[Settings], object] | None = None


class WorkerFeatures:
    """The features of one worker, in their order."""

    def __init__(self, needs: FeatureNeeds) -> None:
        """Build all services. Raises ConfigError."""
        self._services: list[FeatureService] = []
        for feature in load_features():
            self._services.append(feature.service(needs, self))

    def find(self, kind: type[S]) -> S:
        """Return the service of this type."""
        return next(service for service in self._services if isinstance(service, kind))

    @property
    def tracer(self) -> Tracer | None:
        """Return the maker of traces; None: there are none."""
        return next((service.tracer for service in self._services if service.tracer is not None), None)

    def apply_settings(self, settings: Settings) -> None:
        """Apply a configuration."""
        for service in self._services:
            service.apply_settings(settings)

    async def refresh(self) -> None:
        """Read anew what depends on the settings or the callers in use."""
        for service in self._services:
            await service.refresh()

    async def prepare(self) -> None:
        """Wait for what the first request needs."""
        for service in self._services:
            await service.prepare()

    def list_tasks(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return what runs until the worker ends."""
        return [task for service in self._services for task in service.list_tasks()]

    def build_observers(self, settings: Settings) -> Sequence[PassthroughFeature]:
        """Return the features of a configuration, as passthrough sees them."""
        built = (service.build_observer(settings) for service in self._services)
        return [feature for feature in built if feature is not None]

    def build_hooks(self, settings: Settings) -> Sequence[ContextHook]:
        """Return the features of a configuration, as the context lane sees them."""
        built = (service.build_hook(settings) for service in self._services)
        return [hook for hook in built if hook is not None]

    def catch_up(self) -> None:
        """Count what has ended and is not counted yet."""
        for service in self._services:
            service.catch_up()

    def collect_counts(self) -> Iterable[Counted]:
        """Return the counts of all features."""
        return chain.from_iterable(service.collect_counts() for service in self._services)

    def collect_families(self) -> Iterable[Metric]:
        """Return the metrics of all features."""
        return chain.from_iterable(service.collect_families() for service in self._services)

    async def close(self) -> None:
        """End all features, the last one first. Idempotent."""
        for service in reversed(self._services):
            await service.close()


def load_features() -> Sequence[Feature]:
    """Return the records of all features, in their order."""
    found: list[Feature] = [part.FEATURE for part in load_parts("service")]
    return found
