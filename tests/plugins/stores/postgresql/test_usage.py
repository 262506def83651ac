"""The usage of several processes in one PostgreSQL database."""

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from gateway.contracts.storage.usage import DIMENSIONS
from gateway.plugins.stores.postgresql import pool as pool_module
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.testing.ports import free_port
from gateway.usage.ledger import Ledger
from gateway.usage.tokens import RequestUsage, TokenCounts
from tests.plugins.stores.contract_usage import ROW, read
from tests.plugins.stores.postgresql.conftest import ClockedStore, quiet_store
from tests.plugins.stores.postgresql.cutting_proxy import cutting_proxy

pytestmark = pytest.mark.postgres

NOON_S = 1795737600.0


def record(ledger: Ledger) -> None:
    ledger.record(RequestUsage(TokenCounts(3)), "alice", "acme", "m", "openai", "passthrough")


async def test_usage_of_processes_at_once_is_summed(two_stores: tuple[ClockedStore, ClockedStore]) -> None:
    """In whatever order they name the rows; a row may come twice in one addition."""
    rows = [replace(ROW, key=f"k{number:02}", day=f"2026-11-{1 + number % 9:02}") for number in range(30)]
    adds = [
        store.add_usage([*rows[:: 1 if n % 2 else -1], rows[3]], writer=f"w{n}", number=1, now_s=1.0)
        for n, store in enumerate(two_stores * 5)
    ]
    await asyncio.gather(*adds)
    found = await read(two_stores[0], *DIMENSIONS)
    assert {row.key: row.requests for row in found} == {
        row.key: 2 * 10 * (2 if row.key == "k03" else 1) for row in rows
    }
    changes = await two_stores[1].list_usage_changes(since="2026-11-01", until="2026-11-30")
    assert changes == {f"2026-11-{day:02}": 10 for day in range(1, 10)}


async def test_usage_counts_once_though_the_connection_breaks_behind_the_commit(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between commit and answer, for longer than a call is sent again: the next flush adds nothing that is there."""
    monkeypatch.setattr(pool_module, "RETRY_S", 0.2)
    place = urlsplit(database)
    async with cutting_proxy(place.port or 0) as (cutting, port):
        store = quiet_store(database.replace(f":{place.port}/", f":{port}/"))
        ledger = Ledger(store, writer="w", counters=ContextCounters(), clock=ManualClock(NOON_S))
        record(ledger)
        await ledger.flush()
        record(ledger)
        server, cutting._target, cutting.answers = cutting._target, free_port(), 0  # it is prepared already
        await ledger.flush()
        assert cutting.cuts == 1
        cutting._target = server
        record(ledger)
        await ledger.flush()
        assert [(row.input, row.requests) for row in await read(store)] == [(9, 3)]
        await ledger.close()
        await store.close()


async def test_addition_that_was_given_up_and_comes_late_adds_nothing(store: ClockedStore) -> None:
    """Also when its process has reported that it has nothing more."""
    await store.add_usage([ROW], writer="a", number=1, now_s=2.0)
    await store.end_usage("a")
    await store.add_usage([ROW], writer="a", number=1, now_s=2.0)
    assert [row.requests for row in await read(store)] == [ROW.requests]
    assert await store.forget_lost_usage(before_s=5.0) == []


async def test_lost_usage_is_reported_once_by_a_write_sent_again(store: ClockedStore) -> None:
    """The same write has the same result; the next one has none."""
    await store.add_usage([ROW], writer="a", number=1, now_s=2.0)
    for number, lost in ((1, [2.0]), (1, [2.0]), (2, [])):
        rows = await store._read("SELECT * FROM twolane.forget_lost_usage('w', $1, 5)", number)
        assert [tuple(row) for row in rows] == [(added_s,) for added_s in lost]
