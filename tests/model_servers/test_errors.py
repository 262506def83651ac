"""Errors of each room, in the shape that its server writes: clients get the words, and no half of an answer."""

import json
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from .clients import CLIENTS, Asked, Client, events
from .room import Room
from .rooms import ROOMS
from .serving import BREAK, BROKEN, CUT, TOO_LONG, in_front, serving

STREAMING: Final = [room for room in ROOMS if "no_stream" not in room.learns]
BOUNDED: Final = [room for room in ROOMS if room.too_long is not None]


async def failure(session: aiohttp.ClientSession, client: Client, asked: Asked) -> dict[str, object]:
    """Return the error of a request, wherever its client reads it."""
    async with session.post(client.path, json=client.request(asked)) as response:
        raw = await response.text()
    if response.status != 200:
        found: dict[str, object] = json.loads(raw)["error"]
        return found
    last = events(raw)[-1]
    if client.name == "chat":
        assert '"finish_reason":"stop"' not in raw and "[DONE]" not in raw
        return last["error"]
    assert last["type"] == "response.failed" and "response.output_text.done" not in raw
    return last["response"]["error"]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("room", STREAMING, ids=lambda room: room.name)
async def test_interrupted_answer_fails_with_the_server_message(room: Room, client: Client, tmp_path: Path) -> None:
    """Streamed or not; one that ends early in silence fails, too."""
    async with serving(room) as server, in_front(server, tmp_path) as session:
        for is_stream in (False, True):
            broken = await failure(session, client, Asked([], BREAK, is_stream=is_stream))
            assert BROKEN in str(broken["message"]), broken
            cut = await failure(session, client, Asked([], CUT, is_stream=is_stream))
            assert "up" in str(cut["message"]), cut


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("room", BOUNDED, ids=lambda room: room.name)
async def test_too_long_conversation_returns_context_length_exceeded(
    room: Room, client: Client, tmp_path: Path
) -> None:
    """They shorten it on `context_length_exceeded` alone."""
    async with serving(room) as server, in_front(server, tmp_path) as session:
        found = await failure(session, client, Asked([], TOO_LONG))
    assert found["code"] == "context_length_exceeded", found
