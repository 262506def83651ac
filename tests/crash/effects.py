"""A gateway whose one tool writes a line for each call, and what is found afterwards: the lines, and the store."""

import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.audit import AuditError, verify_log
from gateway.plugins.stores.sqlite.store_url import SqliteBeside

Json = dict[str, Any]

#: The calls of a run, and the one in the middle that a person has to approve.
STEPS, ASKS = 10, 5
_PLUGINS = Path(__file__).with_name("ledger")
#: States of a step that may have had its effect.
STARTED = frozenset(("started", "finished", "failed", "unknown"))


def settings(folder: Path, **sections: object) -> Json:
    """A configuration: plugins, store and ledger are in `folder`; the demo model is built in."""
    for kind in ("tools", "assessors"):
        own = folder / "plugins" / kind
        own.mkdir(mode=0o700, parents=True)
        own.parent.chmod(0o700)
        shutil.copyfile(_PLUGINS / kind / "ledger.py", own / "ledger.py")
        own.joinpath("ledger.py").chmod(0o600)
    tool = {"file": str(folder / "ledger.jsonl"), "before_s": 0.002, "after_s": 0.002}
    return {
        "plugins": {"folder": str(folder / "plugins")},
        "store": f"sqlite:///{folder / 'gateway.db'}",
        "tools": {"ledger": {"with": tool}},
        "risk": {"assessors": {"ledger": {"use": "ledger", "with": {"asks": [ASKS]}}}},
        **sections,
    }


def words(run: str, *, steps: int = STEPS) -> str:
    """Return the prompt with which the demo model calls the tool so often."""
    return f'steps {steps} tool ledger {{"run": "{run}", "n": $step}}'


@dataclass(frozen=True, slots=True)
class Effect:
    """A line of the ledger."""

    run: str
    n: int
    at_s: float
    pid: int  # of the process that wrote it


def effects(folder: Path, run: str | None = None) -> list[Effect]:
    """What was done, by the file alone; one run's, or everybody's."""
    file = folder / "ledger.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    found = [Effect(**json.loads(line)) for line in lines]
    return [effect for effect in found if run in (None, effect.run)]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a run, and the number in its line; steps count from 0."""

    number: int
    n: int
    state: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored facts of one run of the ledger."""

    run_id: str
    state: str
    steps: Sequence[Step]
    approvals: Mapping[str, str]  # id -> state


def stored(place: Path, run: str) -> Sequence[Stored]:
    """The runs that have a call for these lines, out of the store's file: it is one, or none."""
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as connection:
        return [
            Stored(
                run_id,
                state,
                [Step(*row) for row in connection.execute(_STEPS, (run_id,))],
                dict(connection.execute("SELECT id, state FROM approvals WHERE run_id = ?", (run_id,))),
            )
            for run_id, state in connection.execute(_RUNS, (run,)).fetchall()
        ]


_RUNS = """SELECT id, state FROM runs
    WHERE id IN (SELECT run_id FROM steps WHERE json_extract(arguments, '$.run') = ?)"""
_STEPS = "SELECT number, json_extract(arguments, '$.n'), state FROM steps WHERE run_id = ? ORDER BY number"


def phase_of(run: Stored | None, done: set[int]) -> str:
    """Where a run was when its process died."""
    if run is None:
        return "nothing was on record"
    if run.state == "completed":
        return "completed"
    if (state := next(iter(run.approvals.values()), None)) in ("pending", "approved"):
        return f"the approval was {state}"
    last = run.steps[-1]
    if last.state == "started":
        return "a call ran, its effect was there" if last.n in done else "a call ran, its effect was not there"
    return f"a call was {last.state}"


def copied(place: Path, folder: Path) -> Path:
    """The store as a dead process left it: looking at it there changes nothing here."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in place.parent.glob(f"{place.name}*"):
        if not file.name.endswith("-shm"):
            shutil.copyfile(file, folder / file.name)
    return folder / place.name


def broken_chain(place: Path) -> str | None:
    """Return the problems of the audit log."""
    try:
        list(verify_log(SqliteBeside(str(place)), noted=None))
    except AuditError as error:
        return str(error)
    return None
