"""Usage in a file: what outlives a process that is killed, and how it is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.contract_usage import ROW

KILLED = """
import asyncio, os, signal
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.contract_usage import ROW

async def main():
    store = SqliteStore({place!r})
    await store.open()
    await store.add_usage([ROW], writer="killed", number=1, now_s=7.0)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_usage_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    """And the mark of that process with it."""
    place = str(tmp_path / "gateway.db")
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", KILLED.format(place=place)], cwd=root, check=False)
    assert done.returncode == -9
    store = SqliteStore(place)
    await store.open()
    assert await store.sum_usage(since=ROW.day, until=ROW.day, by=("key",), tenant="acme")
    assert await store.forget_lost_usage(before_s=8.0) == [7.0]
    await store.close()


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_usage_of_a_period_is_found_through_an_index(tmp_path: Path, tenant: str | None) -> None:
    """By the day, within a tenant or in all of them."""
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    named = "" if tenant is None else "AND tenant = 'acme'"
    statement = f"EXPLAIN QUERY PLAN SELECT * FROM usage WHERE day >= '1' AND day <= '2' {named}"
    plan = await store._read(lambda c: c.execute(statement).fetchall())
    assert "SEARCH usage" in plan[0][3] and "day>?" in plan[0][3]
    await store.close()
