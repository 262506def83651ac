"""Tools of a request, and the choice among them."""

import pytest

from gateway.contracts.storage.store import Json

from .requests import parse, refusal_of

TOOL: Json = {"name": "look", "description": "d", "input_schema": {"type": "object", "$defs": {"x": {}}}}
OWN: Json = {"type": "url", "name": "box", "url": "box"}
SET: Json = {"type": "mcp_toolset", "mcp_server_name": "box"}


def test_tool_of_the_client_is_a_function() -> None:
    """Its schema as it is, and what chat completions lack beside it."""
    beside: Json = {"cache_control": {"type": "ephemeral"}, "defer_loading": True, "input_examples": [{}]}
    (tool,) = parse(tools=[{**TOOL, "type": "custom", "strict": True, **beside}]).body["tools"]
    function = {"name": "look", "description": "d", "parameters": TOOL["input_schema"], "strict": True}
    assert tool == {"type": "function", "function": function, **beside}


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        ({"type": "auto"}, {}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "look"}, {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"parallel_tool_calls": False}),
    ],
)
def test_choice_has_the_words_of_chat_completions(choice: Json, fields: Json) -> None:
    """`none` takes the gateway's tools away, too."""
    asked = parse(tools=[TOOL], tool_choice=choice)
    found = {name: asked.body[name] for name in ("tool_choice", "parallel_tool_calls") if name in asked.body}
    assert found == fields and asked.wishes.no_tools == (choice["type"] == "none")


@pytest.mark.parametrize(
    ("server", "toolset", "names", "excluded"),
    [
        ({}, None, None, ()),
        ({}, {}, None, ()),
        ({"tool_configuration": {"allowed_tools": ["a", "b"]}}, None, ("a", "b"), ()),
        ({"tool_configuration": {"enabled": False}}, None, (), ()),
        ({}, {"configs": {"a": {"enabled": False}, "b": {"enabled": True}}}, None, ("a",)),
        ({}, {"default_config": {"enabled": False}, "configs": {"a": {"enabled": True}, "b": {}}}, ("a",), ()),
        (
            {"tool_configuration": {"allowed_tools": ["a", "b"]}},
            {"configs": {"a": {"enabled": False}}},
            ("b",),
            (),
        ),
    ],
)
def test_named_server_offers_its_enabled_tools(
    server: Json, toolset: Json | None, names: tuple[str, ...] | None, excluded: tuple[str, ...]
) -> None:
    """As either field narrows them."""
    tools = [] if toolset is None else [{**SET, **toolset}]
    asked = parse(tools=tools, mcp_servers=[{**OWN, **server}])
    assert asked.wishes.offers is not None and asked.shows_calls and asked.wishes.asks_in_text
    (offer,) = asked.wishes.offers
    assert (offer.label, offer.names, offer.excluded, offer.url) == ("box", names, excluded, "box")


def test_any_call_is_demanded_of_the_model_where_no_field_can() -> None:
    """With tools of the gateway among those that it may call."""
    wishes = parse(tools=[TOOL], mcp_servers=[OWN], tool_choice={"type": "any"}).wishes
    assert wishes.must_call and wishes.notes


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{**TOOL, "type": 5}]}, "tools[0].type"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"name": "look"}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "name": "lo ok"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "parameters": {}}]}, "tools[0].parameters"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [SET]}, "tools[0].mcp_server_name"),
        ({"tools": [SET, SET], "mcp_servers": [OWN]}, "tools[1].mcp_server_name"),
        ({"tools": [{**SET, "configs": {"a": 5}}], "mcp_servers": [OWN]}, "tools[0].configs.a"),
        ({"tools": [{**SET, "default_config": {"x": 5}}], "mcp_servers": [OWN]}, "tools[0].default_config.x"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"mcp_servers": [{**OWN, "authorization_token": "x"}]}, "mcp_servers[0].authorization_token"),
        ({"mcp_servers": [{**OWN, "type": "sse"}]}, "mcp_servers[0].type"),
        ({"mcp_servers": [OWN, OWN]}, "mcp_servers[1].name"),
        ({"mcp_servers": [5]}, "mcp_servers[0]"),
    ],
)
def test_wrong_tool_is_named(fields: Json, place: str) -> None:
    """A tool that only Anthropic runs, or defines, is an error that names it."""
    assert refusal_of(**fields)[1] == place
