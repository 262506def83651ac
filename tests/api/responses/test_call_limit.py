"""`max_tool_calls`: how many of the gateway's tools a response may call."""

from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from tests.e2e.models import calls, native, says
from tests.e2e.talking import desk

from .answering import GATEWAY, answering, kinds, text_of

READ = calls("file_operations", operation="read", path="notes.txt")
ARGUMENTS: Json = {"operation": "read", "path": "notes.txt", "risk_level": "low"}


@pytest.mark.parametrize("stream", [False, True])
async def test_model_answers_after_the_tool_call_limit(tmp_path: Path, *, stream: bool) -> None:
    """The model is told once that its call did not run, and the response is whole."""
    async with answering(READ, READ, says("Behind the mirror."), tools=desk(tmp_path)) as client:
        fields: Json = {"tools": [GATEWAY], "max_tool_calls": 1}
        response = (await client.stream(**fields)).last if stream else (await client.create(**fields)).json
        assert (response["status"], response["error"]) == ("completed", None)
        made = [item for item in response["output"] if item["type"] == "mcp_call"]
        assert [item["status"] for item in made] == ["completed", "failed"]
        assert "beyond the limit" in made[1]["error"]["content"][0]["text"]
        assert text_of(response) == "Behind the mirror."


async def test_model_that_exceeds_the_call_limit_again_is_stopped(tmp_path: Path) -> None:
    """The client gets a response with what was said and done, and no error."""
    async with answering(READ, READ, READ, tools=desk(tmp_path)) as client:
        answer = await client.create(tools=[GATEWAY], max_tool_calls=1)
        assert (answer.status, answer.json["status"]) == (200, "completed")
        assert [kind for kind in kinds(answer.json["output"]) if kind == "mcp_call"] == ["mcp_call"] * 2
        assert "'max_tool_calls' (1)" in text_of(answer.json)


async def test_parallel_calls_beyond_the_limit_fail(tmp_path: Path) -> None:
    """As many as there may be."""
    at_once = native(("file_operations", ARGUMENTS), ("file_operations", {**ARGUMENTS, "path": "other.txt"}))
    async with answering(at_once, says("Done."), tools=desk(tmp_path)) as client:
        answer = await client.create(tools=[GATEWAY], max_tool_calls=1)
        made = [item for item in answer.json["output"] if item["type"] == "mcp_call"]
        assert [item["status"] for item in made] == ["completed", "failed"]
        assert "mirror" in made[0]["output"] and text_of(answer.json) == "Done."
