"""The building blocks of schemas, as a validator reads them."""

import pytest
from jsonschema import Draft202012Validator

from gateway.description.shapes import (
    TEXT,
    WHOLE,
    extended,
    listing,
    many,
    maybe,
    only,
    paged,
    record,
    ref,
    some,
    texts,
)


def _fits(schema, value) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def test_all_fields_of_a_record_are_required_and_further_ones_allowed():
    schema = record(name=TEXT, count=WHOLE)

    assert _fits(schema, {"name": "a", "count": 1, "later": True})
    assert not _fits(schema, {"name": "a"})


@pytest.mark.parametrize(("optional", "fits"), [(True, True), (False, False)])
def test_further_fields_are_required_unless_they_are_optional(optional, fits):
    schema = extended(record(name=TEXT), optional=optional, count=WHOLE)

    assert _fits(schema, {"name": "a"}) is fits
    assert not _fits(schema, {"name": "a", "count": "one"})


def test_texts_may_be_null_only_where_that_is_said():
    schema = record(**texts("name"), **some("owner"))

    assert _fits(schema, {"name": "a", "owner": None})
    assert not _fits(schema, {"name": None, "owner": None})


def test_lists_and_single_values():
    assert _fits(many(maybe(only(1))), [1, None])
    assert not _fits(many(only(1)), [2])


def test_a_page_says_where_the_next_one_begins():
    named = {"components": {"schemas": {"Key": record(name=TEXT)}}}
    page = {"object": "list", "data": [{"name": "a"}], "next": None}

    assert ref("Key") == {"$ref": "#/components/schemas/Key"}
    assert _fits({**named, **paged("Key")}, page)
    assert _fits({**named, **listing("Key")}, page)
    assert not _fits({**named, **paged("Key")}, {**page, "data": [{}]})
    assert not _fits({**named, **paged("Key")}, {"object": "list", "data": []})
