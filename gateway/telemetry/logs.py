"""Log lines: one record per line, JSON or text. A separate thread writes them, so no request waits for a reader.

Secrets are cut out of every value before anything else is done to it, by value and by pattern. When the reader stops,
lines are dropped and counted, and requests continue. No record ends the log, whatever its content.
"""

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

import orjson

from gateway.contracts.tracing.context import CURRENT

#: Lines waiting to be written before further ones are dropped.
BACKLOG_LIMIT = 10_000
_BATCH = 256
_VALUE_LIMIT, _TRACEBACK_LIMIT = 500, 16_384
_DEPTH_LIMIT = 4
_LARGEST_INTEGER = 1 << 63
_PATTERNS = re.compile(r"(?i)(bearer\s+)[\w.~+/=-]{4,}|(?<![a-z0-9])sk-[\w-]{6,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LAID_OUT = frozenset(("ts", "level", "event", "traceback"))

Record = Mapping[str, object]


class LogSink:
    """The sink that takes records from any thread and writes them to `stream`.

    It calls `dropped` for each lost record.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, secrets: Iterable[str], dropped: Callable[[], None]) -> None:
        self._stream = stream
        self._as_json = as_json
        self.secrets: Iterable[str] = tuple(secrets)
        self._dropped = dropped
        self._records: queue.SimpleQueue[Record | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Queue a record. Never blocks."""
        if self._records.qsize() >= BACKLOG_LIMIT:
            self._dropped()
        else:
            self._records.put(record)

    def flush(self, timeout_s: float = 1.0) -> None:
        """Wait until all queued records are written, for at most `timeout_s`."""
        written = threading.Event()
        self._records.put(written)
        written.wait(timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Write the queued records, for at most `timeout_s`."""
        self._records.put(None)
        self._thread.join(timeout_s)

    def format_record(self, record: Record) -> str:
        """Return one record as its line, without the line end."""
        return format_line(record, as_json=self._as_json, secrets=self.secrets)

    def _write_all(self) -> None:
        """Write queued records in batches until None comes; lines that cannot be written are dropped."""
        while True:
            batch = [self._records.get()]
            while len(batch) < _BATCH and not self._records.empty():
                batch.append(self._records.get())
            lines = [self.format_record(record) for record in batch if isinstance(record, Mapping)]
            try:
                self._stream.write("".join(f"{line}\n" for line in lines))
                self._stream.flush()
            except (OSError, ValueError):
                for _ in lines:
                    self._dropped()
            for record in batch:
                if isinstance(record, threading.Event):
                    record.set()
            if None in batch:
                return


class DirectSink:
    """The sink that writes each record at once, for the parent of workers: it forks, so it must have no thread."""

    def __init__(self, stream: TextIO, *, as_json: bool, secrets: Iterable[str]) -> None:
        self._stream = stream
        self._as_json = as_json
        self._secrets = tuple(secrets)

    def put(self, record: Record) -> None:
        """Write a record. If the reader has gone, the line is lost and the parent continues."""
        try:
            self._stream.write(format_line(record, as_json=self._as_json, secrets=self._secrets) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return


class SinkHandler(logging.Handler):
    """The handler that passes records of `logging` to a sink, with the fields of `extra={"facts": {...}}`.

    A log call that is itself wrong is logged as such.
    """

    def __init__(self, sink: LogSink | DirectSink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record of `logging` into the sink, with its facts, trace id and traceback."""
        facts: dict[str, object] = {"ts": _format_timestamp(record.created), "level": record.levelname.lower()}
        try:
            facts["event"] = record.getMessage()
            facts |= getattr(record, "facts", {})
            if (trace := CURRENT.get()) is not None:
                facts["trace_id"] = trace.trace_id
            if record.exc_info and record.exc_info[0] is not None:
                facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        except Exception as error:
            facts |= {"event": "a log call failed", "place": f"{record.pathname}:{record.lineno}", "error": repr(error)}
        self._sink.put(facts)


def install_sink(sink: LogSink | DirectSink, *, level: str) -> None:
    """Send every log record of this process to the sink."""
    root = logging.getLogger()
    root.handlers = [SinkHandler(sink)]
    root.setLevel(level.upper())


def wants_json(log_format: str, stream: TextIO) -> bool:
    """Return whether to write JSON: `auto` is text for a person at a terminal, JSON for everything else."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def build_access_record(facts: Mapping[str, object]) -> Record:
    """Return the record of one answered request."""
    return {"ts": _format_timestamp(time.time()), "level": "info", "event": "request", **facts}


def format_line(record: Record, *, as_json: bool, secrets: Iterable[str]) -> str:
    """Return the record as one line of JSON, or of text for a person, with secrets cut out. Accepts any record."""
    hidden = sorted((secret for secret in secrets if secret), key=len, reverse=True)
    facts = {
        str(name): _clean_value(value, hidden, limit=_TRACEBACK_LIMIT if name == "traceback" else _VALUE_LIMIT)
        for name, value in record.items()
        if value is not None
    }
    if not as_json:
        return _format_readable(facts)
    return _CONTROL.sub(lambda m: f"\\u{ord(m[0]):04x}", orjson.dumps(facts).decode())


def _format_timestamp(seconds: float) -> str:
    whole, part = divmod(seconds, 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int(part * 1000):03d}Z"


def _clean_value(value: object, hidden: list[str], *, limit: int, depth: int = 0) -> object:
    """Return the value as JSON data: texts without secrets, then capped, and containers to a bounded depth."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _LARGEST_INTEGER):
        return value
    if depth < _DEPTH_LIMIT and isinstance(value, Mapping):
        items = list(value.items())[:limit]
        return {
            remove_secrets(k, hidden)[:limit]: _clean_value(v, hidden, limit=limit, depth=depth + 1) for k, v in items
        }
    if depth < _DEPTH_LIMIT and isinstance(value, list | tuple):
        return [_clean_value(item, hidden, limit=limit, depth=depth + 1) for item in value[:limit]]
    text = remove_secrets(value, hidden)
    return text if len(text) <= limit else text[:limit] + "..."


def remove_secrets(value: object, hidden: Sequence[str]) -> str:
    """Return any value as text in UTF-8, without `hidden` (the longest first) and what looks like a key."""
    try:
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    except Exception as error:
        text = f"<{type(value).__name__} without text: {type(error).__name__}>"
    for secret in hidden:
        text = text.replace(secret, "***")
    text = _PATTERNS.sub(lambda m: (m[1] or "") + "***", text)
    return text.encode("utf-8", "backslashreplace").decode()


def _format_readable(facts: Mapping[str, object]) -> str:
    """Return the record for a person: control characters escaped, a traceback on separate, indented lines."""
    rest = "".join(
        f" {escape_control(name)}={escape_control(value)}" for name, value in facts.items() if name not in _LAID_OUT
    )
    line = (
        f"{str(facts.get('ts', ''))[11:19]} {facts.get('level', ''):<7} {escape_control(facts.get('event', ''))}{rest}"
    )
    trace = str(facts.get("traceback", "")).split("\n")
    return "\n".join([line, *(f"    {escape_control(part)}" for part in trace if part)])


def escape_control(value: object) -> str:
    """Return any value as text without control characters: their codes instead."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", str(value))
