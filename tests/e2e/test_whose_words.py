"""Whose request goes on with a run: another person who decides gets its answer, and takes nothing from who asked."""

import json
from pathlib import Path

import pytest

from .asking import GO, answering, asks, born, line, ranch, user
from .models import Json, says
from .talking import talking
from .test_own_credentials import carried, of
from .test_second_person import KEYS

DONE = says("Di is here.")
EVE = {"X-Gateway-Key": "agent", "X-Context-User": "eve"}
OTHERS = [
    {"X-Gateway-Key": "agent", "X-Context-User": "zoe"},
    {"X-Gateway-Key": "agent"},
    {"X-Gateway-Key": "anna", "X-Context-User": "zoe"},
]


@pytest.mark.parametrize("other", OTHERS)
async def test_who_asked_gets_the_answer_after_another_person_decided_in_a_chat(tmp_path: Path, other: Json) -> None:
    """Her repeated request begins no second run, and the words of the other person reach no model."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=EVE)
        await world.chat([user("the secret of zoe"), *answering(first, line(*first.asks))], headers=other)
        assert (await world.chat(GO, headers=EVE)).text == "Di is here."
        assert "secret of zoe" not in json.dumps(world.model.asked) and born(tmp_path) == ["Di"]


async def test_a_conversation_of_another_name_lends_a_run_nothing(tmp_path: Path) -> None:
    """Where no end user is named, the name of the conversation stands for its people."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), **KEYS) as world:
        eve, zoe = (of(who, **{"X-Context-Conversation": f"{who}s"}) for who in ("eve", "zoe"))
        first = await world.chat(GO, headers=eve)
        await world.chat(answering(first, line(*first.asks)), headers=zoe)
        assert carried(world.model) == [([b"Bearer of-eve"], [b"eves"]), ([], [])] and born(tmp_path) == ["Di"]
