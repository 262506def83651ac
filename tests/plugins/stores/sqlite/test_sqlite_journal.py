"""Runs in a SQLite file: several processes on it, a full disk, and the power cut at any moment."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from gateway.contracts.storage.audit_chain import verify
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import new, parked, run

ROOT = Path(__file__).parents[4]


@contextmanager
def process(code: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A program with the store's modules at hand; it has said that it is ready."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as started:
        try:
            assert pipe(started.stdout).readline() == b"ready\n"
            yield started
        finally:
            started.kill()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


async def opened(place: Path) -> SqliteStore:
    store = SqliteStore(str(place))
    await store.open()
    return store


RACER = """
import asyncio, json, sys
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import write
async def main():
    store, owner = SqliteStore(sys.argv[1]), sys.argv[2]
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    answers = await asyncio.gather(*(store.decide_approval(write(by=owner)) for _ in range(100)))
    runs = []
    while found := await store.claim(owner=owner, now_s=200, until_s=230, states=["running"], run_id=None, limit=1):
        runs += [run.id for run in found]
    expired = await asyncio.gather(*(store.expire(now_s=5000.0, limit=9) for _ in range(20)))
    await store.close()
    print(json.dumps({
        "answers": [answer for answer, _ in answers],
        "by": [approval.decided_by for _, approval in answers],
        "runs": runs,
        "expired": [approval.id for found in expired for approval in found],
    }))
asyncio.run(main())
"""


async def test_two_processes_decide_claim_and_expire_each_record_once(tmp_path: Path) -> None:
    """A3: of 200 decisions by two processes one is made; a run has one owner; an approval expires once."""
    store = await opened(tmp_path / "gateway.db")
    await store.write(parked())
    for number in range(30):
        await store.write(new(run(f"r{number}")))
        await store.write(parked(f"p{number}", approval_id=f"late_{number}"))
    with process(RACER, store.place, "w1") as one, process(RACER, store.place, "w2") as two:
        for racer in (one, two):
            pipe(racer.stdin).write(b"go\n")
            pipe(racer.stdin).flush()
        told = [json.loads(pipe(racer.stdout).read()) for racer in (one, two)]
    answers = [answer for process in told for answer in process["answers"]]
    assert (answers.count("decided"), answers.count("same")) == (1, 199)
    assert len({by for process in told for by in process["by"]}) == 1
    assert sorted(run_id for process in told for run_id in process["runs"]) == sorted(f"r{n}" for n in range(30))
    expired = sorted(approval_id for process in told for approval_id in process["expired"])
    assert expired == sorted(f"late_{n}" for n in range(30))
    assert len(await store.list_events(after=0, limit=99)) == 30
    await store.close()


FULL = """
import asyncio, dataclasses, resource, sys
from gateway.contracts.storage.store import StoreError
from gateway.contracts.storage.audit_chain import verify
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import audit_line, event, moved, new, parked, write, run, step
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await store.write(parked())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    kept, failed = set(), set()
    for i in range(60):
        own = {"run_id": f"full_{i}"}
        parts = {"steps": (step(**own),), "events": (event(**own),), "audit": (audit_line(**own),)}
        try:
            await store.write(new(run(f"full_{i}", request=b"x" * 20_000), **parts))
            kept.add(f"full_{i}")
        except StoreError:
            failed.add(f"full_{i}")
    assert failed
    try:
        await store.decide_approval(write(comment="x" * 500_000))
        raise AssertionError("there was room")
    except StoreError:
        assert (await store.get_approval("ap_1", tenant="acme")).state == "pending"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (await store.decide_approval(write(comment="x" * 500_000)))[0] == "decided"
    await store.write(new(run("after"), audit=(audit_line(),)))
    assert {r.id for r in (await store.list_runs(tenant="acme", limit=99)).runs} == {*kept, "run_1", "after"}
    assert {e.run_id for e in await store.list_events(after=0, limit=99)} == kept
    for run_id in failed:
        assert await store.list_steps(run_id, tenant="acme") == []
    rows = await store.audit(after=0, limit=99)
    assert len(rows) == len(kept) + 1
    assert verify((row.seq, dataclasses.asdict(row.line), row.hash) for row in rows) is None
    await store.close()
asyncio.run(main())
"""


async def test_full_disk_fails_writes_without_partial_changes(tmp_path: Path) -> None:
    """N19: changes and decisions fail whole, reading goes on, and once there is room all is well without a restart."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "gateway.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


BUSY = """
import asyncio, os, sys
from dataclasses import replace
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import audit_line, event, moved, parked, write, run
async def decide(store, worker):
    for n in range(100_000):
        own = f"r{worker}_{n}"
        await store.write(replace(parked(own, approval_id=own), events=(event(run_id=own),), audit=(audit_line(),)))
        await store.decide_approval(write(own, audit=(audit_line("decision"),)))
        os.write(1, f"{own}\\n".encode())
        await asyncio.sleep(0.005)  # so that the copies fall between and into writes
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    os.write(1, b"ready\\n")
    await asyncio.gather(*(decide(store, worker) for worker in range(4)))
asyncio.run(main())
"""


def stop(writer: "subprocess.Popen[bytes]") -> bytes:
    """Holds a process at this instant; what it had told by then."""
    writer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
    told = pipe(writer.stdout)
    os.set_blocking(told.fileno(), False)
    lines = told.read() or b""
    os.set_blocking(told.fileno(), True)
    return lines


async def check(place: Path, answered: set[str]) -> None:
    """It opens, each decision is there with all that came with it, and the log is whole."""
    store = await opened(place)
    approved = {a.id for a in await store.list_approvals(tenant="acme", state="approved", limit=100_000)}
    everything = {a.id for a in await store.list_approvals(tenant="acme", limit=100_000)}
    assert answered <= approved
    assert everything == {e.run_id for e in await store.list_events(after=0, limit=100_000)}
    rows = await store.audit(after=0, limit=100_000)
    assert len(rows) == len(everything) + len(approved)
    assert verify((row.seq, asdict(row.line), row.hash) for row in rows) is None
    await store.close()


async def test_a_power_cut_at_any_moment_loses_no_decision(tmp_path: Path) -> None:
    """N24: the store copied at 100 moments under load: each copy opens, with every decision that was answered."""
    folder, answered, moments = tmp_path / "store", set[str](), random.Random(24)
    folder.mkdir()
    with process(BUSY, str(folder / "gateway.db")) as writer:
        for number in range(100):
            answered.update(pipe(writer.stdout).readline().decode().split())  # something happened since the last copy
            await asyncio.sleep(moments.uniform(0, 0.005))  # the moment is the case
            answered.update(stop(writer).decode().split())
            copy = Path(shutil.copytree(folder, tmp_path / f"copy{number}"))
            await check(copy / "gateway.db", answered)
            writer.send_signal(signal.SIGCONT)
    assert len(answered) >= 100
