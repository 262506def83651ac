"""The tools of a request: functions for models, offers of the gateway's, and those that are left out."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import RequestedTools
from gateway.dialects.responses.calls import ClientTool
from gateway.dialects.responses.tools import read_tools

from .requests import FUNCTION, asked, refusal

MCP: Json = {"type": "mcp", "server_label": "box"}


def functions(*tools: object) -> list[Json]:
    """Return the functions that models get for tools."""
    return [tool["function"] for tool in asked(tools=list(tools)).body.get("tools", [])]


def offers(*tools: object) -> tuple[RequestedTools, ...] | None:
    """Return the offers that tools make."""
    return asked(tools=list(tools)).wishes.offers


def test_absent_tools_add_no_functions_or_offers() -> None:
    assert read_tools(None) == read_tools([])
    assert "tools" not in asked(tools=[]).body and asked(tools=[]).wishes.offers is None


def test_a_function_is_nested_and_keeps_its_strictness() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    tool = {"type": "function", "name": "look", "description": "Look.", "parameters": schema, "strict": True}
    assert asked(tools=[tool]).body["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "parameters": schema, "description": "Look.", "strict": True},
        }
    ]


def test_function_tool_without_parameters_gets_an_empty_schema() -> None:
    empty = {"type": "object", "properties": {}}
    for parameters in (None, {}):
        bare = {"type": "function", "name": "look", "parameters": parameters, "strict": None, "description": None}
        assert functions(bare) == [{"name": "look", "parameters": empty}]


def test_custom_tool_becomes_a_function_with_one_text_parameter() -> None:
    plain = {"type": "custom", "name": "sql", "description": "Query."}
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    of_plain, of_grammar, alone = functions(
        plain,
        {**plain, "name": "word", "format": grammar},
        {"type": "custom", "name": "bare", "format": {"type": "text"}},
    )
    assert of_plain["description"] == "Query." and "description" not in alone
    assert of_plain["parameters"]["required"] == ["input"]
    assert of_plain["parameters"]["properties"] == {"input": {"type": "string"}}
    assert of_grammar["description"] == "Query.\n\n'input' must follow this lark grammar:\nstart: WORD"


def test_namespaced_tools_include_the_namespace_in_their_names() -> None:
    space = {
        "type": "namespace",
        "name": "crm",
        "description": "Customers.",
        "tools": [FUNCTION, {"type": "custom", "name": "note"}],
    }
    found = asked(tools=[space, FUNCTION])
    assert [tool["function"]["name"] for tool in found.body["tools"]] == ["crm__look", "crm__note", "look"]
    assert found.client_tools["crm__look"] == ClientTool(kind="function", name="look", namespace="crm")
    assert found.client_tools["crm__note"] == ClientTool(kind="custom", name="note", namespace="crm")


@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch"])
def test_built_in_client_tool_converts_to_a_function(kind: str) -> None:
    found = asked(tools=[{"type": kind}])
    assert found.body["tools"][0]["function"]["name"] == kind and not found.left_out
    assert found.client_tools[kind].kind == kind


def test_a_shell_in_a_container_of_openais_is_left_out() -> None:
    for kind in ("container_auto", "container_reference"):
        found = asked(tools=[{"type": "shell", "environment": {"type": kind}}])
        assert found.left_out == ("shell",) and "tools" not in found.body
    assert asked(tools=[{"type": "shell", "environment": {"type": "local"}}]).left_out == ()


def test_hosted_tools_are_left_out_and_named_once() -> None:
    kinds = [
        "web_search",
        "web_search_preview_2025_03_11",
        "file_search",
        "computer",
        "computer_use_preview",
        "code_interpreter",
        "image_generation",
        "programmatic_tool_calling",
        "tool_search",
        "acme:custom_document_search",
        "web_search",
    ]
    found = asked(tools=[{"type": kind, "search_context_size": "low"} for kind in kinds])
    assert found.left_out == tuple(kinds[:-1]) and "tools" not in found.body


def test_tool_choice_is_dropped_without_tools() -> None:
    """OpenAI refuses `tool_choice` and `parallel_tool_calls` in a chat completion without tools."""
    hosted = asked(tools=[{"type": "web_search"}], tool_choice="auto", parallel_tool_calls=True).body
    assert "tool_choice" not in hosted and "parallel_tool_calls" not in hosted
    own = asked(tools=[FUNCTION], tool_choice="auto", parallel_tool_calls=False).body
    assert (own["tool_choice"], own["parallel_tool_calls"]) == ("auto", False)
    assert "tool_choice" not in asked(tools=[FUNCTION]).body


def test_mcp_tool_requests_a_service_by_label() -> None:
    assert offers(MCP) == (RequestedTools(label="box", place="tools[0]"),)
    assert offers(FUNCTION, {**MCP, "server_url": "https://box.test/mcp", "server_description": "A box."}) == (
        RequestedTools(label="box", place="tools[1]", url="https://box.test/mcp"),
    )
    assert offers(FUNCTION) is None


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, None),
        ([], ()),
        (["a", "b"], ("a", "b")),
        ({"tool_names": ["a"]}, ("a",)),
        ({"tool_names": ["a"], "read_only": False}, ("a",)),
        ({}, None),
    ],
)
def test_allowed_tools_limits_the_requested_tools(allowed: object, names: tuple[str, ...] | None) -> None:
    assert offers({**MCP, "allowed_tools": allowed}) == (RequestedTools(label="box", place="tools[0]", names=names),)


@pytest.mark.parametrize(
    ("required", "asks"),
    [
        (None, None),
        ("never", None),
        ("always", ()),
        ({}, None),
        ({"never": {"tool_names": ["a"]}}, None),
        ({"always": {"tool_names": ["a", "b"]}}, ("a", "b")),
        ({"always": {"tool_names": ["a"]}, "never": {"tool_names": ["b"]}}, ("a",)),
        ({"always": {"tool_names": []}}, None),
        ({"always": {}}, ()),
        ({"always": {"read_only": True}}, ()),
        ({"always": {"tool_names": ["a"], "read_only": False}}, ()),
    ],
)
def test_require_approval_only_tightens(required: object, asks: tuple[str, ...] | None) -> None:
    """Which tools only read is not known here: where it matters, all of them ask."""
    assert offers({**MCP, "require_approval": required}) == (RequestedTools(label="box", place="tools[0]", asks=asks),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connector_id", "connector_gmail"),
        ("tunnel_id", "tunnel_1"),
        ("authorization", "secret"),
        ("headers", {"Authorization": "secret"}),
    ],
)
def test_mcp_tool_with_a_connection_field_is_refused(field: str, value: object) -> None:
    error = refusal(tools=[FUNCTION, {**MCP, field: value}])
    assert (error.code, error.param) == ("unsupported_parameter", f"tools[1].{field}")
    assert "secret" not in error.message
    assert offers({**MCP, field: None})


def test_empty_mcp_headers_are_accepted() -> None:
    assert offers({**MCP, "headers": {}})


@pytest.mark.parametrize(
    ("tool", "code", "place"),
    [
        (5, "invalid_field", ""),
        (None, "invalid_field", ""),
        ({}, "missing_field", ".type"),
        ({"type": 5}, "invalid_field", ".type"),
        ({"type": "teleport"}, "invalid_field", ".type"),
        ({"type": "function"}, "missing_field", ".name"),
        ({"type": "function", "function": {"name": "look"}}, "missing_field", ".name"),
        ({**FUNCTION, "name": 5}, "invalid_field", ".name"),
        ({**FUNCTION, "name": "look at"}, "invalid_field", ".name"),
        ({**FUNCTION, "name": "x" * 1_000_000}, "invalid_field", ".name"),
        ({**FUNCTION, "parameters": []}, "invalid_field", ".parameters"),
        ({**FUNCTION, "strict": "yes"}, "invalid_field", ".strict"),
        ({**FUNCTION, "description": 5}, "invalid_field", ".description"),
        ({"type": "custom"}, "missing_field", ".name"),
        ({"type": "custom", "name": "a", "format": "text"}, "invalid_field", ".format"),
        ({"type": "custom", "name": "a", "format": {}}, "missing_field", ".format.type"),
        ({"type": "custom", "name": "a", "format": {"type": "grammar"}}, "missing_field", ".format.definition"),
        (
            {"type": "custom", "name": "a", "format": {"type": "grammar", "definition": "", "syntax": "ebnf"}},
            "invalid_field",
            ".format.syntax",
        ),
        ({"type": "namespace", "tools": []}, "missing_field", ".name"),
        ({"type": "namespace", "name": "a"}, "missing_field", ".tools"),
        ({"type": "namespace", "name": "a", "tools": [5]}, "invalid_field", ".tools[0]"),
        ({"type": "namespace", "name": "a", "tools": [MCP]}, "invalid_field", ".tools[0].type"),
        ({"type": "namespace", "name": "a", "tools": [{"type": "function"}]}, "missing_field", ".tools[0].name"),
        ({"type": "shell", "environment": "local"}, "invalid_field", ".environment"),
        ({"type": "mcp"}, "missing_field", ".server_label"),
        ({"type": "mcp", "server_label": 5}, "invalid_field", ".server_label"),
        ({"type": "mcp", "server_label": "x" * 1_000_000}, "invalid_field", ".server_label"),
        ({**MCP, "server_url": 5}, "invalid_field", ".server_url"),
        ({**MCP, "allowed_tools": "all"}, "invalid_field", ".allowed_tools"),
        ({**MCP, "allowed_tools": ["a", 5]}, "invalid_field", ".allowed_tools"),
        ({**MCP, "allowed_tools": {"tool_names": "a"}}, "invalid_field", ".allowed_tools.tool_names"),
        ({**MCP, "allowed_tools": {"read_only": True}}, "unsupported_parameter", ".allowed_tools.read_only"),
        ({**MCP, "require_approval": "sometimes"}, "invalid_field", ".require_approval"),
        ({**MCP, "require_approval": 5}, "invalid_field", ".require_approval"),
        ({**MCP, "require_approval": {"always": "all"}}, "invalid_field", ".require_approval.always"),
        (
            {**MCP, "require_approval": {"never": {"tool_names": 5}}},
            "invalid_field",
            ".require_approval.never.tool_names",
        ),
    ],
)
def test_invalid_tool_is_refused_with_its_place(tool: object, code: str, place: str) -> None:
    error = refusal(tools=[FUNCTION | {"name": "first"}, tool])
    assert (error.code, error.param) == (code, f"tools[1]{place}")


def test_duplicate_tool_name_is_refused() -> None:
    assert refusal(tools=[FUNCTION, {"type": "custom", "name": "look"}]).param == "tools[1].name"
    assert refusal(tools=[MCP, MCP]).param == "tools[1].server_label"
    assert refusal(tools=[{"type": "shell"}, FUNCTION | {"name": "shell"}]).param == "tools[1].name"
