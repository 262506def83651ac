"""Log lines: one record per line, JSON or text, written by a thread of their own so that no request waits for a reader.

Secrets are cut out at the sink, by value and by pattern, whatever a message contains. When the reader stops, lines are
dropped and counted; requests go on.
"""

import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

import orjson

#: Lines waiting to be written before further ones are dropped.
BACKLOG_LIMIT = 10_000
_BATCH = 256
_PATTERNS = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{4,}|\bsk-[\w-]{6,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_VALUE_LIMIT = 500
_LAID_OUT = frozenset(("ts", "level", "event", "traceback"))

Record = Mapping[str, object]


class LogSink:
    """Takes records from any thread and writes them to `stream`. `dropped` is told for each one that found no room."""

    def __init__(self, stream: TextIO, *, as_json: bool, secrets: Iterable[str], dropped: Callable[[], None]) -> None:
        self._stream = stream
        self._as_json = as_json
        self.secrets = tuple(s for s in secrets if s)
        self._dropped = dropped
        self._records: queue.SimpleQueue[Record | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Never blocks."""
        if self._records.qsize() >= BACKLOG_LIMIT:
            self._dropped()
        else:
            self._records.put(record)

    def flush(self, timeout_s: float = 1.0) -> None:
        """Waits until what was put is written, for at most `timeout_s`."""
        written = threading.Event()
        self._records.put(written)
        written.wait(timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Writes what is waiting, for at most `timeout_s`."""
        self._records.put(None)
        self._thread.join(timeout_s)

    def line(self, record: Record) -> str:
        """One record as its line, without the line end."""
        return format_line(record, as_json=self._as_json, secrets=self.secrets)

    def _write_all(self) -> None:
        while True:
            records = [self._records.get()]
            while len(records) < _BATCH and not self._records.empty():
                records.append(self._records.get())
            lines = [self.line(record) for record in records if isinstance(record, Mapping)]
            try:
                self._stream.write("".join(f"{line}\n" for line in lines))
                self._stream.flush()
            except (OSError, ValueError):
                self._dropped()
            for record in records:
                if isinstance(record, threading.Event):
                    record.set()
            if None in records:
                return


class DirectSink:
    """Writes each record at once, for the parent of workers: it forks, so it must have no thread."""

    def __init__(self, stream: TextIO, *, as_json: bool, secrets: Iterable[str]) -> None:
        self._stream = stream
        self._as_json = as_json
        self._secrets = tuple(secrets)

    def put(self, record: Record) -> None:
        self._stream.write(format_line(record, as_json=self._as_json, secrets=self._secrets) + "\n")
        self._stream.flush()


class SinkHandler(logging.Handler):
    """Carries the records of `logging` to the sink."""

    def __init__(self, sink: LogSink | DirectSink) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"ts": _timestamp(record.created), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._sink.put(facts)


def install(sink: LogSink | DirectSink, *, level: str) -> None:
    """Sends everything that is logged in this process to the sink."""
    root = logging.getLogger()
    root.handlers = [SinkHandler(sink)]
    root.setLevel(level.upper())


def wants_json(log_format: str, stream: TextIO = sys.stderr) -> bool:
    """`auto` is text for a person at a terminal, JSON for everything else."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def format_line(record: Record, *, as_json: bool, secrets: Iterable[str]) -> str:
    """The record as one line of JSON, or of text for a person; secrets cut out."""
    facts = {name: _clean(value) for name, value in record.items() if value is not None}
    text = orjson.dumps(facts, default=str).decode() if as_json else _readable(facts)
    for secret in secrets:
        text = text.replace(secret, "***")
    return _PATTERNS.sub(lambda m: (m[1] or "") + "***", text)


def access_record(facts: Mapping[str, object]) -> Record:
    """The record of one answered request."""
    return {"ts": _timestamp(time.time()), "level": "info", "event": "request", **facts}


def _timestamp(seconds: float) -> str:
    whole, part = divmod(seconds, 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int(part * 1000):03d}Z"


def _clean(value: object) -> object:
    """Bytes as text; long texts capped, but for tracebacks."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str) and len(value) > _VALUE_LIMIT and "\n" not in value:
        return value[:_VALUE_LIMIT] + "..."
    return value


def _readable(facts: Mapping[str, object]) -> str:
    """The record for a person: control characters escaped, a traceback on lines of its own."""
    trace = facts.get("traceback")
    rest = "".join(f" {name}={_escaped(value)}" for name, value in facts.items() if name not in _LAID_OUT)
    line = f"{str(facts['ts'])[11:19]} {facts['level']:<7} {_escaped(facts['event'])}{rest}"
    return line if trace is None else f"{line}\n{trace}"


def _escaped(value: object) -> str:
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", str(value))
