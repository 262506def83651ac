"""Unix time leaps (N25): what was decided stays decided, what is driven stays driven, and nothing runs twice."""

from pathlib import Path
from typing import Any

import pytest
from e2e.asking import GO, HOLD, answering, asks, behind_question, born, held, ranch, whole
from e2e.models import says
from e2e.talking import World, talking
from gateways import until

from gateway.aio.clock import SystemClock
from gateway.contracts.storage.journal import StoredRun
from gateway.runs import leases as keeper

HOUR_S = 3600.0
DONE = says("Di is here.")


class Clock(SystemClock):
    """The machine's; `ahead_s` is how far its Unix time has leapt, `claims` how many looks for runs are under way, of
    `looks` in all.
    """

    ahead_s = 0.0
    claims = 0
    looks = 0

    async def leap(self, ahead_s: float) -> None:
        """Between two looks.

        One that began before a leap back takes over what was renewed behind the leap, which is safe (its worker loses
        the run, and nothing runs twice) but no subject of these tests.
        """
        await until(lambda: not self.claims)
        self.ahead_s = ahead_s

    def time(self) -> float:
        return super().time() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """For the gateways of this test, which look for runs without a driver all the time."""
    clock = Clock()
    monkeypatch.setattr(keeper, "LOOK_S", 0.01)
    claim = keeper.Leases._claim

    async def counted(*args: Any, **more: Any) -> list[StoredRun]:
        clock.claims += 1
        clock.looks += 1
        try:
            return await claim(*args, **more)
        finally:
            clock.claims -= 1

    monkeypatch.setattr(keeper.Leases, "_claim", counted)
    return clock


async def looked_often(clock: Clock) -> None:
    """Returns when the keepers have looked so often that each has many times."""
    looks = clock.looks + 40
    await until(lambda: clock.looks >= looks)


async def test_expired_approval_stays_expired_after_clock_jumps(tmp_path: Path, clock: Clock) -> None:
    """However the clock is set afterwards: 410, by REST and by chat, and nothing runs."""
    async with talking(asks(), tools=ranch(tmp_path), approvals={"expires": "1h"}, clock=clock) as world:
        first = await world.chat(GO)
        (approval,) = first.asks
        for ahead_s in (HOUR_S + 1, 0.0, -HOUR_S):
            await clock.leap(ahead_s)
            for late in (
                await world.decide(approval["id"]),
                await world.chat(answering(first, f"approve {approval['id']}")),
            ):
                assert (late.status, late.error["code"]) == (410, "approval_expired")
            assert (await world.get(f"/context/approvals/{approval['id']}")).json["state"] == "expired"
        await world.run(approval["run_id"], state="expired")
        assert born(tmp_path) == []


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
async def test_unexpired_approval_can_be_decided_after_clock_jumps(
    tmp_path: Path, clock: Clock, ahead_s: float
) -> None:
    """A run that waits in the store goes on at once: nobody has a lease on it."""
    async with talking(asks(), DONE, tools=ranch(tmp_path), clock=clock) as world:
        (approval,) = (await world.chat(GO)).asks
        await clock.leap(ahead_s)
        assert (await world.decide(approval["id"])).status == 200
        await world.run(approval["run_id"], state="completed")
        assert born(tmp_path) == ["Di"]


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("workers", [1, 2])
async def test_waiting_stream_stays_on_the_worker_that_owns_it(
    tmp_path: Path, clock: Clock, workers: int, ahead_s: float
) -> None:
    """Its lease looks an hour old to everybody; it is renewed and not taken over, and the decision arrives."""
    shared = {"clock": clock, "tools": ranch(tmp_path), "store": f"sqlite:///{tmp_path / 'gateway.db'}"}
    async with (
        talking(asks(), DONE, **shared) as world,
        talking(**shared) as other,
        world.streaming(GO, headers=HOLD) as stream,
    ):
        (approval,) = await held(stream)
        await clock.leap(ahead_s)
        if workers == 2:
            await looked_often(clock)
        by: World = other if workers == 2 else world
        assert (await by.decide(approval["id"])).status == 200
        assert behind_question(await whole(stream)) == "Di is here."
        assert (born(tmp_path), other.model.asked) == (["Di"], [])
        assert (await other.run(approval["run_id"]))["state"] == "completed"
