"""A server's definitions of its tools, checked and cleaned."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort

from gateway.aio.cooperative import run_at_once
from gateway.mcp.definitions import (
    SCHEMA_BYTES,
    SCHEMA_DEPTH,
    SCHEMAS_BYTES,
    TOOLS_LIMIT,
    Definition,
    Definitions,
    build_client_fields,
    build_document,
    find_output_problem,
    hash_definition,
    read_definitions,
)
from gateway.mcp.server_text import DESCRIPTION_CHARS, LINE_CHARS, remove_invisible

OBJECT = {"type": "object"}


def listed(tools: Sequence[Any]) -> Definitions:
    return run_at_once(read_definitions(tools))


def tool(**said: Any) -> dict[str, Any]:
    return {"name": "odd", "description": "Does it.", "inputSchema": OBJECT, **said}


def read(**said: Any) -> Definition:
    found = listed([tool(**said)])
    assert found.left_out == ()
    return found.tools[said.get("name", "odd")]


def refused(**said: Any) -> str:
    """Why the only tool was left out."""
    found = listed([tool(**said)])
    assert not found.tools
    return found.left_out[0].partition(" is left out: ")[2]


def test_valid_tool_definition_is_read_with_all_its_fields() -> None:
    """Its name, description, one line of it, schema and hash."""
    schema = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
    found = read(name="files.read_1", description="Reads a file. And more.", inputSchema=schema)
    assert (found.name, found.description, found.line) == ("files.read_1", "Reads a file. And more.", "Reads a file.")
    assert found.parameters == schema
    assert found.sha256 == hash_definition(tool(name="files.read_1", description=found.description, inputSchema=schema))


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("Adds.", "Adds."),
        ("Adds two\n  numbers, e.g. 1 and 2. Then stops.", "Adds two numbers, e.g. 1 and 2."),
        ("Version 1.5 of it! Really", "Version 1.5 of it!"),
        ("No end\n\nArgs:\n  a: b", "No end"),
        ("把两个数相加。然后结束。", "把两个数相加。"),
        ("word " * 100, ("word " * 100)[: LINE_CHARS - 1].rstrip() + "…"),
        ("", ""),
    ],
)
def test_summary_line_is_the_first_sentence(description: str, line: str) -> None:
    """Of the first paragraph, without line ends, and never long."""
    assert read(description=description).line == line


def test_title_replaces_a_missing_description() -> None:
    """And a definition without either is fine, too."""
    assert read(description=None, title="Odd one").line == "Odd one"
    assert read(description=5, title=[]).line == ""


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u202e", "\U000e0041", "\u2066", "\x1b", "\x00", "\ufeff", "\u00ad", "\u3164"]
)
def test_invisible_characters_are_removed_from_descriptions(hidden: str) -> None:
    """Of descriptions, also of those of parameters; ends of lines stay."""
    schema = {"type": "object", "properties": {"a": {"description": f"b{hidden}c", "enum": ["x"]}}}
    found = read(description=f"Sa{hidden}ys\nit.", inputSchema=schema)
    assert found.description == "Says\nit."
    assert found.parameters["properties"]["a"] == {"description": "bc", "enum": ["x"]}


def test_overlong_description_is_truncated() -> None:
    """M12: to 16,384 characters, and one line to 200."""
    found = read(description="word " * 200_000)
    assert len(found.description) <= DESCRIPTION_CHARS + 1
    assert len(found.line) <= LINE_CHARS
    assert found.description.endswith("…")


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a" * 129, 'a"b', "a\u200bb", "\u3164", None, 5, "a{b}", "<a>"])
def test_invalid_tool_name_is_refused(name: object) -> None:
    """It stands in prompts: nothing in it could be anything but a name."""
    assert refused(name=name) == "its name is not 1 to 128 letters, digits and characters of ._-/:"


@pytest.mark.parametrize("name", ["a" * 128, "get-weather", "ns/do.it:now", "查询"])
def test_usual_tool_names_are_accepted(name: str) -> None:
    """Are kept as they are."""
    assert read(name=name).name == name


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "its schema is no JSON object"),
        ("anything", "its schema is no JSON object"),
        ([], "its schema is no JSON object"),
        ({"type": "string"}, "its schema is not of the type object"),
        ({"type": ["object", "null"]}, "its schema is not of the type object"),
        ({"type": "object", "maximum": 1 << 70}, "its schema holds a number or a text that is no JSON"),
        ({"type": "object", "title": "\ud800"}, "its schema holds a number or a text that is no JSON"),
        ({"$ref": "#"}, "its schema refers to itself in a circle"),
        ({"properties": {"a": {"$ref": "#/b"}}}, "its schema refers to '#/b', which is not in it"),
    ],
)
def test_unsupported_schema_is_refused_with_the_reason(schema: object, reason: str) -> None:
    """The tool is left out, with the reason."""
    assert refused(inputSchema=schema) == reason


@pytest.mark.parametrize("broken", [{"properties": 7}, {"type": "object", "$schema": "http://x/y"}, {"pattern": "(a"}])
def test_a_broken_schema_is_left_out(broken: dict[str, Any]) -> None:
    """A schema that no validator accepts would refuse every call."""
    assert refused(inputSchema=broken).startswith("its schema is broken: ")


def test_a_remote_reference_is_not_fetched() -> None:
    """M12: the tool is left out; nobody connects."""
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    assert refused(inputSchema=schema).startswith("its schema refers to 'http://127.0.0.1:9/schema.json', and nothing")


def test_schema_depth_and_size_are_bounded() -> None:
    """32 levels, 64 KiB, and all schemas together 1 MiB."""
    deep: dict[str, Any] = {}
    for _ in range(15):
        deep = {"items": deep, "type": "array"}
    assert read(inputSchema={"properties": {"a": deep}})
    for _ in range(32):
        deep = {"items": deep}
    assert refused(inputSchema={"properties": {"a": deep}}) == "its schema is nested more than 32 levels deep"
    large = {"type": "object", "title": "x" * (SCHEMA_BYTES - 40)}
    assert read(inputSchema=large)
    assert "which is more than 65,536" in refused(inputSchema={**large, "title": "x" * SCHEMA_BYTES})
    found = listed([tool(name=f"t{n}", inputSchema=large) for n in range(20)])
    assert len(found.tools) == SCHEMAS_BYTES // SCHEMA_BYTES
    assert found.left_out[0].endswith("the schemas of all tools have more than 1,048,576 bytes together")


def test_schema_without_a_type_becomes_an_object() -> None:
    """Many servers leave it out; the model gets it."""
    assert read(inputSchema={"properties": {}}).parameters == {"properties": {}, "type": "object"}


def test_tool_list_is_truncated_at_five_hundred() -> None:
    """M12: the first ones, and one sentence on the rest."""
    found = listed([tool(name=f"t{n}") for n in range(10_000)])
    assert list(found.tools) == [f"t{n}" for n in range(TOOLS_LIMIT)]
    assert found.left_out == ("the list has 10,000 tools: all after the first 500 are left out",)


def test_duplicate_tool_name_is_left_out() -> None:
    """The first one keeps its name, and the others are kept."""
    found = listed([tool(), tool(description="Another."), tool(name="other"), 5, {"name": "a\u200b\n"}])
    assert {name: kept.description for name, kept in found.tools.items()} == {"odd": "Does it.", "other": "Does it."}
    assert found.left_out == (
        "the tool 'odd' is left out: it is listed twice",
        "the tool number 4 is left out: its definition is no JSON object",
        "the tool 'a\\n' is left out: its name is not 1 to 128 letters, digits and characters of ._-/:",
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"title": "T"},
        {"description": "Does it.\u200b"},
        {"inputSchema": {"type": "object", "title": "x"}},
        {"outputSchema": {"type": "object"}},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_definition_hash_changes_with_each_field_of_the_definition(changed: dict[str, Any]) -> None:
    """M14: also by what is hidden in a description."""
    assert hash_definition(tool(**changed)) != hash_definition(tool())


def test_definition_hash_ignores_key_order_nulls_and_foreign_fields() -> None:
    """Neither the order of keys, nor null for nothing, nor what is not of the definition."""
    assert hash_definition(dict(reversed(tool().items()))) == hash_definition(tool())
    assert hash_definition(tool(title=None, _meta={"a": 1}, icons=[])) == hash_definition(tool())


def test_description_is_truncated_before_invisible_characters_are_removed() -> None:
    """A description is cut before it is cleaned: what is shown is at most the cap, and never what was behind it."""
    assert read(description="\u200b" * DESCRIPTION_CHARS + "seen").description == "…"


def test_largest_tool_list_is_read_quickly() -> None:
    """500 tools with schemas of 64 KiB."""
    properties = {f"p{n}": {"$ref": "#/$defs/a"} for n in range(2000)}
    schema = {"type": "object", "properties": properties, "$defs": {"a": {}}}
    effort = Effort()
    listed([tool(name=f"t{n}", inputSchema=schema) for n in range(500)])
    assert effort.cpu_s < 10


def patterned(count: int, pattern: str = r"^(?:[a-z]{1,60}|\w{1,50}){1,40}") -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "pattern": f"{pattern}{n}$"} for n in range(count)},
    }


def test_schema_with_slow_patterns_is_refused() -> None:
    """60 KB of them took 19 s and 0.9 GB. A tool that is listed after it is kept."""
    effort = Effort()
    many = patterned(700)
    found = listed([*(tool(name=f"t{n}", inputSchema=many, outputSchema=many) for n in range(4)), tool()])
    assert list(found.tools) == ["odd"]
    assert {line.partition(": ")[2] for line in found.left_out} == {
        "its schema has patterns that take too long to compile"
    }
    assert effort.cpu_s < 3


def test_output_schema_with_costly_patterns_is_not_used() -> None:
    """The tool itself is."""
    kept = read(outputSchema=patterned(700))
    assert (
        kept.output is None and kept.output_schema == patterned(700) and "outputSchema" not in build_client_fields(kept)
    )


def test_total_pattern_cost_of_all_tools_is_bounded() -> None:
    """Tools that fit are kept, and so is a tool without patterns behind them."""
    tools = [tool(name=f"t{n}", inputSchema=patterned(20, "^[a-z]+-")) for n in range(100)]
    found = listed([*tools, tool(inputSchema=patterned(0))])
    assert 40 < len(found.tools) < 60 and "odd" in found.tools
    reasons = {line.partition(": ")[2] for line in found.left_out}
    assert reasons == {"its schema has patterns, and those of all tools take too long to compile"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_schema_with_doubling_references_is_refused(keyword: str) -> None:
    """64 levels of it are 3 KB; a call's arguments were checked against all 2^64 copies."""
    parts: dict[str, Any] = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(64)}
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d0"}},
        "$defs": {**parts, "d64": {"type": "string"}},
    }
    assert refused(inputSchema=schema) == "its schema has more than 10,000 parts, those that it refers to included"
    assert read(outputSchema=schema).output is None


