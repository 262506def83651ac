"""Faults between any two steps of groups and held streams, with two workers: counted by what the tools wrote down."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from running import workers_of

from gateway.journal import APPROVED, ENDED
from gateway.testing.run import GatewayProcess

from .disk import ERRORS, FOREVER, SYNC, WRITE, Disk
from .effects import Json, broken_chain, settings
from .talk import CHAT, asking, session_with

#: The calls of a group: each asks a person, and takes a while.
GROUP, CALL_S = (5, 6), 0.3
#: A call that began before a change may have its effect so much later, on a machine that has much to do.
LATE_S = 0.25
#: A run whose worker died or froze is taken up within 7 s.
QUIET_S, STUCK_S, WAITS_S = 60.0, 15.0, 3.0
TALKS = 10


@dataclass(frozen=True, slots=True)
class Said:
    """One decision, and its answer; `status` None: there was none."""

    decision: str
    status: int | None
    code: str
    sent_s: float

    @property
    def may_hold(self) -> bool:
        """Accepted, or nobody knows."""
        return self.status in (None, 200) or self.code == "store_uncertain"


@dataclass
class Talk:
    """One run, of a group of two calls."""

    name: str
    tool: str
    held: bool
    ids: dict[int, str] = field(default_factory=dict)
    said: dict[int, list[Said]] = field(default_factory=lambda: {n: [] for n in GROUP})

    @property
    def words(self) -> str:
        return " ".join(f'tool {self.tool} {{"run": "{self.name}", "n": {n}}}' for n in GROUP)


@dataclass(slots=True)
class Figures:
    runs: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    stopped: int = 0  # approved, and not run, because the store failed: their clients were told
    wrong: dict[str, list[str]] = field(
        default_factory=lambda: {what: [] for what in ("refused", "denied", "lost", "repeated", "untold")}
    )

    def __str__(self) -> str:
        return (
            f"{self.runs.total()} runs ({', '.join(f'{n} {kind}' for kind, n in sorted(self.runs.items()))}), "
            f"{dict(self.decisions)} decisions, {self.effects} effects, {self.unknown} unknown outcomes, "
            f"{self.stopped} approved calls stopped by the store: "
            f"{len(self.wrong['refused'])} refused decisions in effect, {len(self.wrong['denied'])} denied calls run, "
            f"{len(self.wrong['lost'])} accepted decisions lost, {len(self.wrong['repeated'])} silent repeats, "
            f"{len(self.wrong['untold'])} doubtful outcomes untold"
        )


@dataclass
class Lane:
    """A gateway with two workers on a disk that can fail."""

    gateway: GatewayProcess
    session: aiohttp.ClientSession
    disk: Disk
    folder: Path
    chance: random.Random
    #: From when on which tool must not run any more, for whom: a process of an MCP server, or everybody.
    changed_s: float | None = None

    @property
    def place(self) -> Path:
        return self.folder / "gateway.db"

    async def json(self, path: str) -> Json:
        async with self.session.get(path) as response:
            found: Json = await response.json()
            return found

    async def decide(self, talk: Talk, n: int, decision: str) -> None:
        sent_s, status, code = time.time(), None, ""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.post(f"/context/approvals/{talk.ids[n]}", json={"decision": decision}) as response:
                body = await response.json()
                status, code = response.status, str(body.get("error", {}).get("code", ""))
        talk.said[n].append(Said(decision, status, code, sent_s))

    async def reload(self, text: Json) -> None:
        """Returns once both workers have it."""
        self.gateway.folder.joinpath("gateway.yaml").write_text(json.dumps(text))
        before = self.gateway.stderr_text().count("configuration reloaded")
        self.gateway.signal(signal.SIGHUP)
        async with asyncio.timeout(QUIET_S):
            while self.gateway.stderr_text().count("configuration reloaded") < before + 2:
                await asyncio.sleep(0.01)

    async def again(self) -> None:
        await self.gateway.start()


Fault = Callable[[Lane], Awaitable[None]]


async def fsync_fails(lane: Lane) -> None:
    chance = lane.chance
    await asyncio.sleep(chance.uniform(0, 0.4))
    lane.disk.fail(
        what=SYNC, error=chance.choice(ERRORS), skip=chance.randrange(4), times=chance.choice((1, 2, 9, FOREVER))
    )
    await asyncio.sleep(chance.uniform(0.2, 1.0))
    await killed(lane)


async def write_fails(lane: Lane) -> None:
    chance = lane.chance
    await asyncio.sleep(chance.uniform(0, 0.4))
    lane.disk.fail(
        what=WRITE, error=chance.choice(ERRORS), skip=chance.randrange(9), times=chance.choice((1, 3, FOREVER))
    )
    await asyncio.sleep(chance.uniform(0.2, 1.0))
    await killed(lane)


async def fsync_is_slow(lane: Lane) -> None:
    lane.disk.slow(lane.chance.choice((50, 150)))
    await asyncio.sleep(lane.chance.uniform(0, 1.5))
    await killed(lane)


async def fsync_lies(lane: Lane) -> None:
    lane.disk.lie()
    await asyncio.sleep(lane.chance.uniform(0, 1.2))
    await killed(lane)


async def killed(lane: Lane) -> None:
    """Some go on on the disk that works again."""
    if lane.chance.random() < 0.7:
        workers = workers_of(lane.gateway)
        await lane.gateway.kill()
        for worker in workers:  # they follow their parent, as it were a power cut for them
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        lane.disk.heal()
        await lane.again()
    lane.disk.heal()


async def sigterm(lane: Lane) -> None:
    await asyncio.sleep(lane.chance.uniform(0, 1.2))
    if lane.chance.random() < 0.3:
        lane.disk.slow(100)
    lane.gateway.signal(signal.SIGTERM)
    assert await lane.gateway.wait() == 0
    lane.disk.heal()
    await lane.again()


async def worker_dies(lane: Lane) -> None:
    await asyncio.sleep(lane.chance.uniform(0, 1.2))
    os.kill(worker_of(lane), signal.SIGKILL)


async def worker_freezes(lane: Lane) -> None:
    """For less than its lease, or for longer than another one waits."""
    await asyncio.sleep(lane.chance.uniform(0, 0.8))
    worker = worker_of(lane)
    os.kill(worker, signal.SIGSTOP)
    await asyncio.sleep(lane.chance.choice((0.5, 2.0, 8.0)))
    os.kill(worker, signal.SIGCONT)


def worker_of(lane: Lane) -> int:
    """One of the two, whatever children they have."""
    return lane.chance.choice([one.pid for one in workers_of(lane.gateway) if one.parent == lane.gateway.pid])


async def policy_denies(lane: Lane) -> None:
    await asyncio.sleep(lane.chance.uniform(0, 0.8))
    config = json.loads(lane.gateway.folder.joinpath("gateway.yaml").read_text())
    await lane.reload({**config, "risk": {**config["risk"], "rules": {"ledger": "deny"}}})
    lane.changed_s = time.time()


async def definition_changes(lane: Lane) -> None:
    await asyncio.sleep(lane.chance.uniform(0, 0.8))
    lane.folder.joinpath("title.new").write_text(f"Writes a line, {lane.chance.random()}.")
    lane.folder.joinpath("title.new").replace(lane.folder / "title")


KINDS: dict[str, Fault] = {
    "failing fsync": fsync_fails,
    "failing write": write_fails,
    "slow fsync": fsync_is_slow,
    "lying fsync": fsync_lies,
    "SIGTERM": sigterm,
    "killed worker": worker_dies,
    "frozen worker": worker_freezes,
    "deny by reload": policy_denies,
    "changed definition": definition_changes,
}


def configured(folder: Path) -> Json:
    config = settings(folder, workers=2, limits={"drain": "1s"})
    config["tools"]["ledger"]["with"]["after_s"] = CALL_S
    config["risk"]["assessors"]["ledger"]["with"]["asks"] = list(GROUP)
    (folder / "title").write_text("Writes a line.")
    arguments = [str(Path(__file__).with_name("lines.py")), str(folder / "ledger.jsonl"), str(folder / "title")]
    config["mcp"] = {"servers": {"lines": {"command": sys.executable, "args": arguments}}}
    return config


async def ask(lane: Lane, talk: Talk) -> None:
    """Reads what comes until there is no more, or nobody to say it."""
    headers = {"X-Context-Approvals": "hold" if talk.held else "turn"}
    with suppress(aiohttp.ClientError, TimeoutError):
        async with lane.session.post(CHAT, json=asking(talk.words, stream=talk.held), headers=headers) as response:
            await response.read()


async def until_asked(lane: Lane, talks: Sequence[Talk]) -> None:
    by_name = {talk.name: talk for talk in talks}
    async with asyncio.timeout(QUIET_S):
        while any(len(talk.ids) < len(GROUP) for talk in talks):
            for name, n, approval_id in rows(lane, _PENDING):
                if name in by_name:
                    by_name[name].ids[n] = approval_id
            await asyncio.sleep(0.05)


async def until_served(lane: Lane) -> None:
    """By the MCP servers of both workers: either may answer."""
    times = 0
    async with asyncio.timeout(QUIET_S):
        while times < 8:
            (service,) = (await lane.json("/mcp/services"))["data"]
            times = times + 1 if service["state"] == "running" else 0
            await asyncio.sleep(0.05)


async def disturbed(lane: Lane, kind: str, number: int, figures: Figures) -> None:
    """Some runs, decided on while something happens."""
    chance, tool = lane.chance, "lines.write" if kind == "changed definition" else "ledger"
    talks = [Talk(f"{kind}-{number}-{i}", tool, held=bool(i % 2)) for i in range(TALKS)]
    lane.changed_s = None
    await until_served(lane)
    async with asyncio.TaskGroup() as group:
        asks = [group.create_task(ask(lane, talk)) for talk in talks]
        await until_asked(lane, talks)
        fault = group.create_task(KINDS[kind](lane))
        for talk in chance.sample(talks, len(talks)):
            group.create_task(decided(lane, talk))
            await asyncio.sleep(chance.uniform(0, 0.12))
        await fault
        await quiet(lane, talks)
        for talk in talks:
            await decided_again(lane, talk)
        await quiet(lane, talks)
        for task in asks:
            task.cancel()
    looked_at(lane, kind, talks, figures)
    if kind == "deny by reload":
        await allowed_again(lane)
    if kind == "changed definition":
        await lane.session.post("/mcp/services/lines/accept", json={})


async def allowed_again(lane: Lane) -> None:
    """By a restart: a reload opens nothing that was closed."""
    await lane.gateway.stop()
    file = lane.gateway.folder.joinpath("gateway.yaml")
    config = json.loads(file.read_text())
    del config["risk"]["rules"]
    file.write_text(json.dumps(config))
    await lane.gateway.start()


async def decided(lane: Lane, talk: Talk) -> None:
    """Three in four are approved as a whole; of the others the first call is rejected."""
    if lane.chance.random() < 0.25:
        await lane.decide(talk, GROUP[0], "reject")
        return
    for n in GROUP:
        await lane.decide(talk, n, "approve")


async def decided_again(lane: Lane, talk: Talk) -> None:
    """Whoever had no answer asks again, or wants the contrary by now; so do some of those who were refused."""
    if lane.chance.random() < 0.6:
        for n, said in talk.said.items():
            if said and said[-1].status != 200:
                await lane.decide(talk, n, lane.chance.choice(("approve", "approve", "reject")))


async def quiet(lane: Lane, talks: Sequence[Talk]) -> None:
    """Until nothing of these runs goes on by itself, or nothing has for longer than anything takes."""
    names, seen, since_s = {talk.name for talk in talks}, list[object](), time.monotonic()
    while busy := [row for row in rows(lane, _RUNS) if row[0] in names and not _rests(lane, *row[1:])]:
        if (now := [*busy, *rows(lane, _STEPS)]) != seen:
            seen, since_s = now, time.monotonic()
        if time.monotonic() - since_s > (STUCK_S if any(row[2] == "running" for row in busy) else WAITS_S):
            return
        await asyncio.sleep(0.1)


def _rests(lane: Lane, run_id: str, state: str) -> bool:
    if state in ENDED or state in ("unknown", "awaiting_client"):
        return True
    states = [one for (one,) in rows(lane, _STATES, run_id)]
    # The first one that is not through decides: calls run in their order.
    waiting = next((one for one in states if one not in ("done", "unknown")), None)
    return state != "running" and waiting == "pending"


def looked_at(lane: Lane, kind: str, talks: Sequence[Talk], figures: Figures) -> None:
    """By the lines of the ledger, and the store."""
    lines = [json.loads(line) for line in (lane.folder / "ledger.jsonl").read_bytes().splitlines()]
    steps = {(name, n): (state, result or "", run, code) for name, n, state, result, run, code in rows(lane, _STEPS)}
    approvals = dict(rows(lane, _APPROVALS))
    for talk in talks:
        figures.runs[kind] += 1
        for n in GROUP:
            done = [line for line in lines if (line["run"], line["n"]) == (talk.name, n)]
            figures.effects += len(done)
            figures.decisions.update(str(one.status or "none") for one in talk.said[n])
            state, result, run, code = steps[talk.name, n]
            where = f"{talk.name}/{n}: {len(done)} lines, step {state} {result[:60]!r}, run {run} {code}, {talk.said}"
            accepted = any(one.decision == "approve" and one.status == 200 for one in talk.said[n])
            may_approve = any(one.decision == "approve" and one.may_hold for one in talk.said[n])
            # A rejection is one of the whole group.
            may_reject = any(one.decision == "reject" and one.may_hold for said in talk.said.values() for one in said)
            stored = approvals[talk.ids[n]]
            if (not may_approve and (stored in APPROVED or done)) or (stored == "rejected" and not may_reject):
                figures.wrong["refused"].append(f"{where}, {stored}")
            if len(done) > 1 and run != "unknown" and "more than once" not in result:
                figures.wrong["repeated"].append(where)
            if done and ("Not run" in result or state in ("planned", "requested")):
                figures.wrong["untold"].append(where)
            if state == "unknown" or (run == "unknown" and state == "started"):
                figures.unknown += 1
            for line in done:
                if _came_late(lane, line, lines, talk, n):
                    figures.wrong["denied"].append(where)
            if accepted and not done and run == "failed" and code in ("store_full", "store_uncertain"):
                figures.stopped += 1
            elif accepted and not done and not _has_a_reason(lane, kind, talk, n, steps):
                figures.wrong["lost"].append(f"{where}, {stored}")
    if (broken := broken_chain(lane.place)) is not None:
        figures.wrong["lost"].append(f"the audit log: {broken}")


def _came_late(lane: Lane, line: Json, lines: Sequence[Json], talk: Talk, n: int) -> bool:
    """The tool was denied, or another one by then, and the person had decided before that."""
    if (changed_s := lane.changed_s) is None:
        titles = [one["at_s"] for one in lines if one.get("title") and one["pid"] == line.get("pid")]
        asked_s = min(one.sent_s for one in talk.said[n])
        changed_s = next((at_s for at_s in titles if at_s > asked_s), None)
    return changed_s is not None and line["at_s"] > changed_s + LATE_S


def _has_a_reason(
    lane: Lane, kind: str, talk: Talk, n: int, steps: dict[tuple[str, int], tuple[str, str, str, str]]
) -> bool:
    """Why an accepted call did not run: one in front of it, policy, another tool; or nobody knows, and says so."""
    state, result, run, _ = steps[talk.name, n]
    if state in ("started", "unknown") or run == "unknown":
        return True
    others = [said for number, said in talk.said.items() if number != n]
    if any(not any(one.decision == "approve" and one.status == 200 for one in said) for said in others):
        return run in ("awaiting_approval", "rejected")  # it waits for the other one, or ended with it
    if kind in ("deny by reload", "changed definition"):
        return "Not run" in result or run in ("awaiting_approval", "failed")
    return False


def rows(lane: Lane, statement: str, *values: str) -> Iterator[tuple[str, ...]]:
    with closing(sqlite3.connect(f"file:{lane.place}?mode=ro", uri=True, timeout=5)) as connection:
        yield from connection.execute(statement, values).fetchall()


_PENDING = "SELECT json_extract(arguments, '$.run'), json_extract(arguments, '$.n'), id FROM approvals"
_APPROVALS = "SELECT id, state FROM approvals"
_STATES = "SELECT state FROM approvals WHERE run_id = ? ORDER BY step"
_RUNS = """SELECT DISTINCT json_extract(steps.arguments, '$.run'), runs.id, runs.state FROM runs
    JOIN steps ON steps.tenant = runs.tenant AND steps.run_id = runs.id"""
_STEPS = """SELECT json_extract(steps.arguments, '$.run'), json_extract(steps.arguments, '$.n'), steps.state,
    steps.result, runs.state, coalesce(runs.error_code, '')
    FROM steps JOIN runs ON steps.tenant = runs.tenant AND steps.run_id = runs.id"""


async def lane_of(folder: Path, todo: Iterator[tuple[int, str]], seed: int, figures: Figures) -> None:
    folder.mkdir()
    config, disk = configured(folder), Disk(folder / "gateway.db", folder)
    async with GatewayProcess(json.dumps(config), env=disk.env) as gateway, session_with(gateway) as session:
        lane = Lane(gateway, session, disk, folder, random.Random(seed))
        for number, kind in todo:
            try:
                await disturbed(lane, kind, number, figures)
            except Exception as error:
                error.add_note(f"{kind}, round {number}")
                raise


async def campaign(folder: Path, *, rounds: int, lanes: int, kinds: Sequence[str]) -> Figures:
    """So many rounds of each kind, in turns."""
    figures, todo = Figures(), iter([(number, kind) for number in range(rounds) for kind in kinds])
    async with asyncio.TaskGroup() as group:
        for i in range(lanes):
            group.create_task(lane_of(folder / f"lane-{i}", todo, i, figures))
    print(f"\n{figures}")
    for what, cases in figures.wrong.items():
        for case in cases:
            print(f"{what}: {case}")
    return figures


async def test_faults_between_any_two_steps(tmp_path: Path) -> None:
    """A few of each that takes little time."""
    figures = await campaign(tmp_path, rounds=1, lanes=1, kinds=("failing fsync", "killed worker"))
    assert not any(figures.wrong.values())


@pytest.mark.crash
async def test_faults_between_any_two_steps_of_five_hundred_runs(tmp_path: Path) -> None:
    """0 refused decisions in effect, denied calls run, accepted decisions lost, silent repeats, outcomes untold."""
    figures = await campaign(tmp_path, rounds=6, lanes=2, kinds=tuple(KINDS))
    assert figures.runs.total() >= 500 and min(figures.runs.values()) >= 20
    assert not any(figures.wrong.values())
