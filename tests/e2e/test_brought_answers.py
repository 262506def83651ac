"""What came of a question that was decided elsewhere reaches its client: whole, all of its requests, in any chain."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from .asking import GO, answering, asks, born, ranch
from .models import Json, calls, refuses, says
from .talking import World, desk, stages, talking

MEANWHILE = "It was decided meanwhile. What came of it:\n\n"
AT_ONCE: Json = {"context": {"stream": {"status_wait": "0s"}}}


async def asked_same(world: World, text: str = GO, *, stream: bool) -> str:
    """The answer to this request; an error's code where it is one."""
    if stream:
        return (await world.stream(text)).text
    answer = await world.chat(text)
    return answer.text if answer.status == 200 else str(answer.error["code"])


async def under_way(world: World, requests: int) -> None:
    """Returns once so many requests of the context lane are."""
    while await world.counted('gateway_inflight_requests{mode="context"}') != requests:
        await asyncio.sleep(0)


async def going(world: World, runs: int) -> None:
    """Returns once so many requests have found what they bring: a run that goes on, and not one that is over."""
    while sum(not run.done for run in world.gateway.gateway._state.runs._runs.values()) != runs:
        await asyncio.sleep(0)


async def cut(world: World, *, stream: bool) -> None:
    """Asks, and leaves before the answer is there."""
    if stream:
        async with world.streaming(GO) as left:
            assert "choices" in await left.frame()
    else:
        asking = asyncio.create_task(world.chat(GO))
        await under_way(world, 1)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
    await under_way(world, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_truncated_delivery_is_repeated_to_the_next_same_request(tmp_path: Path, *, stream: bool) -> None:
    """Its client left before the end: the next request like it gets the answer, and only then it is a new one."""
    there = asyncio.Event()
    answers = (asks(), says("Di is here.").but(before=there), says("Anew."))
    async with talking(*answers, tools=ranch(tmp_path), **AT_ONCE) as world:
        await asked_same(world, stream=stream)
        ((waiting, run_id),) = [
            (one["id"], one["run_id"]) for one in (await world.get("/context/approvals")).json["data"]
        ]
        await world.decide(waiting)
        await world.model.upstream.wait_requests(2)
        await cut(world, stream=stream)
        await cut(world, stream=stream)
        there.set()
        await world.run(run_id, state="completed")
        assert await asked_same(world, stream=stream) == "Di is here."
        assert await asked_same(world, stream=stream) == "Anew."
        assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("stream", [False, True])
async def test_concurrent_repeats_after_a_decision_get_the_same_answer(tmp_path: Path, *, stream: bool) -> None:
    """Of a question that was decided on: none of them begins a run of its own."""
    there = asyncio.Event()
    async with talking(asks(), says("Di is here.").but(before=there), tools=ranch(tmp_path), **AT_ONCE) as world:
        await asked_same(world, stream=stream)
        ((waiting),) = [one["id"] for one in (await world.get("/context/approvals")).json["data"]]
        await world.decide(waiting)
        repeats = [asyncio.create_task(asked_same(world, stream=stream)) for _ in range(3)]
        await going(world, 4)  # the run itself, too
        there.set()
        assert await asyncio.gather(*repeats) == ["Di is here."] * 3
        assert born(tmp_path) == ["Di"] and len(world.model.asked) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("repeats_fail", [False, True])
async def test_concurrent_repeats_of_a_parked_run_get_the_same_answer(
    tmp_path: Path, *, stream: bool, repeats_fail: bool
) -> None:
    """Whoever comes while one of them lets the run go on is told what comes of it, not what was before."""
    there = asyncio.Event()
    write = calls("file_operations", operation="write", path="new.txt", content="x")
    last = (refuses(403, "still not") if repeats_fail else says("Written.")).but(before=there)
    async with talking(write, refuses(401), last, tools=desk(tmp_path, write=True), **AT_ONCE) as world:
        if stream:
            await world.stream("Write.")
        else:
            await world.chat("Write.")
        repeats = [asyncio.create_task(told(world, stream=stream)) for _ in range(3)]
        await world.model.upstream.wait_requests(3)
        await going(world, 3)
        there.set()
        answers = await asyncio.gather(*repeats)
        assert all(("still not" if repeats_fail else "Written.") in answer for answer in answers), answers
        assert len(world.model.asked) == 3


async def told(world: World, *, stream: bool) -> str:
    """Everything that a repeat is told."""
    if stream:
        return b"".join((await world.stream("Write.")).events).decode()
    return str((await world.chat("Write.")).json)


@pytest.mark.parametrize("stream", [False, True])
async def test_chain_without_agent_loop_delivers_the_answer_of_a_decided_run(tmp_path: Path, *, stream: bool) -> None:
    """The next message may go to another chain, or the operator has taken the loop out."""
    chains = {**stages(), "plain": []}
    async with talking(asks(), says("Di is here."), says("Hello."), tools=ranch(tmp_path)) as world:
        await world.reload(chains=chains)
        first = await world.chat(GO)
        (waiting,) = first.asks
        await world.decide(waiting["id"])
        await world.run(waiting["run_id"], state="completed")
        ask = world.stream if stream else world.chat
        second = await ask(answering(first, "And?"), headers={"X-Context-Chain": "plain"})
        assert second.text == f"{MEANWHILE}Di is here.\n\nHello."
