"""A store that fails while one client asks or decides by one door; and whether what it was told is what happened."""

import asyncio
import errno
import json
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from gateway.contracts.storage.journal import APPROVED
from tests.support.gateway_process import GatewayProcess

from .disk import FOREVER, SYNC, WRITE, Disk
from .doors import ASKING, DECIDING, Client, Question, Told, asked, client_of, processes
from .effects import Json, effects, settings
from .reading import RESPONSES

#: A disk that fails, one that is full, one that is mounted anew for reading.
ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EROFS)
#: How long a fault lasts at most, if its client has no answer before: shorter and longer than one that is waited for.
LASTS_S: Final = (0.2, 0.6, 1.5, 4.0)
#: Of a case, that are waited for; and the writes of a settlement with what follows from it.
SYNCS, SETTLES = 4, 20
#: How long after the store works again what was accepted has begun; and how long it is waited for.
BEGINS_S, LONG_S, LOOK_S = 10.0, 45.0, 0.02
#: Doors at which the same request again joins the run that an error told of.
JOINS: Final = frozenset(("chat", "chat, streamed", "response", "response, streamed", "response, WebSocket"))
WORKFLOW: Final = """name: line
description: Writes a line.
parameters:
  run: {required: true}
steps:
  - {name: line, tool: ledger, with: {run: "{{params.run}}", n: 1}}
  - {name: answer, prompt: "{{steps.line}}"}
"""

Answer: TypeAlias = Coroutine[object, object, Told]
Ask: TypeAlias = Callable[[Client, str], Awaitable[Told]]


@dataclass(slots=True)
class Figures:
    faults: Counter[str] = field(default_factory=Counter)  # those that hit something, by their doors
    told: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    effects: int = 0
    begun_s: list[float] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(
        default_factory=lambda: {
            kind: [] for kind in ("refused in effect", "said not to have run", "repeated", "lost", "told otherwise")
        }
    )

    def __str__(self) -> str:
        wrong = ", ".join(f"{len(cases)} {kind}" for kind, cases in self.wrong.items())
        doors = ", ".join(f"{count} {door}" for door, count in sorted(self.faults.items()))
        answers, latest_s = dict(sorted(self.told.items())), max(self.begun_s, default=0.0)
        return (
            f"{self.faults.total()} faults ({doors}); answers {answers}, {self.repeats} requests sent again, "
            f"{self.effects} effects, begun at most {latest_s:.1f} s after there was room: {wrong}"
        )


