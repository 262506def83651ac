"""POST /context/explain: the dry run shows what the model would get, and leaves no trace."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.models import says
from e2e.talking import Completed, World, desk, talking
from e2e.working import working
from running import key

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


async def test_it_shows_what_the_model_gets(tmp_path: Path) -> None:
    """Message for message what the same chat then sends, with the rest of its body; the model is not asked for it."""
    async with talking(says("Hi."), tools=desk(tmp_path)) as world:
        answer = await explained(world, temperature=0.5)
        assert world.model.asked == []
        await world.chat(temperature=0.5)
        (sent,) = world.model.asked
    assert answer.status == 200
    assert answer.json["messages"] == sent["messages"]
    assert answer.json["parameters"] == {"temperature": 0.5}
    told = {name: answer.json[name] for name in ("lane", "chain", "stages", "prompt", "model", "upstream")}
    assert told == {
        "lane": "context",
        "chain": "assistant",
        "stages": ["intent", "memory", "prompt_enhancer", "agent_loop"],
        "prompt": "default",
        "model": "m",
        "upstream": "up",
    }
    assert answer.json["intent"] == {"kind": "normal", "rule": "normal", "span": None, "service": None, "tools": []}
    assert "would_be_verdicts" not in answer.json


async def test_the_tools_are_those_of_the_request(tmp_path: Path) -> None:
    """With the operator's word; narrowed by the header; a client's own tool wins a clash; none beside a JSON answer."""
    tools = desk(tmp_path)
    tools["execute_sql"]["requires_approval"] = True
    async with talking(tools=tools) as world:
        assert (await explained(world)).json["tools"] == [
            {"name": "file_operations", "requires_approval": False, "category": "files"},
            {"name": "execute_sql", "requires_approval": True, "category": "database"},
            {"name": "read_result", "requires_approval": False, "category": "results"},
        ]
        narrowed = await explained(world, headers={"X-Context-Tools": "execute_*"})
        assert [tool["name"] for tool in narrowed.json["tools"]] == ["execute_sql"]
        theirs = [{"type": "function", "function": {"name": "execute_sql"}}]
        clash = await explained(world, tools=theirs)
        assert [tool["name"] for tool in clash.json["tools"]] == ["file_operations", "read_result"]
        assert (await explained(world, response_format={"type": "json_object"})).json["tools"] == []


async def test_native_tools_are_in_the_body(tmp_path: Path) -> None:
    """As the agent loop adds them for the first model call."""
    async with talking(says("Hi."), tools=desk(tmp_path), chains=NATIVE) as world:
        answer = await explained(world, headers={"X-Context-Chain": "native"})
        await world.chat(headers={"X-Context-Chain": "native"})
        (sent,) = world.model.asked
    assert answer.json["parameters"]["tools"] == sent["tools"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == [tool["name"] for tool in answer.json["tools"]]


async def test_a_chain_without_stages_changes_nothing(tmp_path: Path) -> None:
    """No intent is looked for, and no tool is offered."""
    async with talking(tools=desk(tmp_path), chains=NATIVE) as world:
        answer = await explained(world, headers={"X-Context-Chain": "bare"})
    assert answer.json["messages"] == [{"role": "user", "content": "Hello?"}]
    assert (answer.json["stages"], answer.json["intent"], answer.json["tools"]) == ([], None, [])


async def test_nothing_is_remembered_or_forgotten() -> None:
    """The prompt says what a real request would do; the memories stay as they are."""
    async with talking(says("Noted."), says("Hi.")) as world:
        asked = await explained(world, "Remember that I like tea.")
        assert (asked.json["intent"]["kind"], asked.json["intent"]["rule"]) == ("memory", "memory:remember")
        begin, end = asked.json["intent"]["span"]
        assert "Remember" in "Remember that I like tea."[begin:end]
        assert "I like tea" in asked.json["messages"][0]["content"]
        assert "I like tea" not in (await explained(world)).json["messages"][0]["content"]
        await world.chat("Remember that I like tea.")
        assert "deleted" in (await explained(world, "Forget that I like tea.")).json["messages"][0]["content"]
        assert "I like tea" in (await explained(world)).json["messages"][0]["content"]


async def test_a_workflow_is_explained_as_one(tmp_path: Path) -> None:
    """Which, with what, step by step; what it lacks is told as in a chat; an unknown name is ordinary text."""
    async with working(tmp_path) as world:
        answer = await explained(world, "/summary hello there")
        assert answer.status == 200, answer.json
        assert answer.json == {
            "lane": "context",
            "chain": "assistant",
            "workflow": {"name": "summary", "parameters": {"text": "hello there"}, "steps": ["said"]},
            "model": "m",
        }
        lacking = await explained(world, "/summary")
        assert (lacking.status, lacking.json["error"]["param"]) == (422, "text")
        assert (await explained(world, "/nothing of ours")).json["workflow"] is None
        assert world.model.asked == []


async def test_calls_are_judged(tmp_path: Path) -> None:
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
async def test_calls_of_another_form_are_refused(calls: object) -> None:
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
async def test_what_a_chat_is_refused_for(body: bytes, headers: dict[str, str], code: str) -> None:
    """The dry run is refused for, too, in the same words."""
    async with talking(limits={"context_body": "1KiB"}) as world:
        answer = await world.post(body, path=EXPLAIN_PATH, headers=headers)
        assert answer.error["code"] == code
        chat = await world.post(body, headers=headers)
        assert chat.error["code"] == code


async def test_it_needs_a_key_with_the_scope_context() -> None:
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
