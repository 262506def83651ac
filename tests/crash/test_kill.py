"""Nothing is lost and nothing happens twice, wherever a gateway is killed: counted by what its tool did."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
import pytest

from gateway.contracts.storage.journal import APPROVED
from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, STARTED, STEPS, Stored, broken_chain, copied, effects, phase_of, settings, stored
from .person import Person, Way
from .points import SEEN, Point, places, point

#: A run that is nobody's is taken up after its lease of 5 s, by somebody who looks each 1.25 s.
COMES_BACK_S = 60.0
READY_S = 5.0
#: So many gateways start beside each other: a start is a second or two of work for one core.
AT_ONCE = 2
#: How long what was sent by a process that is dead takes to arrive.
HEARS_S = 0.5
#: What a client may be told that is no question: the end, that a call is unknown, that somebody else drives the run.
ENDED_WELL = f"round {STEPS} of tool calls is done"
SAID = (ENDED_WELL, "what became of it is unknown", "goes on where it is waited for")
#: Every so many runs are killed once more, while they go on.
AGAIN_EACH = 5
WAYS: tuple[Way, ...] = ("rest", "chat")


@dataclass(slots=True)
class Figures:
    """The counts over all points."""

    points: int = 0
    effects: int = 0
    unknown: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    ready_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    lost_approvals: list[str] = field(default_factory=list)
    silent_repeats: list[str] = field(default_factory=list)
    unapproved: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), repr=False)

    def __str__(self) -> str:
        phases = ", ".join(f"{count} {phase}" for phase, count in sorted(self.phases.items()))
        return (
            f"kill -9 at {self.points} points, {len(self.ready_s) - self.points} of them twice: "
            f"{self.effects} effects, {self.unknown} unknown outcomes, "
            f"{len(self.lost_approvals)} lost approvals, {len(self.silent_repeats)} silent repeats, "
            f"{len(self.unapproved)} unapproved effects, {len(self.wrong)} other faults; ready again within "
            f"{median(self.ready_s):.1f} s (p95 {self.ready_p95_s:.1f} s, max {max(self.ready_s):.1f} s), "
            f"at an end {max(self.ended_s):.1f} s later\nkilled while: {phases}"
        )

    @property
    def ready_p95_s(self) -> float:
        return sorted(self.ready_s)[int(len(self.ready_s) * 0.95)]

    @property
    def faults(self) -> list[str]:
        return [*self.lost_approvals, *self.silent_repeats, *self.unapproved, *self.wrong]


async def measured(gateway: GatewayProcess, session: aiohttp.ClientSession, folder: Path) -> dict[str | int, float]:
    """How long each part of a run lasts that nothing happens to."""
    person = Person(session, gateway.base_url, folder, "undisturbed", "chat")
    await person.drive()
    done = effects(folder, "undisturbed")
    assert [effect.n for effect in done] == [*range(1, STEPS + 1)]
    at_s: dict[str | int, float] = {effect.n: effect.at_s for effect in done}
    at_s.update(person.at_s)
    ends = zip(SEEN, (*SEEN[1:], "answer"), strict=True)
    return {seen: at_s[following] - at_s[seen] for seen, following in ends}


async def reached(where: Point, person: Person) -> None:
    """Returns at the point."""
    while True:
        if isinstance(where.seen, str):
            seen_s = person.at_s.get(where.seen)
        else:
            seen_s = next((e.at_s for e in effects(person.folder, person.run) if e.n == where.seen), None)
        if seen_s is not None:
            break
        await asyncio.sleep(0.0005)
    await asyncio.sleep(max(seen_s + where.offset_s - time.time(), 0))  # the moment of the kill is the case


async def killed_at(where: Point, gateway: GatewayProcess, person: Person) -> None:
    """Lets the person talk until then, and kills."""
    await killed_while(asyncio.create_task(person.drive()), reached(where, person), gateway)


async def killed_again(gateway: GatewayProcess, person: Person, *, offset_s: float) -> None:
    """Lets the person come back, and kills so long after the run has gone on, or is at its end."""
    before = len(effects(person.folder, person.run))
    back = asyncio.create_task(person.come_back())

    async def goes_on() -> None:
        while not back.done() and len(effects(person.folder, person.run)) == before:
            await asyncio.sleep(0.0005)
        await asyncio.sleep(offset_s)  # the moment of the kill is the case

    await killed_while(back, goes_on(), gateway)


async def killed_while(
    talk: asyncio.Task[object], until: Coroutine[object, object, None], gateway: GatewayProcess
) -> None:
    """Kills then; what had been answered by then is heard."""
    try:
        await asyncio.wait_for(until, COMES_BACK_S)
        await gateway.kill()
        await asyncio.wait({talk}, timeout=HEARS_S)
    finally:
        talk.cancel()
        await asyncio.wait({talk})
    failure = None if talk.cancelled() else talk.exception()
    assert failure is None or isinstance(failure, aiohttp.ClientError), failure


def look_after_kill(dead: Path, person: Person, figures: Figures) -> None:
    """What the file of the dead process has to say."""
    runs = stored(dead, person.run)
    run = runs[0] if runs else None
    done = effects(person.folder, person.run)
    known = {step.n for step in run.steps if step.state in STARTED} if run else set()
    figures.phases[phase_of(run, {effect.n for effect in done})] += 1
    for effect in done:
        if effect.n not in known:
            figures.wrong.append(f"{person.run}: the store knows nothing of effect {effect.n}: {run}")
    if person.approved and (run is None or run.approvals.get(person.approval_id or "") not in APPROVED):
        figures.lost_approvals.append(f"{person.run}: {person.approval_id} was answered 200: {run}")
    if (broken := broken_chain(dead)) is not None:
        figures.wrong.append(f"{person.run}: {broken}")


def look_at_end(run: Stored, person: Person, figures: Figures) -> None:
    """What became of it all."""
    done = effects(person.folder, person.run)
    figures.effects += len(done)
    figures.unknown += len(person.resolved)
    times = Counter(effect.n for effect in done)
    figures.silent_repeats += [f"{person.run}: effect {n}, {count} times" for n, count in times.items() if count > 1]
    for effect in done:
        if effect.n == ASKS and effect.at_s < person.at_s.get("approve", float("inf")):
            figures.unapproved.append(f"{person.run}: {effect}, asked for approval at {person.at_s}")
    if run.state != "completed" or set(times) != set(range(1, STEPS + 1)):
        figures.wrong.append(f"{person.run}: ended as {run} with {sorted(times)}")
    if ENDED_WELL not in person.told[-1] or not all(any(map(text.__contains__, SAID)) for text in person.told):
        figures.wrong.append(f"{person.run}: was told {person.told}")


async def lane(folder: Path, todo: Iterator[tuple[int, float]], figures: Figures) -> None:
    """One gateway, killed again and again on one store, run after run. `todo` are numbers and places of points."""
    folder.mkdir()
    async with GatewayProcess(json.dumps(settings(folder))) as gateway, aiohttp.ClientSession() as session:
        lasts_s = await measured(gateway, session, folder)
        for number, place in todo:
            where = point(place, lasts_s)
            person = Person(session, gateway.base_url, folder, f"run-{number}", WAYS[number % len(WAYS)])
            try:
                await killed_at(where, gateway, person)
                await started_again(gateway, person, figures)
                if number % AGAIN_EACH == AGAIN_EACH - 1:
                    await killed_again(gateway, person, offset_s=number % 20 / 1000)
                    await started_again(gateway, person, figures)
                began_s = time.monotonic()
                async with asyncio.timeout(COMES_BACK_S):
                    run = await person.come_back()
            except Exception as error:
                error.add_note(f"{where}, {person}")
                raise
            figures.ended_s.append(time.monotonic() - began_s)
            figures.points += 1
            look_at_end(run, person, figures)
        if (broken := broken_chain(folder / "gateway.db")) is not None:
            figures.wrong.append(broken)


async def started_again(gateway: GatewayProcess, person: Person, figures: Figures) -> None:
    """After a kill; what the dead process left is looked at first."""
    look_after_kill(copied(person.folder / "gateway.db", person.folder / "dead"), person, figures)
    async with figures.starts:
        began_s = time.monotonic()
        await gateway.start()
        figures.ready_s.append(time.monotonic() - began_s)


async def swept(folder: Path, *, count: int, lanes: int) -> Figures:
    """Kills at so many points, with so many gateways at once."""
    figures, todo = Figures(), iter(list(enumerate(places(count))))
    async with asyncio.TaskGroup() as group:
        for i in range(lanes):
            group.create_task(lane(folder / f"lane-{i}", todo, figures))
    print(f"\n{figures}")
    assert figures.points == count
    return figures


async def test_runs_survive_kills_at_a_few_points(tmp_path: Path) -> None:
    """A few points: the run comes to its end, each call has one effect, the approved one only after its approval."""
    assert not (await swept(tmp_path, count=6, lanes=3)).faults


@pytest.mark.crash
async def test_runs_survive_two_hundred_kills_and_recover_quickly(tmp_path: Path) -> None:
    """N5: 200 points of a run of ten calls with an approval in the middle, and ready again within 5 s.

    At p95, because others have the machine, too.
    """
    figures = await swept(tmp_path, count=200, lanes=4)
    assert not figures.faults
    assert figures.ready_p95_s <= READY_S
