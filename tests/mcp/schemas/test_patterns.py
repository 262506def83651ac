"""The patterns of a stranger's schemas: the usual ones have room, and none takes longer than is estimated."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measuring import Effort

from gateway.aio.cooperative import run_at_once
from gateway.mcp.schemas.patterns import (
    PATTERN_CHARS,
    SCHEMA_US,
    PatternsError,
    Room,
    are_known,
    compile_validator,
    find_patterns,
)

#: Dates and times as zod writes them.
DATE_TIME = (
    r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])"
    r"-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))T(?:(?:[01]\d|2[0-3])"
    r":[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$"
)
USUAL = [
    r"^[\w.-]{1,128}$",
    r"^[a-zA-Z0-9_-]{1,255}$",
    r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
    r"^\d{4}-\d{2}-\d{2}$",
    DATE_TIME,
    r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$",
    r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
    r"^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,63}$",
    r"^arn:aws[\w-]*:[\w-]+:[\w-]*:\d{12}:[\w+=,.@/-]{1,512}$",
    r"^https?://",
    r"^\+?[1-9]\d{1,14}$",
    r"^#[0-9a-f]{6}$",
    r"\S",
]
LARGE = [r"^.{1,500}$", r"^\S{1,255}$", r"^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$", r"^[\u4e00-\u9fa5]{2,20}$", "(?i)^(yes|no)$"]


def of(*patterns: str) -> dict[str, Any]:
    return {"properties": {f"p{n}": {"pattern": pattern} for n, pattern in enumerate(patterns)}}


def problem(schema: Any) -> str | None:
    try:
        run_at_once(Room().take(schema))
    except PatternsError as error:
        return str(error)
    return None


def test_usual_patterns_fit_into_the_limit() -> None:
    """All of these together, each as often as it likes; and for each of some large ones."""
    assert problem(of(*USUAL, *USUAL)) is None
    assert [problem(of(one)) for one in LARGE] == [None] * len(LARGE)
    assert problem(of(*(f"^x{n}$" for n in range(40)))) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (of("a" * (PATTERN_CHARS + 1)), "its schema has a pattern of more than 1,000 characters"),
        (of(r"\p{L}{1,200}"), r"its schema is broken: the pattern '\\p{L}{1,200}' is none, or is too large"),
        (of("(a"), "its schema is broken: the pattern '(a' is none, or is too large"),
        (of(r"\w" * 200), "its schema has patterns that take too long to compile"),
        (of(r"(?i)" + r"\p{L}" * 30), "its schema has patterns that take too long to compile"),
        (of(r"(?i)" + "[\u0100-\uffff]" * 30), "its schema has patterns that take too long to compile"),
        (
            {"patternProperties": {f"^x{n}$": {} for n in range(60)}},
            "its schema has patterns that take too long to compile",
        ),
        (
            {"$defs": {"a": of(*(f"^\\S{{1,250}}{n}" for n in range(9)))}},
            "its schema has patterns that take too long to compile",
        ),
    ],
)
def test_excessive_patterns_are_refused(schema: Any, reason: str) -> None:
    """Wherever they stand in the schema."""
    effort = Effort()
    assert problem(schema) == reason
    assert effort.cpu_s < 1


def test_refused_patterns_count_towards_the_total_limit() -> None:
    """Else a server could have the gateway compile the same patterns for each of 500 tools."""
    room, refused = Room(), of(*(f"^\\S{{1,250}}{n}" for n in range(9)))
    reasons = []
    for _ in range(500):
        with pytest.raises(PatternsError) as error:
            run_at_once(room.take(refused))
        reasons.append(str(error.value))
    assert "those of all tools" in reasons[-1] and "those of all tools" not in reasons[0]
    run_at_once(room.take(of()))


def test_patterns_are_found_at_every_place_in_the_schema() -> None:
    """Also in parts that nothing refers to; a property of the name `pattern` is none."""
    schema = {
        "properties": {"pattern": {"type": "string", "pattern": "a"}},
        "patternProperties": {"b": {"items": [{"pattern": "c"}]}},
        "$defs": {"d": {"not": {"pattern": "d"}}},
    }
    assert sorted(find_patterns(schema)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("pattern", "known"),
    [("^a+$", True), (r"\p{L}", False), ("(?i)a", False), ("(?<=a)b", True), ("(?s:.)", False), ("(?:a)", True)],
)
def test_patterns_known_to_clients_are_recognised(pattern: str, known: bool) -> None:
    """In Python and in JavaScript."""
    assert run_at_once(are_known([pattern])) is known


CLASSES = (
    r"\s",
    r"\S",
    r"\w",
    r"\d",
    r"\p{L}",
    r"\PL",
    ".",
    "[^a]",
    "[a-z]",
    r"[\s\S]",
    "[Ā-\uffff]",
    "é",
    r"\x{1F600}",
)
GROUPS = ("(a|b)", "x?", "(?:ab)*", r"\b", "a{1,20}", "(?i:k)", r"(?i:\p{L})", "|foo", r"(?:[a-z]{1,9}|\w)")
PARTS = st.sampled_from((*CLASSES, *GROUPS))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["", "(?i)", "^"]),
    st.lists(PARTS, min_size=1, max_size=4),
    st.sampled_from([1, 5, 20, 100, 300]),
    st.sampled_from(["", "{1,5}", "{1,100}"]),
)
def test_pattern_compile_time_stays_within_the_estimate(flags: str, parts: list[str], times: int, count: str) -> None:
    """Whatever has room compiles in that time, give or take a slow machine; and nothing takes long to refuse."""
    pattern = f"{flags}({''.join(parts * times)[: PATTERN_CHARS - 20]}){count}"
    effort = Effort()
    fits = problem(of(pattern)) is None
    assert effort.cpu_s < 10 * SCHEMA_US / 1e6
    if fits:
        effort = Effort()
        compile_validator(of(pattern))
        run_at_once(are_known([pattern]))
        re.purge()
        assert effort.cpu_s < 10 * SCHEMA_US / 1e6
