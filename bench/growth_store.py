"""The costs that grow with the store: starts, pruning, lists, and looks for runs that may go on."""

import asyncio
import os
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.grown import print_row
from gateway.aio.clock import SystemClock
from gateway.contracts.storage.journal import Change, StoredRun
from gateway.contracts.storage.list_queries import NarrowedRuns
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.file import open_file
from gateway.plugins.stores.sqlite.file_check import read_finding
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS
from gateway.server.pruning import KEPT_S, Pruner

#: A run of one call: its request, its step, six events and four lines of the audit log are about 7 KB.
_REQUEST = b'{"messages":[' + b"x" * 1500 + b"]}"
_RUN = """INSERT INTO runs (tenant, id, caller, chain, fingerprint, state, effects, created_s, updated_s, answer,
    progress) VALUES ('default', ?, 'ann', 'assistant', ?, ?, 1, ?, ?, x'7b7d', ?)"""
_STEP = """INSERT INTO steps (run_id, tenant, number, round, call_id, tool, model_name, arguments, sha256, terminate,
    decision, basis, rule, reason, state, result, tainted) VALUES
    (?, 'default', 0, 0, 'call', 'ledger', 'ledger', '{}', 'a', 0, 'auto', 'whitelist', 'r', '', 'finished', ?, 0)"""
_EVENT = "INSERT INTO events (tenant, run_id, type, data, created_s) VALUES ('default', ?, 'step.started', x'7b7d', ?)"
_APPROVAL = """INSERT INTO approvals (id, tenant, caller, run_id, step, tool, arguments, sha256, definition_sha256,
    policy_sha256, basis, rule, reason, state, created_s, expires_s, remember) VALUES
    (?, 'default', 'ann', ?, 0, 'ledger', '{}', 'a', 'd', 'p', 'default', 'r', '', 'pending', ?, 1e12, 'once')"""

#: What lists are narrowed by: what all runs have, what none has, and both.
_WANTED: Sequence[NarrowedRuns] = (
    {},
    {"state": "completed"},
    {"caller": "ann"},
    {"kind": "workflow"},
    {"since_s": 1e9, "until_s": 2e9},
    {"state": "completed", "caller": "nobody"},
    {"caller": "ann", "kind": "workflow", "state": "failed"},
)


