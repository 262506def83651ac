"""Rounds of tools with each room: what its provider must see again comes back, whoever runs the tools."""

import json
from pathlib import Path

import pytest

from .calls import SIGNATURE
from .clients import CLIENTS, Asked, Client
from .room import Room
from .rooms import ROOMS
from .serving import ANSWER, FOUND, LOOK_TWICE, READ, THOUGHT, in_front, posted, serving


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
async def test_a_round_with_tools_ends_in_an_answer(room: Room, client: Client, tmp_path: Path) -> None:
    """The client runs two calls and goes on with what it got; the gateway runs its own, which the model calls natively.

    Each call has an id of its own, and its result comes back under it.
    """
    async with serving(room) as server, in_front(server, tmp_path, tool_format="native") as session:
        for is_stream in (False, True):
            for is_bare in (False, True):
                asked = Asked([], LOOK_TWICE, has_tools=True, is_stream=is_stream, is_bare=is_bare)
                got = await posted(session, client, asked)
                assert not isinstance(got, str), got
                n_calls = min(len(FOUND), room.style.most_calls)
                assert [json.loads(call.arguments) for call in got.calls] == list(FOUND[:n_calls])
                assert len({call.id for call in got.calls}) == n_calls
                results = [f"result {number}" for number in range(n_calls)]
                further = client.goes_on(client.request(asked), got, results)
                final = await posted(session, client, asked, body=further)
                assert not isinstance(final, str), final
                assert final.text.endswith(ANSWER)
                told = server.taken[-1]["messages"]
                calls = [call["id"] for message in told for call in message.get("tool_calls") or ()]
                by_id = {one["tool_call_id"]: one["content"] for one in told if one["role"] == "tool"}
                assert [by_id[one] for one in calls] == results
                _check_what_comes_back(room, told)
            own = await posted(session, client, Asked([], READ, is_stream=is_stream))
            assert not isinstance(own, str), own
            assert own.text.endswith(ANSWER) and "behind the mirror" in str(server.taken[-1]["messages"][-1])
            _check_what_comes_back(room, server.taken[-1]["messages"])


def _check_what_comes_back(room: Room, told: list[dict[str, object]]) -> None:
    """Assert that the model's provider gets the fields again that only it reads, as it sent them."""
    text = json.dumps(told)
    if room.name == "gemini":
        assert json.dumps(SIGNATURE)[1:-1] in text
    if room.name == "deepseek":
        assert json.dumps(THOUGHT) in text
    if room.name == "openrouter":
        assert '"reasoning_details"' in text
