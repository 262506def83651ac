"""The collection of messages through the whole lane: what each is recognised as, and what of MCP the model then reads.

Lines that can be read in two ways are left out.
"""

import json
from pathlib import Path

from gateway.contracts.tools import encode_model_name

from .models import Json, says
from .serving import SERVICES, behaving, serving
from .talking import World, talking

LINES: list[Json] = [
    json.loads(line) for line in Path(__file__).parents[1].joinpath("data/intent.jsonl").read_text().splitlines()
]
CASES = [line for line in LINES if not line.get("ambiguous")]
OFFER = "These tools can be called now"


def tools_of(services: list[Json]) -> Json:
    return {f"service_{i}": {"use": "e2e.listed", "with": dict(service)} for i, service in enumerate(services)}


async def test_every_message_of_the_collection_gets_its_expected_intent() -> None:
    """Intent, service, tool, trigger; a line for each tool that is meant, and nothing of MCP without the intent."""
    configured: list[Json] = []
    wrong = {}
    async with talking() as world:
        for case in CASES:
            if case["services"] != configured:
                configured = case["services"]
                await world.reload(tools=tools_of(configured))
            if problems := await differences(world, case):
                wrong[case["message"][:40]] = problems
    assert not wrong and len(CASES) > 80


async def differences(world: World, case: Json) -> list[str]:
    """Return the parts of the case that do not hold."""
    expect, problems = case["expect"], []
    world.model.then(says("Well."))
    answer = await world.chat(case["message"])
    prompt = world.model.prompts[-1]
    asked = {"model": "m", "messages": [{"role": "user", "content": case["message"]}]}
    intent = (await world.post(asked, path="/context/explain")).json["intent"]
    if answer.text != "Well.":
        problems.append(f"answered {answer.json}")
    if (answer.headers["X-Context-Intent"] == "mcp") != (expect["intent"] == "MCP"):
        problems.append(f"recognised as {answer.headers['X-Context-Intent']}")
    elif expect["intent"] == "MCP":
        named = intent["rule"] in ("explicit:tool", "explicit:unknown")
        got = intent["service"], intent["tools"][0].rpartition(".")[2] if named else None, intent["rule"].split(":")[0]
        if got != (expect["service"], expect["tool"], expect["trigger"]):
            problems.append(f"taken for {got}")
    if described(prompt) != meant(case):
        problems.append(f"described {described(prompt)}")
    if (OFFER in prompt) != bool(meant(case)) or "minLength" in prompt or "more to say" in prompt:
        problems.append("the prompt says too much, or too little")
    unavailable = case.get("unavailable", False) or intent["rule"] == "explicit:unknown"
    if ("is not available" in prompt) != unavailable:
        problems.append("what is said of a tool that is not there")
    return problems


def described(prompt: str) -> set[str]:
    """The tools of services that have a line in the prompt."""
    lines = (line.removeprefix("- ").partition(": Does ") for line in prompt.splitlines() if line.startswith("- "))
    return {name for name, does, _ in lines if does}


def meant(case: Json) -> set[str]:
    """The tools of which the prompt is to say a line each: those of the service, or the one that is named; and those of
    services that the message names besides (`also`).
    """
    expect = case["expect"]
    services = [s for s in case["services"] if s["name"] == expect["service"] and s["status"] == "running"]
    return {
        encode_model_name(f"{service['name']}.{tool}")
        for service in services
        for tool in service["tools"]
        if expect["tool"] in (None, tool)
    } | {encode_model_name(name) for name in case.get("also", ())}


async def test_stopped_server_is_recognised_by_its_tool_names() -> None:
    """Whoever names a tool of it learns that it does not run; its keywords mean nothing, and nothing is described."""
    box = behaving(trigger_keywords=["箱子"])
    async with serving(says("a"), says("b"), says("c"), says("d"), servers={"box": box}) as world:
        await world.post({}, path=f"{SERVICES}/box/stop")
        for text in ("用 echo 工具", "use box.echo", "调用 box 服务"):
            assert (await world.chat(text)).headers["X-Context-Intent"] == "mcp"
            assert "is not available: its service is not running" in world.model.prompts[-1]
            assert "Says the text again" not in world.model.prompts[-1]
        assert (await world.chat("箱子里有什么?")).headers["X-Context-Intent"] == "normal"
        assert "box" not in world.model.prompts[-1]
