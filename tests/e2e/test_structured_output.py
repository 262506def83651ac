"""Answers in a format (`response_format`), and tools: these run first, and the last answer has the format."""

import json
from pathlib import Path

import pytest

from gateway.agent.loop import FORMAT_WISH

from .models import Answer, Json, calls, native, says
from .serving import behaving, serving
from .talking import desk, stages, talking

SCHEMA: Json = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
PLACE: Json = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
TOOLS = {"X-Context-Tools": "file_operations"}
READ = calls("file_operations", operation="read", path="notes.txt")
ANSWER = '{"place": "mirror"}'
#: The same call in the API's own field, for a chain whose tools the model gets there.
NATIVE = native(("file_operations", {"operation": "read", "path": "notes.txt", "risk_level": "low"}))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("call", [READ, NATIVE])
async def test_response_format_applies_only_to_the_answer_after_the_tools(
    tmp_path: Path, call: Answer, streams: bool
) -> None:
    """The client gets JSON alone: no text of the rounds before it."""
    loop = {"tool_format": "native"} if call is NATIVE else {}
    enhancer = {"tools": False} if call is NATIVE else {}
    answers = (call.but(pieces=("Let me look.\n", *call.pieces)), says("Behind the mirror."), says(ANSWER))
    chains = stages(loop=loop, enhancer=enhancer)
    async with talking(*answers, tools=desk(tmp_path), chains=chains) as world:
        if streams:
            text = (await world.stream("Where is it?", headers=TOOLS, response_format=PLACE)).text
        else:
            text = (await world.chat("Where is it?", headers=TOOLS, response_format=PLACE)).text
        assert text == ANSWER
        looking, reading, formatting = world.model.asked
        assert [body.get("response_format") for body in (looking, reading, formatting)] == [None, None, PLACE]
        assert "tools" not in formatting and world.model.behind()[-2:] == [
            {"role": "assistant", "content": "Behind the mirror."},
            {"role": "user", "content": FORMAT_WISH},
        ]


@pytest.mark.parametrize("wanted", [PLACE, {"type": "json_object"}])
async def test_answer_already_in_the_format_needs_no_further_model_call(tmp_path: Path, wanted: Json) -> None:
    """It costs no further call of the model."""
    async with talking(READ, says(ANSWER), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where is it?", headers=TOOLS, response_format=wanted)).text == ANSWER


async def test_terminating_result_is_converted_into_the_format(tmp_path: Path) -> None:
    """`terminate` shows a result as it is, which is no answer in the format."""
    ending = calls("file_operations", terminate=True, operation="read", path="notes.txt")
    async with talking(ending, says(ANSWER), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where is it?", headers=TOOLS, response_format=PLACE)).text == ANSWER
        *_, result, wish = world.model.behind()
        assert "mirror" in result["content"] and wish["content"] == FORMAT_WISH


@pytest.mark.parametrize("asked", ["use the tool box.echo", "use the service box"])
async def test_prompt_with_a_response_format_announces_no_mcp_tools(asked: str) -> None:
    """Else the client gets the call of a tool that it never declared, as its answer."""
    async with serving(says('{"sum": 3}'), servers={"box": behaving()}) as world:
        wanted = {"type": "json_object"}
        answer = await world.chat(f"{asked} for 1 and 2", response_format=wanted)
        assert json.loads(answer.text) == {"sum": 3}
        (prompt,) = world.model.prompts
        assert "can be called" not in prompt and "box" not in prompt and "JSON format for tool calls" not in prompt
