"""The tools of a chat request as those of Responses."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.adaptation.tool_names import build_plain_name
from gateway.model.apis.responses.tools import build_tools, list_lost_tools

SCHEMA: Json = {"type": "object", "properties": {"x": {"type": "string"}}}
LOOK: Json = {"type": "function", "function": {"name": "look", "description": "d", "parameters": SCHEMA}}
FLAT: Json = {"type": "function", "name": "look", "description": "d", "parameters": SCHEMA, "strict": False}
NAMED: Json = {"type": "function", "name": "look"}


def test_functions_are_flat_and_not_strict_unless_they_say_so() -> None:
    strict: Json = {"type": "function", "function": {"name": "mcp.find", "strict": True}}
    converted = {"type": "function", "name": build_plain_name("mcp.find"), "strict": True}
    built = build_tools({"tools": [LOOK, strict, 7]})
    assert built == {"tools": [FLAT, {**converted, "parameters": {"type": "object", "properties": {}}}]}


def test_functions_of_the_api_before_tools_are_tools() -> None:
    body: Json = {"functions": [LOOK["function"]], "function_call": {"name": "look"}}
    assert build_tools(body) == {"tools": [FLAT], "tool_choice": NAMED}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("any", "required"),
        ("odd", None),
        (None, None),
        ({"type": "function", "function": {"name": "look"}}, NAMED),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]},
            },
            {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
        ),
        ({"type": "web_search"}, {"type": "web_search"}),
    ],
)
def test_choice_is_in_the_form_of_the_api(choice: object, sent: object) -> None:
    assert build_tools({"tools": [LOOK], "tool_choice": choice}).get("tool_choice") == sent
    assert build_tools({"tool_choice": choice}) == {}


def test_only_tools_of_the_provider_that_taint_a_run_pass() -> None:
    body: Json = {
        "tools": [{"type": "web_search"}, {"type": "mcp", "server_url": "https://x"}, {"type": "custom", "custom": {}}],
        "parallel_tool_calls": False,
    }
    assert build_tools(body) == {"tools": [{"type": "web_search"}], "parallel_tool_calls": False}
    assert list(list_lost_tools(body)) == ["mcp", "custom"]
