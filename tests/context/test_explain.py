"""The explanation of a request: the result of each stage of its chain."""

from pathlib import Path

from e2e.models import says
from e2e.talking import desk, talking
from e2e.workflow_cases import working

from tests.api.test_explain import NATIVE, explained


async def test_explain_shows_the_request_that_the_model_would_get(tmp_path: Path) -> None:
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


async def test_explain_lists_the_tools_available_to_the_request(tmp_path: Path) -> None:
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


async def test_explain_lists_native_tools_as_in_the_model_request(tmp_path: Path) -> None:
    """As the agent loop adds them for the first model call."""
    async with talking(says("Hi."), tools=desk(tmp_path), chains=NATIVE) as world:
        answer = await explained(world, headers={"X-Context-Chain": "native"})
        await world.chat(headers={"X-Context-Chain": "native"})
        (sent,) = world.model.asked
    assert answer.json["parameters"]["tools"] == sent["tools"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == [tool["name"] for tool in answer.json["tools"]]


async def test_explain_of_a_chain_without_stages_shows_the_request_unchanged(tmp_path: Path) -> None:
    """No intent is looked for, and no tool is offered."""
    async with talking(tools=desk(tmp_path), chains=NATIVE) as world:
        answer = await explained(world, headers={"X-Context-Chain": "bare"})
    assert answer.json["messages"] == [{"role": "user", "content": "Hello?"}]
    assert (answer.json["stages"], answer.json["intent"], answer.json["tools"]) == ([], None, [])


async def test_explain_neither_stores_nor_deletes_memories() -> None:
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


async def test_explain_shows_a_workflow_with_its_parameters_and_steps(tmp_path: Path) -> None:
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
