"""A call of an MCP client outlives its gateway: nothing unapproved, nothing twice unsaid, and nothing lost."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.contracts.storage.journal import APPROVED
from tests.support.gateway_process import GatewayProcess

from .caller import UNKNOWN, Caller, Era
from .effects import STARTED, broken_chain, copied, effects, phase_of, settings, stored

#: What happens to a call, in order.
SEEN: Sequence[str] = ("asked", "question", "approve", "approved", "line", "answer")
#: A run that is nobody's is taken up after its lease of 5 s, by somebody who looks each 1.25 s.
COMES_BACK_S = 90.0
#: So many gateways start beside each other; how much longer things take then than they took when they were measured.
AT_ONCE, STRETCH = 2, 1.3
ERAS: Sequence[Era] = ("auto", "legacy")


@dataclass(slots=True)
class Figures:
    """The counts over all points."""

    points: int = 0
    effects: int = 0
    unknown: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    ended_s: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    unapproved: list[str] = field(default_factory=list)
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), repr=False)

    def __str__(self) -> str:
        phases = ", ".join(f"{count} {phase}" for phase, count in sorted(self.phases.items()))
        return (
            f"tool calls, kill -9 at {self.points} points: {self.effects} effects, {self.unknown} unknown outcomes, "
            f"{len(self.lost)} lost, {len(self.repeated)} silent repeats, {len(self.unapproved)} unapproved effects; "
            f"at an end at most {max(self.ended_s):.1f} s later\nkilled while: {phases}"
        )

    @property
    def faults(self) -> list[str]:
        return [*self.lost, *self.repeated, *self.unapproved]


@dataclass(slots=True)
class Lane:
    """One gateway, or two on one store: the other one is there when the first one dies."""

    folder: Path
    gateway: GatewayProcess
    other: GatewayProcess | None
    figures: Figures

    async def measured(self) -> Mapping[str, float]:
        """Return how long each part of a call lasts that nothing happens to."""
        caller = Caller(lambda: self.gateway.base_url, self.folder, "undisturbed", "auto")
        await asyncio.wait_for(caller.drive(), COMES_BACK_S)
        at_s = [caller.seen_s(what) or 0.0 for what in SEEN]
        return {what: max(after - before, 0.0) for what, (before, after) in zip(SEEN, pairwise(at_s), strict=False)}

    async def killed(self, run: str, place: float, lasts_s: Mapping[str, float], era: Era) -> None:
        """Kill the gateway at a place between two sights, and see the call to its end."""
        here = self.gateway
        caller = Caller(lambda: here.base_url, self.folder, run, era)
        call = asyncio.create_task(caller.drive())
        try:
            seen = SEEN[int(place)]
            while (seen_s := caller.seen_s(seen)) is None and not call.done():
                await asyncio.sleep(0.0005)
            due_s = (seen_s or 0.0) + place % 1 * lasts_s[seen] * STRETCH
            await asyncio.sleep(max(due_s - time.time(), 0))  # the moment of the kill is the case
            await self.gateway.kill()
            killed_s = time.monotonic()
            self._look(caller, copied(self.folder / "gateway.db", self.folder / "dead"))
            if self.other is not None:
                here = self.other
            async with self.figures.starts:
                await self.gateway.start()
            await asyncio.wait_for(call, COMES_BACK_S)
            self.figures.ended_s.append(time.monotonic() - killed_s)
        except TimeoutError:
            self.figures.lost.append(f"{run}: no result: {stored(self.folder / 'gateway.db', run)}, {caller.told}")
        finally:
            call.cancel()
            await asyncio.wait({call})
        self._look_at_end(caller)

    def _look(self, caller: Caller, dead: Path) -> None:
        """Look at what the dead process left."""
        runs, done = stored(dead, caller.run), {effect.n for effect in effects(self.folder, caller.run)}
        self.figures.points += 1
        self.figures.phases[phase_of(runs[0] if runs else None, done)] += 1
        if done and not any(step.state in STARTED for run in runs for step in run.steps):
            self.figures.unapproved.append(f"{caller.run}: the store knows nothing of the effect: {runs}")
        states = {approval_id: state for run in runs for approval_id, state in run.approvals.items()}
        lost = [approval_id for approval_id in caller.approved if states.get(approval_id) not in APPROVED]
        self.figures.lost += [f"{caller.run}: {approval_id} was answered 200: {runs}" for approval_id in lost]

    def _look_at_end(self, caller: Caller) -> None:
        """Look at what became of it: one effect, or one more for each time that its client was told of an unknown."""
        done = effects(self.folder, caller.run)
        unknown = sum(UNKNOWN in text for text in caller.told)
        self.figures.effects += len(done)
        self.figures.unknown += unknown
        if not 1 <= len(done) <= 1 + unknown:
            where = self.figures.repeated if done else self.figures.lost
            where.append(f"{caller.run}: {len(done)} effects: {caller.told}")
        runs = stored(self.folder / "gateway.db", caller.run)
        asked = [state for run in runs for state in run.approvals.values() if state in APPROVED]
        if len(asked) < len(done) or (done and done[0].at_s < caller.at_s["approve"]):
            self.figures.unapproved.append(f"{caller.run}: {runs}")


async def swept(folder: Path, *lanes: tuple[bool, int]) -> Figures:
    """So many points of each lane, spread over a whole call; with another gateway beside it or without."""
    figures = Figures()
    async with asyncio.TaskGroup() as group:
        for number, (is_beside, count) in enumerate(lanes):
            group.create_task(lane(folder / f"lane-{number}", count, figures, is_beside=is_beside))
    print(f"\n{figures}")
    for fault in figures.faults:
        print(fault)
    assert figures.points == sum(count for _, count in lanes)
    return figures


async def lane(folder: Path, count: int, figures: Figures, *, is_beside: bool) -> None:
    folder.mkdir()
    config = json.dumps(settings(folder, mcp={"serve": {"wait": "2s"}}, limits={"drain": "1s"}))
    async with GatewayProcess(config) as gateway:
        if is_beside:
            async with GatewayProcess(config) as other:
                await _points(Lane(folder, gateway, other, figures), count)
        else:
            await _points(Lane(folder, gateway, None, figures), count)
    if (broken := broken_chain(folder / "gateway.db")) is not None:
        figures.lost.append(broken)


async def _points(here: Lane, count: int) -> None:
    lasts_s = await here.measured()
    for k in range(count):
        place = (k + 0.5) * (len(SEEN) - 1) / count
        await here.killed(f"run-{k}", place, lasts_s, ERAS[k % len(ERAS)])


async def test_held_mcp_call_survives_a_gateway_kill(tmp_path: Path) -> None:
    """At a few points: a gateway that starts again, and another one that goes on beside it."""
    figures = await swept(tmp_path, (False, 2), (True, 2))
    assert figures.faults == []


@pytest.mark.crash
async def test_held_mcp_call_survives_kills_at_a_hundred_points(tmp_path: Path) -> None:
    """0 unapproved effects, 0 silent repeats, 0 lost."""
    figures = await swept(tmp_path, (False, 35), (False, 35), (True, 40))
    assert figures.faults == []
