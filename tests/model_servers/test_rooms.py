"""Clients of two dialects, with four kinds of tools and long histories, in front of each room of the museum."""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from .clients import CLIENTS, Asked, Client, Got
from .histories import HISTORIES
from .room import Room
from .rooms import ROOMS
from .serving import ANSWER, FOUND, LOOK, LOOK_TWICE, READ, THOUGHT, Server, in_front, learnt_by, posted, serving

#: What the user says, and what the request has besides. The gateway's tools are there unless it goes through no stage.
ASKED: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("Where?", {"limit": 50, "is_bare": True}),
    (READ, {}),
    (LOOK, {"has_tools": True, "is_forced": True}),
    (LOOK, {"has_tools": True, "is_strict": True}),
    (LOOK_TWICE, {"has_tools": True, "is_parallel": True, "is_bare": True}),
    (READ, {"has_tools": True, "limit": 50}),
)
#: What the requests of a client have no part of: the Responses API has its own name for the limit of an answer, its
#: developers are the system, and no history of it has thoughts in clear.
_UNSEEN: Final = {
    "chat": frozenset({"max_completion_tokens"}),
    "responses": frozenset({"max_tokens", "no_reasoning", "no_developer_role"}),
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
async def test_each_client_gets_its_answer_from_each_server(room: Room, client: Client, tmp_path: Path) -> None:
    """Texts and thoughts arrive whole, calls of the client's tools go to it, and the gateway's own run.

    A failure names its case. What the room refuses is learnt, and nothing else.
    """
    failures = []
    async with serving(room) as server, in_front(server, tmp_path) as session:
        for number, (name, (said, fields)) in enumerate(product(HISTORIES, ASKED)):
            asked = Asked(HISTORIES[name], f"{said} ({number})", is_stream=(number + number // 6) % 2 == 0, **fields)
            got = await posted(session, client, asked)
            if not _is_right(room, name, said, got, server, is_forced=asked.is_forced):
                failures.append(f"{name}, {asked.said!r}, {'stream' if asked.is_stream else 'whole'}: {got}")
        learnt = await learnt_by(session)
    assert not failures, "\n".join(failures)
    assert learnt == room.learns - _UNSEEN[client.name]


def _is_right(room: Room, history: str, said: str, got: Got | str, server: Server, *, is_forced: bool) -> bool:
    if words := room.lost.get(history):
        return isinstance(got, str) and words in got
    if isinstance(got, str) or (said == READ and "behind the mirror" not in str(server.taken[-1]["messages"][-1])):
        return False
    n_calls = {LOOK: 1, LOOK_TWICE: room.style.most_calls}.get(said, 0)
    if [json.loads(one) for one in got.arguments] != list(FOUND[:n_calls]):
        return False
    place: str = room.style.thought
    text, thought = got.text, got.thought
    if place.startswith("<") and is_forced:  # no text is shown where only a call is an answer
        place = ""
    elif place.startswith("<"):  # thoughts in tags stay in the text
        thought, _, text = text.rpartition(f"</{place[1:]}")
        thought = thought.removeprefix(place)
    return text == ("" if n_calls else ANSWER) and (thought.startswith(THOUGHT) if place else not thought)
