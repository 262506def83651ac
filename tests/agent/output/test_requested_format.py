"""Texts that have the format of an answer already."""

import pytest

from gateway.agent.output.requested_format import has_format
from gateway.contracts.storage.store import Json

OBJECT: Json = {"type": "json_object"}
SUM: Json = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def schema(value: object) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "sum", "schema": value}}


@pytest.mark.parametrize(
    ("text", "wanted", "has"),
    [
        ('{"a": 1}', OBJECT, True),
        (' {"a": 1}\n', OBJECT, True),
        ("[1]", OBJECT, False),
        ('```json\n{"a": 1}\n```', OBJECT, False),
        ("It is 3.", OBJECT, False),
        ('{"sum": 3}', schema(SUM), True),
        ('{"sum": "3"}', schema(SUM), False),
        ("3", schema({"type": "integer"}), True),
        ('{"sum": 3}', schema({"type": "no type"}), False),
        ('{"sum": 3}', schema(None), False),
        ('{"sum": 3}', {"type": "json_schema", "json_schema": "x"}, False),
        ('{"sum": 3}', {"type": "grammar"}, False),
    ],
)
def test_text_is_matched_against_the_requested_format(text: str, wanted: Json, *, has: bool) -> None:
    """Whatever a client describes it by; a format that is not known, or is broken, is left to the model."""
    assert has_format(text, wanted) is has