def fill(place: Path, runs: int, *, state: str, at_s: float, request: bytes = _REQUEST) -> None:
    """Add so many runs of one step to a store. Create the store if it does not exist."""
    with closing(open_file(str(place), migrations=MIGRATIONS)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for number in range(runs):
            run_id, step_s = f"run_{os.urandom(12).hex()}", at_s + number * 1e-6
            connection.execute(_RUN, (run_id, run_id, state, step_s, step_s, b"x" * 500))
            connection.execute("INSERT INTO requests VALUES ('default', ?, ?)", (run_id, request))
            connection.execute(_STEP, (run_id, "x" * 500))
            connection.executemany(_EVENT, [(run_id, step_s)] * 6)
            if state == "awaiting_approval":
                connection.execute(_APPROVAL, (f"ap_{run_id}", run_id, step_s))
        connection.execute("COMMIT")


async def start(folder: Path, megabytes: int) -> None:
    """Measure a start after an orderly end, and one after a kill with the time until its check is over."""
    place = folder / "start.db"
    fill(place, megabytes, state="completed", at_s=time.time(), request=os.urandom(1 << 20))
    for end in ("orderly", "killed"):
        if end == "killed":
            _leave_a_log(place)
        store = SqliteStore(str(place))
        began_s = time.perf_counter()
        await store.open()
        opened_s = time.perf_counter() - began_s
        await asyncio.to_thread(_wait_until_checked, place)
        checked = f", checked after {time.perf_counter() - began_s:.2f} s" if end == "killed" else ""
        print_row(f"start after an end that was {end}", f"{megabytes} MB", f"{opened_s * 1e3:.0f} ms{checked}")
        await store.close()
    place.unlink()


def _wait_until_checked(place: Path) -> None:
    while read_finding(str(place)) is not None:
        time.sleep(0.01)


def _leave_a_log(place: Path) -> None:
    """Leave a write-ahead log beside the store, as a killed process does."""
    if not (child := os.fork()):
        connection = sqlite3.connect(place)
        connection.execute("UPDATE counters SET value = value + 1")
        connection.commit()
        os._exit(9)
    os.waitpid(child, 0)


async def prune(folder: Path, runs: int) -> None:
    """Measure pruning while another connection writes durably all the time."""
    place = folder / "prune.db"
    fill(place, runs, state="completed", at_s=time.time() - 2 * KEPT_S)
    store, other = SqliteStore(str(place)), SqliteStore(str(place))
    await store.open()
    await other.open()
    waits: list[float] = []
    log_bytes = 0
    log = Path(f"{place}-wal")

    async def write() -> None:
        nonlocal log_bytes
        for number in range(10**9):
            began_s = time.perf_counter()
            await other.write(Change(run=_run(f"new_{number}"), new=True))
            waits.append(time.perf_counter() - began_s)
            log_bytes = max(log_bytes, os.stat(log).st_size)  # noqa: PTH116
            await asyncio.sleep(0.005)

    writing = asyncio.create_task(write())
    with timed() as took:
        gone = await Pruner(store, owner="bench", clock=SystemClock()).prune_rows()
    writing.cancel()
    waits.sort()
    print_row(
        f"pruning, {gone} rows",
        f"{runs} runs",
        f"{took[0]:.1f} s; a write waits {statistics.median(waits) * 1e3:.1f} ms, p99 "
        f"{waits[len(waits) * 99 // 100] * 1e3:.1f}, at most {waits[-1] * 1e3:.1f}; log {log_bytes >> 20} MB",
    )
    await store.close()
    await other.close()
    place.unlink()


async def measure_look(folder: Path, pending: int) -> None:
    """Measure a look for runs that may go on, among runs that wait for a person."""
    place = folder / "look.db"
    fill(place, pending, state="awaiting_approval", at_s=time.time())
    store = SqliteStore(str(place))
    await store.open()
    with timed() as took:
        for _ in range(100):
            now_s = time.time()
            await store.claim(
                owner="bench",
                now_s=now_s,
                until_s=now_s + 5,
                states=["running", "awaiting_approval"],
                run_id=None,
                limit=20,
            )
    print_row("a look for runs that may go on", f"{pending} pending", f"{took[0] * 10:.2f} ms")
    await store.close()
    place.unlink()


async def measure_lists(folder: Path, runs: int) -> None:
    """Measure the pages of narrowed runs, of urgent approvals, and the counts of what waits."""
    place = folder / "lists.db"
    fill(place, runs, state="completed", at_s=time.time() - 1000)
    fill(place, min(runs, 1000), state="awaiting_approval", at_s=time.time())
    store = SqliteStore(str(place))
    await store.open()
    for wanted in _WANTED:
        with timed() as took:
            for _ in range(20):
                await store.list_runs(tenant="default", limit=200, **wanted)
        named = ", ".join(f"{name} {value}" for name, value in wanted.items()) or "all"
        print_row(f"a page of runs: {named}", f"{runs} runs", f"{took[0] * 50:.1f} ms")
    with timed() as took:
        for _ in range(20):
            await store.list_approvals(tenant="default", state="pending", order="urgency", limit=200)
            await store.tally(tenant="default")
    print_row("a page of urgent approvals, and the counts of what waits", f"{runs} runs", f"{took[0] * 50:.1f} ms")
    await store.close()
    place.unlink()


@contextmanager
def timed() -> Iterator[list[float]]:
    """Yield a list; the seconds are in it after the block."""
    took: list[float] = []
    began_s = time.perf_counter()
    yield took
    took.append(time.perf_counter() - began_s)


def _run(run_id: str) -> StoredRun:
    now_s = time.time()
    return StoredRun(
        id=run_id,
        tenant="default",
        caller="ann",
        chain="assistant",
        fingerprint=run_id,
        state="running",
        effects=True,
        created_s=now_s,
        updated_s=now_s,
        request=_REQUEST,
        owner="bench",
        lease_s=now_s + 1000,
    )


def measure(folder: Path, *, runs: Sequence[int], megabytes: Sequence[int]) -> None:
    """Print the rows."""
    for size in megabytes:
        asyncio.run(start(folder, size))
    for count in runs:
        asyncio.run(measure_look(folder, min(count, 10_000)))
        asyncio.run(prune(folder, count))
        asyncio.run(measure_lists(folder, count))
