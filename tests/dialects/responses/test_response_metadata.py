"""The facts that a response depends on: of a request, and in the store."""

import orjson

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.calls import ClientTool
from gateway.dialects.responses.dialect import ResponsesDialect
from gateway.dialects.responses.response_metadata import ResponseFacts

MCP = {"type": "mcp", "server_label": "notes"}


def facts_of(**fields: object) -> ResponseFacts:
    content = orjson.dumps({"model": "m", "input": "Hi", **fields})
    return ResponseFacts.from_request(ResponsesDialect().parse(content, needs_model=True))


def test_response_facts_contain_fields_tools_and_listed_labels() -> None:
    """Its fields without its input, its tools by the names that models know, and what the conversation has shown."""
    tools: list[Json] = [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "patch"},
        {
            "type": "namespace",
            "name": "files",
            "description": "Files.",
            "tools": [{"type": "function", "name": "read"}],
        },
        {"type": "web_search"},
        MCP,
    ]
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "notes", "tools": []}
    question = {"type": "message", "role": "user", "content": "Hi"}
    facts = facts_of(tools=tools, input=[listed, question], temperature=0.5)
    assert facts.fields == {"model": "m", "tools": tools, "temperature": 0.5}
    assert facts.find_tool("f") == ClientTool(kind="function", name="f")
    assert facts.find_tool("patch") == ClientTool(kind="custom", name="patch")
    assert facts.find_tool("files__read") == ClientTool(kind="function", name="read", namespace="files")
    assert (facts.left_out, facts.listed, facts.shows_calls) == (("web_search",), ["notes"], True)


def test_gateway_calls_are_shown_when_the_request_names_their_tools() -> None:
    """A request that names none has the default chain, whose calls are hidden."""
    assert not facts_of().shows_calls
    assert facts_of(tools=[MCP]).shows_calls


def test_facts_survive_the_store() -> None:
    """A response looks the same after a restart. Functions need no entry: a name that is not known is one."""
    tools = [{"type": "function", "name": "f"}, {"type": "custom", "name": "patch"}, {"type": "web_search"}, MCP]
    facts = facts_of(tools=tools)
    stored = orjson.dumps(facts.stored_json)
    again = ResponseFacts.from_stored(orjson.loads(stored))
    assert set(orjson.loads(stored)["client"]) == {"patch"}
    assert orjson.dumps(again.stored_json) == stored
    assert [again.find_tool(name) for name in ("f", "patch")] == [facts.find_tool(name) for name in ("f", "patch")]
