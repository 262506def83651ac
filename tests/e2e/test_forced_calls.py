"""Requests whose answer must be a call of a tool, before a model that answers in text."""

from pathlib import Path

import pytest

from gateway.contracts.storage.store import Json
from tests.api.responses.answering import GATEWAY, answering, kinds, text_of

from .models import calls, native, says
from .talking import desk, talking

LOOK: Json = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
NAMED: Json = {"type": "function", "function": {"name": "look"}}
READ = calls("file_operations", operation="read", path="notes.txt")
WISH = "Your last answer called no tool and was dropped."


@pytest.mark.parametrize("choice", ["required", "any", NAMED])
@pytest.mark.parametrize("stream", [False, True])
async def test_required_tool_choice_is_repeated_until_the_model_calls(choice: object, *, stream: bool) -> None:
    """The text of the first answer does not reach the client; the wish is no second message of the user in a row."""
    async with talking(says("I would look."), native(("look", {}))) as world:
        fields: Json = {"tools": [LOOK], "tool_choice": choice}
        if stream:
            streamed = await world.stream("Look.", **fields)
            assert (streamed.text, streamed.finishes) == ("", ["tool_calls"])
        else:
            answer = await world.chat("Look.", **fields)
            assert answer.finish == "tool_calls" and not answer.message["content"]
        first, second = world.model.asked
        assert first["tool_choice"] == second["tool_choice"] == choice
        assert second["messages"][-1]["content"].startswith(f"Look.\n\n{WISH}")


async def test_second_text_answer_to_a_required_call_is_an_error() -> None:
    """No client takes its text for the answer that it wanted."""
    async with talking(says("I would look."), says("I would.")) as world:
        refused = await world.chat("Look.", tools=[LOOK], tool_choice="required")
        assert (refused.status, refused.error["code"]) == (422, "agent_malformed_tool_call")
        assert "'tool_choice' wants a call of a tool" in refused.error["message"]


@pytest.mark.parametrize("choice", ["auto", "none", None])
async def test_chat_without_a_required_call_returns_text_immediately(choice: str | None) -> None:
    """Nothing is asked again."""
    async with talking(says("Hello.")) as world:
        fields = {} if choice is None else {"tool_choice": choice}
        assert (await world.chat("Hi", tools=[LOOK], **fields)).text == "Hello."


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_truncated_text_is_returned_despite_required_call(finish: str) -> None:
    """Its client knows what to do about a limit or a filter."""
    async with talking(says("I wou", finish=finish)) as world:
        answer = await world.chat("Look.", tools=[LOOK], tool_choice="required")
        assert (answer.finish, answer.text) == (finish, "I wou")


async def test_text_is_accepted_after_the_required_call(tmp_path: Path) -> None:
    """The choice holds for one answer of the model."""
    async with talking(says("Well."), READ, says("Behind it."), tools=desk(tmp_path)) as world:
        answer = await world.chat("Where?", tools=[LOOK], tool_choice="required")
        assert answer.text == "Behind it."


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "mcp", "server_label": "gateway"},
        {"type": "mcp", "server_label": "gateway", "name": "file_operations"},
    ],
)
@pytest.mark.parametrize("background", [False, True])
async def test_response_with_required_gateway_call_gets_the_call(
    tmp_path: Path, choice: object, *, background: bool
) -> None:
    """No field forces a model server to such a call, so the gateway asks again."""
    async with answering(says("Well."), READ, says("Behind it."), tools=desk(tmp_path)) as client:
        made = await client.create("Where?", tools=[GATEWAY], tool_choice=choice, background=background)
        ended = await client.until(made.json["id"], "completed")
        assert kinds(ended["output"]) == ["mcp_list_tools", "mcp_call", "message"]
        assert text_of(ended) == "Behind it."


async def test_response_fails_when_the_model_makes_no_required_call(tmp_path: Path) -> None:
    """In a stream as `response.failed`."""
    async with answering(says("Well."), says("Well!"), tools=desk(tmp_path)) as client:
        events = await client.stream("Where?", tools=[GATEWAY], tool_choice="required")
        assert events.kinds[-1] == "response.failed" and events.text == ""
        assert "wants a call of a tool" in events.last["error"]["message"]
