"""Tools as text: the exact form, and that no schema and no text breaks it."""

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.plugins.stages.prompt_enhancer.tool_prompt import (
    INSTRUCTIONS,
    count_utf8_bytes,
    escape,
    estimate_tokens,
    group_by_category,
    shorten,
    write_tool_element,
)

RISK = (
    '    <parameter name="risk_level" type="string" required="false">One of: low, medium, high. '
    "low: runs automatically; medium, high: a person must confirm. "
    "Unsure: set high or ask the user in text</parameter>\n"
)


def spec(properties: Json | None = None, *, description: str = "Does it.", **more: object) -> ToolSpec:
    schema = {"type": "object", "properties": properties or {}, **more}
    return ToolSpec(name="t", description=description, parameters=schema)


def parameters(tool: ToolSpec, *, short: bool = False) -> dict[str, tuple[str, str, str]]:
    """Name: (type, required, text), as an XML parser sees them."""
    tree = ElementTree.fromstring(write_tool_element(tool, short=short))
    return {
        p.attrib["name"]: (p.attrib["type"], p.attrib["required"], p.text or "")
        for p in tree.findall("./parameters/parameter")
    }


def test_convert_tool_definition_to_prompt_text() -> None:
    """Exactly the form of the requirement, and the risk level behind it."""
    tool = ToolSpec(
        name="read_file",
        description="Read contents of a file from the filesystem",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Path to the file to read"},
                "encoding": {"type": "string", "description": "File encoding", "default": "utf-8"},
            },
            "required": ["path"],
        },
    )
    assert write_tool_element(tool) == (
        "<tool>\n"
        "  <name>read_file</name>\n"
        "  <description>Read contents of a file from the filesystem</description>\n"
        "  <parameters>\n"
        '    <parameter name="path" type="string" required="true">Path to the file to read</parameter>\n'
        '    <parameter name="encoding" type="string" required="false">File encoding (default: utf-8)</parameter>\n'
        f"{RISK}"
        "  </parameters>\n"
        "</tool>"
    )


def test_tool_definition_format_in_prompt() -> None:
    """A `<tool>` wrapper with name, description and one tag for each parameter, and nothing else."""
    tree = ElementTree.fromstring(write_tool_element(spec({"a": {"type": "integer"}, "b": {}})))
    assert tree.tag == "tool"
    assert [child.tag for child in tree] == ["name", "description", "parameters"]
    assert [child.tag for child in tree[2]] == ["parameter"] * 3


def test_tool_definition_includes_calling_convention() -> None:
    """Each tool has name, description and parameters; the instructions have format and flag."""
    tool = spec({"a": {"type": "integer", "description": "How many"}}, required=["a"])
    assert parameters(tool)["a"] == ("integer", "true", "How many")
    assert '"tool": "tool_name"' in INSTRUCTIONS and '"parameters": {' in INSTRUCTIONS and '"terminate"' in INSTRUCTIONS


def test_include_tool_calling_instructions() -> None:
    """The JSON format, what `terminate` does either way, and an example that is one call."""
    assert "output ONLY a JSON object in this exact format" in INSTRUCTIONS
    assert 'Set "terminate" to false if' in INSTRUCTIONS and 'Set "terminate" to true if' in INSTRUCTIONS
    form = json.loads(INSTRUCTIONS[INSTRUCTIONS.index("{\n") : INSTRUCTIONS.index("\n}") + 2])
    example = json.loads(INSTRUCTIONS.splitlines()[-1])
    for call in (form, example):
        assert {name: type(value) for name, value in call.items()} == {
            "tool": str,
            "parameters": dict,
            "terminate": bool,
        }


def test_tool_definitions_include_risk_level_parameter() -> None:
    """Every tool: optional, its three values, what they mean, and what to do when unsure; also in the instructions."""
    for tool in (spec(), spec({"a": {}})):
        kind, required, text = parameters(tool)["risk_level"]
        assert (kind, required) == ("string", "false")
        assert "One of: low, medium, high" in text
        assert "low: runs automatically; medium, high: a person must confirm" in text
        assert "set high or ask the user" in text
    assert parameters(spec(), short=True)["risk_level"] == ("string", "false", "One of: low, medium, high")
    assert '"low" runs automatically' in INSTRUCTIONS and "unsure" in INSTRUCTIONS


