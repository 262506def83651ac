"""A client that comes back, or asks twice: one run, readable by its tenant only, and one answer (N27, N28)."""

import asyncio
from pathlib import Path

import pytest
from e2e.asking import GO, asks, birth, born, ranch
from e2e.models import Json, says
from e2e.talking import Completed, World, talking
from gateways import key, until_read

from gateway.runs import live

KEYS = [
    {**key("ann", "context"), "tenant": "farm"},
    {**key("bob", "context"), "tenant": "farm"},
    {**key("zoe", "context"), "tenant": "zoo"},
]
BIRTH = asks(birth(risk_level="low"))
DONE = says("Di is here.")


def settings(folder: Path) -> Json:
    return {"tools": ranch(folder), "keys": KEYS, "store": f"sqlite:///{folder / 'gateway.db'}"}


def by(name: str, *, once: str | None = None, again: bool = False) -> dict[str, str]:
    """The headers of one key's request. `once` is its Idempotency-Key; `again`: an SDK says that it repeats itself."""
    headers = {"X-Gateway-Key": name}
    if once is not None:
        headers["Idempotency-Key"] = once
    return headers | ({"X-Stainless-Retry-Count": "1"} if again else {})


async def seen(world: World, run_id: str, name: str, *, state: str) -> Json:
    """The run as this key sees it, once it is in this state."""
    path = f"/context/runs/{run_id}"
    return (await until_read(lambda: world.get(path, **by(name)), lambda found: found.json["state"] == state)).json


# N27.


async def test_reconnecting_client_gets_the_answer_of_its_running_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile its run is there under its id, for its tenant; the call that ran is not run again."""
    monkeypatch.setattr(live, "GRACE_S", 60.0)
    answers = (BIRTH, says("Di ", asyncio.Event()), DONE)
    async with talking(*answers, **settings(tmp_path)) as world:
        async with world.streaming(GO, headers=by("ann")) as stream:
            run_id = stream.response.headers["X-Context-Run-Id"]
            await stream.until_text("Di ")
        for name in ("ann", "bob"):
            assert [step["state"] for step in (await seen(world, run_id, name, state="running"))["steps"]] == [
                "finished"
            ]
        await hidden_from_others(world, run_id)
        again = await world.stream(GO, headers=by("ann", again=True))
        assert (again.text, again.response.headers["X-Context-Run-Id"]) == ("Di is here.", run_id)
        assert (await seen(world, run_id, "ann", state="completed"))["answer"]["content"] == "Di is here."
        assert (born(tmp_path), len(world.model.asked)) == (["Di"], 3)


async def test_late_retry_finds_the_interrupted_run_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has ended without it: its steps are there, and asking again does nothing twice."""
    monkeypatch.setattr(live, "GRACE_S", 0.01)
    async with talking(BIRTH, says("Di ", asyncio.Event()), **settings(tmp_path)) as world:
        async with world.streaming(GO, headers=by("ann")) as stream:
            run_id = stream.response.headers["X-Context-Run-Id"]
            await stream.until_text("Di ")
        found = await seen(world, run_id, "ann", state="interrupted")
        assert [step["state"] for step in found["steps"]] == ["finished"]
        await hidden_from_others(world, run_id)
        async with world.streaming(GO, headers=by("ann", again=True)) as again:
            error = (await again.response.json())["error"]
        assert (again.response.status, error["code"]) == (422, "run_interrupted")
        assert again.response.headers["x-should-retry"] == "false"
        assert (born(tmp_path), len(world.model.asked)) == (["Di"], 2)


async def hidden_from_others(world: World, run_id: str) -> None:
    for path in (f"/context/runs/{run_id}", f"/context/runs/{run_id}/events"):
        assert (await world.get(path, **by("zoe"))).error["code"] == "run_not_found"
    assert (await world.get("/context/runs", **by("zoe"))).json["data"] == []


# N28.


async def test_an_idempotency_key_stands_for_one_run(tmp_path: Path) -> None:
    """During the run, after it, and after a restart: the same answer; another request under that key: 409."""
    more = asyncio.Event()
    headers = by("ann", once="k")
    async with talking(BIRTH, DONE.but(before=more), **settings(tmp_path)) as world:
        during = [asyncio.create_task(world.chat(GO, headers=headers)) for _ in range(2)]
        await world.model.upstream.wait_requests(2)
        during.append(asyncio.create_task(world.chat(GO, headers=headers)))
        await refused(world)
        more.set()
        answers = [*await asyncio.gather(*during), await world.chat(GO, headers=headers)]
        await refused(world)
    async with talking(**settings_again(tmp_path)) as world:
        answers.append(await world.chat(GO, headers=headers))
        await refused(world)
        assert (world.model.asked, born(tmp_path)) == ([], ["Di"])
    assert [answer.text for answer in answers] == ["Di is here."] * 5
    assert len({answer.headers["X-Context-Run-Id"] for answer in answers}) == 1


def settings_again(folder: Path) -> Json:
    """Those of a gateway that starts on what another one has left."""
    work, database = folder / "work", folder / "pets.db"
    tools = {"file_operations": {"roots": [str(work)]}, "execute_sql": {"url": f"sqlite:///{database}"}}
    return {"tools": tools, "keys": KEYS, "store": f"sqlite:///{folder / 'gateway.db'}"}


async def refused(world: World) -> None:
    """The key belongs to another request."""
    other: Completed = await world.chat("Another one.", headers=by("ann", once="k"))
    assert (other.status, other.error["code"]) == (409, "idempotency_mismatch")


async def test_idempotency_key_is_scoped_to_its_sender(tmp_path: Path) -> None:
    """Another tenant's, or another key's of the same tenant, names nothing of this one: each has a run of its own."""
    async with talking(*[BIRTH, DONE] * 3, **settings(tmp_path)) as world:
        for name in ("ann", "bob", "zoe", "ann"):
            assert (await world.chat(GO, headers=by(name, once="k"))).text == "Di is here."
        assert (born(tmp_path), len(world.model.asked)) == (["Di"] * 3, 6)
