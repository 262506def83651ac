"""What a gateway refused because its store failed never takes effect; what it cannot promise it says."""

import errno
import itertools
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from crash.disk import FOREVER, SYNC, WRITE, Disk
from crash.effects import ASKS, broken_chain
from crash.talk import approval_asked
from gateways import until

from tests.support.gateway_process import GatewayProcess

from .stored import Lane, running

ASK = f'tool ledger {{"run": "asked", "n": {ASKS}}}'


async def killed_and_started(gateway: GatewayProcess) -> None:
    await gateway.kill()
    await gateway.start()


async def test_refused_decision_stays_pending_after_a_kill(tmp_path: Path) -> None:
    """507 `store_full`, then `kill -9`: it is still pending, the call has not run, and the other decision counts."""
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    faults = list(itertools.product((SYNC, WRITE), (errno.EIO, errno.ENOSPC)))
    async with running(tmp_path, env=disk.env) as lane:
        refused = {}
        for number, (what, error) in enumerate(faults):
            name = f"asked-{number}"
            refused[name] = await approval_asked(lane.session, ASK.replace("asked", name))
            disk.fail(what=what, error=error, times=1)
            answer = await lane.decide(refused[name])
            assert (answer.status, answer.code, disk.failed) == (507, "store_full", number + 1), (what, error)
        await killed_and_started(lane.gateway)
        for name, approval_id in refused.items():
            assert await lane.state_of(approval_id) == "pending" and lane.done(name) == 0
            assert (await lane.decide(approval_id, "reject")).status == 200
            await lane.run(await run_of(lane, approval_id), state="rejected")
            assert lane.done(name) == 0
    assert broken_chain(lane.place) is None


async def test_failing_disk_refuses_decisions_until_it_recovers(tmp_path: Path) -> None:
    """Nobody knows what a power cut would bring back: `store_uncertain` once, `store_full` for what is not tried.

    Nothing acts on it; once the disk works it is certain that nothing has happened.
    """
    disk = Disk(tmp_path / "gateway.db", tmp_path)
    async with running(tmp_path, env=disk.env) as lane:
        approval_id = await approval_asked(lane.session, ASK)
        disk.fail(times=FOREVER)
        answers = [await lane.decide(approval_id) for _ in range(3)]
        assert {(answer.status, answer.code) for answer in answers[1:]} == {(507, "store_full")}
        assert (answers[0].status, answers[0].code) in ((507, "store_uncertain"), (507, "store_full"))
        assert await lane.state_of(approval_id) == "pending" and lane.done("asked") == 0
        disk.heal()
        await killed_and_started(lane.gateway)
        assert await lane.state_of(approval_id) == "pending" and lane.done("asked") == 0
        assert (await lane.decide(approval_id)).status == 200
        await lane.run(await run_of(lane, approval_id), state="completed")
        assert lane.done("asked") == 1
    assert broken_chain(lane.place) is None


# Files that are taken away under a gateway.


def delete_log(place: Path) -> None:
    place.with_name(f"{place.name}-wal").unlink()


def replace_log(place: Path) -> None:
    log = place.with_name(f"{place.name}-wal")
    shutil.copyfile(log, f"{log}.copy")
    Path(f"{log}.copy").replace(log)


def cut_log(place: Path) -> None:
    log = place.with_name(f"{place.name}-wal")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)


def empty_log(place: Path) -> None:
    place.with_name(f"{place.name}-wal").write_bytes(b"")


def delete_index(place: Path) -> None:
    place.with_name(f"{place.name}-shm").unlink()


def delete_store(place: Path) -> None:
    place.unlink()


def replace_store(place: Path) -> None:
    shutil.copyfile(place, f"{place}.copy")
    Path(f"{place}.copy").replace(place)


def cut_store(place: Path) -> None:
    with place.open("r+b") as file:
        file.truncate(4096)


LOSSES = (delete_log, replace_log, cut_log, empty_log, delete_index, delete_store, replace_store, cut_store)


@pytest.mark.parametrize("loss", LOSSES, ids=[loss.__name__ for loss in LOSSES])
async def test_removed_store_accepts_no_decision(tmp_path: Path, loss: Callable[[Path], None]) -> None:
    """Nothing is acknowledged that the next start would not find: 507, not ready, a line in the log; passthrough goes
    on."""
    async with running(tmp_path) as lane:
        approval_id = await approval_asked(lane.session, ASK)
        loss(lane.place)
        answer = await lane.decide(approval_id)
        assert (answer.status, answer.code) in ((507, "store_full"), (507, "store_uncertain")), answer
        assert (await lane.tool("later")).status == 507
        await lane.passes_unchanged()
        await until(lambda: "while the gateway runs" in lane.gateway.read_stderr(), timeout_s=120)
        async with lane.session.get("/health/ready") as response:
            assert (response.status, await response.json()) == (503, {"status": "store_lost"})
        assert [lane.done(name) for name in ("asked", "later")] == [0, 0]


async def test_accepted_decision_survives_wal_deletion_on_orderly_shutdown(tmp_path: Path) -> None:
    """SQLite still has it, and plays it into the database."""
    async with running(tmp_path) as lane:
        approval_id = await approval_asked(lane.session, ASK)
        assert (await lane.decide(approval_id)).status == 200
        await lane.run(await run_of(lane, approval_id), state="completed")
        delete_log(lane.place)
        lane.gateway.signal(signal.SIGTERM)
        assert await lane.gateway.wait() == 0
        await lane.gateway.start()
        assert await lane.state_of(approval_id) == "done" and lane.done("asked") == 1
        await lane.run(await run_of(lane, approval_id), state="completed")


async def run_of(lane: Lane, approval_id: str) -> str:
    return str((await lane.get(f"/context/approvals/{approval_id}"))["run_id"])


async def test_log_truncated_by_an_external_checkpoint_loses_nothing(tmp_path: Path) -> None:
    """A checkpoint with TRUNCATE, as tools that make copies do it."""

    async with running(tmp_path) as lane:
        approval_id = await approval_asked(lane.session, ASK)
        with closing(sqlite3.connect(lane.place)) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert (await lane.decide(approval_id)).status == 200
        await lane.run(await run_of(lane, approval_id), state="completed")
        assert await lane.get("/health/ready") == {"status": "ready"}
