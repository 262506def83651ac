"""POST /context/explain: the dry run shows what the model would get, and leaves no trace."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.talking import Completed, World, desk, talking
from gateways import key

from gateway.api.explain import CALLS_LIMIT, EXPLAIN_PATH

NATIVE = {
    "native": [
        {"use": "intent"},
        {"use": "prompt_enhancer", "with": {"tools": False}},
        {"use": "agent_loop", "with": {"tool_format": "native"}},
    ],
    "bare": [],
}


async def explained(world: World, text: str = "Hello?", *, headers: Any = None, **body: Any) -> Completed:
    content = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
    return await world.post(content, path=EXPLAIN_PATH, headers=headers)


async def test_explain_returns_a_verdict_for_each_call(tmp_path: Path) -> None:
    """As in a run: unknown tools and schemas first, then the operator, the model, the assessors. None is run."""
    tools = desk(tmp_path, write=True)
    tools["http_request"] = {"requires_approval": True}
    calls = [
        {"tool": "nope", "parameters": {}},
        {"tool": "execute_sql", "parameters": {"query": "SELECT 1"}},
        {"tool": "http_request", "parameters": {"url": "http://x.example", "risk_level": "low"}},
        {"tool": "execute_sql", "parameters": {"sql": "DROP TABLE pets", "risk_level": "low"}},
        {"tool": "execute_sql", "parameters": {"sql": "SELECT 1"}},
        {"tool": "execute_sql", "parameters": {"sql": "SELECT 1"}, "risk_level": "high"},
        {"tool": "execute_sql", "parameters": {"sql": "DROP TABLE pets"}},
    ]
    async with talking(tools=tools) as world:
        verdicts = (await explained(world, calls=calls)).json["would_be_verdicts"]
    assert [(verdict["tool"], verdict["decision"], verdict["basis"]) for verdict in verdicts] == [
        ("nope", "error", "unknown_tool"),
        ("execute_sql", "error", "malformed"),
        ("http_request", "confirm", "operator"),
        ("execute_sql", "auto", "llm"),
        ("execute_sql", "auto", "whitelist"),
        ("execute_sql", "confirm", "llm"),
        ("execute_sql", "confirm", "default"),
    ]
    assert all(verdict["rule"] and verdict["reason"] for verdict in verdicts)


@pytest.mark.parametrize(
    "calls",
    [
        {},
        [1],
        [{"tool": "x"}],
        [{"tool": 1, "parameters": {}}],
        [{"tool": "x", "parameters": []}],
        [{"tool": "x", "parameters": {}}] * (CALLS_LIMIT + 1),
    ],
)
async def test_explain_refuses_malformed_calls(calls: object) -> None:
    """400, before anything else is done."""
    async with talking() as world:
        answer = await explained(world, calls=calls)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_field", "calls")


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"[", {}, "invalid_json"),
        (b'{"model": "m", "messages": []}', {}, "invalid_field"),
        (b'{"model": "m", "messages": [{"role": "user"}], "n": 2}', {}, "unsupported_parameter"),
        (b'{"model": "m", "messages": [{"role": "user"}]}', {"X-Context-Chain": "nope"}, "invalid_header"),
        (b'{"model": "m", "messages": [{"role": "user"}]}', {"X-Context-Prompt": "nope"}, "prompt_not_found"),
        (b'{"model": "m", "messages": [{"role": "user"}]}', {"X-Context-Nope": "1"}, "invalid_header"),
        (b" " * 2000, {}, "request_too_large"),
    ],
)
async def test_explain_refuses_the_same_requests_as_a_chat(body: bytes, headers: dict[str, str], code: str) -> None:
    """The dry run is refused for, too, in the same words."""
    async with talking(limits={"context_body": "1KiB"}) as world:
        answer = await world.post(body, path=EXPLAIN_PATH, headers=headers)
        assert answer.error["code"] == code
        chat = await world.post(body, headers=headers)
        assert chat.error["code"] == code


async def test_explain_requires_the_context_scope() -> None:
    """As a chat does."""
    keys = [key("may", "context"), key("may-not", "passthrough")]
    async with talking(keys=keys, upstream={"api_key": "upstream-key"}) as world:
        refused = [await explained(world, headers=headers) for headers in ({}, {"X-Gateway-Key": "may-not"})]
        assert [answer.error["code"] for answer in refused] == ["missing_api_key", "scope_missing"]
        answer = await explained(world, headers={"X-Gateway-Key": "may"})
    assert answer.status == 200
    assert "upstream-key" not in json.dumps(answer.json)


async def test_the_configured_model_is_shown() -> None:
    """`context.model` replaces the client's."""
    async with talking(context={"model": "better"}) as world:
        assert (await explained(world)).json["model"] == "better"


async def test_a_response_is_explained_like_a_chat(tmp_path: Path) -> None:
    """Its instructions and the tools that it names are in the request for the model, and a wrong label is refused."""
    tools = desk(tmp_path)
    wanted = {"model": "m", "input": "Hello?", "instructions": "Be short."}
    mcp = {"type": "mcp", "server_label": "gateway", "allowed_tools": ["execute_sql"]}
    async with talking(tools=tools) as world:
        shown = (await world.post({**wanted, "tools": [mcp]}, path=EXPLAIN_PATH)).json
        wrong = await world.post({**wanted, "tools": [{**mcp, "server_label": "nope"}]}, path=EXPLAIN_PATH)
    assert [tool["name"] for tool in shown["tools"]] == ["execute_sql"]
    assert "Be short." in shown["messages"][0]["content"] and shown["messages"][-1]["content"] == "Hello?"
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "tools[0].server_label")
