"""Faults between any two steps of groups and held streams, with two workers: counted by what the tools wrote down."""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.contracts.storage.journal import APPROVED
from tests.support.gateway_process import GatewayProcess

from .disk import Disk
from .effects import Json, broken_chain, settings
from .faults import DENIES, KINDS, allowed_again
from .lane import EDITED, GROUP, WAYS, Lane, Outcome, Talk
from .talk import session_with

#: How long a call takes behind its effect; so much later the effect of one may be seen that began before a change.
CALL_S, LATE_S = 0.3, 0.25
#: What is approved anew may be asked for anew once more, by a worker that has not heard of the change.
TIMES_ANEW = 5


@dataclass(slots=True)
class Figures:
    runs: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    anew: int = 0
    waits: int = 0
    wrong: dict[str, list[str]] = field(
        default_factory=lambda: {what: [] for what in ("refused", "denied", "lost", "repeated", "untold")}
    )

    def __str__(self) -> str:
        return (
            f"{self.runs.total()} runs ({', '.join(f'{n} {kind}' for kind, n in sorted(self.runs.items()))}; "
            f"{', '.join(f'{n} {way}' for way, n in sorted(self.ways.items()))}), "
            f"{dict(self.decisions)} decisions, {self.effects} effects, {self.unknown} unknown outcomes, "
            f"{self.anew} calls asked for anew, {self.waits} waits for the store: "
            f"{len(self.wrong['refused'])} refused decisions in effect, {len(self.wrong['denied'])} denied calls run, "
            f"{len(self.wrong['lost'])} accepted decisions lost, {len(self.wrong['repeated'])} silent repeats, "
            f"{len(self.wrong['untold'])} doubtful outcomes untold"
        )


def configured(folder: Path) -> Json:
    config = settings(folder, workers=2, limits={"drain": "1s"})
    config["tools"]["ledger"]["with"]["after_s"] = CALL_S
    config["risk"]["assessors"]["ledger"]["with"]["asks"] = list(GROUP)
    (folder / "title").write_text("Writes a line.")
    arguments = [str(Path(__file__).with_name("lines.py")), str(folder / "ledger.jsonl"), str(folder / "title")]
    config["mcp"] = {"servers": {"lines": {"command": sys.executable, "args": arguments}}}
    return config


async def until_served(lane: Lane) -> None:
    """By the MCP servers of both workers: either may answer."""
    times = 0
    async with asyncio.timeout(60):
        while times < 8:
            (service,) = (await lane.json("/mcp/services"))["data"]
            times = times + 1 if service["state"] == "running" else 0
            await asyncio.sleep(0.05)


async def disturbed(lane: Lane, kind: str, number: int, count: int, figures: Figures) -> None:
    """Some runs, decided on while something happens."""
    chance, tool = lane.chance, "lines.write" if kind == "changed definition" else "ledger"
    names = (f"{kind}-{number}-{i}" for i in range(count))
    talks = [Talk(name, tool, held=bool(i % 2), way=chance.choice(WAYS)) for i, name in enumerate(names)]
    lane.changed_s = None
    await until_served(lane)
    async with asyncio.TaskGroup() as group:
        asks = [group.create_task(lane.ask(talk)) for talk in talks]
        await lane.until_asked(talks)
        fault = group.create_task(KINDS[kind](lane))
        deciding = []
        for talk in chance.sample(talks, len(talks)):
            deciding.append(group.create_task(lane.decide_all(talk)))
            await lane.moment(4)
        await fault
        await asyncio.wait(deciding)
        await lane.quiet(talks)
        for talk in talks:
            await lane.decide_again(talk)
        await lane.quiet(talks)
        for _ in range(TIMES_ANEW):
            if not (anew := await lane.decide_anew(talks)):
                break
            figures.anew += anew
            await lane.quiet(talks)
        for task in asks:
            task.cancel()
    looked_at(lane, kind, talks, figures)
    if kind in DENIES:
        await allowed_again(lane)
    if kind == "changed definition":
        await lane.session.post("/mcp/services/lines/accept", json={})


def looked_at(lane: Lane, kind: str, talks: Sequence[Talk], figures: Figures) -> None:
    """By the lines of the ledger, and the store."""
    lines = [json.loads(line) for line in (lane.folder / "ledger.jsonl").read_bytes().splitlines()]
    outcomes = lane.outcomes()
    for talk in talks:
        figures.runs[kind] += 1
        figures.ways[talk.way] += 1
        for n in GROUP:
            done = [line for line in lines if line["run"] == talk.name and line["n"] % EDITED == n]
            figures.effects += len(done)
            figures.decisions.update(str(one.status or "none") for one in talk.said[n])
            outcome = outcomes[talk.name, n]
            figures.unknown += outcome.state == "unknown" or (outcome.run, outcome.state) == ("unknown", "started")
            wrong = set(_wrong(talk, n, done, outcome, outcomes, denies=kind in DENIES))
            if any(_came_late(lane, line, lines, talk, n) for line in done):
                wrong.add("denied")
            for what in wrong:
                log = [line for line in lane.gateway.read_stderr().splitlines() if outcome.run_id in line]
                case = f"{talk.name}/{n} ({talk.way}): {len(done)} lines, {outcome}, {talk.said}, log: {log}"
                figures.wrong[what].append(case)
    if (broken := broken_chain(lane.place)) is not None:
        figures.wrong["lost"].append(f"the audit log: {broken}")


