"""A sink whose lines a test reads."""

import io
import json
import logging
from typing import TextIO

import pytest

from gateway.telemetry.logs import (
    DirectSink,
    LogSink,
    SinkHandler,
    format_line,
)

SECRET = "prov-5e0c1f7a9b3d48e2"
FACTS = {"ts": "2024-01-02T03:04:05.678Z", "level": "info", "event": "request"}
BOTH = pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])


def line(as_json: bool = True, secrets: tuple[str, ...] = (SECRET,), **facts: object) -> str:
    return format_line({**FACTS, **facts}, as_json=as_json, secrets=secrets)


class Log:
    """A sink on a stream of its own, its lines, and what it dropped."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = True) -> None:
        self.stream = stream or io.StringIO()
        self.dropped = 0
        self.sink = LogSink(self.stream, as_json=as_json, secrets=(SECRET,), dropped=self._drop)

    def _drop(self) -> None:
        self.dropped += 1

    def lines(self) -> list[str]:
        """Everything that was put, as the lines that were written."""
        self.sink.close()
        assert isinstance(self.stream, io.StringIO)
        return self.stream.getvalue().splitlines()

    def records(self) -> list[dict[str, object]]:
        return [json.loads(text) for text in self.lines()]


def logger_to(sink: LogSink | DirectSink) -> logging.Logger:
    logger = logging.Logger("test")  # noqa: LOG001  (one that nobody else can find)
    logger.addHandler(SinkHandler(sink))
    return logger
