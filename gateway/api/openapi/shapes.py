"""The building blocks of the JSON Schemas that describe the gateway's own pages."""

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
WHOLE: Final[Schema] = {"type": "integer"}
TRUTH: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
REFERENCE: Final = "#/components/schemas/"


def ref(name: str) -> Schema:
    """Return the reference to a schema of `schemas`."""
    return {"$ref": REFERENCE + name}


def build_list_schema(name: str) -> Schema:
    """Return the schema of a list answer whose entries have the schema `name`."""
    return record(object=only("list"), data=many(ref(name)))


def build_page_schema(name: str) -> Schema:
    """Return the schema of one page of a list. `next` is the `after` of the following page, or null."""
    return record(object=only("list"), data=many(ref(name)), next=maybe(TEXT))


def record(**fields: Schema) -> Schema:
    """Return the schema of an object with these fields. It allows others: later versions may add some."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def with_fields(schema: Schema, *, optional: bool = False, **fields: Schema) -> Schema:
    """Return the schema of an object with further fields, which are required unless `optional`."""
    required = schema["required"] if optional else [*schema["required"], *fields]
    return {**schema, "properties": {**schema["properties"], **fields}, "required": required}


def texts(*names: str) -> dict[str, Schema]:
    """Return fields that are texts."""
    return dict.fromkeys(names, TEXT)


def some(*names: str) -> dict[str, Schema]:
    """Return fields that are texts or null."""
    return dict.fromkeys(names, maybe(TEXT))


def many(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def maybe(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def only(value: object) -> Schema:
    """Return the schema of this one value."""
    return {"const": value}
