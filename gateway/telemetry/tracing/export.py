"""The way of spans to an OpenTelemetry collector: OTLP over HTTP, in batches, by a thread of the SDK.

Nothing waits for a collector. A queue of `WAITING` spans is between it and the requests; what finds it full is dropped
and counted. A collector that fails is logged once, and once when it takes spans again. Importing this module loads the
SDK, so only a gateway with `tracing.endpoint` does.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from gateway import __version__
from gateway.contracts.figures import Counted
from gateway.contracts.tracing.tracer import Attribute, Record
from gateway.telemetry.logs import escape_control, remove_secrets
from gateway.telemetry.tracing.session import TIMEOUT_S, CollectorSession

log = logging.getLogger("gateway")

#: Spans that wait for the thread, and how many of them go in one request.
WAITING: Final = 8192
BATCH: Final = 512
#: How long a span waits at most while the collector keeps up.
DELAY_S: Final = 1.0
#: How long the last spans may take when the gateway stops.
LAST_S: Final = 3.0
#: Longer texts in attributes are cut: models and tools have their names from others.
TEXT_CHARS: Final = 256
#: So much of a text is looked at, and so many items of a list are sent.
READ_CHARS: Final = 4096
LIST_ITEMS: Final = 8
_FAMILY: Final = "gateway_trace_spans"
_KINDS: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
#: The conventions of HTTP and of errors that spans follow; the GenAI conventions have no address yet.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"
_SCOPE: Final = InstrumentationScope("twolane", __version__, SCHEMA_URL)
#: Libraries that would log each failed attempt; what matters of it is logged here.
_LOUD: Final = ("opentelemetry", "urllib3")


@dataclass(frozen=True, slots=True)
class Collector:
    """The collector that spans go to. `headers` may hold secrets."""

    url: str
    headers: Mapping[str, str]
    ca_file: Path | None
    service: str
    instance: str


class _QueuedSpan:
    """A span in the queue of the SDK, which reads the context of each."""

    __slots__ = ("record",)

    context = SpanContext(1, 1, is_remote=False, trace_flags=_SAMPLED)

    def __init__(self, record: Record) -> None:
        self.record = record


class SpanSender:
    """The sender of one process's spans, made after its fork: it has a thread. `secrets` are cut out of attributes."""

    def __init__(self, collector: Collector, *, secrets: Callable[[], Iterable[str]]) -> None:
        for library in _LOUD:
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self._put = self._dropped = 0  # by the thread of the loop
        self._exporter = exporter = _Exporter(collector, secrets)
        self._queue = BatchSpanProcessor(
            exporter,
            max_queue_size=WAITING,
            schedule_delay_millis=DELAY_S * 1000,
            max_export_batch_size=BATCH,
            export_timeout_millis=TIMEOUT_S * 1000,
        )
        self._closed = False

    def send(self, record: Record) -> None:
        """Queue a span. Never blocks."""
        if self._closed or self._put - self._exporter.taken >= WAITING:
            self._dropped += 1
            return
        self._put += 1
        self._queue.on_end(cast(ReadableSpan, _QueuedSpan(record)))

    def collect_counts(self) -> Iterator[Counted]:
        """Yield what became of all spans until now."""
        exporter = self._exporter
        for outcome, count in (("sent", exporter.sent), ("failed", exporter.failed), ("dropped", self._dropped)):
            if count:
                yield (_FAMILY, (outcome,)), (count,)

    async def close(self) -> None:
        """Send what waits, for at most `LAST_S`. Idempotent."""
        if self._closed:
            return
        self._closed = True
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._queue.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=shut_down, name="trace-flush", daemon=True).start()
        try:
            await asyncio.wait_for(sent.wait(), LAST_S)
        except TimeoutError:
            left = self._put - self._exporter.sent - self._exporter.failed
            log.warning("%d spans of traces are lost: %s did not take them in %g s", left, self._exporter.url, LAST_S)
            self._exporter.is_failing = True  # which the log has now
            self._exporter.shutdown()  # a wait between two attempts ends; an attempt under way ends with the process


class _Exporter(SpanExporter):
    """The exporter that the thread of the SDK calls; it makes spans of the SDK from records. Counts are its own."""

    def __init__(self, collector: Collector, secrets: Callable[[], Iterable[str]]) -> None:
        self.taken = self.sent = self.failed = 0
        self._secrets = secrets
        self.url = collector.url
        self.is_failing = False
        self._resource = Resource.create(
            {
                "service.name": collector.service,
                "service.version": __version__,
                "service.instance.id": collector.instance,
            }
        )
        self._session = CollectorSession(collector.headers, collector.ca_file)
        self._otlp = OTLPSpanExporter(
            endpoint=collector.url, timeout=TIMEOUT_S, compression=Compression.Gzip, session=self._session
        )

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans as OTLP, count their outcome, and log when sending begins or stops to fail."""
        waiting = cast(Sequence[_QueuedSpan], spans)
        self.taken += len(waiting)
        secrets = tuple(sorted(filter(None, self._secrets()), key=len, reverse=True))
        result = self._otlp.export([self._build_span(one.record, secrets) for one in waiting])
        if result is SpanExportResult.SUCCESS:
            self.sent += len(waiting)
        else:
            self.failed += len(waiting)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self.is_failing:
            problem = self._session.problem or "the SDK refused to send them"
            log.warning("traces cannot be sent to %s: %s. Spans are lost until it takes them again", self.url, problem)
        elif self.is_failing and not is_failing:
            log.info("traces are sent to %s again", self.url)
        self.is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._otlp.shutdown()  # type: ignore[no-untyped-call]

    def _build_span(self, record: Record, secrets: tuple[str, ...]) -> ReadableSpan:
        """Return a span of the SDK for a record, with secrets removed."""
        context = record.context
        parent = None
        if context.parent_id:
            parent = _build_context(context.trace_id, context.parent_id, is_remote=context.remote)
        attributes = {
            name: _clean_value(value, secrets) for name, value in record.attributes.items() if value is not None
        }
        if record.error:
            attributes["error.type"] = _clean_value(record.error, secrets)
        return ReadableSpan(
            name=str(_clean_value(record.name, secrets)),
            context=_build_context(context.trace_id, context.span_id, state=context.state),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            links=[Link(_build_context(one.trace_id, one.span_id)) for one in record.links],
            kind=_KINDS[record.kind],
            status=Status(StatusCode.ERROR if record.error else StatusCode.UNSET),
            start_time=record.began_ns,
            end_time=max(record.ended_ns, record.began_ns),
            instrumentation_scope=_SCOPE,
        )


def _build_context(trace_id: str, span_id: str, *, state: str = "", is_remote: bool = False) -> SpanContext:
    found = TraceState.from_header([state]) if state else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote, _SAMPLED, found)


def _clean_value(value: Attribute, secrets: tuple[str, ...]) -> str | bool | int | float | tuple[str, ...]:
    """Return a value as it may leave: texts in UTF-8, without secrets and control characters, and not long."""
    if isinstance(value, str):
        return _clean_text(value[:READ_CHARS], secrets)
    if isinstance(value, tuple):
        return tuple(_clean_text(one[:READ_CHARS], secrets) for one in value[:LIST_ITEMS])
    assert value is not None
    return value


@lru_cache(maxsize=1024)
def _clean_text(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text as it may leave. Nearly all texts of spans come again and again."""
    return escape_control(remove_secrets(text, secrets))[:TEXT_CHARS]