def test_tool_list_is_read_in_short_steps() -> None:
    """Lists that take longest to read: nobody else waits for more than one part of one."""
    schemas = [
        patterned(700),
        patterned(50, r"^(?i)[\u0100-\uffff]"),
        patterned(20, r"^\S{1,255}"),
        {"type": "object", "properties": {f"{n}": {"not": {}} for n in range(4200)}},
        {"type": "object", "properties": {f"x{n}": {"type": "string", "minLength": n} for n in range(1200)}},
    ]
    parts_s: list[float] = []
    work = read_definitions([tool(name=f"t{n}", inputSchema=one, outputSchema=one) for n, one in enumerate(schemas)])
    effort = Effort()
    for _ in work:
        parts_s.append(effort.cpu_s)
        effort = Effort()
    assert max(parts_s) < 0.25, f"a part took {max(parts_s):.2f} s of CPU time, usual is 0.05 s"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text()
    | st.sampled_from(["object", "#", "#/properties"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "properties", "$ref", "items"]) | st.text(), inner, max_size=4)
    ),
)
TOOL = st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "title", "description", "inputSchema"), JSON))


@given(
    st.lists(TOOL | JSON | st.builds(lambda said: tool(inputSchema=said), st.dictionaries(st.text(), JSON)), max_size=5)
)
def test_any_json_tool_list_is_read(tools: list[Any]) -> None:
    """Each entry is a definition or has a reason, and what is kept shows as it is."""
    found = listed(tools)
    assert len(found.tools) + len(found.left_out) == len(tools)
    for kept in found.tools.values():
        assert orjson.dumps(build_document(kept))
        assert remove_invisible(kept.description) == kept.description
        assert "\n" not in kept.line


