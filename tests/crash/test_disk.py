"""What a store says of a decision holds, whatever its disk does: after `kill -9`, and after a power cut."""

import asyncio
import errno
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from gateway.contracts.storage.audit_chain import verify
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.file import connect

from .disk import ERRORS, FOREVER, READ, SYNC, WRITE, Disk, power_cuts, told_in

ROOT = Path(__file__).parents[2]
DECISIONS = 24
#: Decides, four at a time, and puts among the calls what it was told of each decision.
DECIDER = """
import asyncio, os, sys
from dataclasses import replace
from pathlib import Path
from crash.disk import tell
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import audit_line, event, moved, parked, write, run
record = Path(sys.argv[2])
async def decide(store, name):
    try:
        await store.write(replace(parked(name, approval_id=name), events=(event(run_id=name),), audit=(audit_line(),)))
        tell(record, b"asked " + name.encode())
        await store.decide_approval(write(name, audit=(audit_line("decision"),), comment="x" * (hash(name) % 9000)))
    except UncertainError:
        tell(record, b"uncertain " + name.encode())
    except StoreError:
        tell(record, b"refused " + name.encode())
    else:
        tell(record, b"accepted " + name.encode())
        await begin(store, name)
async def begin(store, name):
    try:
        await store.write(moved(run(name, effects=True, updated_s=300.0)))
    except StoreError:
        pass
    else:
        tell(record, b"begun " + name.encode())
async def decide_some(store, worker):
    for n in range(int(sys.argv[3]) // 4):
        await decide(store, f"r{worker}_{n}")
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    os.write(1, b"ready\\n")
    sys.stdin.readline()
    await asyncio.gather(*(decide_some(store, worker) for worker in range(4)))
    os.write(1, b"done\\n")
    sys.stdin.readline()
asyncio.run(main())
"""

#: Decides one by one, as told by its lines, and closes its store: says what it was told of each.
ASKED = """
import asyncio, sys
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import parked
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print("ready", flush=True)
    while name := sys.stdin.readline().strip():
        try:
            await store.write(parked(name, approval_id=name))
        except (StoreError, UncertainError) as error:
            print(type(error).__name__, flush=True)
        else:
            print("accepted", flush=True)
    await store.close()
    print("closed", flush=True)
asyncio.run(main())
"""


async def decided(folder: Path, *, chance: random.Random) -> tuple[Disk, bytes]:
    """A process decides while its disk fails now and then, and is killed; its database before that."""
    place = folder / "gateway.db"
    store = SqliteStore(str(place))
    await store.open()
    await store.close()
    before, disk = place.read_bytes(), Disk(place, folder, records=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DECIDER, str(place), str(disk.record), str(DECISIONS)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONHASHSEED": str(chance.randrange(1000)), **disk.env},
    )
    assert process.stdin is not None and process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"ready\n"
        disk.fail(
            what=chance.choice((SYNC, SYNC, WRITE, SYNC | WRITE)),
            error=chance.choice(ERRORS),
            skip=chance.randrange(8),
            times=chance.choice((1, 1, 2, 3, 5, FOREVER)),
        )
        process.stdin.write(b"\n")
        if chance.random() < 0.7:
            assert await process.stdout.readline() == b"done\n"
        else:
            await asyncio.sleep(chance.uniform(0, 0.3))  # the moment of the kill is the case
        process.kill()
        await process.wait()
    return disk, before