def _wrong(
    talk: Talk,
    n: int,
    done: Sequence[Json],
    outcome: Outcome,
    outcomes: Mapping[tuple[str, int], Outcome],
    *,
    denies: bool,
) -> Iterator[str]:
    """What is wrong with one call, besides the time at which it ran."""
    is_approved = any(state in APPROVED for state in outcome.approvals)
    if (is_approved or done) and not talk.may_be("approve", n):
        yield "refused"
    # A rejection is one of the whole group.
    if "rejected" in outcome.approvals and not talk.may_be("reject", *GROUP):
        yield "refused"
    if any(line["n"] != n + EDITED * (talk.way == "edited") for line in done):
        yield "refused"  # another call than the one that was approved
    is_told = outcome.run == "unknown" or outcome.state == "unknown"
    if len(done) > 1 and not is_told and "more than once" not in outcome.result:
        yield "repeated"
    if done and ("Not run" in outcome.result or outcome.state in ("planned", "requested")):
        yield "untold"
    if not talk.was(n, "approve") or done or is_told or outcome.state == "started":
        return
    others = [number for number in GROUP if number != n]
    has_expired = any("expired" in outcomes[talk.name, other].approvals for other in others)
    ends_with_another = has_expired or (talk.may_be("reject", *GROUP) and outcome.run == "rejected")
    waits_for_another = not all(talk.was(other, "approve") for other in others)
    is_denied = denies and any("Not run" in outcomes[talk.name, number].result for number in GROUP)
    has_reason = ends_with_another or waits_for_another or is_denied
    if not has_reason or outcome.approvals[-1] not in ("approved", "cancelled", "rejected"):
        yield "lost"


def _came_late(lane: Lane, line: Json, lines: Sequence[Json], talk: Talk, n: int) -> bool:
    """The tool was denied, or another one by then, and the person had decided before that for the last time."""
    if (changed_s := lane.changed_s) is None:
        titles = [one["at_s"] for one in lines if one.get("title") and one["pid"] == line.get("pid")]
        asked_s = max(one.sent_s for one in talk.said[n] if one.decision == "approve" and one.may_hold)
        changed_s = next((at_s for at_s in titles if at_s > asked_s), None)
    return changed_s is not None and line["at_s"] > changed_s + LATE_S


async def lane_of(folder: Path, todo: Iterator[tuple[int, str]], seed: int, count: int, figures: Figures) -> None:
    folder.mkdir()
    config, disk = configured(folder), Disk(folder / "gateway.db", folder)
    async with GatewayProcess(json.dumps(config), env=disk.env) as gateway, session_with(gateway) as session:
        lane = Lane(gateway, session, disk, folder, random.Random(seed))
        for number, kind in todo:
            try:
                await disturbed(lane, kind, number, count, figures)
            except Exception as error:
                error.add_note(f"{kind}, round {number}")
                raise
        figures.waits += gateway.read_stderr().count("waits for the store")


async def campaign(
    folder: Path, *, rounds: int, lanes: int, kinds: Sequence[str], count: int = 10, seed: int = 0
) -> Figures:
    """So many rounds of each kind, in turns, of so many runs each."""
    figures, todo = Figures(), iter([(number, kind) for number in range(rounds) for kind in kinds])
    async with asyncio.TaskGroup() as group:
        for i in range(lanes):
            group.create_task(lane_of(folder / f"lane-{i}", todo, seed + i, count, figures))
    print(f"\n{figures}")
    for what, cases in figures.wrong.items():
        for case in cases:
            print(f"{what}: {case}")
    return figures


async def test_faults_between_run_steps_break_no_guarantee(tmp_path: Path) -> None:
    """A few of each that takes little time."""
    kinds = ("failing fsync", "SIGTERM", "deny by reload", "killed worker")
    figures = await campaign(tmp_path, rounds=1, lanes=1, kinds=kinds, count=6)
    assert not any(figures.wrong.values())


@pytest.mark.crash
async def test_faults_between_steps_of_many_runs_break_no_guarantee(tmp_path: Path) -> None:
    """0 refused decisions in effect, denied calls run, accepted decisions lost, silent repeats, outcomes untold."""
    figures = await campaign(tmp_path, rounds=6, lanes=2, kinds=tuple(KINDS))
    assert figures.runs.total() >= 500 and min(figures.runs.values()) >= 20
    assert not any(figures.wrong.values())
