"""Fixtures of the tests of the PostgreSQL store: a server for all of them, and an empty database for each.

The clock of the database shows the time that a call of the store names: see `ClockedStore`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import Any

import asyncpg
import pytest

from gateway.contracts.storage.journal import Change, StoredRun
from gateway.contracts.storage.quota import QuotaAnswer, ShareRequest
from gateway.contracts.storage.replicas import ReplicaLease
from gateway.contracts.storage.store import Store
from gateway.plugins.stores.postgresql.migrations import migrate
from gateway.plugins.stores.postgresql.pool import PostgresqlPool
from gateway.plugins.stores.postgresql.store import PostgresqlStore
from tests.plugins.stores.contract import Reopen
from tests.plugins.stores.postgresql.next_schema import NEXT_SCHEMA
from tests.postgres import pooler, postgres_server

#: In place of the product's function: the contract's tests let time pass without waiting for it.
CLOCK = """
CREATE TABLE twolane.test_clock (now_s double precision NOT NULL);
INSERT INTO twolane.test_clock VALUES (0);
CREATE OR REPLACE FUNCTION twolane.now_s() RETURNS double precision LANGUAGE sql VOLATILE AS
    'SELECT now_s FROM twolane.test_clock'
"""


class ClockedStore(PostgresqlStore):
    """A store whose database has the time that its caller names; see CLOCK."""

    async def write(self, change: Change) -> None:
        if change.run.owner is not None:
            await self._set_clock(change.run.updated_s)
        await super().write(change)

    async def claim(self, *, now_s: float, **which: Any) -> Sequence[StoredRun]:
        await self._set_clock(now_s)
        return await super().claim(now_s=now_s, **which)

    async def renew(self, *, now_s: float, **which: Any) -> Sequence[str]:
        await self._set_clock(now_s)
        return await super().renew(now_s=now_s, **which)

    async def take_duty(self, name: str, *, now_s: float, **which: Any) -> bool:
        await self._set_clock(now_s)
        return await super().take_duty(name, now_s=now_s, **which)

    async def announce_gateway(self, gateway: str, *, now_s: float, until_s: float) -> None:
        await self._set_clock(now_s)
        await super().announce_gateway(gateway, now_s=now_s, until_s=until_s)

    async def count_gateways(self, *, now_s: float) -> int:
        await self._set_clock(now_s)
        return await super().count_gateways(now_s=now_s)

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        await self._set_clock(now_s)
        return await super().share_quota(gateway, requests, turn=turn, now_s=now_s)

    async def hold_leases(self, names: Collection[str], *, now_s: float, **which: Any) -> Sequence[ReplicaLease]:
        await self._set_clock(now_s)
        return await super().hold_leases(names, now_s=now_s, **which)

    async def _set_clock(self, now_s: float) -> None:
        await self._read("UPDATE twolane.test_clock SET now_s = $1 WHERE now_s <> $1", now_s)


def url_of(server: str, database: str) -> str:
    return f"postgresql://owner@{server.partition('/')[0]}/{database}"


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


#: Copies of what the schema begins with, and the way back to it: a new database for each test takes a hundred times as
#: long. Triggers do not fire meanwhile, so that the audit log can be emptied.
SEEDS = """
DO $$ DECLARE t text; BEGIN
    CREATE SCHEMA seeds;
    FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'twolane' LOOP
        EXECUTE format('CREATE TABLE seeds.%1$I AS TABLE twolane.%1$I', t);
    END LOOP;
END $$
"""
EMPTY = """
SET session_replication_role = replica;
DO $$ DECLARE t text; BEGIN
    FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'twolane' LOOP
        EXECUTE format('DELETE FROM twolane.%I', t);
        EXECUTE format('INSERT INTO twolane.%1$I OVERRIDING SYSTEM VALUE SELECT * FROM seeds.%1$I', t);
    END LOOP;
END $$
"""


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The end of a URL of a server; its database `empty_store` has the schema. `clocked_store` has that of a later
    version, and a clock of the tests besides.
    """
    with postgres_server("CREATE DATABASE empty_store") as place:
        asyncio.run(migrate(url_of(place, "empty_store")))
        asyncio.run(execute(url_of(place, "postgres"), "CREATE DATABASE clocked_store TEMPLATE empty_store"))
        asyncio.run(migrate(url_of(place, "clocked_store"), schema=NEXT_SCHEMA))
        asyncio.run(execute(url_of(place, "clocked_store"), CLOCK, SEEDS))
        yield place


@pytest.fixture
async def database(server: str) -> str:
    """The URL of a database with the schema, nothing in it, and a clock of the tests."""
    url = url_of(server, "clocked_store")
    await execute(url, EMPTY)
    return url


_numbers = itertools.count(1)


@pytest.fixture
async def new_database(server: str) -> str:
    """The URL of a database of this test alone, with the schema as it is."""
    name = f"store_{next(_numbers)}"
    await execute(url_of(server, "postgres"), f"CREATE DATABASE {name} TEMPLATE empty_store")
    return url_of(server, name)


async def open_store(url: str, *, size: int = 4) -> PostgresqlStore:
    """A store on a database; it sets the clock where the database is one with the clock of the tests."""
    kind = ClockedStore if url.endswith("/clocked_store") else PostgresqlStore
    store = kind(url, place=url, size=size)
    await store.open()
    return store


def quiet_store(url: str) -> PostgresqlStore:
    """A store with one connection, and without work in the background: what happens to a call happens to the test's."""
    kind = ClockedStore if url.endswith("/clocked_store") else PostgresqlStore
    store = kind(url, place=url, size=1)
    store._pool = PostgresqlPool(url, size=1, name=url)
    return store


@pytest.fixture(scope="session")
def pooled(server: str) -> Iterator[str]:
    """The end of the URL of a PgBouncer in front of the server, in transaction mode."""
    with pooler(server) as place:
        yield place


@pytest.fixture
async def store(database: str, pooled: str) -> AsyncIterator[PostgresqlStore]:
    """A store behind PgBouncer: so the contract runs there, and the other tests without it."""
    store = await open_store(url_of(pooled, database.rpartition("/")[2]))
    yield store
    await store.close()


@pytest.fixture
async def reopened(database: str) -> AsyncIterator[Reopen]:
    stores: list[PostgresqlStore] = []

    async def reopen() -> Store:
        await asyncio.gather(*(store.close() for store in stores))
        stores.append(await open_store(database))
        return stores[-1]  # type: ignore[return-value]  # the half that is there

    yield reopen
    await asyncio.gather(*(store.close() for store in stores))


@pytest.fixture
async def two_stores(database: str) -> AsyncIterator[tuple[ClockedStore, ClockedStore]]:
    """The stores of two processes on one database."""
    one, two = await open_store(database), await open_store(database)
    yield one, two
    await asyncio.gather(one.close(), two.close())
