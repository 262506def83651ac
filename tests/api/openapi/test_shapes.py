"""The building blocks of schemas, as a validator reads them."""

import pytest
from jsonschema import Draft202012Validator

from gateway.api.openapi.shapes import (
    TEXT,
    WHOLE,
    build_array_schema,
    build_constant_schema,
    build_list_schema,
    build_nullable_schema,
    build_nullable_text_fields,
    build_page_schema,
    build_reference,
    build_text_fields,
    record,
    with_fields,
)


def _fits(schema, value) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def test_all_fields_of_a_record_are_required_and_further_ones_allowed():
    schema = record(name=TEXT, count=WHOLE)

    assert _fits(schema, {"name": "a", "count": 1, "later": True})
    assert not _fits(schema, {"name": "a"})


@pytest.mark.parametrize(("optional", "fits"), [(True, True), (False, False)])
def test_further_fields_are_required_unless_they_are_optional(optional, fits):
    schema = with_fields(record(name=TEXT), optional=optional, count=WHOLE)

    assert _fits(schema, {"name": "a"}) is fits
    assert not _fits(schema, {"name": "a", "count": "one"})


def test_schema_allows_null_only_for_optional_texts():
    schema = record(**build_text_fields("name"), **build_nullable_text_fields("owner"))

    assert _fits(schema, {"name": "a", "owner": None})
    assert not _fits(schema, {"name": None, "owner": None})


def test_list_and_constant_schemas_validate_items():
    assert _fits(build_array_schema(build_nullable_schema(build_constant_schema(1))), [1, None])
    assert not _fits(build_array_schema(build_constant_schema(1)), [2])


def test_page_schema_requires_next_cursor():
    named = {"components": {"schemas": {"Key": record(name=TEXT)}}}
    page = {"object": "list", "data": [{"name": "a"}], "next": None}

    assert build_reference("Key") == {"$ref": "#/components/schemas/Key"}
    assert _fits({**named, **build_page_schema("Key")}, page)
    assert _fits({**named, **build_list_schema("Key")}, page)
    assert not _fits({**named, **build_page_schema("Key")}, {**page, "data": [{}]})
    assert not _fits({**named, **build_page_schema("Key")}, {"object": "list", "data": []})
