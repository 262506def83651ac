"""The audit log and the server of PostgreSQL, read beside gateways as commands do."""

import asyncio
import time

import pytest

from gateway.contracts.storage.audit_chain import verify
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql.migrations import SCHEMA, migrate
from gateway.plugins.stores.postgresql.reader import PostgresqlReader, read_state
from gateway.testing.ports import free_port
from tests.plugins.stores.postgresql.conftest import execute, open_store, url_of
from tests.plugins.stores.postgresql.next_schema import NEXT_SCHEMA, VERSION
from tests.plugins.stores.records import audit_line, new, run
from tests.postgres import postgres_server

pytestmark = pytest.mark.postgres


async def fill(database: str) -> None:
    store = await open_store(database)
    for number in range(5):
        await store.write(new(run(f"r{number}"), audit=(audit_line(by="a\0b"),)))
    await store.audit(after=0, limit=1)
    await store.write(new(audit=(audit_line(),)))
    await store.close()


async def test_log_is_read_in_pieces_beside_gateways(database: str) -> None:
    """Lines with a number, which form a chain, as they were written."""
    await fill(database)
    pages = await asyncio.to_thread(lambda: list(PostgresqlReader(database).audit_log(after=-(2**63), size=2)))
    assert [len(page) for page in pages] == [2, 2, 1]
    rows = [row for page in pages for row in page]
    assert verify(rows) is None and {line["by"] for _, line, _ in rows} == {"a\0b"}


async def test_whole_guards_are_reported_as_such(database: str) -> None:
    assert await asyncio.to_thread(PostgresqlReader(database).audit_guards) == []


async def test_changed_guards_are_named(new_database: str) -> None:
    """One after the other: each change adds its own to those before."""
    trigger = "BEFORE INSERT ON twolane.audit EXECUTE FUNCTION twolane.refuse_audit_change()"
    function = "FUNCTION twolane.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
    changes = {
        "DROP TRIGGER audit_is_not_deleted ON twolane.audit": "audit_is_not_deleted",
        "ALTER TABLE twolane.audit DISABLE TRIGGER audit_is_not_changed": "audit_is_not_changed",
        f"CREATE TRIGGER odd {trigger}": "odd",
        f"CREATE OR REPLACE {function}": "audit_is_not_truncated",
    }
    odd = []
    for change, name in changes.items():
        await execute(new_database, change)
        odd.append(name)
        assert await asyncio.to_thread(PostgresqlReader(new_database).audit_guards) == sorted(odd)


async def test_database_without_a_store_is_refused(server: str) -> None:
    """So is a copy, which PostgreSQL's own tools make."""
    reader = PostgresqlReader(url_of(server, "postgres"))
    for read in (lambda: list(reader.audit_log(after=0, size=9)), reader.audit_guards):
        with pytest.raises(StoreError, match="twolane"):
            await asyncio.to_thread(read)
    with pytest.raises(StoreError, match="pg_dump"):
        reader.write_copy("x", progress=lambda left, total: None)


def test_state_of_a_database_without_a_store(server: str) -> None:
    """It is read, and nothing is made there."""
    asyncio.run(execute(url_of(server, "postgres"), "DROP DATABASE IF EXISTS bare", "CREATE DATABASE bare"))
    for _ in range(2):
        state = read_state(url_of(server, "bare"))
        assert (state.schema_version, state.known_version, state.gateways) == (0, SCHEMA[-1].version, 0)
        assert state.schema_problem is None
        assert abs(state.clock_ahead_s) < 1.0


def test_gateways_that_share_something_are_counted_once(new_database: str) -> None:
    """One counts budgets and shares limits, one only budgets, and one has ended."""

    async def attend() -> None:
        store, now_s = await open_store(new_database, size=1), time.time()
        for gateway in ("a", "b", "ended"):
            await store.announce_gateway(gateway, now_s=now_s, until_s=now_s + 60)
        await store.share_quota("a", [], turn=1, now_s=now_s)
        await store.withdraw_gateway("ended")
        await store.close()

    asyncio.run(attend())
    assert read_state(new_database).gateways == 2


def test_schema_of_a_later_version_is_named(new_database: str) -> None:
    """Whether this program can use it, too."""
    asyncio.run(migrate(new_database, schema=NEXT_SCHEMA))
    state = read_state(new_database)
    assert (state.schema_version, state.schema_problem) == (VERSION, None)
    asyncio.run(execute(new_database, f"UPDATE twolane.schema_versions SET compatible_from = {VERSION}"))
    assert "start a newer gateway" in str(read_state(new_database).schema_problem)


def test_smallest_limit_of_server_role_and_database_counts(new_database: str) -> None:
    """Of a hundred connections PostgreSQL keeps three for superusers; newer servers may keep further ones."""
    assert read_state(new_database).connection_limit == 97
    asyncio.run(execute(new_database, f"ALTER DATABASE {new_database.rpartition('/')[2]} CONNECTION LIMIT 9"))
    assert read_state(new_database).connection_limit == 9
    with postgres_server("CREATE ROLE few LOGIN CONNECTION LIMIT 20", newest=True) as place:
        assert read_state(f"postgresql://owner@{place}").connection_limit == 97
        assert read_state(f"postgresql://few@{place}").connection_limit == 20


def test_server_that_is_away_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreError, match=r"PostgreSQL: .*Connect call failed"):
        read_state(f"postgresql://owner@127.0.0.1:{free_port()}/store")
