"""The store is full, fails or hangs: nothing that has effects runs, and everything else goes on (N19)."""

import asyncio
import json
import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from crash.effects import ASKS, broken_chain
from crash.talk import CHAT, Stream, approval_asked, asking, told
from gateways import Stopwatch, until

from gateway.plugins.stores.sqlite.store_url import SqliteBeside

from .stored import Answered, Lane, running

DISK_BYTES = 1 << 21
#: Of requests one after the other that each wait for the store, fewer fit into the time in which two others give up.
ANSWERED_MEANWHILE = 4


# Disks.


class Disk(Protocol):
    """Where a store is."""

    folder: Path

    def fill(self, lane: Lane) -> None: ...

    def free(self, lane: Lane) -> None: ...


@dataclass
class SmallDisk:
    """A file system of two megabytes."""

    folder: Path

    def fill(self, lane: Lane) -> None:
        with self.folder.joinpath("filler").open("wb", buffering=0) as filler:
            while free_bytes(self.folder):
                filler.write(b"x" * min(free_bytes(self.folder), 1 << 16))

    def free(self, lane: Lane) -> None:
        self.folder.joinpath("filler").unlink()


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


@dataclass
class LimitedDisk:
    """A file system on which no file grows any more: an I/O error, as of one that has become read-only."""

    folder: Path

    def fill(self, lane: Lane) -> None:
        longest = lane.place.with_name(f"{lane.place.name}-wal").stat().st_size
        _, hard = resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE, (longest, hard))

    def free(self, lane: Lane) -> None:
        _, hard = resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lane.gateway.pid, resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture(params=["full", "failing"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """One that becomes full, and one that fails; where nothing may be mounted, both times one that fails."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if request.param == "full" and not subprocess.run(mount, capture_output=True).returncode:
        try:
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    else:
        yield LimitedDisk(folder)


# N19, and what a file system does that is read-only all of a sudden.


async def test_full_disk_stops_only_operations_with_effects(tmp_path: Path, disk: Disk) -> None:
    """N19: 507 before a tool runs, no decision is made, texts and passthrough go on; with room again all is well."""
    async with running(tmp_path, place=disk.folder / "gateway.db") as lane:
        approval_id = await approval_asked(lane.session, f'tool ledger {{"run": "asked", "n": {ASKS}}}')
        midway = asyncio.create_task(lane.chat('steps 3 tool ledger {"run": "midway", "n": $step}'))
        await until(lambda: lane.done("midway"), timeout_s=120)
        disk.fill(lane)
        ended_honestly(await midway, lane)
        for stream in (False, True):
            await refused_before_anything_ran(lane, stream=stream)
        assert (await lane.decide(approval_id)).status == 507
        assert await lane.state_of(approval_id) == "pending"
        assert await told(lane.session, "long 3")
        assert (await lane.chat("Remember that I like tea.")).status == 507
        await lane.passes_unchanged()
        assert await lane.get("/health/ready") == {"status": "ready"}
        disk.free(lane)
        await all_is_well(lane, approval_id)
        midway_run = await lane.run((await midway).run_id, state="failed")
        assert (midway_run["error"]["code"], midway_run["steps"][0]["state"]) == ("store_full", "finished")
        assert [lane.done(name) for name in ("asked", "midway", "refused", "after")] == [1, 1, 0, 1]
        states = [found["state"] for found in (await lane.get("/context/runs"))["data"]]
        assert sorted(states) == ["completed", "completed", "failed"], "of what was refused nothing is there"
        assert len(lane.complaints()) <= 2
    assert broken_chain(lane.place) is None


def ended_honestly(answer: Answered, lane: Lane) -> None:
    """The call that ran counts as one that ran, no further one runs, and nobody is told to try again."""
    assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (422, "store_full", "false")
    assert lane.done("midway") == 1


async def refused_before_anything_ran(lane: Lane, *, stream: bool) -> None:
    """As an answer, and as the error in a stream whose head is out."""
    body = asking('tool ledger {"run": "refused", "n": 1}', stream=stream)
    async with lane.session.post(CHAT, json=body) as response:
        text = await response.text()
    if stream:
        assert response.status == 200 and "[DONE]" not in text
        text = text.strip().rpartition("data: ")[2]
    else:
        assert response.status == 507
    assert json.loads(text)["error"]["code"] == "store_full"
    assert lane.done("refused") == 0


async def all_is_well(lane: Lane, approval_id: str) -> None:
    """Without a restart: tools run, and what was asked before can be answered."""
    assert (await lane.tool("after")).status == 200
    assert (await lane.decide(approval_id)).status == 200
    await lane.run((await lane.get(f"/context/approvals/{approval_id}"))["run_id"], state="completed")


# Somebody else holds the store for longer than it is waited for.


async def test_hanging_store_delays_only_requests_that_write(tmp_path: Path) -> None:
    """507 within bounds for what must be written, the rest at once; afterwards held streams go on as if nothing was."""
    async with running(tmp_path) as lane:
        approval_id = await approval_asked(lane.session, f'tool ledger {{"run": "asked", "n": {ASKS}}}')
        held = await Stream.ask(lane.session, f'tool ledger {{"run": "held", "n": {ASKS}}}')
        held_id = await held.until_asked()
        with locked(lane.place):
            watch, answered = Stopwatch(), 0
            late = asyncio.gather(lane.tool("late"), lane.decide(approval_id))
            assert await told(lane.session, "long 3") and not late.done()
            while not late.done():
                await lane.passes_unchanged()
                answered += 1
                await asyncio.sleep(0.05)  # the rate of the other clients
            assert [answer.status for answer in await late] == [507, 507]
            assert answered > ANSWERED_MEANWHILE
            assert await lane.state_of(approval_id) == "pending" and lane.done("late") == 0
            assert len(lane.complaints()) <= 1 + watch.s / 2
        assert (await lane.decide(held_id)).status == 200
        assert f"wrote {ASKS}" in await held.rest()
        await all_is_well(lane, approval_id)
        assert [lane.done(name) for name in ("asked", "held", "late", "after")] == [1, 1, 0, 1]
    assert broken_chain(lane.place) is None


async def test_store_overwritten_by_a_copy_accepts_no_decisions(tmp_path: Path) -> None:
    """`cp backup.db gateway.db` leaves the file that is open: nothing is accepted that a restart would not know."""
    async with running(tmp_path) as lane:
        approval_id = await approval_asked(lane.session, f'tool ledger {{"run": "asked", "n": {ASKS}}}')
        SqliteBeside(str(lane.place)).write_copy(str(tmp_path / "copy.db"), progress=lambda *_: None)
        assert (await lane.decide(approval_id, "reject")).status == 200
        copy = (tmp_path / "copy.db").read_bytes()
        lane.place.write_bytes(copy.ljust(lane.place.stat().st_size, b"\0"))
        refused = [await lane.decide(approval_id), await lane.tool("late")]
        assert [(answer.status, answer.code) for answer in refused] == [(507, "store_full")] * 2
        async with lane.session.get("/health/ready") as response:
            assert await response.json() == {"status": "store_lost"}
        assert "was written over by a copy while the gateway runs" in lane.gateway.read_stderr()
        assert [lane.done(name) for name in ("asked", "late")] == [0, 0]


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Another process writes, and does not come to an end."""
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")
