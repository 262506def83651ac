"""The audit log of PostgreSQL read beside gateways, as `gateway audit` does."""

import asyncio

import pytest

from gateway.contracts.storage.audit_chain import verify
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql.audit_reader import PostgresqlReader
from tests.plugins.stores.postgresql.conftest import execute, open_store, url_of
from tests.plugins.stores.records import audit_line, new, run

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
