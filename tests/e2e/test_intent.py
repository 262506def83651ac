"""The intent part of requirement "MCP tools" (scenario names translated), as far as it shows without a server."""

import json
from pathlib import Path

import pytest

from .models import native, says
from .talking import desk, talking

TOOL_CALL = json.dumps(
    {"tool_call": {"name": "file_operations", "arguments": {"operation": "read", "path": "notes.txt"}}}
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("用 weather 工具查一下北京", "weather"),
        ("请调用 git_helper 服务", "git_helper"),
        ("Use the jira_search tool to find it.", "jira_search"),
    ],
)
async def test_explicit_tool_call_is_recognised(text: str, name: str) -> None:
    """显式工具调用识别: an MCP intent with the tool's name; there is no such tool, so the model is told to say so."""
    async with talking(says("There is none.")) as world:
        answer = await world.chat(text)
        assert (answer.status, answer.headers["X-Context-Intent"]) == (200, "mcp")
        assert f"'{name}' is not available" in world.model.prompts[0]


@pytest.mark.parametrize("text", ["Use the file_operations tool to read it.", "用 file_operations 工具读一下"])
async def test_gateway_tool_is_never_reported_unavailable(tmp_path: Path, text: str) -> None:
    """A tool that is in the prompt is never called unavailable."""
    async with talking(says("Yes."), tools=desk(tmp_path)) as world:
        await world.chat(text)
        assert "<name>file_operations</name>" in world.model.prompts[0]
        assert "not available" not in world.model.prompts[0]


async def test_client_tool_is_never_reported_unavailable() -> None:
    """The client runs it; the model has its definition."""
    tools = [{"type": "function", "function": {"name": "jira_search", "parameters": {"type": "object"}}}]
    async with talking(says("Yes.")) as world:
        answer = await world.chat("Use the jira_search tool to find it.", tools=tools)
        assert answer.headers["X-Context-Intent"] == "normal"
        assert "not available" not in world.model.prompts[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Remember that my cat is called Ada.", "memory"),
        ("记住我喜欢猫", "memory"),
        ("Ask me before you run anything.", "hitl"),
        ("执行前先问我", "hitl"),
        ("What is the weather like?", "normal"),
        ("Don't use the weather tool.", "normal"),
        ("这个工具费用是多少?", "normal"),
    ],
)
async def test_message_without_a_tool_match_follows_other_intents(text: str, kind: str) -> None:
    """无匹配时继续原有流程: memory, human in the loop, normal."""
    async with talking(says("Well.")) as world:
        assert (await world.chat(text)).headers["X-Context-Intent"] == kind
        assert "not available" not in world.model.prompts[0]


async def test_message_without_mcp_intent_injects_nothing(tmp_path: Path) -> None:
    """无 MCP 意图时不注入: the prompt is the cached one, and nothing else."""
    async with talking(says("Hi."), tools=desk(tmp_path)) as world:
        await world.chat("Hello?")
        assert world.model.prompts == [(await world.get("/v1/system-prompts/default/enhanced")).json["text"]]


async def test_unavailable_service_call_gets_a_friendly_answer(tmp_path: Path) -> None:
    """服务不可用时的友好提示: a call of what is not there is answered, and the conversation goes on."""
    asked = says(json.dumps({"tool_call": {"name": "weather", "arguments": {}}}))
    async with talking(asked, says("I cannot look outside."), tools=desk(tmp_path)) as world:
        answer = await world.chat("用 weather 工具查一下北京")
        assert (answer.status, answer.text) == (200, "I cannot look outside.")
        result = world.model.behind()[-1]
        assert (result["role"], result["name"]) == ("tool", "weather")
        assert "no tool 'weather'" in result["content"]


async def test_tool_call_with_name_and_arguments_format_is_recognised(tmp_path: Path) -> None:
    """工具调用请求格式: `tool_call` with `name` and `arguments` is a call as well; it never terminates."""
    async with talking(says(TOOL_CALL), says("Behind the mirror."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where is the safe?")).text == "Behind the mirror."
        assert "The safe is behind the mirror." in world.model.behind()[-1]["content"]


@pytest.mark.parametrize("prompted", [True, False])
async def test_tool_result_is_sent_as_a_tool_message(tmp_path: Path, *, prompted: bool) -> None:
    """工具调用结果注入格式: a message of role `tool` with name and content, whichever way the call came."""
    arguments = {"operation": "read", "path": "notes.txt"}
    asked = says(TOOL_CALL) if prompted else native(("file_operations", arguments))
    async with talking(asked, says("Done."), tools=desk(tmp_path)) as world:
        await world.chat("Where is the safe?")
        said, result = world.model.behind()
        assert result == {
            "role": "tool",
            "name": "file_operations",
            "content": "The safe is behind the mirror.\n",
            "tool_call_id": said["tool_calls"][0]["id"],
        }


async def test_intent_metric_counts_kind_and_layer() -> None:
    """By kind and by what decided."""
    async with talking(says("a"), says("b")) as world:
        await world.chat("用 weather 工具查一下北京")
        await world.chat("Hello?")
        assert await world.counted('gateway_intent_total{intent="mcp",layer="explicit"}') == 1
        assert await world.counted('gateway_intent_total{intent="normal",layer="none"}') == 1


async def test_intent_is_detected_only_in_the_last_user_message() -> None:
    """Earlier messages, and results of tools, request nothing now."""
    said = [
        {"role": "user", "content": "用 weather 工具查一下北京"},
        {"role": "assistant", "content": "Use the weather tool yourself."},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]
    async with talking(says("Bye.")) as world:
        assert (await world.chat(said)).headers["X-Context-Intent"] == "normal"
