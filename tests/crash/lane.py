"""A gateway with two workers on a disk that can fail: groups of calls, people who decide, what is on record of them.

Nothing here waits for time to pass: a moment is a number of events in the store, or of decisions that were answered.
"""

import asyncio
import json
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp

from gateway.contracts.storage.journal import ENDED
from tests.support.gateway_process import GatewayProcess

from .disk import Disk
from .effects import Json
from .talk import CHAT, asking

#: The calls of a group: each asks a person. One that a person edits has its number raised by so much.
GROUP, EDITED = (5, 6), 10
#: How often the store is looked at; how long anything may take; how long nothing may happen to a run that goes on by
#: itself: one whose worker died or froze is taken up within 7 s, and a lock is waited for 11 s.
LOOK_S, LONG_S, STUCK_S = 0.01, 90.0, 20.0
Way = Literal["one by one", "batch", "chat", "edited", "two deciders"]
WAYS: Sequence[Way] = ("one by one", "one by one", "batch", "chat", "edited", "two deciders")


@dataclass(frozen=True, slots=True)
class Said:
    """One decision on one call, and its answer; `status` None: there was none."""

    decision: str
    status: int | None
    code: str
    sent_s: float

    @property
    def is_accepted(self) -> bool:
        return self.status == 200

    @property
    def may_hold(self) -> bool:
        """Accepted, or nobody knows; a run that failed behind its decision has an error of its own (422)."""
        return self.status in (None, 200, 422) or self.code == "store_uncertain"


@dataclass
class Talk:
    """One run, of a group of two calls; `ids` are the approvals that were asked for first."""

    name: str
    tool: str
    held: bool
    way: Way
    ids: dict[int, str] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)
    said: dict[int, list[Said]] = field(default_factory=lambda: {n: [] for n in GROUP})

    @property
    def text(self) -> str:
        return " ".join(f'tool {self.tool} {{"run": "{self.name}", "n": {n}}}' for n in GROUP)

    def was(self, n: int, decision: str) -> bool:
        """Whether this decision was accepted."""
        return any(one.decision == decision and one.is_accepted for one in self.said[n])

    def may_be(self, decision: str, *numbers: int) -> bool:
        """Whether it was accepted for one of these, or nobody knows."""
        return any(one.decision == decision and one.may_hold for n in numbers for one in self.said[n])


