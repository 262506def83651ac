"""The tools of a chat as those of Messages."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.tools import build_tools, list_lost_tools

SCHEMA: Json = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}, "x-own": [1]}


def function(name: str = "look", **more: object) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}, **more}


def test_schema_and_marks_of_a_function_stay_as_they_are() -> None:
    mark = {"type": "ephemeral"}
    tool = function(cache_control=mark, defer_loading=True, other=1)
    tool["function"] |= {"description": "Looks.", "strict": True}
    bare: Json = {"type": "function", "function": {"name": "bare.one", "strict": False}}
    first, second = build_tools({"tools": [tool, bare]})["tools"]
    assert first == {
        "name": "look",
        "description": "Looks.",
        "input_schema": SCHEMA,
        "strict": True,
        "cache_control": mark,
        "defer_loading": True,
    }
    assert second["input_schema"] == {"type": "object", "properties": {}}
    assert second["name"].startswith("bare_one_")


def test_functions_of_the_api_before_tools_are_tools() -> None:
    built = build_tools({"functions": [{"name": "look"}], "function_call": {"name": "look"}})
    assert (built["tools"][0]["name"], built["tool_choice"]) == ("look", {"type": "tool", "name": "look"})


def test_tool_that_anthropic_defines_passes_and_others_are_listed() -> None:
    dated, other = {"type": "bash_20250124", "name": "bash"}, {"type": "custom", "name": "c"}
    body: Json = {"tools": [dated, other, "x"]}
    assert build_tools(body)["tools"] == [dated]
    assert list(list_lost_tools(body)) == ["custom"]
    assert build_tools({"tools": [other]}) == {}


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        ("auto", True, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        ("any", False, {"type": "any", "disable_parallel_tool_use": True}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"type": "function", "function": {"name": "look"}}, None, {"type": "tool", "name": "look"}),
        ({"type": "function"}, None, None),
        (7, None, None),
    ],
)
def test_choice_of_a_tool_is_translated(choice: object, parallel: object, sent: Json | None) -> None:
    body: Json = {"tools": [function()], "tool_choice": choice, "parallel_tool_calls": parallel}
    assert build_tools(body).get("tool_choice") == sent


def test_choice_among_allowed_tools_leaves_the_others_out() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "b"}}]}
    body: Json = {
        "tools": [function("a"), function("b")],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed},
    }
    built = build_tools(body)
    assert ([one["name"] for one in built["tools"]], built["tool_choice"]) == (["b"], {"type": "any"})


def test_conversation_with_calls_declares_a_tool_that_nothing_may_call() -> None:
    """The API refuses calls without declared tools."""
    body: Json = {"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}], "tool_choice": "required"}
    built = build_tools(body)
    assert (built["tools"][0]["name"], built["tool_choice"]) == ("no_tool", {"type": "none"})
    assert build_tools({"messages": [], "tool_choice": "required"}) == {}
