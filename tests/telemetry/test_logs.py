"""A log line is one record, without secrets and control characters, and no request ever waits for its reader."""

import io
import json
import logging
import re
from pathlib import Path

import pytest

from gateway.telemetry.logs import (
    DirectSink,
    SinkHandler,
    build_access_record,
    install_sink,
    wants_json,
)

from .logging_to import BOTH, FACTS, SECRET, Log, line, logger_to

#: What a terminal, or a program that reads lines, could take for more than text.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


# Lines.


def test_log_record_is_one_line_of_json() -> None:
    """Facts in their order; what is not known is left out."""
    text = line(status=200, duration_ms=1.5, path=b"/v1/x?y", error_code=None, stream=True)
    assert "\n" not in text
    assert json.loads(text) == {**FACTS, "status": 200, "duration_ms": 1.5, "path": "/v1/x?y", "stream": True}
    assert list(json.loads(text)) == [*FACTS, "status", "duration_ms", "path", "stream"]


def test_text_log_line_shows_time_level_event_and_facts() -> None:
    """Time, level, event, facts."""
    assert line(as_json=False, status=200, path=b"/v1/x") == "03:04:05 info    request status=200 path=/v1/x"


def test_an_access_record_has_a_time_a_level_and_an_event() -> None:
    """The time in UTC with milliseconds."""
    record = build_access_record({"status": 200, "level": "info"})
    assert (record["event"], record["status"]) == ("request", 200)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", str(record["ts"]))


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "/x\r\nFAKE LOG LINE",
        "a\nb",
        "\x1b[31mred\x1b[0m\x07\x08",
        "\"quoted\" \\ 'single'",
        "".join(map(chr, range(32))) + "\x7f",
        "\x80\x85\x9b31m\x9f",
        "a\u2028b\u2029c",
        "%0a%s{}",
    ],
)
def test_log_line_contains_no_control_characters(as_json: bool, text: str) -> None:
    """K14: line ends, ANSI (also its 8-bit form), separators: one record stays one line of printable text."""
    for facts in ({"path": text}, {"path": text.encode("latin-1", "replace")}, {"event": text}):
        written = line(as_json=as_json, **facts)
        assert CONTROL.search(written) is None
        assert not as_json or len(json.loads(written)) >= 3
    if as_json:
        assert json.loads(line(path=text))["path"] == text


@BOTH
def test_long_values_are_capped(as_json: bool) -> None:
    """K14: a path of 1 MB is not worth a log line of 1 MB, and a line end in it does not change that."""
    for value in ("a" * 1_000_000, b"b" * 1_000_000, "c\n" * 500_000):
        assert len(line(as_json=as_json, path=value)) < 1500
        assert len(line(as_json=as_json, event=value)) < 1500


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\x00",
        Path("/x"),
        ValueError("x"),
        {"a": [1, b"b"]},
        {1: 2},
        1 << 70,
        float("nan"),
        "\ud800",
        object(),
        {1, 2},
    ],
)
def test_any_value_produces_a_log_line(value: object) -> None:
    """Whatever is logged: bytes, errors, huge numbers, half a surrogate pair (of an undecodable file name)."""
    assert json.loads(line(value=value))["event"] == "request"
    assert line(as_json=False, value=value).encode()


# Secrets.


@BOTH
def test_known_secrets_are_redacted_anywhere_in_a_log_line(as_json: bool) -> None:
    """K13: in any fact, in bytes, inside other text, in an exception; not a piece of one is left."""
    for value in (SECRET, f"x{SECRET}y", SECRET.encode(), ValueError(f"bad {SECRET}"), [SECRET, {"a": SECRET}]):
        for facts in ({"path": value}, {"event": value}, {"traceback": f"Traceback\n  {value}\nE: {value}"}):
            written = line(as_json=as_json, **facts)
            assert SECRET not in written and "***" in written


@BOTH
@pytest.mark.parametrize("secret", ['quo"te-s3cret', "back\\slash-s3cret", "größe-大-s3cret", "a'b c=s3cret"])
def test_a_secret_is_found_in_its_escaped_form_too(as_json: bool, secret: str) -> None:
    """JSON and our own escapes change its spelling, not its meaning."""
    written = line(as_json=as_json, secrets=(secret,), path=f"/x?{secret}", traceback=f"T\n{secret}")
    assert "s3cret" not in written


@BOTH
def test_longer_of_two_overlapping_secrets_is_redacted_whole(as_json: bool) -> None:
    """One may begin like the other."""
    written = line(as_json=as_json, secrets=("gw-abcd", "gw-abcd-efgh-s3cret"), path="/x?gw-abcd-efgh-s3cret")
    assert "s3cret" not in written