def test_tool_parameter_named_risk_level_replaces_the_generated_parameter() -> None:
    """Then it is described as the tool says, and once."""
    own = {"risk_level": {"type": "integer", "description": "Of the investment"}}
    assert parameters(spec(own)) == {"risk_level": ("integer", "false", "Of the investment")}


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        ({"type": "string"}, "string", ""),
        ({"type": ["string", "null"]}, "string|null", ""),
        ({"type": "array", "items": {"type": "string"}}, "array of string", ""),
        ({"type": "array"}, "array", ""),
        ({"enum": ["a", "b"]}, "string", "One of: a, b"),
        ({"type": "integer", "enum": [1, 2], "description": "Which."}, "integer", "Which. One of: 1, 2"),
        ({"const": "x"}, "string", "One of: x"),
        ({"enum": [1, None]}, "any", "One of: 1, null"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "string|integer", ""),
        ({"anyOf": [{"type": "string"}, {}]}, "any", ""),
        ({"type": "boolean", "default": False, "description": "Deep"}, "boolean", "Deep (default: false)"),
        ({"type": "string", "default": "x", "description": "Default is x"}, "string", "Default is x"),
        ({"type": "string", "default": "x"}, "string", "(default: x)"),
        ({"$ref": "#/$defs/P"}, "object", "A point. Fields: x (number, required), y (number)"),
        ({"$ref": "#/$defs/P", "description": "Where"}, "object", "Where. Fields: x (number, required), y (number)"),
        (
            {"type": "array", "items": {"$ref": "#/$defs/P"}},
            "array of object",
            "Fields: x (number, required), y (number)",
        ),
        ({"$ref": "#/$defs/Loop"}, "any", ""),
        ({"$ref": "http://elsewhere/x"}, "any", ""),
        (True, "any", ""),
        (None, "any", ""),
        ({"type": 5, "description": 5, "enum": "x", "properties": 3, "items": 4}, "any", ""),
    ],
)
def test_tool_prompt_describes_type_values_and_default_of_parameters(schema: object, kind: str, text: str) -> None:
    """Type, description, values, fields, default; what is not understood is `any`."""
    point = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]}
    definitions = {"P": {**point, "description": "A point."}, "Loop": {"$ref": "#/$defs/Loop"}}
    assert parameters(spec({"p": schema}, **{"$defs": definitions}))["p"] == (kind, "false", text)


def test_tool_element_escapes_markup_in_definitions() -> None:
    """Nothing in a definition can end its element."""
    nasty = '</tool><tool a="b">&amp;\x00\x1b\ud800'
    tool = ToolSpec(
        name=nasty,
        description=nasty,
        parameters={"properties": {nasty: {"type": nasty, "description": nasty, "enum": [nasty]}}},
    )
    tree = ElementTree.fromstring(write_tool_element(tool))
    clean = '</tool><tool a="b">&amp;' + "\ufffd" * 3
    assert (tree[0].text, tree[1].text) == (clean, clean)
    assert tree[2][0].attrib["name"] == clean
    assert tree[2][0].text == f"{clean}. One of: {clean}"
    assert escape('<&">') == "&lt;&amp;&quot;&gt;"


def test_tool_element_collapses_whitespace_in_descriptions() -> None:
    """White space costs tokens and says nothing."""
    assert "<description>Reads a file.</description>" in write_tool_element(spec(description="  Reads\n\n   a\tfile. "))


def test_short_tool_element_keeps_all_parameters() -> None:
    """Descriptions are abbreviated; names, types, values and what is required stay."""
    tool = spec(
        {"p": {"type": "string", "description": "word " * 30, "enum": ["a", "b"]}},
        description="First sentence. " + "Second. " * 50,
        required=["p"],
    )
    assert len(write_tool_element(tool, short=True)) < len(write_tool_element(tool)) / 2
    kind, required, text = parameters(tool, short=True)["p"]
    assert (kind, required) == ("string", "true")
    assert text.endswith("One of: a, b") and len(text) < 60


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("as it is", 8, "as it is"),
        ("One. Two is longer.", 10, "One."),
        ("One. Two. Three.", 10, "One. Two."),
        ("no sentence ends here", 14, "no..."),
        ("v1.2 is the version", 12, "v1.2 is..."),
        ("x" * 20, 10, "xxxxxxx..."),
        ("第一句。第二句很长很长。", 6, "第一句。"),
    ],
)
def test_shortening_keeps_sentences_or_words(text: str, limit: int, short: str) -> None:
    """In this order, never more than the limit."""
    assert shorten(text, limit) == short
    assert len(short) <= limit


def test_categories_stand_in_the_order_of_their_first_tool() -> None:
    """Each once, with all of its tools."""
    assert group_by_category([("b", "1"), ("a<", "2"), ("b", "3")]) == (
        '<tools category="b">\n1\n3\n</tools>\n<tools category="a&lt;">\n2\n</tools>'
    )
    assert group_by_category([]) == ""


def test_tokens_are_a_quarter_of_the_bytes() -> None:
    """Rounded up."""
    assert [estimate_tokens(count_utf8_bytes(text)) for text in ("", "a", "abcd", "abcde", "字字")] == [0, 1, 1, 2, 2]
    assert count_utf8_bytes("\ud800") == 3


def test_tool_element_cuts_off_long_enums_and_deep_schemas() -> None:
    """A list without end costs more than it says; a deep schema is read to a limit."""
    many = {"enum": [f"v{i}" for i in range(1000)], "properties": {f"f{i}": {} for i in range(1000)}}
    deep: Json = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": {"anyOf": [deep] * 3}}
    found = parameters(spec({"many": many, "deep": deep}))
    assert found["many"][2].count("v") == 40 and " and more" in found["many"][2] and "f20" not in found["many"][2]
    assert found["deep"][0].startswith("array")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "enum", "anyOf", "$ref", "default", "required", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "required", "$defs"]), json_values, max_size=4))
def test_any_schema_yields_a_well_formed_tool_element(schema: Json) -> None:
    """Whatever a tool says of itself, a parser can read the element, whole and short."""
    tool = ToolSpec(name="t", description="d", parameters=schema)
    for short in (False, True):
        ElementTree.fromstring(write_tool_element(tool, short=short))
