"""Prompts and memories that a person was told are stored are there after a power cut, at any moment."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from crash.disk import Disk, power_cuts, told_in

from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import recalled

ROOT = Path(__file__).parents[4]
#: Puts prompts and memories, says so of each among the calls of the disk, and is killed.
WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from crash.disk import tell
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import memory
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for n in range(3):
        if sys.argv[3] == "prompts":
            await store.put_prompt(f"p{n}", "text", tenant="acme", now_s=1.0)
        else:
            await store.remember(memory(n), limit=9)
        tell(Path(sys.argv[2]), b"%d" % n)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def stored(place: Path, what: str) -> set[bytes]:
    store = SqliteStore(str(place))
    await store.open()
    try:
        if what == "prompts":
            return {prompt.id.removeprefix("p").encode() for prompt in await store.list_all_prompts()}
        return {memory.id.removeprefix("m").encode() for memory in await recalled(store)}
    finally:
        await store.close()


@pytest.mark.parametrize("what", ["prompts", "memories"])
async def test_acknowledged_write_survives_a_power_cut(tmp_path: Path, what: str) -> None:
    """Whatever else of the log gets lost."""
    place = tmp_path / "gateway.db"
    store = SqliteStore(str(place))
    await store.open()
    await store.close()
    before, disk = place.read_bytes(), Disk(place, tmp_path, records=True)
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", **disk.env}
    command = [sys.executable, "-c", WRITER, str(place), str(disk.record), what]
    assert subprocess.run(command, cwd=ROOT, env=env).returncode == -9
    assert told_in(disk.record) == [b"0", b"1", b"2"]
    cuts = power_cuts(disk.record, database=before, count=1000, chance=random.Random(1))
    for number, cut in enumerate(cuts):
        found = tmp_path / str(number)
        found.mkdir()
        cut.write(found / "gateway.db")
        assert set(cut.told) <= await stored(found / "gateway.db", what)
