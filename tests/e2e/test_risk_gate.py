"""The scenarios of requirement "risk gate"; each test is named after its scenario."""

import json
import re
from pathlib import Path

import pytest

from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream

from .gated import SAFE, WRITE, asked_first, box, own, ran_at_once, write
from .models import Answer, Json, call, calls, native, says
from .talking import desk, talking

# Requirement: LLM-provided risk level in tool calls.


async def test_llm_provides_low_risk_level(tmp_path: Path) -> None:
    """The call runs without a question, and the level never reaches the tool."""
    async with talking(write("low"), says(SAFE[1]), tools=box(tmp_path)) as world:
        step = await ran_at_once(world, tool="file_operations", basis="llm")
        assert step["arguments"] == WRITE
    assert (tmp_path / "work/new.txt").read_text() == "x"


@pytest.mark.parametrize("level", ["medium", "high", " HIGH "])
async def test_llm_provides_high_risk_level(tmp_path: Path, level: str) -> None:
    """A person sees what exactly would run, and is asked; it runs when they say so. Also where a whitelist knows it."""
    asked = calls("file_operations", operation="read", path="notes.txt", risk_level=level)
    async with talking(asked, says(SAFE[1]), tools=box(tmp_path)) as world:
        answered = await world.chat(SAFE[0])
        (approval,) = answered.asks
        assert approval["arguments"] == {"operation": "read", "path": "notes.txt"}
        for shown in (
            "file_operations",
            'operation: "read"',
            'path: "notes.txt"',
            f"the risk is {level.strip().lower()}",
        ):
            assert shown in answered.text
        assert len(world.model.asked) == 1
        said = [{"role": "user", "content": SAFE[0]}, answered.message]
        assert (await world.chat([*said, {"role": "user", "content": f"approve {approval['id']}"}])).text == SAFE[1]
        assert "mirror" in world.model.behind(1)[-1]["content"]


@pytest.mark.parametrize("level", [None, ""])
async def test_llm_does_not_provide_risk_level_and_the_whitelist_knows_the_call(
    tmp_path: Path, level: str | None
) -> None:
    """The code's own whitelist decides: a harmless call runs."""
    asked = calls("file_operations", operation="read", path="notes.txt", risk_level=level)
    async with talking(asked, says(SAFE[1]), tools=box(tmp_path)) as world:
        await ran_at_once(world, tool="file_operations", basis="whitelist")


async def test_llm_does_not_provide_risk_level_and_the_whitelist_does_not_know_the_call(tmp_path: Path) -> None:
    """Whatever it does not know needs a person."""
    async with talking(write(None), tools=box(tmp_path)) as world:
        await asked_first(world, tool="file_operations", basis="default")
    assert not (tmp_path / "work/new.txt").exists()


@pytest.mark.parametrize("level", ["none", "LOWER", "LOW", " low", "low\n", 0, False, ["low"], {"low": 1}])
async def test_invalid_risk_level_requires_approval(tmp_path: Path, level: object) -> None:
    """What is no level of ours is never read as low."""
    asked = says(
        json.dumps({"tool": "file_operations", "parameters": {**WRITE, "risk_level": level}, "terminate": False})
    )
    async with talking(asked, tools=box(tmp_path)) as world:
        await asked_first(world, tool="file_operations", basis="invalid")


READ: Json = {"operation": "read", "path": "notes.txt"}
BESIDE: dict[str, Json] = {
    "ours": {"tool": "file_operations", "parameters": READ, "terminate": False, "risk_level": "high"},
    "ours, of another spelling": {
        "tool": "file_operations",
        "parameters": READ,
        "terminate": False,
        "riskLevel": "High",
    },
    "that of MCP": {"tool_call": {"name": "file_operations", "arguments": READ, "risk_level": "high"}},
    "that of MCP, outside": {"tool_call": {"name": "file_operations", "arguments": READ}, "risk_level": "high"},
    "two levels": {
        "tool": "file_operations",
        "parameters": {**READ, "risk_level": "low"},
        "terminate": False,
        "risk_level": "high",
    },
}


@pytest.mark.parametrize("written", BESIDE.values(), ids=BESIDE)
async def test_risk_level_beside_the_parameters_raises_the_risk(tmp_path: Path, written: Json) -> None:
    """A model that writes its warning in the wrong place is heard, also where a whitelist knows the call."""
    async with talking(says(json.dumps(written)), tools=box(tmp_path)) as world:
        approval = await asked_first(world, tool="file_operations", basis="llm")
        assert approval["arguments"] == READ


@pytest.mark.parametrize("place", ["function", "call"])
async def test_risk_level_beside_native_arguments_raises_the_risk(tmp_path: Path, place: str) -> None:
    """In the function, or beside it."""
    function: Json = {"name": "file_operations", "arguments": json.dumps(READ)}
    written: Json = {"index": 0, "id": "call_1", "type": "function", "function": function}
    (function if place == "function" else written)["risk_level"] = "high"
    asked = Answer(({"tool_calls": [written]},), finish="tool_calls")
    async with talking(asked, tools=box(tmp_path)) as world:
        await asked_first(world, tool="file_operations", basis="llm")