async def wrongs(place: Path, told: Sequence[bytes]) -> list[str]:
    """Return the differences between the store and the answers that clients got."""
    states = {name: what for what, name in (line.decode().split() for line in told) if what != "begun"}
    begun = {line.decode().split()[1] for line in told if line.startswith(b"begun ")}
    store = SqliteStore(str(place))
    await store.open()
    try:
        found = {a.id: a.state for a in await store.list_approvals(tenant="acme", limit=1000)}
        run = {r.id for r in (await store.list_runs(tenant="acme", limit=1000)).runs if r.effects}
        rows = await store.audit(after=0, limit=1000)
        assert verify((row.seq, asdict(row.line), row.hash) for row in rows) is None
    finally:
        await store.close()
    with closing(connect(str(place), mode="ro")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    asked = {line.decode().split()[1] for line in told if line.startswith(b"asked ")}
    lost = [f"{name}: asked, and is not there" for name in asked if name not in found]
    lost += [
        f"{n}: accepted, is {found.get(n)}" for n, s in states.items() if s == "accepted" and found.get(n) != "approved"
    ]
    lost += [f"{name}: begun, and is not" for name in begun - run]
    effective = [
        f"{name}: refused, is {found.get(name)}"
        for name, state in states.items()
        if state == "refused" and found.get(name) != ("pending" if name in asked else None)
    ]
    return [*lost, *effective]


async def endured(folder: Path, *, seeds: range, cuts: int) -> Counter[str]:
    """Over so many disks that fail, and so many power cuts of each."""
    figures, wrong = Counter[str](), list[str]()
    for seed in seeds:
        chance = random.Random(seed)
        home = folder / str(seed)
        home.mkdir()
        disk, before = await decided(home, chance=chance)
        figures["disks"] += 1
        figures["calls that failed"] += disk.failed
        played = list(power_cuts(disk.record, database=before, count=cuts, chance=chance))
        everything = told_in(disk.record)
        figures.update(line.decode().split()[0] for line in everything)
        for number, cut in enumerate(played):
            place = home / f"cut-{number}.db"
            cut.write(place)
            figures["power cuts"] += 1
            wrong += [f"{seed}, power cut {number}: {one}" for one in await wrongs(place, cut.told)]
        wrong += [f"{seed}, killed: {one}" for one in await wrongs(home / "gateway.db", everything)]
    print(f"\n{dict(figures)}, {len(wrong)} wrong")
    assert wrong == []
    return figures


async def test_store_answers_hold_on_a_failing_disk(tmp_path: Path) -> None:
    """Refused: not there, and never will be. Accepted: there. Nobody knows: said so."""
    figures = await endured(tmp_path, seeds=range(6, 11), cuts=6)
    assert (
        figures["calls that failed"]
        and figures["accepted"]
        and figures["begun"]
        and figures["refused"] + figures["uncertain"]
    )


@pytest.mark.parametrize("skip", range(8))
async def test_unreadable_file_fails_the_write_but_not_the_store(tmp_path: Path, skip: int) -> None:
    """A write under the fault ends, with an answer; the next ones are accepted; the store can be closed."""
    place, answers = tmp_path / "gateway.db", list[str]()
    disk = Disk(place, tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ASKED, str(place)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **disk.env},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
            disk.fail(what=READ, error=errno.EIO, skip=skip)
            for number in range(6):
                process.stdin.write(f"r{number}\n".encode())
                answers.append((await process.stdout.readline()).decode().strip())
            disk.heal()
            process.stdin.write(b"last\n")
            assert await process.stdout.readline() == b"accepted\n"
            process.stdin.write(b"\n")
            assert await process.stdout.readline() == b"closed\n"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert disk.failed and answers[-1] == "StoreError"
    known = {f"r{number}" for number, answer in enumerate(answers) if answer == "accepted"} | {"last"}
    refused = {f"r{number}" for number, answer in enumerate(answers) if answer == "StoreError"}
    store = SqliteStore(str(place))
    await store.open()
    try:
        found = {one.id for one in (await store.list_runs(tenant="acme", limit=100)).runs}
    finally:
        await store.close()
    assert known <= found and not refused & found


@pytest.mark.crash
async def test_store_answers_hold_on_two_hundred_failing_disks(tmp_path: Path) -> None:
    """The same, with forty power cuts each."""
    await endured(tmp_path, seeds=range(1000, 1200), cuts=40)