@dataclass(slots=True)
class Bench:
    """One gateway on a store that fails. Nothing restarts it: whatever answers is what was asked."""

    gateway: GatewayProcess
    disk: Disk
    folder: Path
    chance: random.Random
    figures: Figures
    _writes: dict[str, int] = field(default_factory=dict)

    async def call(self, door: str, name: str) -> None:
        """A call that runs without a question."""
        figures, ask = self.figures, ASKING[door]
        await self._measured(door, ask)
        async with client_of(self.gateway) as client:
            before = processes(self.gateway)
            told, where = await self._told(door, ask(client, name))
            done = self._done(name)
            if told.is_refused and done:
                figures.wrong["said not to have run"].append(f"{where}: {told}")
            again = None
            if told.is_refused or (told.settled and door in JOINS):
                figures.repeats += 1
                again = await ask(client, name)
            await self._quiet(name)
            assert processes(self.gateway) == before, "the process that was asked has answered"
            times = self._done(name)
            if times > 1:
                figures.wrong["repeated"].append(f"{where}: {times} times: {told}, then {again}")
            if told.is_done and not times and "completed" in self._runs(name):
                figures.wrong["lost"].append(f"{where}: {told}")
            figures.effects += times
            await self._look_at_response(client, told, where)

    async def decide(self, door: str, name: str) -> None:
        """A decision on a call that waits."""
        figures, decide = self.figures, DECIDING[door]

        async def undisturbed(client: Client, one: str) -> Told:
            return await decide(client, await asked(client, one, door=door), "approve")

        await self._measured(f"decided by {door}", undisturbed)
        decision = "approve" if self.chance.random() < 0.75 else "reject"
        async with client_of(self.gateway) as client:
            before = processes(self.gateway)
            question = await asked(client, name, door=door)
            told, where = await self._told(f"decided by {door}", decide(client, question, decision))
            healed_s = time.monotonic()
            state = await self._state(client, question)
            is_undone = told.is_refused or told.code == "store_uncertain"  # that may come back with a crash
            if is_undone and (state != "pending" or self._done(name)):
                figures.wrong["refused in effect"].append(f"{where}, {decision}, is {state}: {told}")
            if told.settled and door in JOINS:
                figures.repeats += 1
                await decide(client, question, decision)
                state = await self._state(client, question)
            if decision == "approve" and state in APPROVED:
                await self._until_begun(name, healed_s, f"{where}, {state}: {told}")
            if state == "pending":  # it was not decided: then the contrary holds
                contrary = "reject" if decision == "approve" else "approve"
                assert (await DECIDING["REST"](client, question, contrary)).is_done, where
                decision, told = contrary, Told(200)
                if contrary == "approve":  # its run is taken up behind the answer
                    await self._until_begun(name, time.monotonic(), f"{where}, {contrary} behind it")
            await self._quiet(name)
            state = await self._state(client, question)
            times = self._done(name)
            figures.effects += times
            if times > 1:
                figures.wrong["repeated"].append(f"{where}: {times} times")
            if times and decision == "reject":
                figures.wrong["refused in effect"].append(f"{where}: ran, {state}: {told}")
            if decision == "approve" and state in APPROVED and not times:
                figures.wrong["lost"].append(f"{where}: {state}: {told}")
            assert processes(self.gateway) == before, "the process that was asked has answered"
            await self._look_at_response(client, told, where)

    async def settle(self, name: str) -> None:
        """A person's word on a call whose outcome is unknown; it ran."""
        figures = self.figures
        ((run_id,),) = self._rows(_RUN_IDS, name)
        async with client_of(self.gateway) as client:
            outcome = self.chance.choice(("done", "failed"))
            body = {"step": 0, "as": outcome}
            self._writes["resume"] = SETTLES
            told, where = await self._told("resume", client.post(f"/context/runs/{run_id}/resume", body))
            (state,) = self._runs(name)
            if told.is_refused and state != "unknown":
                figures.wrong["refused in effect"].append(f"{where}, is {state}: {told}")
            if told.is_done and state == "unknown":
                figures.wrong["lost"].append(f"{where}, is {state}: {told}")
            if state == "unknown":
                assert (await client.post(f"/context/runs/{run_id}/resume", body)).is_done, where
            await self._until_state(name, "completed", where)
            if self._done(name) != 1:
                figures.wrong["repeated"].append(f"{where}: {self._done(name)} times")

    async def until_unknown(self, names: Sequence[str]) -> None:
        """Until a person is asked about all of these, as their process has died."""
        for name in names:
            await self._until_state(name, "unknown", "after a kill")

    async def _until_state(self, name: str, state: str, where: str) -> None:
        since_s = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(LONG_S):
                while self._runs(name) != [state]:
                    await asyncio.sleep(LOOK_S)
        if time.monotonic() - since_s > BEGINS_S:
            self.figures.wrong["lost"].append(f"{where}: {state} after {time.monotonic() - since_s:.1f} s")

    async def _measured(self, door: str, ask: Ask) -> None:
        """Count the writes of a case that nothing happens to, once."""
        if door not in self._writes:
            written = self.disk.written
            async with client_of(self.gateway) as client:
                told = await ask(client, f"undisturbed {door}".replace(" ", "-").replace(",", ""))
            assert told.is_done, told
            self._writes[door] = max(self.disk.written - written, 1)

    async def _told(self, door: str, answer: Answer) -> tuple[Told, str]:
        """Return the answer that a client gets while the store fails, and the place of the fault."""
        what = self.chance.choice((SYNC, WRITE, WRITE, SYNC | WRITE))
        error = self.chance.choice(ERRORS)
        skip = self.chance.randrange(self._writes[door] if what & WRITE else SYNCS)
        times, lasts_s = self.chance.choice((1, 2, 5, FOREVER, FOREVER)), self.chance.choice(LASTS_S)
        if door.endswith("command"):  # which begins late
            lasts_s = LONG_S
        failed = self.disk.failed
        self.disk.fail(what=what, error=error, skip=skip, times=times)
        answering = asyncio.ensure_future(answer)
        await asyncio.wait({answering}, timeout=lasts_s)
        self.disk.heal()
        told = await answering
        hits = self.disk.failed - failed
        self.figures.faults[door] += hits > 0
        kind = "done" if told.is_done else "refused" if told.is_refused else "settled" if told.settled else told.code
        self.figures.told[kind or "nothing"] += 1
        times_told = "for good" if times == FOREVER else f"{times} times"
        return told, f"{door}: {what} with {error} behind {skip}, {times_told}, {hits} hits, at most {lasts_s} s"

    def _done(self, name: str) -> int:
        return len(effects(self.folder, name))

    async def _state(self, client: Client, question: Question) -> str:
        return str((await client.get(f"/context/approvals/{question.id}"))["state"])

    async def _until_begun(self, name: str, since_s: float, where: str) -> None:
        """Wait until an approved call has begun, which it must soon after there is room."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONG_S):
                while not self._done(name):
                    await asyncio.sleep(LOOK_S)
        begun_s = time.monotonic() - since_s
        self.figures.begun_s.append(begun_s)
        if begun_s > BEGINS_S:
            self.figures.wrong["lost"].append(f"{where}, begun after {begun_s:.1f} s")

    async def _quiet(self, name: str) -> None:
        """Until no run of this name goes on by itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONG_S):
                while "running" in self._runs(name):
                    await asyncio.sleep(LOOK_S)

    def _runs(self, name: str) -> Sequence[str]:
        return [state for (state,) in self._rows(_RUNS, name)]

    def _rows(self, statement: str, name: str) -> Sequence[tuple[str, ...]]:
        with closing(sqlite3.connect(f"file:{self.folder / 'gateway.db'}?mode=ro", uri=True, timeout=5)) as connection:
            return connection.execute(statement, (name,)).fetchall()

    async def _look_at_response(self, client: Client, told: Told, where: str) -> None:
        """How a stream ended is how its response is found later, if it is. A poller gets to an end."""
        ended = re.findall(r'"type":\s*"response\.(completed|failed)"', told.text)
        found = re.search(r'"id":\s*"(resp_[0-9a-f]+)"', told.text)
        if not ended or found is None:
            return
        later, status = await self._status(client, found[1])
        first, since_s = status, time.monotonic()
        while status in ("queued", "in_progress") and time.monotonic() - since_s < LONG_S:
            await asyncio.sleep(LOOK_S)
            later, status = await self._status(client, found[1])
        absent = later.status == 404 and told.code != "store_uncertain"
        if not absent and (first, status) != (ended[-1], ended[-1]):
            self.figures.wrong["told otherwise"].append(
                f"{where}: {ended[-1]}, then {first}, and {status} ({later.status}) "
                f"{time.monotonic() - since_s:.1f} s later: {told}"
            )

    async def _status(self, client: Client, response_id: str) -> tuple[Told, str]:
        later = await client.send("GET", f"{RESPONSES}/{response_id}")
        return later, json.loads(later.text)["status"] if later.status == 200 else ""


def configured(folder: Path, *, after_s: float = 0.05) -> Json:
    flows = folder / "flows"
    flows.mkdir(mode=0o700)
    (flows / "line.yaml").write_text(WORKFLOW)
    (flows / "line.yaml").chmod(0o600)
    config = settings(
        folder,
        mcp={"serve": {"wait": "20s"}},
        workflows={"folder": str(flows)},
        limits={"drain": "1s"},
    )
    config["tools"]["ledger"]["with"]["after_s"] = after_s
    return config


_OF_NAME = "FROM runs WHERE id IN (SELECT run_id FROM steps WHERE json_extract(arguments, '$.run') = ?)"
_RUNS, _RUN_IDS = f"SELECT state {_OF_NAME}", f"SELECT id {_OF_NAME}"