@pytest.mark.parametrize(("parameters", "level", "basis"), [(WRITE, "low", "default"), (READ, "LOW", "invalid")])
async def test_risk_level_beside_the_parameters_never_lowers_the_risk(
    tmp_path: Path, parameters: Json, level: str, basis: str
) -> None:
    """There it is nobody's word that the risk is low; what is no level asks as it does inside."""
    beside: Json = {"tool": "file_operations", "parameters": parameters, "terminate": False, "risk_level": level}
    async with talking(says(json.dumps(beside)), tools=box(tmp_path)) as world:
        await asked_first(world, tool="file_operations", basis=basis)


async def test_tool_definitions_include_risk_level_parameter(tmp_path: Path) -> None:
    """Optional, low, medium or high, with what each means; in the prompt of all tools."""
    async with talking(says("Hi."), tools=box(tmp_path, commands=True)) as world:
        await world.chat()
        (prompt,) = world.model.prompts
        tools = prompt.split("<tool>")[1:]
        assert len(tools) == 5
        for tool in tools:
            _, _, shown = tool.partition('<parameter name="risk_level" type="string" required="false">')
            shown = shown.partition("</parameter>")[0]
            assert "low, medium, high" in shown
            assert "low: runs automatically" in shown and "medium, high: a person must confirm" in shown


async def test_every_parameter_of_our_tools_is_described(tmp_path: Path) -> None:
    """In words, not by its name and type alone."""
    async with talking(says(SAFE[1]), tools=box(tmp_path, commands=True)) as world:
        await world.chat(SAFE[0])
        parameters = re.findall(r"<parameter [^>]*>([^<]*)", world.model.prompts[0])
        assert len(parameters) > 12 and all(len(about.split()) > 1 for about in parameters), parameters


async def test_tool_definitions_include_risk_level_parameter_in_native_format(tmp_path: Path) -> None:
    """As a JSON Schema with an enum; never required."""
    async with talking(says("Hi."), tools=box(tmp_path, commands=True), loop={"tool_format": "native"}) as world:
        await world.chat()
        for tool in world.model.asked[0]["tools"]:
            parameters = tool["function"]["parameters"]
            level = parameters["properties"]["risk_level"]
            assert (level["type"], level["enum"]) == ("string", ["low", "medium", "high"])
            assert "low: runs automatically; medium, high: a person must confirm" in level["description"]
            assert "risk_level" not in parameters.get("required", ())


# Requirement: risk assessment priority.


async def test_schema_default_is_included_in_the_risk_assessment(tmp_path: Path) -> None:
    """The prompt says that the method is GET by default: such a call needs nobody, and is shown with what would run."""
    async with FakeUpstream(serve(build_answer(200, b"fine"))) as site:
        asked = calls("http_request", risk_level=None, url=site.base_url)
        async with talking(asked, says(SAFE[1]), tools=box(tmp_path)) as world:
            step = await ran_at_once(world, tool="http_request", basis="whitelist")
            assert step["arguments"]["method"] == "GET"
            call_ = {"tool": "http_request", "parameters": {"url": site.base_url}}
            shown = await world.post(
                {"messages": [{"role": "user", "content": "x"}], "calls": [call_]}, path="/context/explain"
            )
            assert shown.json["would_be_verdicts"][0]["decision"] == "auto"


async def test_llm_risk_level_takes_priority(tmp_path: Path) -> None:
    """The model's low lets a call run that no whitelist knows."""
    asked = calls("execute_command", command="touch made", risk_level="low")
    async with talking(asked, says(SAFE[1]), tools=box(tmp_path, commands=True)) as world:
        await ran_at_once(world, tool="execute_command", basis="llm")
    assert (tmp_path / "work/made").exists()


async def test_operator_setting_takes_precedence_over_the_model_risk_level(tmp_path: Path) -> None:
    """`requires_approval`: whatever the model says."""
    tools = box(tmp_path)
    tools["file_operations"]["requires_approval"] = True
    async with talking(write("low"), tools=tools) as world:
        await asked_first(world, tool="file_operations", basis="operator")


@pytest.mark.parametrize("command", ["frobnicate --all", "./run.sh", "python3 -c 1"])
async def test_conservative_default_for_unknown_operations(tmp_path: Path, command: str) -> None:
    """Nothing lists what is dangerous: what is not known to be harmless asks."""
    async with talking(
        calls("execute_command", command=command, risk_level=None), tools=box(tmp_path, commands=True)
    ) as world:
        approval = await asked_first(world, tool="execute_command", basis="default")
        assert approval["arguments"] == {"command": command}


