"""The check of a value by a JSON Schema, which may be untrusted, in bounded time and memory.

The validator checks a value in one step: it holds the interpreter meanwhile, and builds all errors before it returns
the first one. So the work is estimated before. A value is not checked if that may take longer than `WORK_US`. Where
there may be many errors, only the first one is looked for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from gateway.contracts.canonical_json import write_canonical
from gateway.jsontext.value_count import count_values

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

#: What one check may take, in microseconds of a slow processor.
WORK_US: Final = 1_000_000
#: Errors that may be built for one value, and the characters of their texts, each of which may hold the whole value.
ERRORS, ERRORS_CHARS = 10_000, 8 << 20
#: Larger schemas, and schemas that refer to themselves, are an operator's own: of them, references are not followed.
PARTS: Final = 50_000
#: One part of a schema and one value; a text of one character and a format.
_PART_US, _FORMAT_US = 0.1, 0.1
#: A pattern and one character, by the size in bytes under which the pattern compiles; and a larger pattern.
_PATTERN_US: Final = ((8 << 10, 2.0), (64 << 10, 4.0), (256 << 10, 12.0))
_LARGEST_US: Final = 50.0
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")


class SchemaCheck:
    """A compiled schema, and what checking a value by it takes at most."""

    def __init__(self, schema: Any, validator: "Validator") -> None:
        self._validator = validator
        self._parts, self._patterns, self._formats = _count_parts(schema)

    def list_problems(self, value: Any, *, most: int) -> list[str]:
        """Return the first problems of a value, `most` at most, each with its place. []: the value fits."""
        chars, values = len(write_canonical(value)), count_values(value, most=int(WORK_US / _PART_US))
        errors = self._parts * values
        if errors * _PART_US + chars * self._estimate_us_per_char(chars) > WORK_US:
            return [f"it is too large to be checked: it has {values} values, and the schema {self._parts} parts"]
        few = errors <= ERRORS and self._parts * chars <= ERRORS_CHARS
        return [
            _format_error(error) for _, error in zip(range(most), self._iterate_errors(value, few=few), strict=False)
        ]

    def _iterate_errors(self, value: Any, *, few: bool) -> "Iterator[ValidationError]":
        """Yield the errors of a value: all if they are few, else the first one only."""
        from jsonschema_rs import ValidationError

        if few:
            yield from self._validator.iter_errors(value)
            return
        try:
            self._validator.validate(value)
        except ValidationError as error:
            yield error

    def _estimate_us_per_char(self, chars: int) -> float:
        formats_us = self._formats * _FORMAT_US
        if chars * (self._patterns.total() * _LARGEST_US + formats_us) <= WORK_US:
            return 0.0  # without a look at the patterns, which takes longer than most checks do
        return self._patterns_us + formats_us

    @cached_property
    def _patterns_us(self) -> float:
        return sum(count * _estimate_pattern_us(pattern) for pattern, count in self._patterns.items())


def compiles(pattern: str, *, size_bytes: int) -> bool:
    """Return whether a pattern compiles to so many bytes at most."""
    from jsonschema_rs import RegexOptions, validator_for

    try:
        validator_for({"pattern": pattern}, offline=True, pattern_options=RegexOptions(size_limit=size_bytes))
    except ValueError:
        return False
    return True


def resolve_fragment(schema: Mapping[str, Any], fragment: str, anchors: Mapping[str, Any]) -> Any:
    """Return the place in a schema that a fragment names (RFC 6901), or an anchor; None: there is none."""
    fragment = unquote(fragment)
    if fragment and not fragment.startswith("/"):
        return anchors.get(fragment)
    node: Any = schema
    for step in fragment.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9:
            node = node[int(key)] if int(key) < len(node) else None
        else:
            return None
    return node


def _count_parts(schema: Any) -> tuple[int, Counter[str], int]:
    """Return the number of parts of a schema, its patterns, and its formats: each as often as references lead there."""
    anchors = {
        node[key]: node
        for node in _iterate_nodes(schema, {}, follows=False)
        if isinstance(node, dict)
        for key in _ANCHORS
        if isinstance(node.get(key), str)
    }
    for follows in (True, False):
        parts, patterns, formats = 0, Counter[str](), 0
        for node in _iterate_nodes(schema, anchors, follows=follows):
            parts += 1
            if follows and parts > PARTS:
                break
            if isinstance(node, dict):
                patterns.update(_list_patterns(node))
                formats += isinstance(node.get("format"), str)
        else:
            break
    return parts, patterns, formats


def _iterate_nodes(schema: Any, anchors: Mapping[str, Any], *, follows: bool) -> Iterator[Any]:
    """Yield the objects and lists of a schema. `follows`: also the ones that its references lead to, without end."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += (one for one in (node.values() if isinstance(node, dict) else node) if isinstance(one, dict | list))
        if follows and isinstance(node, dict):
            named = (node[key] for key in _REFERENCES if isinstance(node.get(key), str))
            found = (resolve_fragment(schema, name[1:], anchors) for name in named if name.startswith("#"))
            waiting += (one for one in found if isinstance(one, dict | list))


def _list_patterns(node: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(pattern := node.get("pattern"), str):
        yield pattern
    if isinstance(by_pattern := node.get("patternProperties"), dict):
        yield from by_pattern


@lru_cache(maxsize=1024)
def _estimate_pattern_us(pattern: str) -> float:
    found = (us for size_bytes, us in _PATTERN_US if compiles(pattern, size_bytes=size_bytes))
    return next(found, _LARGEST_US)


def _format_error(error: "ValidationError") -> str:
    place = ".".join(map(str, error.instance_path))
    return f"{place}: {error.message}" if place else error.message
