"""Trace context as clients send it: what fits the grammar is taken, everything else is as if it had not come."""

import pytest
from collector import SENDER, TRACE, TRACEPARENT

from gateway.contracts.tracing.headers import STATE_CHARS, parse_parent, parse_state


def test_valid_traceparent_is_parsed() -> None:
    found = parse_parent([TRACEPARENT], ["rojo=00f067aa0ba902b7", " congo=t61rcWkgMzE ,"])
    assert found is not None
    assert (found.trace_id, found.span_id, found.sampled) == (TRACE, SENDER, True)
    assert found.state == "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    assert found.traceparent == TRACEPARENT
    assert found.fields == {"traceparent": TRACEPARENT, "tracestate": found.state}


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)])
def test_traceparent_sampled_flag_is_parsed(flags: str, sampled: bool) -> None:
    found = parse_parent([f"00-{TRACE}-{SENDER}-{flags}"], [])
    assert found is not None and found.sampled is sampled
    assert found.traceparent.endswith("-01" if sampled else "-00")


def test_later_traceparent_version_with_more_fields_is_accepted() -> None:
    assert parse_parent([f"cc-{TRACE}-{SENDER}-01-what-comes"], []) == parse_parent([TRACEPARENT], [])


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        f"ff-{TRACE}-{SENDER}-01",
        f"00-{TRACE}-{SENDER}-01-",
        f"00-{TRACE}-{SENDER}-01-more",
        f"cc-{TRACE}-{SENDER}-01.more",
        f"00-{TRACE.upper()}-{SENDER}-01",
        f"00-{'0' * 32}-{SENDER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SENDER}-01",
        f"00-{TRACE}-{SENDER}-1",
        f"00-{TRACE}-{SENDER}-01\n",
        f"00_{TRACE}_{SENDER}_01",
        f"00-{TRACE[:-1]}é-{SENDER}-01",
        f"00-{TRACE[:-1]}٣-{SENDER}-01",
        "0" * 100_000,
    ],
)
def test_invalid_traceparent_is_ignored(value: str) -> None:
    assert parse_parent([value], []) is None


def test_duplicate_traceparent_headers_are_ignored() -> None:
    assert parse_parent([TRACEPARENT, TRACEPARENT], []) is None
    assert parse_parent([], ["a=b"]) is None


@pytest.mark.parametrize(
    "state",
    [
        "a",
        "A=b",
        "a=b,a=c",
        "a=b=c",
        "a=",
        "a=b\x00",
        "a=é",
        "9a=b",
        "a@9=b",
        ",".join(f"a{i}=b" for i in range(33)),
        f"a={'b' * 256}c",
        f"a={'b' * 250},b={'c' * 250},c={'d' * 20}",
    ],
)
def test_malformed_tracestate_is_dropped_and_traceparent_kept(state: str) -> None:
    found = parse_parent([TRACEPARENT], [state])
    assert found is not None and found.state == ""


def test_tracestate_up_to_the_size_limit_is_passed_on() -> None:
    state = f"a={'b' * 250},t@v={'c' * 250},d=e"
    assert len(state) <= STATE_CHARS and parse_state([state]) == state