@BOTH
@pytest.mark.parametrize("before", range(480, 502, 3))
def test_capping_a_text_leaves_no_piece_of_a_secret(as_json: bool, before: int) -> None:
    """It is cut out before the text is cut off."""
    for text in (
        "a" * before + SECRET,
        "a" * (before - 7) + "Bearer tok3n-abcdef",
        "a" * (before - 4) + " sk-abcdefgh",
    ):
        written = line(as_json=as_json, path=text + "z" * 100)
        assert not re.search(r"prov|tok3|sk-a", written)


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        *(
            "Authorization: Bearer tok3n.abc~def+/=-_",
            "authorization: bearer   tok3n",
            "BEARER\ttok3n-x",
            "Bearer\n tok3n",
        ),
        *("sk-tok3n-abc_def", "key=sk-proj-tok3nxyz,", '"sk-tok3nabc"', "x sk-ant-api03-tok3n", "SK-TOK3Nabcdef"),
    ],
)
def test_credential_patterns_are_redacted_from_log_lines(as_json: bool, text: str) -> None:
    """By pattern, for secrets that nobody told us: bearer tokens and keys that begin with `sk-`."""
    written = line(as_json=as_json, path=text, event=f"failed: {text}", traceback=f"T\n{text}")
    assert "tok3n" not in written.lower() and "***" in written


def test_words_resembling_credentials_are_not_redacted() -> None:
    """A bearer of news, a task-list, a short sk-x."""
    for text in ("bearer of news", "/v1/task-list-entries", "disk-usage-report", "sk-x"):
        assert json.loads(line(path=text))["path"] == text


# The handler of `logging`.


def test_library_log_records_become_json_records(log: Log) -> None:
    """Time, level and message."""
    logger = logger_to(log.sink)
    record = logger.makeRecord("x", logging.WARNING, "f", 1, "slow: %s %d", ("a", 2), None)
    record.created = 1_000_000_000.25
    logger.handle(record)
    assert log.records() == [{"ts": "2001-09-09T01:46:40.250Z", "level": "warning", "event": "slow: a 2"}]


def test_traceback_is_logged_within_a_single_redacted_line(log: Log) -> None:
    """All of it, in one fact, its secrets cut out."""
    logger = logger_to(log.sink)
    try:
        raise ValueError(f"no good:\nFAKE LOG LINE {SECRET} Bearer tok3n-abcdef \x1b[31m")
    except ValueError:
        logger.exception("it failed")
    (text,) = log.lines()
    record = json.loads(text)
    assert (record["level"], record["event"]) == ("error", "it failed")
    assert record["traceback"].startswith("Traceback (most recent call last):\n")
    assert "test_logs.py" in record["traceback"] and "FAKE LOG LINE" in record["traceback"]
    assert SECRET not in text and "tok3n" not in text and "\x1b" not in text


def test_a_long_traceback_is_kept_whole() -> None:
    """It is the one text that may be long."""
    trace = "Traceback (most recent call last):\n" + "  at line\n" * 1000
    assert json.loads(line(traceback=trace))["traceback"] == trace


def test_text_traceback_cannot_forge_a_log_record() -> None:
    """Its lines are indented, and its control characters escaped (K14)."""
    first, *rest = line(as_json=False, traceback="Traceback:\n  at x\nE: a\r\n03:04:05 info    FAKE\x1b[31m\x9b").split(
        "\n"
    )
    assert first == "03:04:05 info    request" and rest
    for text in rest:
        assert CONTROL.search(text) is None and text.startswith((" ", "Traceback")), text


def test_bad_format_string_in_a_log_call_does_not_raise(log: Log) -> None:
    """As with the handlers of the standard library: a bad format string must not fail a request."""
    logger = logger_to(log.sink)
    logger.info("%d apples", "no")
    logger.info("still here")
    assert log.records()[-1]["event"] == "still here"


def test_exc_info_without_an_exception_logs_no_traceback(log: Log) -> None:
    """`exc_info=True` outside an exception says nothing."""
    logger_to(log.sink).error("x", exc_info=True)
    assert "traceback" not in log.records()[0]


def test_install_sends_everything_to_the_sink(log: Log) -> None:
    """Every logger of this process, from the level on."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        install_sink(log.sink, level="info")
        logging.getLogger("some.library").info("hello")
        logging.getLogger("some.library").debug("not this")
        assert len(root.handlers) == 1
    finally:
        root.handlers, root.level = handlers, level
    assert [record["event"] for record in log.records()] == ["hello"]


@pytest.mark.parametrize(
    ("log_format", "terminal", "as_json"),
    [("json", True, True), ("text", False, False), ("auto", True, False), ("auto", False, True)],
)
def test_auto_is_text_at_a_terminal_and_json_elsewhere(log_format: str, terminal: bool, as_json: bool) -> None:
    """Unless the configuration says which."""

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    assert wants_json(log_format, Stream()) is as_json


def test_a_log_call_may_bring_fields() -> None:
    """Those of `extra={"facts": ...}` stand beside the event, and secrets are cut out of them, too."""
    stream = io.StringIO()
    handler = SinkHandler(DirectSink(stream, as_json=True, secrets=["hunter2"]))
    record = logging.LogRecord("gateway", logging.WARNING, "here.py", 1, "it failed", (), None)
    record.facts = {"upstream": "up", "cause": "hunter2 is wrong", "more": None}
    handler.emit(record)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["upstream"], line["cause"]) == ("it failed", "up", "*** is wrong")
    assert "more" not in line