def test_definition_document_shows_all_hashed_fields() -> None:
    """Cleaned as everything that a model reads; what is too large or no object is left out."""
    schema = {"type": "object", "description": "A\u200bB"}
    document = build_document(read(title="T\u200b", outputSchema=schema, annotations={"readOnlyHint": True}))
    assert document.keys() == {"description", "parameters", "title", "output_schema", "annotations"}
    assert document["title"] == "T" and document["annotations"] == {"readOnlyHint": True}
    assert document["output_schema"] == {"type": "object", "description": "AB"}
    deep: dict[str, Any] = {}
    for _ in range(SCHEMA_DEPTH):
        deep = {"x": deep}
    for odd in (None, [], "x", deep, {"x": "y" * SCHEMA_BYTES}, {"x": "\ud800"}):
        assert build_document(read(outputSchema=odd))["output_schema"] is None


def test_total_size_of_shown_output_schemas_is_bounded() -> None:
    """A server that fills it leaves the later ones without."""
    many = [tool(name=f"t{i}", outputSchema={"x": "y" * 60_000}) for i in range(30)]
    shown = [one.output_schema is not None for one in listed(many).tools.values()]
    assert shown == [True] * 17 + [False] * 13


def output(schema: object) -> Definition:
    return read(outputSchema=schema)


def test_structured_content_is_validated_against_the_output_schema() -> None:
    """The problem is on one line; without a schema there is none."""
    tool = output({"type": "object", "properties": {"n": {"type": "string", "pattern": "^a+$"}}, "required": ["n"]})
    assert find_output_problem(tool, {"n": "aa"}) is None
    assert find_output_problem(tool, None) == "there is none"
    problem = find_output_problem(tool, {"n": "\n\u202eheld because: " + "x" * 999})
    assert problem is not None and problem.startswith("n: ") and len(problem) <= LINE_CHARS
    assert problem.isprintable() and "\u202e" not in problem
    assert find_output_problem(output({"type": "array"}), [1]) is None
    assert find_output_problem(read(), {"n": 1}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"pattern": "\\\\p{L}"}}},  # a pattern in Rust and JavaScript, and none in Python
        {"patternProperties": {"(?<=a)b": {}}},
    ],
)
def test_unusable_output_schema_is_withheld_from_clients(schema: dict[str, Any]) -> None:
    """A person who compares definitions sees it."""
    tool = output(schema)
    assert "outputSchema" not in build_client_fields(tool) and build_document(tool)["output_schema"] == schema
    assert find_output_problem(tool, None) is None
