"""Trace Context as it comes in headers. What does not fit the grammar is as if it had not come.

https://www.w3.org/TR/trace-context/
"""

import re
from collections.abc import Sequence
from typing import Final

from gateway.contracts.tracing.context import TraceContext

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"
TRACE_FIELDS: Final = frozenset((TRACEPARENT, TRACESTATE))
#: A longer `tracestate` is dropped: that many characters must be passed on (section 3.3.1.5).
STATE_CHARS: Final = 512
_MOST_MEMBERS: Final = 32
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_KEY: Final = r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
_MEMBER: Final = re.compile(rf"({_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_SAMPLED: Final = 1


def parse_parent(traceparents: Sequence[str], tracestates: Sequence[str]) -> TraceContext | None:
    """Return the span that a request comes from, by the values of its fields; None: it names none, or not validly."""
    if len(traceparents) != 1 or (found := _PARENT.fullmatch(traceparents[0].strip(" \t"))) is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), parse_state(tracestates))


def parse_state(tracestates: Sequence[str]) -> str:
    """Return the members of a `tracestate` in one line, or "" if one of them is malformed or they are too many."""
    if sum(map(len, tracestates)) > STATE_CHARS:
        return ""
    members = [member for part in ",".join(tracestates).split(",") if (member := part.strip(" \t"))]
    found = [_MEMBER.fullmatch(member) for member in members]
    keys = {match[1] for match in found if match is not None}
    return ",".join(members) if len(keys) == len(members) <= _MOST_MEMBERS else ""
