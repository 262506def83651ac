"""The differences between two definitions of a tool: the accepted one, and its server's current one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.storage.store import Json
from gateway.mcp.schemas.normal_form import build_normal_form

#: What stands for a part that one of them does not have.
ABSENT: Final = "(absent)"
_MISSING: Final = object()
_SCHEMAS: Final = ("parameters", "output_schema")
#: Of two definitions that have little in common.
_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class Difference:
    """One place, such as `parameters.properties.a.default`, and both values there as JSON."""

    place: str
    accepted: str
    present: str


def describe_differences(accepted: Json, present: Json) -> list[Difference]:
    """Return the differences of two documents, as `ManagedService.document` describes them; none: they mean the same.

    What is in one of them only, and no part of a definition, is passed over.
    """
    found: list[Difference] = []
    for key in accepted.keys() & present.keys():
        pair = [_normalize_value(key, one[key]) for one in (accepted, present)]
        for difference in _walk_both(key, *pair):
            found.append(difference)
            if len(found) == _MOST:
                return found
    return sorted(found, key=lambda one: one.place)


def _normalize_value(key: str, value: Any) -> Any:
    return build_normal_form(value) if key in _SCHEMAS and isinstance(value, dict) else value


def _walk_both(place: str, accepted: Any, present: Any) -> Iterator[Difference]:
    """Yield the places where two JSON values differ, with both values as text."""
    # By a stack: both are as deep as a server likes.
    stack = [(place, accepted, present)]
    while stack:
        place, *pair = stack.pop()
        if all(isinstance(one, dict) for one in pair):
            names = dict.fromkeys((*pair[0], *pair[1]))
            stack += [(f"{place}.{name}", *(one.get(name, _MISSING) for one in pair)) for name in names]
            continue
        texts = [ABSENT if one is _MISSING else write_canonical(one) for one in pair]
        if texts[0] != texts[1]:
            yield Difference(place, *texts)
