"""Calls on PostgreSQL whose connection, server or caller goes away: each write is done once, or reported as failed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from gateway.contracts.storage.journal import ConflictError
from gateway.contracts.storage.store import StoreError, UncertainError
from gateway.plugins.stores.postgresql import pool as pool_module
from gateway.plugins.stores.postgresql.pool import PostgresqlPool
from gateway.testing.ports import free_port
from tests.plugins.stores.postgresql.conftest import execute, open_store, quiet_store, url_of
from tests.plugins.stores.postgresql.cutting_proxy import CuttingProxy, cutting_proxy
from tests.plugins.stores.records import audit_line, broken, event, moved, new, run
from tests.postgres import PostgresServer, started_server

pytestmark = pytest.mark.postgres


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
    """A proxy, and the URL of the database through it."""
    port = urlsplit(database).port
    assert port is not None
    async with cutting_proxy(port) as (proxy, listens_at):
        yield proxy, database.replace(str(port), str(listens_at))


@pytest.mark.parametrize("way", ["cut_up", "cut_down"])
async def test_connection_cut_at_any_byte_loses_and_repeats_no_write(
    database: str, proxy: tuple[CuttingProxy, str], way: str
) -> None:
    """Of a write and of the connection behind it: each of the cuts falls into a write, which is done once."""
    cutting, url = proxy
    store, direct = quiet_store(url), await open_store(database, size=1)
    await store.write(new())
    before = cutting.up if way == "cut_up" else cutting.down
    await store.write(moved(run(), events=(event(),), audit=(audit_line(),)))
    size = (cutting.up if way == "cut_up" else cutting.down) - before
    places = range(0, size, max(1, size // 40))
    for place in places:
        setattr(cutting, way, place)
        await store.write(moved(run(progress=b"%d" % place), events=(event(),), audit=(audit_line(),)))
    assert cutting.cuts >= len(places) - 2
    assert await direct.get_last_event() == len(places) + 1
    rows = await direct.audit(after=0, limit=999)
    assert len(rows) == len(places) + 1 and broken(rows) is None
    await asyncio.gather(store.close(), direct.close())


async def test_result_of_a_repeated_write_is_the_first_one(proxy: tuple[CuttingProxy, str]) -> None:
    """Of each function that returns one: its answer is cut off, and it is called again."""
    cutting, url = proxy
    store = quiet_store(url)
    for number in range(3):
        await store.write(new(run(f"r{number}")))

    async def cut(answers: int = 1) -> None:
        await store.get_last_event()
        cutting.answers = answers  # the rows do not arrive

    await store.claim(owner="w1", now_s=1.0, until_s=6.0, states=[], run_id=None, limit=1)  # asyncpg asks for types
    await cut(0)  # it is prepared already
    claimed = await store.claim(owner="w1", now_s=1.0, until_s=6.0, states=["running"], run_id=None, limit=2)
    assert [(one.id, one.fence) for one in claimed] == [("r0", 1), ("r1", 1)]
    await cut()
    assert await store.release(owner="w1") == 2
    await cut()
    assert await store.cancel("r2", tenant="acme", now_s=9.0, events=(event(run_id="r2"),), audit=()) is True
    assert cutting.cuts == 3 and await store.get_last_event() == 1
    await store.close()


async def test_late_attempt_of_a_given_up_write_is_refused(database: str) -> None:
    """It reaches the server when the process has written something else since."""
    store = quiet_store(database)
    await store.write(new())
    await store.write(moved(run(progress=b"1")))
    pool = store._get_pool()
    slot = pool._slots[0]
    with pytest.raises(Exception, match="out of date"):
        await slot.fetch("SELECT twolane.begin_write($1, $2)", [slot.writer, slot.number - 1], timeout_s=5.0)
    assert await slot.fetch("SELECT twolane.begin_write($1, $2)", [slot.writer, slot.number], timeout_s=5.0) == [
        (False,)
    ]
    await store.close()


async def test_server_that_is_away_fails_calls_at_once_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones wait for it. None of them was sent, so nothing is uncertain."""
    monkeypatch.setattr(pool_module, "RETRY_S", 0.3)
    pool = PostgresqlPool(f"postgresql://owner@127.0.0.1:{free_port()}/x", size=2, name="x")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    results = await asyncio.gather(*(pool.write("SELECT 1") for _ in range(4)), return_exceptions=True)
    assert [type(result) for result in results] == [StoreError] * 4
    assert loop.time() - began_s >= 0.3
    attempts = 0

    async def count(url: str) -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError(url)

    monkeypatch.setattr(pool_module, "connect", count)
    with pytest.raises(StoreError):
        await pool.read("SELECT 1")
    assert attempts == 1
    await pool.close()


