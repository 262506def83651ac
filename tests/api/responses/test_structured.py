"""Answers in a format (`text.format`) beside tools of the gateway: the tools run first."""

from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from tests.e2e.models import calls, native, says
from tests.e2e.talking import desk

from .answering import GATEWAY, answering, kinds, text_of

SCHEMA: Json = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
PLACE: Json = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
READ = calls("file_operations", operation="read", path="notes.txt")
WRITE = calls("file_operations", operation="write", path="a.txt", content="x", risk_level="high")
ANSWER = '{"place": "mirror"}'
LOOK: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("background", [False, True])
async def test_tools_run_before_the_formatted_answer(tmp_path: Path, background: bool) -> None:
    """As openai-agents with an output type and a hosted MCP tool asks for it, and `responses.parse`."""
    async with answering(READ, says("Behind the mirror."), says(ANSWER), tools=desk(tmp_path)) as client:
        made = await client.create("Where?", tools=[GATEWAY], text=PLACE, background=background)
        ended = await client.until(made.json["id"], "completed")
        assert kinds(ended["output"]) == ["mcp_list_tools", "mcp_call", "message"]
        assert text_of(ended) == ANSWER and ended["text"]["format"]["schema"] == SCHEMA
        *_, formatting = client.world.model.asked
        assert formatting["response_format"]["json_schema"]["schema"] == SCHEMA


async def test_answer_after_an_approval_has_the_format(tmp_path: Path) -> None:
    """The run goes on as it began."""
    async with answering(WRITE, says(ANSWER), tools=desk(tmp_path, write=True)) as client:
        asked = await client.create("Write.", tools=[GATEWAY], text=PLACE)
        question = asked.json["output"][-1]
        assert question["type"] == "mcp_approval_request" and text_of(asked.json) == ""
        decision = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        fields: Json = {"previous_response_id": asked.json["id"], "tools": [GATEWAY], "text": PLACE}
        answer = await client.create([decision], **fields)
        assert text_of(answer.json) == ANSWER and (tmp_path / "work" / "a.txt").read_text() == "x"


async def test_client_calls_precede_the_formatted_answer(tmp_path: Path) -> None:
    """The client runs its tool, and the answer that follows has the format."""
    call = native(("look", {}), text="Let me look.")
    async with answering(call, says("A mirror."), says(ANSWER), tools=desk(tmp_path)) as client:
        fields: Json = {"tools": [LOOK, GATEWAY], "text": PLACE}
        first = await client.create("Where?", **fields)
        assert kinds(first.json["output"]) == ["mcp_list_tools", "function_call"]
        output = {"type": "function_call_output", "call_id": first.json["output"][-1]["call_id"], "output": "mirror"}
        second = await client.create([output], previous_response_id=first.json["id"], **fields)
        assert text_of(second.json) == ANSWER


async def test_structured_request_without_gateway_tools_calls_the_model_once() -> None:
    """As before: the format holds for the one call, and nothing in it is looked for."""
    written = '{"tool": "file_operations", "parameters": {}, "terminate": false}'
    async with answering(says(written)) as client:
        made = await client.create("Where?", tools=[LOOK], text={"format": {"type": "json_object"}})
        assert text_of(made.json) == written
        (asked,) = client.world.model.asked
        assert asked["response_format"] == {"type": "json_object"}
