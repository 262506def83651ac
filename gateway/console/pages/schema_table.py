"""The parameters of a tool as rows of a table, from its JSON Schema. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.storage.store import Json

#: So deep the fields of objects within objects have rows of their own; the schema itself stands below the table.
DEPTH: Final = 3
#: So many rows at most.
ROWS: Final = 200
#: Words of a schema that narrow a value, with the sign that a reader sees.
_LIMITS: Final = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
    ("minLength", "minLength {}"),
    ("maxLength", "maxLength {}"),
    ("minItems", "minItems {}"),
    ("maxItems", "maxItems {}"),
    ("pattern", "pattern {}"),
    ("format", "format {}"),
    ("const", "= {}"),
    ("default", "default {}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRow:
    """One parameter: its path (`filter.since`, `paths[]`), its type in words, and what narrows its value."""

    name: str
    kind: str
    required: bool
    description: str
    choices: Sequence[str] = ()
    limits: Sequence[str] = ()


def build_rows(schema: Json | None) -> Sequence[ParameterRow]:
    """Return the parameters of an object's schema, each followed by the fields within it, at most `ROWS`."""
    found: list[ParameterRow] = []
    for row in _build_rows(schema or {}, "", DEPTH):
        if len(found) == ROWS:
            break
        found.append(row)
    return found


def _build_rows(schema: Mapping[str, object], prefix: str, depth: int) -> Iterator[ParameterRow]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or depth == 0:
        return
    needed = required if isinstance(required, list) else []
    for name, given in properties.items():
        facts: Mapping[str, object] = given if isinstance(given, dict) else {}
        yield _build_row(prefix + name, facts, required=name in needed)
        yield from _build_rows(facts, f"{prefix}{name}.", depth - 1)
        if isinstance(items := facts.get("items"), dict):
            yield from _build_rows(items, f"{prefix}{name}[].", depth - 1)


def _build_row(name: str, facts: Mapping[str, object], *, required: bool) -> ParameterRow:
    options = facts.get("enum")
    description = facts.get("description") or facts.get("title") or ""
    return ParameterRow(
        name=name,
        kind=_describe_kind(facts),
        required=required,
        description=description if isinstance(description, str) else "",
        choices=[_format_json(option) for option in options] if isinstance(options, list) else (),
        limits=[sign.format(_format_json(facts[word])) for word, sign in _LIMITS if word in facts],
    )


def _describe_kind(facts: Mapping[str, object]) -> str:
    """Return the type in the words of JSON Schema: `string`, `array of integer`, `string or null`."""
    kind = facts.get("type")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind)
    for word in ("anyOf", "oneOf"):
        if isinstance(among := facts.get(word), list):
            return " or ".join(dict.fromkeys(_describe_kind(one) for one in among if isinstance(one, dict)))
    if kind == "array" and isinstance(items := facts.get("items"), dict):
        return f"array of {_describe_kind(items)}"
    if isinstance(kind, str):
        return kind
    return "any" if "$ref" not in facts else str(facts["$ref"]).rpartition("/")[2]


def _format_json(value: object) -> str:
    return orjson.dumps(value).decode()