async def test_write_without_an_answer_is_uncertain(
    proxy: tuple[CuttingProxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is gone for good right behind the statement: nobody knows."""
    monkeypatch.setattr(pool_module, "RETRY_S", 0.3)
    cutting, url = proxy
    store = quiet_store(url)
    await store.write(new())
    cutting._target, cutting.cut_down = free_port(), 0
    with pytest.raises(UncertainError):
        await store.write(moved(run(progress=b"1")))
    with pytest.raises(StoreError) as caught:
        await store.write(moved(run(progress=b"2")))
    assert type(caught.value) is StoreError, "it was never sent"
    await store.close()


async def test_statement_without_end_is_given_up(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gets its error in bounded time; the connection behind it is a new one."""
    monkeypatch.setattr(pool_module, "ANSWER_S", 0.2)
    monkeypatch.setattr(pool_module, "RETRY_S", 0.2)
    pool = PostgresqlPool(database, size=1, name="x")
    with pytest.raises(StoreError, match="TimeoutError"):
        await pool.read("SELECT pg_sleep(60)")
    assert await pool.read("SELECT 1") == [(1,)]
    await pool.close()


async def test_caller_that_stops_waiting_cancels_nothing(database: str) -> None:
    """Its call ends, and the connection serves the next one."""
    pool = PostgresqlPool(database, size=1, name="x")
    (before,) = await pool.read("SELECT pg_backend_pid()")
    waiting = asyncio.ensure_future(pool.read("SELECT pg_sleep(0.05)"))
    await asyncio.sleep(0)
    waiting.cancel()
    assert [before] == await pool.read("SELECT pg_backend_pid()")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await pool.close()
    with pytest.raises(StoreError, match="closed"):
        await pool.read("SELECT 1")


@pytest.fixture
def killable() -> Iterator[PostgresServer]:
    with started_server() as server:
        server.execute("CREATE DATABASE killed")
        yield server


async def test_killed_and_restarted_server_loses_and_repeats_no_write(killable: PostgresServer) -> None:
    """Writers that wait for their answers do not notice, and what was answered is there, once."""
    store = await open_store(url_of(killable.place, "killed"))
    runs = [f"r{number}" for number in range(6)]
    for run_id in runs:
        await store.write(new(run(run_id)))
    written = dict.fromkeys(runs, 0)
    is_over = False

    async def write(run_id: str) -> None:
        while not is_over:
            change = moved(run(run_id, progress=b"%d" % (written[run_id] + 1)), events=(event(run_id=run_id),))
            await store.write(replace(change, audit=(audit_line(run_id=run_id),)))
            written[run_id] += 1

    writers = [asyncio.create_task(write(run_id)) for run_id in runs]
    for _ in range(3):
        before = sum(written.values())
        while sum(written.values()) < before + 20:
            await asyncio.sleep(0)
            assert not any(writer.done() for writer in writers), [writer.exception() for writer in writers]
        killable.kill()
        await asyncio.to_thread(killable.start)
    is_over = True
    await asyncio.gather(*writers)
    for run_id in runs:
        kept = await store.run(run_id, tenant="acme")
        assert kept is not None and int(kept.progress) == written[run_id]
        found = await store.list_events(after=0, tenant="acme", run_id=run_id, limit=100_000)
        assert len(found) == written[run_id]
    rows = await store.audit(after=0, limit=100_000)
    assert len(rows) == sum(written.values()) and broken(rows) is None
    await store.close()


async def test_deadlock_is_tried_again(new_database: str) -> None:
    """The server undid one of two writes that waited for each other; no caller notices."""
    await execute(
        new_database,
        "CREATE TABLE twolane.pair (id int PRIMARY KEY, n int DEFAULT 0)",
        "INSERT INTO twolane.pair VALUES (1), (2)",
        """CREATE FUNCTION twolane.lock_both(p_writer text, p_number bigint, p_first int, p_second int) RETURNS void
            LANGUAGE plpgsql SET deadlock_timeout = '1ms' AS $$ BEGIN
            PERFORM twolane.begin_write(p_writer, p_number);
            UPDATE twolane.pair SET n = n + 1 WHERE id = p_first;
            PERFORM pg_sleep(0.05); -- the other one gets its first row meanwhile
            UPDATE twolane.pair SET n = n + 1 WHERE id = p_second;
        END $$""",
    )
    pool = PostgresqlPool(new_database, size=2, name="x")
    both = [pool.write("SELECT twolane.lock_both($1, $2, $3, $4)", *order) for order in ((1, 2), (2, 1))]
    await asyncio.gather(*both)
    assert await pool.read("SELECT n FROM twolane.pair ORDER BY id") == [(2,), (2,)]
    await pool.close()


async def test_refused_write_leaves_its_connection_usable(database: str) -> None:
    store = quiet_store(database)
    await store.write(new())
    for _ in range(3):
        with pytest.raises(ConflictError):
            await store.write(new())
    await store.write(moved(run(progress=b"1")))
    await store.close()


PREPARED = "SELECT statement FROM pg_prepared_statements WHERE statement LIKE 'SELECT n%'"


async def test_connection_of_its_own_server_process_keeps_prepared_statements(new_database: str) -> None:
    pool = PostgresqlPool(new_database, size=1, name="x")
    for number in (1, 2):
        assert await pool.read("SELECT n FROM generate_series(1, $1::int) n LIMIT 1 OFFSET $1 - 1", number) == [
            (number,)
        ]
    assert len(await pool.read(PREPARED)) == 1
    await pool.close()


async def test_connection_through_a_pooler_keeps_no_prepared_statements(pooled: str, new_database: str) -> None:
    """Its next statement may have another server process, which has prepared nothing."""
    pool = PostgresqlPool(url_of(pooled, new_database.rpartition("/")[2]), size=1, name="x")
    for number in (1, 2):
        assert await pool.read("SELECT n FROM generate_series($1::int, $1) n", number) == [(number,)]
    assert await pool.read(PREPARED) == []
    await pool.close()


async def test_statement_is_prepared_anew_when_the_schema_changes(new_database: str) -> None:
    """A gateway of the next version adds a column while this one reads."""
    await execute(new_database, "CREATE TABLE twolane.pair AS SELECT 1 AS n")
    pool = PostgresqlPool(new_database, size=1, name="x")
    assert await pool.read("SELECT * FROM twolane.pair") == [(1,)]
    await execute(new_database, "ALTER TABLE twolane.pair ADD COLUMN m int DEFAULT 2")
    assert await pool.read("SELECT * FROM twolane.pair") == [(1, 2)]
    assert await pool.read("SELECT * FROM twolane.pair") == [(1, 2)]
    await pool.close()


async def test_more_statements_than_a_connection_keeps_prepared_are_answered(new_database: str) -> None:
    pool = PostgresqlPool(new_database, size=1, name="x")
    for number in range(pool_module.MOST_PREPARED + 5):
        assert await pool.read(f"SELECT {number}, $1::int", number) == [(number, number)]
    await pool.close()
