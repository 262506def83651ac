"""References within a schema: to places in it only, and in no circle."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort

from gateway.mcp.schemas.references import UNFOLDED_LIMIT, find_reference_problem

TOO_MANY = "its schema has more than 10,000 parts, those that it refers to included"
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"a": {"$ref": "#/$defs/b"}, "c": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/definitions/x~1y~0z%20"}}, "definitions": {"x/y~z ": True}},
        {"properties": {"a": {"$ref": "#/properties/b/anyOf/1"}, "b": {"anyOf": [{}, {"type": "null"}]}}},
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"b": {"$anchor": "here"}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/c"}}, "c": {}}},
    ],
)
def test_references_within_the_schema_are_accepted(schema: dict[str, Any]) -> None:
    """By pointer or by anchor, in chains, and with one place referred to from many."""
    assert find_reference_problem(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#/properties"}}},
        {"properties": {"first": {"$ref": "#/$defs/node"}}, "$defs": {"node": NODE}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$defs": {"a": {"x": {"$ref": "#/$defs/b/y"}}, "b": {"y": {"items": [{"$ref": "#/$defs/a/x"}]}}}},
        {"items": {"$anchor": "self", "items": {"$dynamicRef": "#self"}}},
        {"$defs": {"node": {"items": {"$ref": "#/%24defs/node"}}}},
    ],
)
def test_circular_reference_is_refused(schema: dict[str, Any]) -> None:
    """Direct, over several places, over one that contains the other, and however it is written."""
    assert find_reference_problem(schema) == "its schema refers to itself in a circle"


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x", "https://x#/a", "other.json", "//x/y", "", "file:///x"])
def test_external_reference_is_refused(reference: str) -> None:
    """A reference to anything but a place in the schema is named; it is not even looked at."""
    problem = find_reference_problem({"properties": {"a": {"items": [{"$ref": reference}]}}})
    assert problem == f"its schema refers to {reference!r}, and nothing outside of a schema is ever fetched"


@pytest.mark.parametrize(
    "reference", ["#/$defs/b", "#/$defs/a/7", "#/$defs/a/-1", "#/$defs/a/0x0", "#no", "#/$defs/s/x"]
)
def test_dangling_reference_is_refused(reference: str) -> None:
    """The place is not there."""
    problem = find_reference_problem({"items": {"$ref": reference}, "$defs": {"a": [{}], "s": "text"}})
    assert problem == f"its schema refers to {reference!r}, which is not in it"


def test_reference_check_takes_linear_time() -> None:
    """100,000 levels and 50,000 references to the same place are counted in a second."""
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"items": deep}
    wide = {"properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(50_000)}, "$defs": {"a": {}}}
    effort = Effort()
    assert find_reference_problem(deep) == find_reference_problem(wide) == TOO_MANY
    assert effort.cpu_s < 5


def doubling(levels: int, **beside: Any) -> dict[str, Any]:
    """A schema with 2 ** levels ways to its last part; each part has the keywords `beside`."""
    parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2, **beside} for n in range(levels)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**parts, f"d{levels}": {"type": "string"}}}


def chain(levels: int, **beside: Any) -> dict[str, Any]:
    parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}], **beside} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{levels}": {}}}


def test_unfolded_size_counts_every_reference() -> None:
    """A validator goes all these ways."""
    assert find_reference_problem(doubling(10)) is find_reference_problem(chain(1000)) is None
    assert find_reference_problem(doubling(12)) == find_reference_problem(doubling(400)) == TOO_MANY
    flat = {"properties": {f"p{n}": {"$ref": "#/$defs/a"} for n in range(UNFOLDED_LIMIT // 2 - 2)}, "$defs": {"a": {}}}
    assert find_reference_problem(flat) is None


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_unevaluated_keywords_count_their_subschemas_again(keyword: str) -> None:
    """A compiler goes over the parts beneath once for each of these keywords above them."""
    assert find_reference_problem(chain(40, **{keyword: False})) is None
    assert find_reference_problem(chain(400, **{keyword: False})) == TOO_MANY
    assert find_reference_problem({"properties": {keyword: {"type": "string"}}}) is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (
            {"$defs": {"a": {"$anchor": "x"}, "b": {"$dynamicAnchor": "x"}}},
            "its schema has two parts of the name 'x'",
        ),
        (
            {"$defs": {"a": {"$id": "https://x/y", "$ref": "#/$defs/b", "$defs": {"b": {}}}, "b": {}}},
            "its schema has references, and parts with an $id of their own",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "definitions": {"a": {"id": "y", "items": {"$ref": "#/definitions/b"}}, "b": {}},
            },
            "its schema has references, and parts with an $id of their own",
        ),
    ],
)
def test_schema_with_ambiguous_reference_targets_is_refused(schema: dict[str, Any], problem: str) -> None:
    """Else a compiler may follow another one than was checked."""
    assert find_reference_problem(schema) == problem


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "https://x/y", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}},
        {"properties": {"a": {"$id": "#/properties/a"}, "b": {"$id": "#/properties/b"}}},
        {"properties": {"$id": {"$ref": "#/$defs/b"}, "a": {"default": {"id": "x"}}}, "$defs": {"b": {}}},
        {"$defs": {"a": {"$anchor": "x", "$dynamicAnchor": "x"}}},
    ],
)
def test_ids_and_anchors_without_effect_on_references_are_accepted(schema: dict[str, Any]) -> None:
    """The name of the schema itself, names without references, and properties that are called so."""
    assert find_reference_problem(schema) is None


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["#", "#/a", "#/$ref", "#/a/0", "x", "#b"]),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["$ref", "a", "$anchor", "0", "$dynamicRef"]), inner)
    ),
)


@given(st.dictionaries(st.sampled_from(["$ref", "a", "$defs"]), JSON))
def test_reference_check_accepts_any_json(schema: dict[str, Any]) -> None:
    """Whatever stands where."""
    problem = find_reference_problem(schema)
    assert problem is None or problem.startswith(("its schema refers to ", "its schema has "))
