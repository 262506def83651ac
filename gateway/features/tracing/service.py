"""The maker of traces of one worker, if the configuration names a collector. Without one, nothing of it is imported."""

import os
import socket
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from gateway.config import ConfigError, Problem, Settings
from gateway.contracts.figures import Counted
from gateway.contracts.tracing.tracer import Tracer
from gateway.features.tracing.observer import TraceFeature
from gateway.features.tracing.section import TracingSettings
from gateway.lanes.passthrough.observers.observer import PassthroughFeature
from gateway.server.feature import Feature, FeatureNeeds, FeatureService, WorkerFeatures
from gateway.telemetry.logs import LogSink

if TYPE_CHECKING:
    from gateway.telemetry.tracing.export import SpanSender

MISSING_SDK: Final = "OpenTelemetry is not installed: pip install 'twolane[tracing]', or remove it"
_PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.exporter.otlp.proto.http")


class TracingService(FeatureService):
    """The traces of one worker, if its first configuration names a collector; another one needs a restart."""

    def __init__(self, needs: FeatureNeeds, others: WorkerFeatures) -> None:
        """Begin to send spans, in the process that serves: it starts a thread. Raises ConfigError."""
        del others
        self._sender: SpanSender | None = None
        chosen = needs.settings().tracing
        if chosen.url is None or needs.process is None:
            return
        check_tracing(needs.settings())
        self._sender = open_sender(chosen.url, chosen, needs.process.sink)
        self.tracer = Tracer(
            self._sender.send,
            share=chosen.sample,
            receivers=frozenset(chosen.propagate),
            passthrough=chosen.passthrough,
            trusts_clients=chosen.trust_clients,
        )

    def build_observer(self, settings: Settings) -> PassthroughFeature | None:
        del settings
        return None if self.tracer is None else TraceFeature(self.tracer)

    def collect_counts(self) -> Iterable[Counted]:
        return () if self._sender is None else self._sender.collect_counts()

    async def close(self) -> None:
        """Send the last spans."""
        if self._sender is not None:
            await self._sender.close()


def open_sender(url: str, section: TracingSettings, sink: LogSink) -> "SpanSender":
    """Return the sender of spans to a collector. The secrets of `sink` are cut out of spans as of log lines."""
    # Imported here because it loads the SDK, which takes 0.3 s and 7 MB.
    from gateway.telemetry.tracing.export import Collector, SpanSender

    headers = {name: value.reveal() for name, value in section.headers.items()}
    instance = f"{socket.gethostname()}:{os.getpid()}"
    collector = Collector(url, headers, section.ca_file, section.service_name, instance)
    return SpanSender(collector, secrets=lambda: sink.secrets)


def check_tracing(settings: Settings) -> None:
    """Raise ConfigError for a configuration with traces where the libraries for them are missing."""
    if settings.tracing.endpoint is not None and not all(map(_is_there, _PACKAGES)):
        raise ConfigError((Problem("configuration", "tracing.endpoint", MISSING_SDK),))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


FEATURE = Feature(service=TracingService, check_files=check_tracing)