@dataclass
class Lane:
    """One gateway, and what a test knows of it."""

    gateway: GatewayProcess
    session: aiohttp.ClientSession
    disk: Disk
    folder: Path
    chance: random.Random
    answered: int = 0  # decisions
    #: From when on which tool must not run any more, for whom: a process of an MCP server, or everybody.
    changed_s: float | None = None

    @property
    def place(self) -> Path:
        return self.folder / "gateway.db"

    def rows(self, statement: str, *values: object) -> Iterator[tuple[str, ...]]:
        with closing(sqlite3.connect(f"file:{self.place}?mode=ro", uri=True, timeout=5)) as connection:
            yield from connection.execute(statement, values).fetchall()

    async def json(self, path: str) -> Json:
        async with self.session.get(path) as response:
            found: Json = await response.json()
            return found

    async def post(self, path: str, body: Json) -> tuple[int | None, Json]:
        """Status and answer; None: there was none, or one that broke off."""
        with suppress(aiohttp.ClientError, TimeoutError, json.JSONDecodeError):
            async with self.session.post(path, json=body) as response:
                return response.status, await response.json()
        return None, {}

    async def until(self, reached: Callable[[], object], *, within_s: float = LONG_S) -> bool:
        """Whether it came to this in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not reached():
                    await asyncio.sleep(LOOK_S)
                return True
        return False

    def expire(self, within_s: float) -> None:
        """Whatever is pending expires so soon; as another program on the same store."""
        with closing(sqlite3.connect(self.place, timeout=120)) as connection, connection:
            ends_s = time.time() + within_s
            connection.execute("UPDATE approvals SET expires_s = ? WHERE state = 'pending'", (ends_s,))

    async def moment(self, most: int) -> None:
        """Some events later, or some decisions, but no later than when nothing happens any more."""
        counter: Callable[[], int] = self.chance.choice((self.happened, lambda: self.answered))
        wanted, seen_s, last = counter() + self.chance.randrange(most), time.monotonic(), (0, 0)
        while counter() < wanted and time.monotonic() - seen_s < 1.0:
            if (now := (self.happened(), self.answered)) != last:
                last, seen_s = now, time.monotonic()
            await asyncio.sleep(LOOK_S)

    def happened(self) -> int:
        """How many events are on record."""
        ((count,),) = self.rows(_EVENTS)
        return int(count)

    async def reload(self, text: Json) -> None:
        """Returns once both workers have it."""
        self.gateway.folder.joinpath("gateway.yaml").write_text(json.dumps(text))
        before = self.gateway.read_stderr().count("configuration reloaded")
        self.gateway.signal(signal.SIGHUP)
        loaded = await self.until(lambda: self.gateway.read_stderr().count("configuration reloaded") >= before + 2)
        assert loaded, "two workers reload"

    # People.

    async def ask(self, talk: Talk) -> None:
        """Reads what comes until there is no more, or nobody to say it."""
        headers = {"X-Context-Approvals": "hold" if talk.held else "turn"}
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.post(CHAT, json=asking(talk.text, stream=talk.held), headers=headers) as response:
                await response.read()

    async def until_asked(self, talks: Sequence[Talk]) -> None:
        by_name = {talk.name: talk for talk in talks}
        seen = self.happened() - 1
        async with asyncio.timeout(LONG_S):
            while any(len(talk.words) < len(GROUP) for talk in talks):
                await self.until(lambda seen=seen: self.happened() != seen)  # type: ignore[misc]
                seen = self.happened()
                for view in (await self.json("/context/approvals?status=pending&limit=200"))["data"]:
                    if (talk := by_name.get(view["arguments"]["run"])) is not None:
                        n = view["arguments"]["n"]
                        talk.ids[n], talk.words[n] = view["id"], view["check_word"]

    async def decide(self, talk: Talk, n: int, decision: str, **more: object) -> None:
        """By REST."""
        sent_s = time.time()
        answer = await self.post(f"/context/approvals/{talk.ids[n]}", {"decision": decision, **more})
        self._heard(talk, n, decision, answer, sent_s)

    async def decide_together(self, talk: Talk, decision: str, *, by_chat: bool) -> None:
        """Both in one request: each with an outcome of its own, or in a chat, where they have the same."""
        sent_s = time.time()
        if by_chat:
            words = " ".join(f"{talk.ids[n]} {talk.words[n]}" for n in GROUP)
            answer = await self.post(CHAT, asking(f"{decision} {words}"))
            for n in GROUP:
                self._heard(talk, n, decision, answer, sent_s)
            return
        listed = [{"id": talk.ids[n]} for n in GROUP]
        status, body = await self.post("/context/approvals/batch", {"decision": decision, "approvals": listed})
        for n, one in zip(GROUP, body.get("data") or [body, body], strict=True):
            self._heard(talk, n, decision, (one.get("status", status), one), sent_s)

    def _heard(self, talk: Talk, n: int, decision: str, answer: tuple[int | None, Json], sent_s: float) -> None:
        status, body = answer
        talk.said[n].append(Said(decision, status, str(body.get("error", {}).get("code", "")), sent_s))
        self.answered += status is not None

    async def decide_all(self, talk: Talk) -> None:
        """Three in four are approved as a whole; of the others the first call is rejected, or both by one word."""
        decision = "reject" if self.chance.random() < 0.25 else "approve"
        match talk.way:
            case "batch" | "chat":
                await self.decide_together(talk, decision, by_chat=talk.way == "chat")
            case "two deciders":
                by_rest = self.chance.choice(("approve", "reject"))
                by_chat = self.decide_together(talk, "approve" if by_rest == "reject" else "reject", by_chat=True)
                sides = [by_chat, *(self.decide(talk, n, by_rest) for n in GROUP)]
                await asyncio.gather(*self.chance.sample(sides, len(sides)))
            case "edited" if decision == "approve":
                for n in GROUP:
                    await self.decide(talk, n, decision, **edits(talk, n))
            case _:
                for n in GROUP[: 1 if decision == "reject" else None]:
                    await self.decide(talk, n, decision)

    async def decide_again(self, talk: Talk) -> None:
        """Whoever had no answer asks again, or wants the contrary by now; so do some of those who were refused."""
        if self.chance.random() < 0.6:
            for n, said in talk.said.items():
                if said and not any(one.is_accepted for one in said):
                    decision = self.chance.choice(("approve", "approve", "reject"))
                    await self.decide(talk, n, decision, **(edits(talk, n) if decision == "approve" else {}))

    async def decide_anew(self, talks: Sequence[Talk]) -> int:
        """What was approved is approved again where it is asked for anew; how often."""
        by_name = {talk.name: talk for talk in talks}
        times = 0
        for view in (await self.json("/context/approvals?status=pending&limit=200"))["data"]:
            talk, n = by_name.get(view["arguments"]["run"]), view["arguments"]["n"] % EDITED
            if talk is not None and view["id"] != talk.ids[n] and talk.was(n, "approve"):
                talk.ids[n] = view["id"]
                await self.decide(talk, n, "approve", **edits(talk, n))
                times += 1
        return times

    # The end.

    async def quiet(self, talks: Sequence[Talk]) -> None:
        """Until nothing of these runs goes on by itself, or nothing has for longer than anything takes."""
        names, seen, since_s = {talk.name for talk in talks}, list[object](), time.monotonic()
        while busy := [run for run in self.rows(_RUNS) if run[0] in names and not self._rests(*run[1:])]:
            if (now := [*busy, self.happened()]) != seen:
                seen, since_s = now, time.monotonic()
            if time.monotonic() - since_s > STUCK_S:
                return
            await asyncio.sleep(5 * LOOK_S)

    def _rests(self, run_id: str, state: str) -> bool:
        """Whether it waits for somebody, or has ended: calls run in their order, so the first that is left decides."""
        if state in ENDED or state in ("unknown", "awaiting_client"):
            return True
        latest = dict(self.rows(_LATEST, run_id))
        return next((one for one in latest.values() if one not in ("done", "failed")), None) == "pending"

    def outcomes(self) -> Mapping[tuple[str, int], "Outcome"]:
        """What is on record of each call, by its run's name and the number that it was asked for with."""
        return {
            (name, int(n) % EDITED): Outcome(run_id, state, result or "", run, code, tuple(json.loads(approvals)))
            for name, n, run_id, state, result, run, code, approvals in self.rows(_STEPS)
        }


