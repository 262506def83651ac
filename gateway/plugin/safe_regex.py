"""Regular expressions of an operator, checked so that no untrusted text can make one slow, or hold a stream back.

Python's engine goes back and tries again. How often it can, is bounded here before the first text comes.
"""

import re
from collections.abc import Mapping, Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, Field

from gateway.plugin.stream_redactor import Pattern

#: Longest text that a pattern can match, and the ways in which the engine may try one place.
WIDTH_CHARS: Final = 256
WAYS: Final = 4096

_BROKEN: Final = "is no regular expression"
_ONE: Final = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)
_BOUNDARIES: Final = (ops.AT_BOUNDARY, ops.AT_NON_BOUNDARY)


def compile_pattern(name: str, pattern: str) -> Pattern:
    """Return the rule of a pattern. Case does not count. Raises ValueError, which names the pattern and the reason.

    Refused are patterns that match nothing or more than `WIDTH_CHARS`, look ahead, behind or back (`\\1`), or anchor
    anything but words (`\\b`). So are patterns with so many ways to match that a text could make them slow.
    """
    try:
        return _compile_pattern(name, pattern)
    except ValueError as error:
        raise ValueError(f"the pattern {name!r} {error}") from None


def _check_all(patterns: Mapping[str, str]) -> Mapping[str, str]:
    for name, pattern in patterns.items():
        compile_pattern(name, pattern)
    return patterns


#: The name of a rule, and an operator's patterns by the names of their rules, as fields of a stage's configuration.
RuleName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Patterns: TypeAlias = Annotated[Mapping[RuleName, str], AfterValidator(_check_all)]


def _compile_pattern(name: str, pattern: str) -> Pattern:
    try:
        tree = parser.parse(pattern, re.IGNORECASE)
        compiled = re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{_BROKEN}: {error}") from None
    shortest, longest = tree.getwidth()
    if not shortest:
        raise ValueError("matches the empty text: make a part of it needed")
    if longest > WIDTH_CHARS:
        raise ValueError(f"can match more than {WIDTH_CHARS} characters: write {{1,20}} in place of * and +")
    if (ways := _count_ways(tree)) > WAYS:
        raise ValueError(f"can match in {ways} ways at one place, and {WAYS} are allowed: make its repeats shorter")
    return Pattern(name, compiled, longest + 1)


def _count_ways(items: Sequence[Any]) -> int:
    """Return in how many ways a sequence can match at one place, at most; what is beyond `WAYS` counts as that."""
    ways = 1
    for op, given in items:
        ways = min(ways * _count_op_ways(op, given), WAYS + 1)
    return ways


def _count_op_ways(op: object, given: Any) -> int:
    if op in _ONE or (op is ops.AT and given in _BOUNDARIES):
        return 1
    if op is ops.BRANCH:
        return sum(map(_count_ways, given[1]))
    if op is ops.SUBPATTERN:
        return _count_ways(given[-1])
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        fewest, most, inner = given
        once = _count_ways(inner)
        if once == 1:
            return int(most) - int(fewest) + 1
        return sum(min(once**times, WAYS + 1) for times in range(int(fewest), int(most) + 1))
    raise ValueError(f"uses {str(op).lower()}: no look-around, no anchor but \\b, no reference to a group is allowed")
