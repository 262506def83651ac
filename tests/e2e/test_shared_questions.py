"""One call is one approval of the end user who asked: also of requests at the same moment, and of nobody else."""

import asyncio
from pathlib import Path

import pytest
from gateways import key

from .asking import GO, answering, asks, birth, born, line, pending, ranch, user
from .models import Json, says
from .talking import talking

MEANWHILE = "It was decided meanwhile. What came of it:\n\n"
KEYS: Json = {"keys": [{**key("anna", "context", "approve"), "tenant": "farm"}]}


@pytest.mark.parametrize("stream", [False, True])
async def test_concurrent_identical_requests_share_one_approval(tmp_path: Path, *, stream: bool) -> None:
    """Of one conversation. The second is shown the question of the first, whichever that is: one decision."""
    there = asyncio.Event()
    store = f"sqlite:///{tmp_path / 'gateway.db'}"
    async with talking(
        *[asks().but(before=there)] * 6, says("Di is here."), tools=ranch(tmp_path), store=store
    ) as world:
        ask = world.stream if stream else world.chat
        talk = {"X-Context-Conversation": "one"}
        asked = [asyncio.create_task(ask(f"{GO} ({n})", headers=talk)) for n in range(6)]
        await world.model.upstream.wait_requests(6)
        there.set()
        answers = await asyncio.gather(*asked)
        (waiting,) = await pending(world)
        assert all(waiting in answer.text for answer in answers)
        assert sum("was requested before and is still pending" in answer.text for answer in answers) == 5
        assert (await world.decide(waiting)).status == 200
        run_id = (await world.get(f"/context/approvals/{waiting}")).json["run_id"]
        await world.run(run_id, state="completed")
        assert born(tmp_path) == ["Di"]


def of(name: str, *, by_header: bool) -> tuple[Json, Json]:
    """Headers and further fields of the requests of an end user."""
    return (
        ({"X-Gateway-Key": "anna", "X-Context-User": name}, {})
        if by_header
        else (
            {"X-Gateway-Key": "anna"},
            {"user": name},
        )
    )


@pytest.mark.parametrize("by_header", [False, True])
async def test_second_end_user_receives_a_separate_approval(tmp_path: Path, *, by_header: bool) -> None:
    """Of the same key, with the same words: two questions, and each is repeated to its own user."""
    (ann, of_ann), (bob, of_bob) = (of(name, by_header=by_header) for name in ("ann", "bob"))
    async with talking(asks(), asks(), asks(), tools=ranch(tmp_path), **KEYS) as world:
        (first,) = (await world.chat(GO, headers=ann, **of_ann)).asks
        (second,) = (await world.chat(GO, headers=bob, **of_bob)).asks
        assert first["id"] != second["id"]
        again = await world.chat("Once more.", headers=ann, **of_ann)
        assert line(first) in again.text and second["id"] not in again.text
        assert await pending(world, **ann) == [first["id"], second["id"]]
        assert len(world.model.asked) == 3


async def test_request_without_end_user_receives_a_separate_approval(tmp_path: Path) -> None:
    """Another conversation may lead to the same call: its person sees nothing of the run that asks already."""
    async with talking(asks(), asks(), says("Di is here."), tools=ranch(tmp_path)) as world:
        (first,) = (await world.chat(f"Zoe is ill. {GO}")).asks
        other = await world.chat(GO)
        (second,) = other.asks
        assert first["id"] != second["id"] and first["id"] not in other.text
        assert await pending(world) == [first["id"], second["id"]]
        own = await world.chat(answering(other, line(second)))
        assert own.text == "Di is here." and "Zoe" not in str(world.model.asked[-1]["messages"])


async def test_grants_and_asks_belong_to_one_end_user(tmp_path: Path) -> None:
    """Another user of the same key and conversation name is asked by the gate alone, and takes nothing of it back."""
    talk = {"X-Context-Conversation": "main"}
    ann, bob = ({"X-Gateway-Key": "anna", "X-Context-User": name, **talk} for name in ("ann", "bob"))
    low = asks(birth(risk_level="low"))
    answers = (asks(), says("Di is here."), asks(), says("I will."), says("Fine."), low, low, says("Di is here."))
    async with talking(*answers, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=ann)
        await world.decide(first.asks[0]["id"], key="anna", remember="conversation")
        await world.run(first.asks[0]["run_id"], state="completed", **ann)
        (theirs,) = (await world.chat(GO, headers=bob)).asks
        assert theirs["user"] == "bob" and born(tmp_path) == ["Di"]
        (grant,) = (await world.get("/context/grants", **ann)).json["data"]
        await world.decide(theirs["id"], "reject", key="anna")
        await world.chat("Ask me before you do anything.", headers=ann)
        assert (await world.chat("You need not ask me any more.", headers=bob)).text == "Fine."
        (wish,) = (await world.get("/context/asks", **ann)).json["data"]
        assert (grant["user"], wish["user"]) == ("ann", "ann")
        (again,) = (await world.chat("Once more.", headers=ann)).asks
        assert again["rule"] == "asked_for"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_header", [False, True])
async def test_answer_of_a_decided_run_is_withheld_from_other_end_users(
    tmp_path: Path, *, by_header: bool, stream: bool
) -> None:
    """Not with a conversation that shows the question, and not without any user; the user who asked is."""
    (ann, of_ann), (bob, of_bob) = (of(name, by_header=by_header) for name in ("ann", "bob"))
    answers = (asks(), says("Di is here."), *[says("No idea.")] * 2, says("Bye."))
    async with talking(*answers, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=ann, **of_ann)
        (waiting,) = first.asks
        await world.decide(waiting["id"], key="anna")
        while (await world.get(f"/context/runs/{waiting['run_id']}", **ann)).json["state"] != "completed":
            assert await pending(world, **ann) == []
        said = answering(first, "And?")
        ask = world.stream if stream else world.chat
        for headers, fields in ((bob, of_bob), ({"X-Gateway-Key": "anna"}, {})):
            assert (await ask(said, headers=headers, **fields)).text == "No idea."
        own = await ask(said, headers=ann, **of_ann)
        assert own.text == f"{MEANWHILE}Di is here.\n\nBye." and born(tmp_path) == ["Di"]


async def test_approval_id_alone_does_not_decide_for_another_end_user(tmp_path: Path) -> None:
    """In a request that shows no answer it stands for the only call that waits for its own user."""
    ann, bob = ({"X-Gateway-Key": "anna", "X-Context-User": name} for name in ("ann", "bob"))
    async with talking(asks(), says("Di is here."), tools=ranch(tmp_path), **KEYS) as world:
        (waiting,) = (await world.chat(GO, headers=ann)).asks
        text = f"approve {waiting['id']}"
        assert (await world.chat([user(text)], headers=bob)).text.startswith("Your message decided nothing:")
        assert born(tmp_path) == [] and await pending(world, **ann) == [waiting["id"]]
        assert (await world.chat([user(text)], headers=ann)).text == "Di is here."
