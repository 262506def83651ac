"""The building blocks of the JSON Schemas that describe the gateway's own pages."""

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
WHOLE: Final[Schema] = {"type": "integer"}
TRUTH: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
REFERENCE: Final = "#/components/schemas/"


def build_reference(name: str) -> Schema:
    """Return the reference to a schema of `schemas`."""
    return {"$ref": REFERENCE + name}


def build_list_schema(name: str) -> Schema:
    """Return the schema of a list answer whose entries have the schema `name`."""
    return record(object=build_constant_schema("list"), data=build_array_schema(build_reference(name)))


def build_page_schema(name: str) -> Schema:
    """Return the schema of one page of a list. `next` is the `after` of the following page, or null."""
    return record(
        object=build_constant_schema("list"),
        data=build_array_schema(build_reference(name)),
        next=build_nullable_schema(TEXT),
    )


def record(**fields: Schema) -> Schema:
    """Return the schema of an object with these fields. It allows others: later versions may add some."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def with_fields(schema: Schema, *, optional: bool = False, **fields: Schema) -> Schema:
    """Return the schema of an object with further fields, which are required unless `optional`."""
    required = schema["required"] if optional else [*schema["required"], *fields]
    return {**schema, "properties": {**schema["properties"], **fields}, "required": required}


def build_text_fields(*names: str) -> dict[str, Schema]:
    """Return fields that are texts."""
    return dict.fromkeys(names, TEXT)


def build_nullable_text_fields(*names: str) -> dict[str, Schema]:
    """Return fields that are texts or null."""
    return dict.fromkeys(names, build_nullable_schema(TEXT))


def build_array_schema(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def build_nullable_schema(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def build_constant_schema(value: object) -> Schema:
    """Return the schema of this one value."""
    return {"const": value}