async def test_deny_as_risk_default_refuses_unknown_calls(tmp_path: Path) -> None:
    """`risk.default: deny`: nobody is asked, and the model is told."""
    risk = {"default": "deny"}
    async with talking(write(None), says("I may not."), tools=box(tmp_path), risk=risk) as world:
        assert (await world.chat(SAFE[0])).text == "I may not."
        assert "refused by policy" in world.model.behind()[-1]["content"]
        assert (await world.get("/context/approvals")).json["data"] == []
    assert not (tmp_path / "work/new.txt").exists()


@pytest.mark.parametrize("command", ["init 6", "reboot", "./deploy.sh --now"])
async def test_llm_can_handle_unknown_commands_intelligently(tmp_path: Path, command: str) -> None:
    """The model's own high asks, whatever the command is."""
    async with talking(
        calls("execute_command", command=command, risk_level="high"), tools=box(tmp_path, commands=True)
    ) as world:
        approval = await asked_first(world, tool="execute_command", basis="llm")
        assert (approval["rule"], approval["arguments"]) == ("risk_level_high", {"command": command})


# Requirement: LLM uncertainty handling.


async def test_llm_sets_high_risk_for_uncertain_operation(tmp_path: Path) -> None:
    """The prompt tells the model to, and a person is asked before the call runs."""
    async with talking(
        calls("execute_command", command="init 6", risk_level="high"), tools=box(tmp_path, commands=True)
    ) as world:
        await asked_first(world, tool="execute_command", basis="llm")
        assert "Unsure: set high" in world.model.prompts[0]


async def test_llm_asks_user_before_calling_tool(tmp_path: Path) -> None:
    """A question in text is an answer like any other; after the user's yes the model may call the tool."""
    question = "This operation (touch ready) may be risky. Should I proceed?"
    asked = calls("execute_command", command="touch ready", risk_level="low")
    async with talking(says(question), asked, says("Done."), tools=box(tmp_path, commands=True)) as world:
        first = await world.chat("Touch ready.")
        assert (first.text, first.finish) == (question, "stop") and "context" not in first.json
        assert "ask the user in text" in world.model.prompts[0]
        said = [{"role": "user", "content": "Touch ready."}, first.message, {"role": "user", "content": "Yes."}]
        assert (await world.chat(said)).text == "Done."
    assert (tmp_path / "work/ready").exists()


# Requirement: extensible risk assessor architecture.

TEXT = "a b c"


@pytest.mark.parametrize(
    ("level", "text", "expected"),
    [
        ("low", TEXT * 1000, "llm"),
        (None, TEXT, "whitelist"),
        ("high", TEXT, "asks: llm"),
        (None, TEXT * 1000, "asks: default"),
    ],
)
async def test_new_tool_can_implement_risk_assessor(
    tmp_path: Path, level: str | None, text: str, expected: str
) -> None:
    """Two files: the tool gets `risk_level` by itself; the model's word, then its whitelist, then a person."""
    asked = calls("count_words", text=text, risk_level=level)
    answers = (asked,) if expected.startswith("asks") else (asked, says(SAFE[1]))
    async with talking(*answers, **own(tmp_path, assessor=True)) as world:
        if expected.startswith("asks"):
            await asked_first(world, tool="count_words", basis=expected.removeprefix("asks: "))
        else:
            await ran_at_once(world, tool="count_words", basis=expected)
        assert '<parameter name="risk_level"' in world.model.prompts[0].partition("<name>count_words</name>")[2]


async def test_risk_assessor_interface(tmp_path: Path) -> None:
    """Each tool has its own assessor; a tool that has none is unknown, and asks."""
    settings = own(tmp_path, assessor=False)
    settings["tools"] |= desk(tmp_path)
    both = native(
        ("file_operations", {"operation": "read", "path": "notes.txt"}),
        ("execute_sql", {"sql": "SELECT 1"}),
        ("count_words", {"text": TEXT}),
    )
    async with talking(both, **settings) as world:
        (approval,) = (await world.chat(SAFE[0])).asks
        assert (approval["tool"], approval["rule"]) == ("count_words", "no_assessor")
        steps = (await world.run(approval["run_id"]))["steps"]
        assert [(step["basis"], step["state"]) for step in steps] == [
            ("whitelist", "finished"),
            ("whitelist", "finished"),
            ("default", "requested"),
        ]


async def test_each_call_of_a_group_is_judged_separately(tmp_path: Path) -> None:
    """The harmless one runs, the other one asks; the order stays."""
    group = says(
        json.dumps([call("execute_sql", risk_level=None, sql="DROP TABLE pets"), call("file_operations", **WRITE)])
    )
    async with talking(group, tools=box(tmp_path)) as world:
        (approval,) = (await world.chat(SAFE[0])).asks
        assert approval["tool"] == "execute_sql"
        states = [step["state"] for step in (await world.run(approval["run_id"]))["steps"]]
        assert states == ["requested", "planned"]
    assert not (tmp_path / "work/new.txt").exists()
