"""The maker of traces of one worker, if the configuration names a collector. Without one, nothing of it is imported."""

import os
import socket
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Final

from gateway.config import ConfigError, Problem, Settings
from gateway.contracts.tracing.tracer import Tracer
from gateway.telemetry.logs import LogSink
from gateway.telemetry.metrics import Metrics

MISSING_SDK: Final = "OpenTelemetry is not installed: pip install 'twolane[tracing]', or remove it"
_PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.exporter.otlp.proto.http")


def check_tracing(settings: Settings) -> None:
    """Raise ConfigError for a configuration with traces where the libraries for them are missing."""
    if settings.tracing.endpoint is not None and not all(map(_is_there, _PACKAGES)):
        raise ConfigError((Problem("configuration", "tracing.endpoint", MISSING_SDK),))


def open_tracing(settings: Settings, stack: AsyncExitStack, *, metrics: Metrics, sink: LogSink) -> Tracer | None:
    """Return the maker of traces, which sends its last spans when `stack` closes; None: no collector is configured.

    Call it in the process that serves: it starts a thread. The secrets of `sink` are cut out of spans as of log lines.
    Raises ConfigError.
    """
    chosen = settings.tracing
    if chosen.url is None:
        return None
    check_tracing(settings)
    # Imported here because it loads the SDK, which takes 0.3 s and 7 MB.
    from gateway.telemetry.tracing.export import Collector, SpanSender

    headers = {name: value.reveal() for name, value in chosen.headers.items()}
    instance = f"{socket.gethostname()}:{os.getpid()}"
    collector = Collector(chosen.url, headers, chosen.ca_file, chosen.service_name, instance)
    sending = SpanSender(collector, secrets=lambda: sink.secrets)
    stack.push_async_callback(sending.close)
    metrics.further.append(sending.collect_counts)
    receivers = frozenset(chosen.propagate)
    return Tracer(
        sending.send,
        share=chosen.sample,
        receivers=receivers,
        passthrough=chosen.passthrough,
        trusts_clients=chosen.trust_clients,
    )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
