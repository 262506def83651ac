"""The requirement mcp-tools with real servers: what is found, recognised, said in the prompt, and configured."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.models import Json, says
from tests.e2e.serving import SERVICES, asked_of, asks, called, seen, serving, until
from tests.e2e.talking import World, talking
from tests.mcp_servers.servers import Program

pytestmark = pytest.mark.mcp_servers

CURRENT = "- time__get_current_time: Get current time in a specific timezone"
CONVERT = "- time__convert_time: Convert time between timezones"
NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}


async def intent_of(world: World, text: str) -> Json:
    """Return the gateway's reading of the text."""
    asked = {"model": "m", "messages": [{"role": "user", "content": text}]}
    shown: Json = (await world.post(asked, path="/context/explain")).json
    intent: Json = shown["intent"]
    return intent


# MCP Tool Discovery.


async def test_available_tools_are_listed(time_server: Program, filesystem_server: Program) -> None:
    """获取可用工具列表: the descriptions of all tools of the services that run."""
    servers = {"time": time_server.entry, "files": filesystem_server.entry}
    async with serving(says("a"), says("b"), servers=servers) as world:
        await world.chat("用 time 服务")
        assert CURRENT in world.model.prompts[0] and CONVERT in world.model.prompts[0]
        await world.chat("用 files 服务")
        assert (
            "- files__read_text_file: " in world.model.prompts[1] and "- files__write_file: " in world.model.prompts[1]
        )
        views = (await world.get(f"{SERVICES}/time/tools")).json["data"]
        assert [view["name"] for view in views] == ["get_current_time", "convert_time"]
        assert all(view["description"] and view["parameters"]["required"] for view in views)


async def test_tools_of_a_service_that_does_not_run_are_not_listed(time_server: Program) -> None:
    """服务未运行时不可用: neither of a stopped one nor of one in error; the others stay."""
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit('no key')"], "trigger_keywords": ["broken"]}
    servers = {"time": time_server.entry | {"trigger_keywords": ["几点"]}, "broken": broken}
    async with talking(mcp={"servers": servers}) as world:
        await until(world, "time")
        await asked_of(world, "/time/stop")
        assert (await seen(world, "time"))["state"] == "stopped"
        why = "its program ended with exit code 1; its last line on standard error: no key"
        found = await until(world, "broken", "error", error=why)
        assert found["stderr"] == ["no key"]
        for text in ("现在几点了?", "What is broken?"):
            world.model.then(says("Well."))
            assert (await world.chat(text)).headers["X-Context-Intent"] == "normal"
            assert "time__" not in world.model.prompts[-1] and "broken__" not in world.model.prompts[-1]
        assert "'time' is not running just now" in await called(world, "time.convert_time", **NOON)
        await asked_of(world, "/time/start")
        await until(world, "time")
        assert "T21:00:00+09:00" in await called(world, "time.convert_time", **NOON)


# MCP Intent Recognition.


async def test_explicit_tool_call_is_recognised(time_server: Program, git_server: Program) -> None:
    """显式工具调用识别: and the name of the tool is in the intent."""
    servers = {"time": time_server.entry, "git": git_server.entry}
    async with serving(says("Noon."), servers=servers) as world:
        for text in ("用 convert_time 工具换算一下", "调用 convert_time", "Please use time.convert_time for this."):
            intent = await intent_of(world, text)
            assert (intent["kind"], intent["rule"]) == ("mcp", "explicit:tool")
            assert (intent["service"], intent["tools"]) == ("time", ["time.convert_time"])
        intent = await intent_of(world, "run git_log and show me the result")
        assert (intent["service"], intent["tools"]) == ("git", ["git.git_log"])
        intent = await intent_of(world, "调用 git 服务")
        assert intent["service"] == "git" and {"git.git_log", "git.git_status"} <= set(intent["tools"])
        assert (await world.chat("用 convert_time 工具")).headers["X-Context-Intent"] == "mcp"


async def test_keyword_trigger_is_recognised(time_server: Program, git_server: Program) -> None:
    """关键词触发识别: the service whose keyword it is."""
    servers = {
        "time": time_server.entry | {"trigger_keywords": ["几点", "timezone"]},
        "git": git_server.entry | {"trigger_keywords": ["提交记录"]},
    }
    async with serving(says("Noon."), servers=servers) as world:
        for text, service in (("现在几点了?", "time"), ("Which timezone is it?", "time"), ("看看提交记录", "git")):
            intent = await intent_of(world, text)
            assert (intent["kind"], intent["service"]) == ("mcp", service) and intent["rule"].startswith("keyword:")
        assert (await world.chat("现在几点了?")).headers["X-Context-Intent"] == "mcp"
        assert CURRENT in world.model.prompts[0] and "git__" not in world.model.prompts[0]


FORMER = [("记住我喜欢猫", "memory"), ("Ask me before you run anything.", "hitl"), ("Hello?", "normal")]


async def test_unmatched_message_keeps_its_previous_intent(time_server: Program) -> None:
    """无匹配时继续原有流程: memory, human in the loop, normal."""
    async with serving(servers={"time": time_server.entry | {"trigger_keywords": ["几点"]}}) as world:
        for text, kind in FORMER:
            world.model.then(says("Well."))
            assert (await world.chat(text)).headers["X-Context-Intent"] == kind


