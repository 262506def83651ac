"""Forms from a schema: the values come back to the character, or the form is refused."""

from collections.abc import Mapping
from html import escape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.rendering import TemplateRenderer
from gateway.console.schema_form import FormError, FormField, build_fields, parse_values
from gateway.console.translation import get_translator
from tests.console.html import buttons_of, form_of, read_html

PAGE = """{% from "parts.html" import schema_fields with context %}
<form>{{ schema_fields(fields) }}<button>Go</button></form>"""
RENDERING = TemplateRenderer()
TEXTS = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from("\n\r\t <>&\"'\\\u202e\u200b%"), max_size=200
)
INTEGERS = st.integers(-(2**53), 2**53)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)
TYPES = st.sampled_from(("string", "integer", "number", "boolean", "object", "array", None))


def browsed(fields: list[FormField] | Any, **changes: str) -> dict[str, str]:
    """The form as a browser sends it after a person has changed these fields."""
    template = RENDERING._environment.from_string(PAGE)
    root = read_html(template.render(t=get_translator("en"), language="en", fields=fields))
    (button,) = buttons_of(root)
    form = form_of(root, button, page="/")
    names = {one.name: one.control_name for one in fields}
    filled = {**dict(form.fields), **{names[name]: text for name, text in changes.items()}}
    assert set(filled) <= set(form.controls)
    normal = {name.replace("\r\n", "\n").replace("\n", "\r\n"): value for name, value in filled.items()}
    return {name: value.replace("\r\n", "\n").replace("\n", "\r\n") for name, value in normal.items()}


def object_of(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@given(st.dictionaries(TEXTS, st.tuples(TYPES, VALUES), max_size=4))
def test_unchanged_form_values_are_returned_exactly(facts: dict[str, tuple[str | None, Any]]) -> None:
    """Whatever their names and characters are, and whether they fit their type or not."""
    schema = object_of({name: {} if kind is None else {"type": kind} for name, (kind, _) in facts.items()})
    values = {name: value for name, (_, value) in facts.items()}
    for known in (schema, None, {}):
        fields = build_fields(known, values)
        found = parse_values(fields, browsed(fields))
        assert found == values and repr(found) == repr({name: values[name] for name in found})


@pytest.mark.parametrize("value", [0, 1, 0.0, -0.0, 1.0, 1e300, True, False, None, "1", [1], [True], {"a": 1.0}])
@pytest.mark.parametrize("facts", [{"type": "integer"}, {"enum": [0, 1]}, {"enum": [0.0, 1.0]}, {"enum": [True, {}]}])
def test_form_keeps_the_type_of_values_that_compare_equal(value: Any, facts: dict[str, Any]) -> None:
    """Python takes 1, 1.0 and true for equal; so do lists of them."""
    fields = build_fields(object_of({"x": facts}), {"x": value})
    assert repr(parse_values(fields, browsed(fields))) == repr({"x": value})


@given(st.lists(VALUES, min_size=1, max_size=5), st.data())
def test_enum_choice_is_returned_with_its_original_type(options: list[Any], data: st.DataObject) -> None:
    """True is not 1, and the text "1" is neither."""
    value = data.draw(st.sampled_from(options))
    fields = build_fields(object_of({"mode": {"enum": options}}), {"mode": value})
    assert repr(parse_values(fields, browsed(fields))) == repr({"mode": value})


@pytest.mark.parametrize(
    ("schema", "values", "control", "changed", "expected"),
    [
        ({"type": "string"}, {"x": "a"}, "line", "b", {"x": "b"}),
        ({"type": "string"}, {"x": "a\nb"}, "text", "a\nc", {"x": "a\nc"}),
        ({"type": "string"}, {"x": "a" * 81}, "text", "", {"x": ""}),
        ({"type": "string"}, {"x": "a\u200b"}, "json", '"b"', {"x": "b"}),
        ({"type": "string"}, {"x": "a\rb"}, "json", '"a\\rc"', {"x": "a\rc"}),
        ({"type": "string"}, {}, "line", "", {}),
        ({"type": "integer"}, {"x": 1}, "number", "2", {"x": 2}),
        ({"type": "number"}, {"x": 1.5}, "number", "", {}),
        ({"type": "boolean"}, {"x": True}, "choice", "false", {"x": False}),
        ({"type": "boolean"}, {"x": True}, "choice", "", {}),
        ({"type": "boolean"}, {"x": 1}, "json", "true", {"x": True}),
        ({"enum": ["a", 1, None]}, {"x": "a"}, "choice", "null", {"x": None}),
        ({"enum": ["1", 1]}, {"x": 1}, "json", '"1"', {"x": "1"}),
        ({"enum": ["a", "a\u202eb"]}, {"x": "a"}, "json", '"a"', {"x": "a"}),
        ({"type": "array"}, {"x": [1]}, "json", "[2]", {"x": [2]}),
        ({"type": ["string", "null"]}, {"x": None}, "json", '"a"', {"x": "a"}),
        (True, {"x": 1}, "json", "2", {"x": 2}),
    ],
)
def test_schema_form_field_has_the_control_of_its_type(
    schema: Any, values: dict[str, Any], control: str, changed: str, expected: dict[str, Any]
) -> None:
    fields = build_fields(object_of({"x": schema}), values)
    assert [one.control for one in fields] == [control]
    assert parse_values(fields, browsed(fields, x=changed)) == expected


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"type": "integer"}, 1, "1.5"),
        ({"type": "integer"}, 1, "true"),
        ({"type": "integer"}, 1, "one"),
        ({"type": "number"}, 1, '"1"'),
        ({"type": "number"}, 1, "NaN"),
        ({"type": "object"}, {}, "{"),
        ({"type": "object"}, {}, '{"a": 1, "a": 2}'),
        ({"enum": ["a", "b"]}, "a", "c"),
    ],
)
def test_text_invalid_for_its_field_is_refused(schema: dict[str, Any], value: Any, text: str) -> None:
    fields = build_fields(object_of({"x": schema}), {"x": value})
    with pytest.raises(FormError) as refused:
        parse_values(fields, {fields[0].control_name: text})
    assert refused.value.name == "x"


def test_form_that_lacks_a_filled_field_is_refused() -> None:
    """Else the edited call would run without an argument, and nobody had taken it away."""
    fields = build_fields(object_of({"x": {"type": "string"}, "y": {"type": "string"}}), {"x": "a"})
    with pytest.raises(FormError, match="load its page again"):
        parse_values(fields, {"field.y": "b"})
    assert parse_values(fields, {"field.x": "a"}) == {"x": "a"}


def test_new_form_prefills_schema_defaults() -> None:
    schema = object_of({"times": {"type": "integer", "default": 3}, "text": {"type": "string"}}, "text")
    begun = build_fields(schema, {}, defaults=True)
    assert [(one.text, one.required) for one in begun] == [("3", False), ("", True)]
    assert parse_values(begun, browsed(begun)) == {"times": 3, "text": ""}
    assert [one.text for one in build_fields(schema, {})] == ["", ""]


def test_hostile_field_names_and_descriptions_are_escaped() -> None:
    hostile = "</textarea><script>alert(1)</script>\u202e"
    schema = object_of({hostile: {"type": "string", "description": hostile, "enum": [hostile, "b"]}, "y": {}})
    fields = build_fields(schema, {hostile: hostile, "y": hostile})
    html = RENDERING._environment.from_string(PAGE).render(t=get_translator("en"), language="en", fields=fields)
    assert "<script" not in html and "\u202e" not in read_html(html).text
    assert escape("<script>") in html
    assert parse_values(fields, browsed(fields)) == {hostile: hostile, "y": hostile}
