"""The types of single values: reading, printing, the JSON schema for editors and the name on the reference page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

JsonObject = dict[str, Any]

# Wherever an editor would expect another type than text, a reference to a variable is right as well.
REFERENCE = r"\$\{"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """The annotation of a value type: `parse` turns the raw value into the final one, or raises ValueError.

    It replaces pydantic's BeforeValidator and its kin, which inspect every function at every use.
    """

    kind: str
    parse: Callable[[object], object]
    write: Callable[[Any], object] | None = None
    json_type: str = "string"
    pattern: str = REFERENCE
    limits: tuple[int, int] | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse, serialization=_build_serializer(self.write))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonObject:
        text: JsonObject = {"type": "string"}
        if self.json_type == "string":
            return text
        value: JsonObject = {"type": self.json_type}
        if self.limits:
            value |= {"minimum": self.limits[0], "maximum": self.limits[1]}
        return {"anyOf": [value, {**text, "pattern": self.pattern}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLeaf:
    """The annotation of a path type: `parse` also gets the folder in which a relative path begins."""

    kind: str
    parse: Callable[[object, Path], object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def parse(value: object, info: ValidationInfo) -> object:
            return self.parse(value, info.context["folder"] if info.context else Path())

        return core_schema.with_info_plain_validator_function(parse, serialization=_build_serializer(str))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonObject:
        return {"type": "string"}


def _build_serializer(write: Callable[[Any], object] | None) -> core_schema.PlainSerializerFunctionSerSchema | None:
    return write and core_schema.plain_serializer_function_ser_schema(write, when_used="json")


def limit_range(
    low: int, high: int, parse: Callable[[object], int], write: Callable[[int], str] = str
) -> Callable[[object], int]:
    """Return `parse` for numbers from `low` to `high` only. `write` shows the limits."""

    def parse_within(value: object) -> int:
        number = parse(value)
        if not low <= number <= high:
            raise ValueError(f"must be between {write(low)} and {write(high)}")
        return number

    return parse_within


def describe_kind(value: object) -> str:
    """Return the kind of a value in the words of a configuration file, without its content."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a section"
        case _:
            return "something else"
