"""The differences between two definitions of a tool."""

from typing import Any

from gateway.contracts.storage.store import Json
from gateway.mcp.schemas.differences import ABSENT, Difference, describe_differences


def document(description: str = "Reads.", *, title: str | None = None, **schema: Any) -> Json:
    parameters = {"type": "object", **schema}
    return {"description": description, "parameters": parameters, "title": title, "output_schema": None}


def test_every_differing_path_is_reported_with_both_values() -> None:
    """With both values; a part that one of them does not have is said to be absent; further keys do not count."""
    accepted = document(properties={"path": {"default": "/a"}, "old": {"type": "string"}})
    present = document("Reads it.", properties={"path": {"default": "/b"}, "new": {"type": "string"}})
    assert describe_differences({**accepted, "name": "x"}, present) == [
        Difference("description", '"Reads."', '"Reads it."'),
        Difference("parameters.properties.new", ABSENT, '{"type":"string"}'),
        Difference("parameters.properties.old", '{"type":"string"}', ABSENT),
        Difference("parameters.properties.path.default", '"/a"', '"/b"'),
    ]


def test_equivalent_schemas_have_no_differences() -> None:
    """Spellings of one schema, and the order of keys."""
    one = document(properties={"a": {"$ref": "#/$defs/a"}}, required=[], **{"$defs": {"a": {"type": "string"}}})
    assert describe_differences(one, dict(reversed(document(properties={"a": {"type": "string"}}).items()))) == []


def test_reported_differences_are_limited_to_50() -> None:
    """However wide and deep a server makes them."""
    deep: Json = {}
    for _ in range(30):
        deep = {"properties": {"a": deep}}
    found = describe_differences(document(**deep), document(properties={f"p{n}": {} for n in range(2000)}))
    assert len(found) == 50
