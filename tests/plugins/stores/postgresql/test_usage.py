"""The usage of several processes in one PostgreSQL database."""

import asyncio
from dataclasses import replace

import pytest

from gateway.contracts.storage.usage import DIMENSIONS
from tests.plugins.stores.contract_usage import ROW, read
from tests.plugins.stores.postgresql.conftest import ClockedStore

pytestmark = pytest.mark.postgres


async def test_usage_of_processes_at_once_is_summed(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """In whatever order they name the rows; a row may come twice in one addition."""
    rows = [replace(ROW, key=f"k{number:02}", day=f"2026-11-{1 + number % 9:02}") for number in range(30)]
    adds = [
        store.add_usage([*rows[:: 1 if n % 2 else -1], rows[3]], writer=f"w{n}", now_s=1.0)
        for n, store in enumerate(two_stores * 5)
    ]
    await asyncio.gather(*adds)
    found = await read(two_stores[0], *DIMENSIONS)
    assert {row.key: row.requests for row in found} == {
        row.key: 2 * 10 * (2 if row.key == "k03" else 1) for row in rows
    }
    changes = await two_stores[1].list_usage_changes(since="2026-11-01", until="2026-11-30")
    assert changes == {f"2026-11-{day:02}": 10 for day in range(1, 10)}


async def test_lost_usage_is_reported_once_by_a_write_sent_again(store: ClockedStore) -> None:
    """The same write has the same result; the next one has none."""
    await store.add_usage([ROW], writer="a", now_s=2.0)
    for number, lost in ((1, [2.0]), (1, [2.0]), (2, [])):
        rows = await store._read("SELECT * FROM twolane.forget_lost_usage('w', $1, 5)", number)
        assert [tuple(row) for row in rows] == [(added_s,) for added_s in lost]
