"""A large store whose gateway did not end in order: everything is served while it is read, once, in the background."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from gateways import until, until_read

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.file_check import SMALL_BYTES
from tests.plugins.stores.records import new, run

from .stored import Lane, running

#: Changes the store and dies.
KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("UPDATE counters SET value = value + 1")
connection.commit()
os._exit(9)
"""


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    """A store that is read in the background, if at all."""
    place = tmp_path / "gateway.db"
    store = SqliteStore(str(place))
    await store.open()
    for number in range(SMALL_BYTES // 1_000_000 + 2):
        await store.write(new(run(f"run_{number}", tenant="default", request=b"x" * 1_000_000, state="completed")))
    await store.close()
    return place


def kill(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)
    assert place.with_name("gateway.db-wal").stat().st_size


def damage(place: Path) -> None:
    """Among the requests, which no start looks at."""
    with place.open("r+b") as file:
        file.seek(place.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)


async def said(lane: Lane, words: str) -> list[str]:
    """The lines of the log with these words, once there is one."""

    def found() -> list[str]:
        return [line for line in lane.gateway.read_stderr().splitlines() if words in line]

    await until(found)
    return found()


async def test_store_is_checked_by_one_worker_while_all_serve(tmp_path: Path, place: Path) -> None:
    """After the orderly end of that gateway nobody checks again."""
    kill(place)
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        async with running(folder, place=place, workers=2) as lane:
            await lane.passes_unchanged()
            assert (await lane.tool(name)).status == 200
            if name == "first":
                assert len(await said(lane, "is whole")) == 1
            assert lane.gateway.read_stderr().count("was not closed in order") == (name == "first")
        assert lane.done(name) == 1


async def test_damaged_store_refuses_writes_and_reopening(place: Path) -> None:
    """Whoever has it open by then writes nothing any more, and it does not start again."""
    kill(place)
    damage(place)
    stores = [SqliteStore(str(place)) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))  # at once: one check finds the damage for both
    for store in stores:
        await until_read(store.find_loss_reason)
    for store in stores:
        with pytest.raises(StoreError, match="is damaged"):
            await store.put_prompt("p", "text", tenant="default", now_s=1.0)
        await store.close()
    with pytest.raises(StoreError, match="is damaged"):
        await SqliteStore(str(place)).open()
