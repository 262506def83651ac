"""The sink of log lines: readers that stop, streams that fail, and what is counted."""

import io
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

import pytest

from gateway.contracts.tracing.context import CURRENT, TraceContext
from gateway.telemetry.logs import (
    BACKLOG_LIMIT,
    DirectSink,
)

from .logging_to import BOTH, FACTS, SECRET, Log, logger_to


def test_flush_waits_until_all_is_written(log: Log) -> None:
    """For those who look at the lines of a running gateway."""
    for number in range(1000):
        log.sink.put({**FACTS, "n": number})
    log.sink.flush(10)
    assert isinstance(log.stream, io.StringIO)
    assert [json.loads(text)["n"] for text in log.stream.getvalue().splitlines()] == list(range(1000))


def test_threads_may_log_at_once(log: Log) -> None:
    """Lines are never mixed."""
    threads = [threading.Thread(target=lambda: [log.sink.put(FACTS) for _ in range(200)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.records() == [FACTS] * 1000 and log.dropped == 0


def test_unwritable_log_record_does_not_stop_the_log(log: Log) -> None:
    """The next one is written, whatever that one was."""

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    for value in (Odd(), "\ud800", 1 << 80, {1: Odd()}):
        log.sink.put({**FACTS, "value": value})
    log.sink.put({**FACTS, "event": "after"})
    assert log.records()[-1]["event"] == "after"


def test_stalled_log_reader_drops_and_counts_lines_without_blocking() -> None:
    """L15: a pipe that nobody reads. What is not dropped is written, whole, once somebody reads."""
    read_end, write_end = os.pipe()
    written = 0
    with os.fdopen(read_end, "r", encoding="utf-8") as reader, os.fdopen(write_end, "w", encoding="utf-8") as stream:
        log = Log(stream)
        for number in range(2 * BACKLOG_LIMIT + 5000):
            log.sink.put({**FACTS, "path": "x" * 400, "n": number})
            written += 1
        assert log.dropped > BACKLOG_LIMIT / 2
        log.sink.flush(0.01)
        log.sink.close(0.01)
        numbers = [json.loads(reader.readline())["n"] for _ in range(written - log.dropped)]
        log.sink.close(10)
        stream.close()
        assert reader.read() == ""
    assert numbers == sorted(set(numbers)) and len(numbers) + log.dropped == written


@pytest.fixture
def broken_pipe() -> Iterator[TextIO]:
    """A stream whose reader is gone."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "w", encoding="utf-8")
    yield stream
    with suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize("closed", [True, False])
def test_failing_log_stream_counts_each_dropped_line(broken_pipe: TextIO, closed: bool) -> None:
    """Each lost line is counted."""
    if closed:
        broken_pipe.close()
    log = Log(broken_pipe)
    for _ in range(500):
        log.sink.put(FACTS)
    log.sink.flush(10)
    log.sink.close(10)
    assert log.dropped == 500


def test_closing_a_log_sink_twice_is_harmless(log: Log) -> None:
    """And what is put afterwards disturbs nobody."""
    log.sink.close()
    log.sink.close(0.01)
    log.sink.put(FACTS)
    assert log.lines() == []


@BOTH
def test_parent_process_sink_writes_log_lines_synchronously(as_json: bool) -> None:
    """It forks, so it has no thread; its lines are the same, without secrets."""
    stream = io.StringIO()
    sink = DirectSink(stream, as_json=as_json, secrets=(SECRET,))
    logger_to(sink).warning("worker %s left", SECRET)
    assert stream.getvalue().count("\n") == 1 and "worker *** left" in stream.getvalue()


def test_parent_process_survives_a_broken_log_pipe(broken_pipe: TextIO) -> None:
    """A log that cannot be written must not end the workers."""
    logger_to(DirectSink(broken_pipe, as_json=True, secrets=())).warning("x")


def test_log_line_carries_its_trace_id(log: Log) -> None:
    """Where there is one."""
    logger = logger_to(log.sink)
    token = CURRENT.set(TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True))
    logger.warning("within")
    CURRENT.reset(token)
    logger.warning("without")
    assert [record.get("trace_id") for record in log.records()] == ["4bf92f3577b34da6a3ce929d0e0e4736", None]
