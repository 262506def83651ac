"""The form of a JSON Schema that all of its spellings share: what two versions of a library write for one meaning.

Libraries write the schema of a tool anew at each start. Some point from one property to an equal one (`$ref`), some
write it out; some list a set in another order each time. The form leaves out only what has no meaning for a model and
changes no accepted arguments. All other words of the schema stay, so that a definition with another meaning has another
form.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.storage.store import Json
from gateway.mcp.schemas.references import UNFOLDED_LIMIT, find_anchors, find_reference_problem, resolve_reference

#: Deeper than any schema with its references written out that a person made.
_DEPTH: Final = 100
_DIALECT: Final = re.compile(r"https?://json-schema\.org/draft[/0-9a-z-]+/schema#?")
#: Keywords by what they contain: one schema, a list of some, schemas by name.
_ONE: Final = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_LISTS: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_DEFINITIONS: Final = ("$defs", "definitions")
#: Lists that are sets: their order means nothing.
_SETS: Final = frozenset(("allOf", "anyOf", "enum", "oneOf", "required", "type"))
#: What may stand beside a reference without a further condition.
_NOTES: Final = frozenset(
    ("$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly")
)
#: The bounds of whole numbers in JavaScript, which some libraries write.
_SAFE: Final = {"maximum": 2**53 - 1, "minimum": -(2**53 - 1)}


class _TooLargeError(Exception):
    """The reason why a schema stays as it is."""


def build_normal_form(schema: Json) -> Json:
    """Return the normal form of a schema; one whose references lead nowhere or in a circle stays as it is.

    The order of keys is not normal: compare canonical texts.
    """
    if find_reference_problem(schema) is not None:
        return schema
    try:
        return _Writer(schema).write()
    except _TooLargeError:
        return schema


class _Writer:
    """The writer of one schema. `_used` are the places that references led to, by identity."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._anchors = find_anchors(schema)
        self._used: set[int] = set()
        self._room = 2 * UNFOLDED_LIMIT  # definitions to which no reference leads have no other bound

    def write(self) -> Json:
        """Return the normal form of the whole schema. Raises _TooLargeError."""
        found = {"type": "object", **self._write_part(self._schema, _DEPTH)}
        for key in _DEFINITIONS:
            kept = self._write_unused(key)
            found.pop(key, None)
            if kept:  # no condition, but words that a model reads
                found[key] = kept
        return found

    def _write_unused(self, key: str) -> Json:
        """Return the normal form of definitions that no reference leads to."""
        known = self._schema.get(key)
        if not isinstance(known, dict):
            return {}
        return {name: self._write_part(part, _DEPTH) for name, part in known.items() if id(part) not in self._used}

    def _write_part(self, part: Any, room: int) -> Any:
        """Return the normal form of a part, `room` levels deep at most. Raises _TooLargeError."""
        if not isinstance(part, dict):
            return part
        self._room -= 1
        if not room or not self._room:
            raise _TooLargeError
        found = {
            key: self._write_value(key, value, room - 1)
            for key, value in part.items()
            if not _is_meaningless(part, key)
        }
        if part.get("uniqueItems") is True and isinstance(found.get("default"), list):
            found["default"] = _sort_values(found["default"])
        reference = part.get("$ref")
        return found if not isinstance(reference, str) else self._inline_reference(found, reference, room)

    def _inline_reference(self, found: Json, reference: str, room: int) -> Json:
        """Return a part with the target of its reference written in its place."""
        target = resolve_reference(self._schema, reference, self._anchors)
        self._used.add(id(target))
        whole = self._write_part(target, room - 1)
        beside = {key: value for key, value in found.items() if key != "$ref"}
        if isinstance(whole, dict) and _NOTES.issuperset(beside):
            return {**whole, **beside}
        return {**beside, "$ref": whole}

    def _write_value(self, key: str, value: Any, room: int) -> Any:
        """Return the normal form of a keyword's value."""
        if key in _NAMED and isinstance(value, dict):
            return {name: self._write_part(part, room) for name, part in value.items()}
        if key in _LISTS and isinstance(value, list):
            parts = [self._write_part(part, room) for part in value]
            return _sort_values(parts) if key in _SETS else parts
        if key in _ONE:
            return self._write_part(value, room)
        if key == "type" and isinstance(value, list) and len(value) == 1:
            return value[0]
        return _sort_values(value) if key in _SETS and isinstance(value, list) else value


def _is_meaningless(part: Json, key: str) -> bool:
    """Return whether a keyword has no meaning for a model or a call."""
    value = part[key]
    if key == "$schema":
        return isinstance(value, str) and _DIALECT.fullmatch(value) is not None
    if key in _SAFE:
        return part.get("type") == "integer" and value == _SAFE[key]
    # A tool may take an argument that it does not declare, whatever its schema states about such ones.
    return (key == "additionalProperties" and isinstance(value, bool)) or (key == "required" and value == [])


def _sort_values(values: Sequence[Any]) -> list[Any]:
    return sorted(values, key=write_canonical)
