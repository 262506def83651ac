"""What a request leaves behind when it is over: nothing that only the garbage collector finds.

A collection stops all requests at once, and frees in one go what nobody freed before: 130 objects for each request were
a pause of 0.1 s after every few hundred of them.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .models import CUT, Answer, calls, refuses, says
from .talking import World, desk, talking

#: Above what happens now and then beside the requests; each of them would leave at least one.
REQUESTS, STRAY = 20, 5
LOOK = calls("execute_sql", sql="SELECT 1")
WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level="high")


@contextmanager
def uncollected() -> Iterator[Counter[str]]:
    """Inside nothing is collected; afterwards: the types of what would have been, ours and aiohttp's server."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.freeze()  # what was there before is looked at once
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = (type(one) for one in gc.garbage)
        found.update(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if _is_served(kind.__module__))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_served(module: str) -> bool:
    return module.startswith(("gateway.", "plugins.", "aiohttp.web")) and not module.startswith("gateway.testing")


async def answered(world: World) -> None:
    assert (await world.chat()).status == 200


async def streamed(world: World) -> None:
    async with world.streaming() as stream:
        assert (await stream.rest()).events[-1] == b"[DONE]"


async def refused(world: World) -> None:
    assert (await world.chat([])).status == 400


async def failed(world: World) -> None:
    assert (await world.chat()).status == 500


async def cut(world: World) -> None:
    async with world.streaming() as stream:
        assert b'"error"' in (await stream.rest()).events[-1]


async def left(world: World) -> None:
    async with world.streaming() as stream:
        await stream.until_text("Hel")


async def passed(world: World) -> None:
    assert (await world.session.post("/v1/chat/completions", json={"model": "m", "messages": []})).status == 200


async def asked(world: World) -> None:
    assert (await world.chat()).asks


async def responded(world: World, **fields: object) -> None:
    body = {"model": "m", "input": "Hello?", **fields}
    async with world.session.post("/context/v1/responses", json=body) as answer:
        assert answer.status == 200 and b"completed" in await answer.read()


async def responded_in_a_stream(world: World) -> None:
    await responded(world, stream=True)


async def responded_with_calls(world: World) -> None:
    await responded(world, stream=True, tools=[{"type": "mcp", "server_label": "gateway"}])


async def left_a_response(world: World) -> None:
    body = {"model": "m", "input": "Hello?", "stream": True}
    async with world.session.post("/context/v1/responses", json=body) as answer:
        async for line in answer.content:
            if b"Hel" in line:
                return


async def looked(world: World) -> None:
    for page in ("/console", "/console/runs", "/console/tools"):
        assert (await world.session.get(page)).status == 200


KINDS: dict[str, tuple[Callable[[World], Awaitable[None]], tuple[Answer, ...]]] = {
    "text": (answered, (says("Hello."),)),
    "stream": (streamed, (says("Hel", "lo."),)),
    "rounds": (answered, (LOOK, LOOK, says("Done."))),
    "rounds, streamed": (streamed, (LOOK, says("Done."))),
    "a refused request": (refused, ()),
    "a model that refuses": (failed, (refuses(500),)),
    "a broken stream": (cut, (says("Hel", CUT),)),
    "a client that leaves": (left, (says("Hel", asyncio.Event()),)),
    "a question": (asked, (WRITE,)),
    "passthrough": (passed, (says("Hello."),)),
    "a response": (responded, (says("Hello."),)),
    "a response, streamed": (responded_in_a_stream, (says("Hel", "lo."),)),
    "a response with shown calls": (responded_with_calls, (LOOK, says("Done."))),
    "a client that leaves a response": (left_a_response, (says("Hel", asyncio.Event()),)),
    "pages of the console": (looked, ()),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_finished_request_leaves_no_reference_cycles(kind: str, tmp_path: Path) -> None:
    """Whatever it was."""
    request, answers = KINDS[kind]
    async with talking(*answers * (REQUESTS + 2), tools=desk(tmp_path, write=True)) as world:
        for _ in range(2):  # what is made once is made
            await request(world)
        with uncollected() as found:
            for _ in range(REQUESTS):
                await request(world)
            await asyncio.sleep(0)
        assert not {kind: count for kind, count in found.items() if count > STRAY}
