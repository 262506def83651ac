"""The parameters of a tool as rows, from schemas as tools and strangers write them."""

from gateway.console.pages.schema_table import ROWS, ParameterRow, build_rows


def test_schema_table_row_has_type_and_limits() -> None:
    (row,) = build_rows(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How many."}
            },
            "required": ["n"],
        }
    )
    limits = ["≥ 1", "≤ 9", "default 3"]
    assert row == ParameterRow(name="n", kind="integer", required=True, description="How many.", limits=limits)


def test_enum_choices_are_shown_as_json() -> None:
    (row,) = build_rows({"properties": {"mode": {"enum": ["a", 1, None]}}})
    assert (row.kind, row.choices) == ("any", ['"a"', "1", "null"])


def test_nested_fields_have_their_own_rows() -> None:
    inner = {"type": "object", "properties": {"since": {"type": "string"}}, "required": ["since"]}
    rows = build_rows({"properties": {"filter": inner, "all": {"type": "array", "items": inner}}})
    assert [(row.name, row.kind, row.required) for row in rows] == [
        ("filter", "object", False),
        ("filter.since", "string", True),
        ("all", "array of object", False),
        ("all[].since", "string", True),
    ]


def test_union_types_are_shown_as_words() -> None:
    rows = build_rows(
        {
            "properties": {
                "a": {"type": ["string", "null"]},
                "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "c": {"$ref": "#/$defs/Thing"},
                "d": True,
            }
        }
    )
    assert [row.kind for row in rows] == ["string or null", "integer or null", "Thing", "any"]


def test_schema_without_properties_has_no_rows() -> None:
    assert build_rows(None) == build_rows({}) == build_rows({"properties": []}) == []


def test_rows_are_bounded_in_number_and_depth() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(30):
        deep = {"type": "object", "properties": {"x": deep}}
    assert [row.name for row in build_rows({"properties": {"x": deep}})] == ["x", "x.x", "x.x.x"]
    assert len(build_rows({"properties": {f"p{i}": {} for i in range(1000)}})) == ROWS