def edits(talk: Talk, n: int) -> Json:
    """What a decision of this person has besides."""
    return {"arguments": {"run": talk.name, "n": n + EDITED}} if talk.way == "edited" else {}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is on record of a call: its step, its run, and its approvals in the order in which they were asked for."""

    run_id: str
    state: str
    result: str
    run: str
    code: str
    approvals: tuple[str, ...]


_EVENTS = "SELECT coalesce(max(seq), 0) FROM events"
_LATEST = "SELECT step, state FROM approvals WHERE run_id = ? ORDER BY step, created_s, rowid"
_RUNS = """SELECT DISTINCT json_extract(steps.arguments, '$.run'), runs.id, runs.state FROM runs
    JOIN steps ON steps.tenant = runs.tenant AND steps.run_id = runs.id"""
_STEPS = """SELECT json_extract(steps.arguments, '$.run'), json_extract(steps.arguments, '$.n'), runs.id, steps.state,
    steps.result, runs.state, coalesce(runs.error_code, ''),
    (SELECT json_group_array(state) FROM (SELECT state FROM approvals a WHERE a.tenant = steps.tenant
        AND a.run_id = steps.run_id AND a.step = steps.number ORDER BY created_s, rowid))
    FROM steps JOIN runs ON steps.tenant = runs.tenant AND steps.run_id = runs.id"""
