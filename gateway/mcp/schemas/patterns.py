"""The patterns in an untrusted JSON Schema, and the time that compiling them takes.

A pattern matches in linear time, but compiling one may take a second: a class such as `\\w` is repeated, a count is
written out, upper and lower case are compared for each character of a class. No compiler has a limit of time. So the
time is estimated from the text, which finds what costs much before the size is limited, and from the smallest limit of
size under which the pattern compiles. `tests/mcp/schemas/test_patterns.py` compares the estimate with the time.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import jsonschema_rs

from gateway.aio.cooperative import Work
from gateway.mcp.server_text import format_one_line
from gateway.tools.schema_check import compiles

PATTERN_CHARS: Final = 1000
#: Of the patterns of one schema, and of all schemas of one server, in microseconds of a slow processor.
SCHEMA_US: Final = 50_000
SERVER_US: Final = 1_000_000

#: Limits of the compiled size in bytes, and what compiling up to there takes in microseconds.
_SIZES: Final = ((8 << 10, 1000), (64 << 10, 3000), (256 << 10, 7000), (1 << 20, 20_000))
_LARGEST_BYTES: Final = _SIZES[-1][0]
#: A class by a letter. The compiler writes each one out by itself, and then reads the whole pattern again.
_CLASS: Final = re.compile(r"\\[dDwWsSpP]")
_CLASS_CHARS: Final = 64
#: Where classes may have thousands of members, which are compared one by one.
_WIDE: Final = re.compile(r"\(\?[A-Za-z-]*i|\\[uUxp]|[^\x00-\x7f]")
_WIDE_US: Final = 3000
#: Flags within a pattern: neither JSON Schema nor JavaScript has them.
_FLAGS: Final = re.compile(r"\(\?[A-Za-z-]+[:)]")


class PatternsError(Exception):
    """The problem of the patterns in a schema."""


class Room:
    """The time that is left for the patterns of one server."""

    def __init__(self) -> None:
        self._left_us = SERVER_US

    def take(self, schema: Any) -> Work[None]:
        """Reserve the time to compile the patterns of a schema. Raises PatternsError if it is too long."""
        left_us = SCHEMA_US
        for pattern in dict.fromkeys(find_patterns(schema)):
            if len(pattern) > PATTERN_CHARS:
                raise PatternsError(f"its schema has a pattern of more than {PATTERN_CHARS:,} characters")
            for cost_us in _compile_costs_us(pattern):
                left_us -= cost_us
                if left_us < 0:
                    raise PatternsError("its schema has patterns that take too long to compile")
                self._left_us -= cost_us
                if self._left_us < 0:
                    raise PatternsError("its schema has patterns, and those of all tools take too long to compile")
                yield


def compile_validator(schema: Any) -> jsonschema_rs.Validator:
    """Compile a schema that `Room` had room for. Nothing is fetched. Raises ValueError."""
    options = jsonschema_rs.RegexOptions(size_limit=_LARGEST_BYTES)
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=options)


def find_patterns(schema: Any) -> Iterator[str]:
    """Yield the patterns of a schema, which must be flat enough to recurse."""
    if isinstance(schema, dict):
        yield from (schema["pattern"],) if isinstance(schema.get("pattern"), str) else ()
        yield from schema["patternProperties"] if isinstance(schema.get("patternProperties"), dict) else ()
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            yield from find_patterns(inner)


def are_known(patterns: Sequence[str]) -> Work[bool]:
    """Return whether the protocol's own clients, which check in Python or JavaScript, can use these patterns."""
    for pattern in patterns:
        if _FLAGS.search(pattern) is not None:
            return False
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError):
            return False
        yield
    return True


def _compile_costs_us(pattern: str) -> Iterator[int]:
    """Yield the estimated microseconds to compile a pattern, in parts. Raises PatternsError."""
    classes = len(_CLASS.findall(pattern))
    cost_us = 10 * len(pattern) + classes * (len(pattern) + _CLASS_CHARS * classes) // 10
    if _WIDE.search(pattern) is not None:
        cost_us += _WIDE_US * (classes + pattern.count("["))
    yield cost_us
    spent_us = 0
    for size_bytes, until_us in _SIZES:
        yield until_us - spent_us
        spent_us = until_us
        if compiles(pattern, size_bytes=size_bytes):
            return
    raise PatternsError(f"its schema is broken: the pattern {format_one_line(pattern)!r} is none, or is too large")
