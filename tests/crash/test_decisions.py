"""One decision holds, and its call runs once, however many people decide at once."""

import asyncio
import json
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from gateways import until

from gateway.contracts.storage.journal import APPROVED, ENDED
from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, Json, broken_chain, effects, settings
from .talk import approval_asked, post, session_with

TIMES = 10


async def contested(folder: Path, *, approvals: int, connections: int) -> None:
    """So many approvals, each decided on ten times at once, both ways, by any of two workers."""
    config = settings(folder, workers=2)
    async with GatewayProcess(json.dumps(config)) as gateway, session_with(gateway, connections=32) as session:
        asked = (
            approval_asked(session, f'tool ledger {{"run": "{number}", "n": {ASKS}}}') for number in range(approvals)
        )
        ids = await asyncio.gather(*asked)
        assert effects(folder) == [], "nobody has decided yet"
        async with session_with(gateway, connections=connections) as people:
            began_s = time.monotonic()
            answers = await decided(people, ids)
            took_s = time.monotonic() - began_s
        await until_ended(folder / "gateway.db")
        approved = look_at(answers)
        done = Counter(effect.run for effect in effects(folder))
        assert done == Counter(str(number) for number, approval_id in enumerate(ids) if approval_id in approved)
        assert states(folder / "gateway.db") == {i: "done" if i in approved else "rejected" for i in ids}
        assert broken_chain(folder / "gateway.db") is None
    print(
        f"\n{approvals * TIMES} decisions at once on {approvals} approvals, {connections} connections, two workers: "
        f"{len(approved)} approved and run once, {approvals - len(approved)} rejected, 0 others; {took_s:.1f} s"
    )


async def decided(session: aiohttp.ClientSession, ids: list[str]) -> dict[str, list[tuple[str, int, Json]]]:
    """Status and body of each decision, by approval."""
    answers: dict[str, list[tuple[str, int, Json]]] = {approval_id: [] for approval_id in ids}

    async def decide(approval_id: str, decision: str) -> None:
        status, body = await post(session, f"/context/approvals/{approval_id}", {"decision": decision})
        answers[approval_id].append((decision, status, body))

    chance = random.Random(4)
    wishes = [(approval_id, chance.choice(("approve", "reject"))) for approval_id in ids for _ in range(TIMES)]
    # Neighbours are decided on at the same time, whichever of their wishes comes first.
    await asyncio.gather(*(decide(*wish) for wish in wishes))
    return answers


def look_at(answers: dict[str, list[tuple[str, int, Json]]]) -> set[str]:
    """Which were approved; AssertionError unless everybody was told the same."""
    approved = set()
    for approval_id, told in answers.items():
        assert len(told) == TIMES
        bodies = [body for _, status, body in told if status == 200]
        assert all(body == bodies[0] for body in bodies), bodies
        held = {decision for decision, status, _ in told if status == 200}
        refused = {decision for decision, status, body in told if status == 409}
        assert len(held) == 1 and not held & refused, told
        assert all(status in (200, 409) for _, status, _ in told), told
        assert all(body["error"]["code"] == "decision_conflict" for _, status, body in told if status == 409), told
        if held == {"approve"}:
            assert bodies[0]["state"] in APPROVED
            approved.add(approval_id)
    return approved


async def until_ended(place: Path) -> None:
    """Returns once nothing follows any more."""
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as connection:
        found = "SELECT DISTINCT state FROM runs"
        await until(lambda: all(state in ENDED for (state,) in connection.execute(found)))


def states(place: Path) -> dict[str, str]:
    """The approvals as they are stored."""
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT id, state FROM approvals"))


async def test_concurrent_decisions_hold_once_each(tmp_path: Path) -> None:
    """A3: two hundred on twenty approvals: the first one holds, the same again is told the same, the other is 409."""
    await contested(tmp_path, approvals=20, connections=100)


@pytest.mark.crash
async def test_ten_thousand_concurrent_decisions_hold_once_each(tmp_path: Path) -> None:
    """The same on a thousand approvals: one execution each."""
    await contested(tmp_path, approvals=1000, connections=1000)