# MCP Tool Description Injection.


async def test_an_mcp_intent_injects_short_descriptions(time_server: Program) -> None:
    """MCP 意图匹配时注入简短描述: the tool's name and one sentence, and no schema."""
    async with serving(says("Noon."), says("Noon."), servers={"time": time_server.entry}) as world:
        await world.chat("用 convert_time 工具")
        assert CONVERT in world.model.prompts[0] and CURRENT not in world.model.prompts[0]
        await world.chat("用 time 服务")
        assert CONVERT in world.model.prompts[1] and CURRENT in world.model.prompts[1]
        whole = json.dumps(world.model.asked)
        for word in ("source_timezone", "target_timezone", "24-hour", "inputSchema"):
            assert word not in whole


async def test_other_intents_inject_no_tool_descriptions(time_server: Program) -> None:
    """无 MCP 意图时不注入: the prompt is the cached one and nothing else, whatever services there are."""
    async with serving(servers={"time": time_server.entry | {"trigger_keywords": ["几点"]}}) as world:
        for text, _ in FORMER:
            world.model.then(says("Well."))
            await world.chat(text)
            assert "time__" not in world.model.prompts[-1] and "timezone" not in world.model.prompts[-1]
        enhanced = (await world.get("/v1/system-prompts/default/enhanced")).json["text"]
        assert world.model.prompts[-1].startswith(enhanced) and "time__" not in enhanced


async def test_service_changes_do_not_invalidate_the_prompt_cache(time_server: Program) -> None:
    """One that starts, stops or is asked for is no other set of tools: the cached part has nothing of it."""
    said = [says("Well.") for _ in range(4)]
    async with talking(*said, mcp={"servers": {"time": time_server.entry}}) as world:
        await world.chat("Hello?")
        await until(world, "time")
        await world.chat("用 time 服务")
        await world.chat("Hello?")
        await asked_of(world, "/time/stop")
        await world.chat("Hello?")
        assert world.model.prompts[0] == world.model.prompts[2] == world.model.prompts[3]
        assert await world.counted('gateway_prompt_cache_invalidations_total{reason="tools"}') == 0


# MCP Service Configuration Extension.


async def test_service_description_can_be_set_and_changed(sqlite_server: Program) -> None:
    """配置工具描述: when it is registered and when it is changed; it stands for a tool that has none of its own."""
    async with talking() as world:
        registered = await asked_of(world, "", {"name": "shop", **sqlite_server.entry, "description": "Our shop."})
        assert (registered.status, registered.json["description"]) == (201, "Our shop.")
        assert (await until(world, "shop"))["tools"] > 4
        changed = await asked_of(world, "/shop", {**sqlite_server.entry, "description": "The shop."}, method="PUT")
        assert (changed.status, changed.json["description"]) == (200, "The shop.")
        assert (await until(world, "shop"))["description"] == "The shop."


async def test_service_trigger_keywords_take_effect_at_once(time_server: Program) -> None:
    """配置触发关键词: the intent layer has them at once, and no longer has those that were taken back."""
    async with talking(says("Noon.")) as world:
        registered = await asked_of(world, "", {"name": "time", **time_server.entry, "trigger_keywords": ["几点"]})
        assert registered.json["trigger_keywords"] == ["几点"]
        await until(world, "time")
        assert (await intent_of(world, "现在几点了?"))["service"] == "time"
        assert (await world.chat("现在几点了?")).headers["X-Context-Intent"] == "mcp"
        since = (await seen(world, "time"))["since"]
        await asked_of(world, "/time", {**time_server.entry, "trigger_keywords": ["时区"]}, method="PUT")
        assert (await until(world, "time"))["since"] > since
        assert (await intent_of(world, "现在几点了?"))["kind"] == "normal"
        assert (await intent_of(world, "哪个时区?"))["service"] == "time"


async def test_service_defaults_to_its_name_and_no_keywords(time_server: Program) -> None:
    """默认值兼容: its name is its description, it has no keywords, and whoever names it gets it."""
    async with talking(says("Noon."), asks("time.convert_time", **NOON), says("21:00")) as world:
        registered = await asked_of(world, "", {"name": "time", **time_server.entry})
        assert (registered.json["description"], registered.json["trigger_keywords"]) == ("time", [])
        await until(world, "time")
        assert (await world.chat("现在几点了?")).headers["X-Context-Intent"] == "normal"
        answer = await world.chat("用 time 服务")
        assert (answer.headers["X-Context-Intent"], answer.text) == ("mcp", "21:00")


async def test_a_registered_service_outlives_a_restart(time_server: Program, tmp_path: Path) -> None:
    """It is kept in the store, runs again by itself, and is gone once it is deleted."""
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    async with talking(store=store) as world:
        await asked_of(world, "", {"name": "time", **time_server.entry, "trigger_keywords": ["几点"]})
    async with talking(store=store) as world:
        assert (await until(world, "time"))["trigger_keywords"] == ["几点"]
        assert "T21:00:00+09:00" in await called(world, "time.convert_time", **NOON)
        assert (await asked_of(world, "/time", method="DELETE")).json["deleted"]
        assert (await world.get(SERVICES)).json["data"] == []
