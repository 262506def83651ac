"""Errors of PostgreSQL as operators and callers get them."""

import asyncio

import asyncpg
import pytest

from gateway.contracts.storage.journal import AskedAlreadyError, ConflictError, KeyTakenError
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.plugins.stores.postgresql import pool as pool_module
from gateway.plugins.stores.postgresql.failures import is_lost, is_repeatable, translate_error
from tests.plugins.stores.postgresql.conftest import execute, open_store, url_of
from tests.plugins.stores.records import audit_line, new, run
from tests.postgres import postgres_server

pytestmark = pytest.mark.postgres

#: In place of a function that each write calls: it fails as the server does.
FAILING = """CREATE OR REPLACE FUNCTION twolane.add_audit(p_lines json) RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'it failed' USING ERRCODE = '{}'; END $$"""


FAILURES = {
    "53100": "disk of the database server is full",
    "53200": "out of memory",
    "57014": "cancelled",
    "58030": "cannot write to its disk",
    "XX000": "it failed",
    "22000": "it failed",
}


async def test_failed_write_changes_nothing_and_says_why(new_database: str) -> None:
    store = await open_store(new_database, size=1)
    for code, words in FAILURES.items():
        await execute(new_database, FAILING.format(code))
        with pytest.raises(StoreError, match=words) as caught:
            await store.write(new(audit=(audit_line(),)))
        assert type(caught.value) is StoreError
        assert await store.run("run_1", tenant="acme") is None
    await store.close()


async def test_server_without_connections_left_says_what_to_do(new_database: str) -> None:
    """The limit is that of the database here: the error is the same for the server's."""
    name = new_database.rpartition("/")[2]
    await execute(
        new_database,
        f"ALTER DATABASE {name} CONNECTION LIMIT 0",
        "DO $$ BEGIN CREATE ROLE limited LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    with pytest.raises(StoreError, match="raise max_connections"):
        await open_store(new_database.replace("owner", "limited"))


async def test_database_that_takes_no_writes_names_the_way_out(new_database: str) -> None:
    """As a standby does, which the reason of a loss says, too."""
    name = new_database.rpartition("/")[2]
    await execute(new_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    store = await open_store(new_database, size=1)
    with pytest.raises(StoreError, match="name the primary"):
        await store.write(new())
    assert "name the primary" in str(await store.find_loss_reason())
    await store.close()


async def test_server_that_is_away_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Balancers and Kubernetes go by `/health/ready`, which is 503 after a loss: all gateways would leave at once."""
    monkeypatch.setattr(pool_module, "RETRY_S", 0.2)
    with postgres_server("SELECT 1") as place:
        store = await open_store(f"postgresql://owner@{place}")
        assert await store.find_loss_reason() is None
    with pytest.raises(StoreError):
        await store.write(new())
    assert await store.find_loss_reason() is None
    await store.close()


async def test_lone_surrogate_is_a_store_error(database: str) -> None:
    """As a parameter and within JSON."""
    store = await open_store(database, size=1)
    for bad in (store.run("\ud800", tenant="acme"), store.write(new(run(error="\ud800")))):
        with pytest.raises(StoreError):
            await bad
    await store.write(new())
    await store.close()


async def test_ended_backend_is_a_lost_connection(new_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator ends it in the middle of a write: whether that took effect is found out."""
    monkeypatch.setattr(pool_module, "RETRY_S", 0.3)
    await execute(
        new_database,
        """CREATE OR REPLACE FUNCTION twolane.add_audit(p_lines json) RETURNS void LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); END $$""",
    )
    store = await open_store(new_database, size=1)
    await store.write(new())
    with pytest.raises(UncertainError):
        await store.cancel("run_1", tenant="acme", now_s=1.0, events=(), audit=())
    await execute(
        new_database,
        "CREATE OR REPLACE FUNCTION twolane.add_audit(p_lines json) RETURNS void LANGUAGE sql AS 'SELECT'",
    )
    assert await store.cancel("run_1", tenant="acme", now_s=1.0, events=(), audit=()) is True
    await store.close()


def test_errors_are_sorted_by_their_consequences() -> None:
    lost = [
        asyncpg.AdminShutdownError("x"),
        asyncpg.ConnectionDoesNotExistError("x"),
        asyncpg.CannotConnectNowError("x"),
        TimeoutError(),
        ConnectionResetError(),
        asyncio.IncompleteReadError(b"", 1),
    ]
    assert all(map(is_lost, lost)) and not any(map(is_repeatable, lost))
    again = [asyncpg.DeadlockDetectedError("x"), asyncpg.SerializationError("x")]
    assert all(map(is_repeatable, again)) and not any(map(is_lost, again))
    assert not is_lost(asyncpg.UniqueViolationError("x")) and not is_lost(asyncpg.DiskFullError("x"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [("TW001", ConflictError), ("TW002", AskedAlreadyError), ("TW003", KeyTakenError), ("TW009", StoreError)],
)
async def test_refusals_of_our_functions_become_their_errors(server: str, code: str, kind: type[Exception]) -> None:
    """With texts as they were written."""
    connection = await asyncpg.connect(url_of(server, "postgres"))
    with pytest.raises(asyncpg.PostgresError) as caught:
        await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION E'a\\x01\\x01b' USING ERRCODE = '{code}'; END $$")
    error = translate_error(caught.value)
    assert type(error) is kind and "a\0b" in str(error)
    await connection.close()
