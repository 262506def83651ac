"""The requirement mcp-tools as a client meets it: tools of services, found, asked for and called in a conversation."""

import json
from typing import Any

import pytest

from .models import calls, native, says
from .talking import talking

LINE = "- weather__forecast: Tells tomorrow's weather of a city."


def service(**facts: object) -> dict[str, Any]:
    return {"weather": {"use": "e2e.weather", "with": facts}}


def asked(name: str = "weather.forecast", **arguments: object) -> object:
    """A call as the requirement writes it."""
    return says(json.dumps({"tool_call": {"name": name, "arguments": {"risk_level": "low", **arguments}}}))


# 获取可用工具列表, 服务未运行时不可用.


async def test_prompt_describes_the_tools_of_a_running_service() -> None:
    """获取可用工具列表: each is described while the prompt is built."""
    async with talking(says("Which city?"), tools=service()) as world:
        answer = await world.chat("用 weather 服务查一下")
        assert answer.headers["X-Context-Intent"] == "mcp"
        assert LINE in world.model.prompts[0] and "- weather__history: " in world.model.prompts[0]


async def test_tools_of_a_stopped_service_are_unavailable() -> None:
    """服务未运行时不可用: nothing of them is in the prompt, and none can be called."""
    tools = service(running=False, trigger_keywords=["天气"])
    async with talking(says("I do not know."), asked(city="北京"), says("Sorry."), tools=tools) as world:
        assert (await world.chat("今天天气怎么样?")).headers["X-Context-Intent"] == "normal"
        assert "weather__forecast" not in world.model.prompts[0]
        assert (await world.chat("Hm.")).text == "Sorry."
        assert "'weather' is not running" in world.model.behind()[-1]["content"]


# 显式工具调用识别, 关键词触发识别.


@pytest.mark.parametrize(
    "text", ["用 weather 工具查一下北京", "调用 weather.forecast", "please use weather.forecast for Rome"]
)
async def test_explicit_service_call_is_recognised_as_mcp_intent(text: str) -> None:
    """显式工具调用识别: the intent names what was called."""
    async with talking(says("Rain."), tools=service()) as world:
        assert (await world.chat(text)).headers["X-Context-Intent"] == "mcp"
        shown = await world.post(
            {"model": "m", "messages": [{"role": "user", "content": text}]}, path="/context/explain"
        )
        assert shown.json["intent"]["service"] == "weather"
        assert "weather.forecast" in shown.json["intent"]["tools"]


async def test_service_keyword_triggers_the_mcp_intent() -> None:
    """关键词触发识别: the service of the keyword is meant, and its tools are described."""
    async with talking(says("Rain."), tools=service(trigger_keywords=["天气", "forecast"])) as world:
        answer = await world.chat("明天北京天气如何?")
        assert answer.headers["X-Context-Intent"] == "mcp"
        assert LINE in world.model.prompts[0]
        assert await world.counted('gateway_intent_total{intent="mcp",layer="keyword"}') == 1


# MCP 意图匹配时注入简短描述, 无 MCP 意图时不注入.


async def test_an_mcp_intent_injects_short_descriptions_only() -> None:
    """MCP 意图匹配时注入简短描述: a name and one sentence, and no schema."""
    async with talking(says("Rain."), tools=service()) as world:
        await world.chat("use weather.forecast for Rome")
        assert LINE in world.model.prompts[0]
        assert "It is never wrong" not in world.model.prompts[0] and "minLength" not in world.model.prompts[0]


@pytest.mark.parametrize("text", ["Hello?", "记住我喜欢雨", "Ask me before you do anything."])
async def test_other_intents_inject_no_service_descriptions(text: str) -> None:
    """无 MCP 意图时不注入: memory, human in the loop, normal."""
    async with talking(says("Yes."), tools=service(trigger_keywords=["天气"])) as world:
        assert (await world.chat(text)).headers["X-Context-Intent"] != "mcp"
        assert "forecast" not in world.model.prompts[0] and "weather__" not in world.model.prompts[0]


async def test_native_model_gets_the_service_tools_of_the_intent() -> None:
    """`tool_format: native`: with any parameters, and only under that intent."""
    said = (native(("weather__forecast", {"city": "Rome", "risk_level": "low"})), says("Rain."), says("Hi."))
    async with talking(*said, tools=service(), loop={"tool_format": "native"}) as world:
        assert (await world.chat("use weather.forecast for Rome")).text == "Rain."
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in world.model.asked[0]["tools"]}
        assert offered["weather__forecast"].keys() == {"type", "properties"}
        assert offered["weather__forecast"]["properties"].keys() == {"risk_level"}
        await world.chat("Hello?")
        assert "weather__forecast" not in json.dumps(world.model.asked[2].get("tools"))


# 成功执行工具调用.


@pytest.mark.parametrize("name", ["weather.forecast", "weather__forecast"])
async def test_service_call_result_reaches_the_conversation(name: str) -> None:
    """成功执行工具调用: through the same gate; its result goes into the conversation, by role and name."""
    async with talking(asked(name, city="Rome"), says("Rain."), tools=service()) as world:
        assert (await world.chat("用 weather 工具查一下 Rome")).text == "Rain."
        said, result = world.model.behind()
        assert result == {
            "role": "tool",
            "name": "weather__forecast",
            "content": "weather.forecast: rain in Rome",
            "tool_call_id": said["tool_calls"][0]["id"],
        }


async def test_service_tools_require_approval_and_taint_the_run() -> None:
    """What nobody vouches for is asked for; what it said taints the run."""
    risky = calls("weather__history", city="Rome", risk_level=None)
    async with talking(risky, tools=service()) as world:
        answer = await world.chat("use weather.history for Rome")
        assert answer.json["context"]["status"] == "awaiting_approval"
        assert answer.json["context"]["approvals"][0]["tool"] == "weather.history"
    again = (asked(city="Rome"), asked(city="Oslo"))
    async with talking(*again, tools=service(), risk={"trust_llm": "until_tainted"}) as world:
        answer = await world.chat("use weather.forecast for Rome and Oslo")
        assert answer.json["context"]["approvals"][0]["arguments"] == {"city": "Oslo"}


async def test_wrong_parameters_are_answered_with_the_schema() -> None:
    """The model learns the parameters when it needs them."""
    async with talking(asked(town="Rome"), asked(city="Rome"), says("Rain."), tools=service()) as world:
        assert (await world.chat("use weather.forecast for Rome")).text == "Rain."
        assert "minLength" in json.dumps(world.model.asked[1]["messages"][-1])


# 默认值兼容.


async def test_service_without_keywords_is_recognised_by_name_only() -> None:
    """默认值兼容: it is called by its name only."""
    async with talking(says("a"), says("b"), tools=service()) as world:
        assert (await world.chat("明天天气如何?")).headers["X-Context-Intent"] == "normal"
        assert (await world.chat("use the weather service")).headers["X-Context-Intent"] == "mcp"
