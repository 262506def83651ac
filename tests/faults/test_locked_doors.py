"""Another process locks the store longer than the gateway waits: no door reports a success or runs a call."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from crash.doors import ASKING, DECIDING, Client, Question, Told, asked, client_of

from .stored import running
from .test_store import locked

DECIDED_AT = ("REST", "batch", "chat", "chat, streamed", "response", "WebSocket of events", "console", "command")
ASKED_AT = ("chat", "chat, streamed", "response", "response, streamed", "response, background", "response, WebSocket")


async def test_no_door_lies_while_somebody_holds_the_store(tmp_path: Path) -> None:
    """Check that a refused call never ran, and that a call that waits still waits and can be decided."""
    async with running(tmp_path) as lane, AsyncExitStack() as stack:

        async def client() -> Client:
            return await stack.enter_async_context(client_of(lane.gateway))

        first = await client()
        questions: list[Question] = []
        for number, door in enumerate(DECIDED_AT):
            kind = "response" if door == "response" else "chat"
            questions.append(await asked(first, f"decided-{number}", door=kind))
        clients = [await client() for _ in (*DECIDED_AT, *ASKED_AT)]
        assert (await first.send("GET", f"/console/approvals/{questions[0].id}")).is_done  # it makes a secret, once
        with locked(lane.place):
            deciding = [DECIDING[door](clients[n], questions[n], "approve") for n, door in enumerate(DECIDED_AT)]
            asking = [ASKING[door](clients[-1 - n], f"asked-{n}") for n, door in enumerate(ASKED_AT)]
            told: list[Told] = await asyncio.gather(*deciding, *asking)
        refusals = {door: (one.code, one.settled) for door, one in zip((*DECIDED_AT, *ASKED_AT), told, strict=True)}
        assert refusals == dict.fromkeys(refusals, ("store_full", False)), told
        for question in questions:
            assert await lane.state_of(question.id) == "pending" and lane.done(question.name) == 0
            assert (await lane.decide(question.id, "reject")).status == 200
        assert [lane.done(f"asked-{n}") for n in range(len(ASKED_AT))] == [0] * len(ASKED_AT)
