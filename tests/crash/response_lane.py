"""A gateway that dies, or stands still, while a client of the Responses API talks to it; and what became of it all."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp

from gateway.contracts.storage.journal import APPROVED
from tests.support.gateway_process import GatewayProcess

from .asker import Asker, Way
from .disk import Disk
from .effects import ASKS, STARTED, STEPS, Json, Stored, broken_chain, copied, effects, phase_of, stored
from .points import SEEN, point
from .reading import RESPONSES, Reading, event_of, replay

#: From a fault to the end: a lease of 5 s, a look each 1.25 s, and the rest of the run.
COMES_BACK_S = 90.0
#: How long what was sent by a process that is dead takes to arrive.
HEARS_S = 0.5
#: So many gateways start beside each other.
AT_ONCE = 2
#: Every so many runs are killed once more, while they go on.
AGAIN_EACH = 5
#: A worker stands still until another one has its runs, and no longer than anybody waits for a lock.
FROZEN_S = 10.0

By = Literal["time", "events", "writes"]
Fault = Literal["kill -9", "kill -9 beside another gateway", "SIGTERM", "SIGSTOP"]
KINDS = ("lost", "repeated", "unapproved", "untold", "not the same events", "other")


@dataclass(slots=True)
class Figures:
    """The counts over all points."""

    points: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    again: int = 0
    responses: int = 0
    events: int = 0
    cut: int = 0
    results: int = 0
    effects: int = 0
    unknown: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    ended_s: list[float] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), repr=False)

    def __str__(self) -> str:
        counted = (
            ", ".join(f"{count} {what}" for what, count in sorted(counter.items()))
            for counter in (self.points, self.ways, self.phases)
        )
        points, ways, phases = counted
        wrong = ", ".join(f"{len(cases)} {kind}" for kind, cases in self.wrong.items())
        return (
            f"{self.points.total()} points, {self.again} of them twice ({points}; {ways}): {self.responses} responses "
            f"of {self.events} events, {self.cut} of them read over several connections, {self.results} results asked "
            f"for again; {self.effects} effects, {self.unknown} unknown outcomes: {wrong}; at an end at most "
            f"{max(self.ended_s):.1f} s later\nthen: {phases}"
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that nothing happens to: the time from each sight to the next one, its events, its writes."""

    lasts_s: Mapping[str | int, float]
    events: int
    writes: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a run, at this share of it: of its time, of the events that its client sees, of its writes."""

    by: By
    share: float

    async def come(self, asker: Asker, measured: Measured) -> None:
        """Return then. Before a write, the process dies by itself."""
        match self.by:
            case "events":
                while asker.events < int(self.share * measured.events):
                    await asyncio.sleep(0.0005)
            case "time":
                where = point(self.share * len(SEEN), measured.lasts_s)
                while (seen_s := seen(asker).get(where.seen)) is None:
                    await asyncio.sleep(0.0005)
                await asyncio.sleep(max(seen_s + where.offset_s - time.time(), 0))  # the moment is the case
            case "writes":
                await asyncio.Event().wait()


def seen(asker: Asker) -> dict[str | int, float]:
    """When what was seen: by the client, and in the ledger."""
    return {**asker.at_s, **{effect.n: effect.at_s for effect in effects(asker.folder, asker.run)}}


@dataclass(slots=True)
class Lane:
    """A gateway that one fault after the other happens to on one store, each in a run of its own.

    `other` is a second gateway on the same store, to which its clients go then; else it is started again.
    """

    folder: Path
    gateway: GatewayProcess
    other: GatewayProcess | None
    disk: Disk | None
    session: aiohttp.ClientSession
    fault: Fault
    figures: Figures
    measured: dict[Way, Measured] = field(default_factory=dict)

    async def disturbed(self, moment: Moment, number: int, way: Way) -> None:
        """One run, with the fault at this moment."""
        measured = await self._measure(way)
        asker = self._asker(f"run-{number}", way)
        where = f"{self.fault}, run-{number}, {moment}, {way}"
        try:
            async with asyncio.timeout(COMES_BACK_S):
                run = await (self._frozen if self.fault == "SIGSTOP" else self._killed)(asker, moment, measured, number)
        except Exception as error:
            error.add_note(f"{where}: {asker.readings}, {asker.found()}")
            raise
        self.figures.points[f"{self.fault} by {moment.by}"] += 1
        self.figures.ways[str(way)] += 1
        await self._look_at_end(asker, where=where, run=run)
        if self.fault == "kill -9 beside another gateway":
            await self._start()

    def _asker(self, run: str, way: Way) -> Asker:
        return Asker(self.session, self.gateway.base_url, self.folder, run, way)

    async def _measure(self, way: Way) -> Measured:
        if way not in self.measured:
            asker = self._asker(f"undisturbed-{len(self.measured)}", way)
            written = 0 if self.disk is None else self.disk.written
            run = await asker.drive()
            at_s = {**seen(asker), "answer": time.time()}
            lasts_s = {now: at_s[then] - at_s[now] for now, then in zip(SEEN, (*SEEN[1:], "answer"), strict=True)}
            writes = 0 if self.disk is None else self.disk.written - written
            self.measured[way] = Measured(lasts_s, asker.events, writes)
            await self._look_at_end(asker, where=f"undisturbed, {way}", run=run)
        return self.measured[way]

    # Faults.

    async def _killed(self, asker: Asker, moment: Moment, measured: Measured, number: int) -> Stored:
        """The gateway dies; some do once more, while the run goes on."""
        await self._killed_while(asker, moment.come(asker, measured), self._writes_until(moment, measured))
        self._look_after_kill(asker)
        began_s = time.monotonic()
        if self.other is not None:
            asker.url = self.other.base_url
        else:
            await self._start()
            if number % AGAIN_EACH == AGAIN_EACH - 1:
                self.figures.again += 1
                await self._killed_while(asker, asyncio.sleep(number % 20 / 20))  # the moment of the kill is the case
                self._look_after_kill(asker)
                began_s = time.monotonic()
                await self._start()
        run = await asker.drive()
        self.figures.ended_s.append(time.monotonic() - began_s)
        return run

    def _writes_until(self, moment: Moment, measured: Measured) -> int:
        return 1 + int(moment.share * measured.writes) if moment.by == "writes" else 0

    async def _killed_while(self, asker: Asker, coming: Coroutine[object, object, None], writes: int = 0) -> None:
        """Let the client talk until then, or to the end of its talk, and kill. What was answered by then is heard."""
        if self.disk is not None:
            self.disk.die(writes)
        talk, comes = asyncio.create_task(asker.drive()), asyncio.create_task(coming)
        dying = asyncio.create_task(self.gateway.wait(COMES_BACK_S))
        try:
            await asyncio.wait({talk, comes, dying}, return_when=asyncio.FIRST_COMPLETED)
            if writes and talk.done() and talk.exception() is not None:
                await dying  # the client has noticed it first
            if self.disk is not None:
                self.disk.die(0)
            if not dying.done():
                self.gateway.signal(signal.SIGTERM if self.fault == "SIGTERM" else signal.SIGKILL)
                await dying
            await asyncio.wait({talk}, timeout=HEARS_S)
        finally:
            await left(talk, comes, dying)

    async def _frozen(self, asker: Asker, moment: Moment, measured: Measured, _: int) -> Stored:
        """The gateway stands still, and goes on later: its runs are another one's by then, or are not yet.

        Somebody who read the first response from it reads on then, and gets the same events.
        """
        assert self.other is not None
        watched = Reading(asker.way.background)
        talk, comes = asyncio.create_task(asker.drive()), asyncio.create_task(moment.come(asker, measured))
        watching = asyncio.create_task(self._watch(asker, watched))
        try:
            await asyncio.wait({talk, comes}, return_when=asyncio.FIRST_COMPLETED)
            self.gateway.signal(signal.SIGSTOP)
            began_s = time.monotonic()
            await left(talk, comes)
            asker.url = self.other.base_url
            talk = asyncio.create_task(asker.drive_on())
            await asyncio.wait({talk}, timeout=FROZEN_S)
            self.gateway.signal(signal.SIGCONT)
            run = await talk
            self.figures.ended_s.append(time.monotonic() - began_s)
            await watching
        finally:
            self.gateway.signal(signal.SIGCONT)
            await left(talk, comes, watching)
        if (
            watched.frames
            and (again := await replay(self.session, self.gateway.base_url, watched.id)) != watched.frames
        ):
            case = f"{asker.run}, {watched.id}: {len(watched.frames)} were read, {len(again)} are there"
            self.figures.wrong["not the same events"].append(case)
        return run

    async def _watch(self, asker: Asker, watched: Reading) -> None:
        """Read the first response from the beginning to the end, over one connection."""
        while not asker.readings:
            await asyncio.sleep(0.0005)
        path = f"{self.gateway.base_url}{RESPONSES}/{asker.readings[0].id}?stream=true"
        async with self.session.get(path) as response:
            await watched.take(response)

    async def _start(self) -> None:
        async with self.figures.starts:
            await self.gateway.start()

    # Figures.

    def _look_after_kill(self, asker: Asker) -> None:
        """What the file of the dead process has to say."""
        place, wrong = copied(self.folder / "gateway.db", self.folder / "dead"), self.figures.wrong
        run = next(iter(stored(place, asker.run)), None)
        done = {effect.n for effect in effects(self.folder, asker.run)}
        self.figures.phases[phase_of(run, done)] += 1
        known = {step.n for step in run.steps if step.state in STARTED} if run else set()
        wrong["lost"] += [f"{asker.run}: the store knows nothing of effect {n}: {run}" for n in done - known]
        for approval_id in asker.decided:
            if run is None or run.approvals.get(approval_id) not in APPROVED:
                wrong["lost"].append(f"{asker.run}: the decision on {approval_id} was answered: {run}")
        if (broken := broken_chain(place)) is not None:
            wrong["other"].append(f"{asker.run}: {broken}")

    async def _look_at_end(self, asker: Asker, *, where: str, run: Stored) -> None:
        """What was done, and what was told of it."""
        figures, wrong = self.figures, self.figures.wrong
        done = effects(self.folder, asker.run)
        times, whole = Counter(effect.n for effect in done), set(range(1, STEPS + 1))
        figures.effects += len(done)
        figures.unknown += len(asker.resolved)
        figures.results += asker.results
        # What a person has wanted to run once more may be there twice: its first worker may only have stood still.
        often = (n for n, count in times.items() if count > 1 + asker.resolved.count(n) * (self.fault == "SIGSTOP"))
        wrong["repeated"] += [f"{where}: effect {n}, {times[n]} times" for n in often]
        for effect in done:
            if effect.n == ASKS and effect.at_s < asker.at_s.get("approve", float("inf")):
                wrong["unapproved"].append(f"{where}: {effect}, {asker.at_s}")
        if run.state != "completed" or set(times) != whole:
            wrong["lost"].append(f"{where}: ended as {run} with {sorted(times)}")
        if (told := {n for reading in asker.readings for n in reading.calls}) != whole:
            wrong["untold"].append(f"{where}: calls {sorted(told)}")
        for reading in asker.readings:
            await self._look_at(reading, asker, f"{where}, {reading.id}")

    async def _look_at(self, reading: Reading, asker: Asker, where: str) -> None:
        """What its client has read of a response is all of it, in one piece, and stays so."""
        figures, differs = self.figures, self.figures.wrong["not the same events"]
        figures.responses += 1
        figures.events += len(reading.frames)
        figures.cut += reading.connections > 1
        calls = [*reading.calls, *(reading.before.calls if reading.before else ())]
        if len(calls) != len(set(calls)) and not (asker.way.held and asker.results):
            differs.append(f"{where}: shows calls again: {calls}")
        async with self.session.get(f"{asker.url}{RESPONSES}/{reading.id}") as response:
            resource = await response.json()
        if resource != reading.last or resource["status"] != "completed":
            differs.append(f"{where}: {reading.last}, and then {resource}")
        if not asker.way.background:
            events = map(event_of, reading.frames)
            items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
            differs += [
                f"{where}: {item} not in {resource['output']}" for item in items if item not in resource["output"]
            ]
            return
        again = await replay(self.session, asker.url, reading.id)
        if again != reading.frames or not is_gapless(again):
            first = next((i for i, (a, b) in enumerate(zip(again, reading.frames, strict=False)) if a != b), None)
            differs.append(
                f"{where}: {len(reading.frames)} read, {len(again)} are there, {first} is the first other one"
            )
        if [item for _, item in sorted(whole_items(again).items())] != resource["output"]:
            differs.append(f"{where}: the items that ended are not those of the response")
        after = len(again) // 2
        if await replay(self.session, asker.url, reading.id, after=after) != again[after + 1 :]:
            differs.append(f"{where}: behind number {after}")


def whole_items(frames: Sequence[bytes]) -> dict[int, Json]:
    """The items that ended, each once and behind its beginning, by their places."""
    begun, ended = list[int](), dict[int, Json]()
    for event in map(event_of, frames):
        if event["type"] == "response.output_item.added":
            begun.append(event["output_index"])
        elif event["type"] == "response.output_item.done":
            assert event["output_index"] in begun and event["output_index"] not in ended, event
            ended[event["output_index"]] = event["item"]
    assert begun == sorted(set(begun)), begun
    return ended


def is_gapless(frames: Sequence[bytes]) -> bool:
    """Whether events are numbered from 0 on."""
    return [event_of(frame)["sequence_number"] for frame in frames] == list(range(len(frames)))


async def left(*tasks: "asyncio.Task[object]") -> None:
    """End these tasks. A client that lost its gateway may say so."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, aiohttp.ClientError):
            await task
