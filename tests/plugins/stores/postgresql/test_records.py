"""Events and the audit log in PostgreSQL: readers miss nothing, and the chain holds, whoever writes meanwhile."""

import asyncio
import json

import asyncpg
import pytest

from gateway.plugins.stores.postgresql import records
from tests.plugins.stores.postgresql.conftest import open_store
from tests.plugins.stores.records import audit_line, broken, event, moved, new, run

pytestmark = pytest.mark.postgres


def events_json(run_id: str) -> str:
    return json.dumps([{"tenant": "acme", "run_id": run_id, "type": "t", "data": "\\x7b7d", "created_s": 1.0}])


async def test_reader_by_cursor_misses_no_event_of_overlapping_writes(database: str) -> None:
    """The one that began first commits last: its event comes behind those that were read, and not between them."""
    store = await open_store(database)
    first, second = await asyncpg.connect(database), await asyncpg.connect(database)
    for connection, run_id in ((first, "a"), (second, "b")):
        await connection.execute("BEGIN")
        await connection.execute("SELECT twolane.add_events($1)".replace("$1", f"'{events_json(run_id)}'"))
    assert await store.get_last_event() == 0
    await second.execute("COMMIT")
    seen = [(one.seq, one.run_id) for one in await store.list_events(after=0, limit=9)]
    assert seen == [(1, "b")]
    await first.execute("COMMIT")
    seen = [(one.seq, one.run_id) for one in await store.list_events(after=1, limit=9)]
    assert seen == [(2, "a")]
    await asyncio.gather(store.close(), first.close(), second.close())


async def test_readers_beside_writers_see_each_event_once_and_in_order(database: str) -> None:
    """Two stores write, and two others read on from their last number all the time."""
    writers = [await open_store(database) for _ in range(2)]
    readers = [await open_store(database, size=1) for _ in range(2)]
    for number in range(8):
        await writers[0].write(new(run(f"r{number}")))
    is_over = False

    async def write(number: int) -> None:
        for place in range(15):
            data = b'{"place":%d}' % place
            change = moved(run(f"r{number}"), events=(event(run_id=f"r{number}", data=data),))
            await writers[number % 2].write(change)

    async def read(reader: int) -> list[tuple[int, str, bytes]]:
        seen: list[tuple[int, str, bytes]] = []
        while True:
            ended = is_over
            found = await readers[reader].list_events(after=seen[-1][0] if seen else 0, limit=7)
            seen += [(one.seq, one.run_id, one.data) for one in found]
            if ended and not found:
                return seen

    reading = [asyncio.create_task(read(reader)) for reader in range(2)]
    await asyncio.gather(*map(write, range(8)))
    is_over = True
    one, other = await asyncio.gather(*reading)
    assert one == other and [seq for seq, _, _ in one] == list(range(1, 121))
    for number in range(8):
        own = [data for _, run_id, data in one if run_id == f"r{number}"]
        assert own == [b'{"place":%d}' % place for place in range(15)]
    await asyncio.gather(*(store.close() for store in (*writers, *readers)))


async def test_audit_chain_is_whole_whoever_seals_it(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stores write and read the log at the same time; each line is in it once."""
    monkeypatch.setattr(records, "SEALED_AT_ONCE", 5)
    monkeypatch.setattr(records, "SEAL_S", 0.01)
    stores = [await open_store(database) for _ in range(3)]
    for number in range(3):
        await stores[0].write(new(run(f"r{number}")))

    async def write(number: int) -> None:
        for _ in range(20):
            await stores[number].write(moved(run(f"r{number}"), audit=(audit_line(run_id=f"r{number}"),)))
            rows = await stores[number].audit(after=0, limit=100)
            assert broken(rows) is None and f"r{number}" in {row.line.run_id for row in rows}

    await asyncio.gather(*map(write, range(3)))
    rows = await stores[0].audit(after=0, limit=100)
    assert [row.seq for row in rows] == list(range(1, 61)) and broken(rows) is None
    await asyncio.gather(*(store.close() for store in stores))


async def test_audit_lines_are_numbered_without_a_reader(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the background, so that the log can be read beside gateways."""
    monkeypatch.setattr(records, "SEAL_S", 0.01)
    store = await open_store(database)
    await store.write(new(audit=(audit_line(),)))
    while await store._read("SELECT FROM twolane.audit WHERE seq IS NULL"):
        await asyncio.sleep(0)
    await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE twolane.audit SET decision = 'run'",
        "UPDATE twolane.audit SET seq = 7, hash = 'x' WHERE seq = 1",
        "UPDATE twolane.audit SET seq = NULL, hash = NULL WHERE seq = 1",
        "UPDATE twolane.audit SET tool = 'x', seq = 2, hash = 'y' WHERE seq IS NULL",
        "DELETE FROM twolane.audit",
        "TRUNCATE twolane.audit",
    ],
)
async def test_audit_log_only_grows(database: str, statement: str) -> None:
    """Lines with and without a number are neither changed nor deleted."""
    store = await open_store(database)
    await store.write(new(audit=(audit_line(),)))
    await store.audit(after=0, limit=9)
    await store.close()
    connection = await asyncpg.connect(database)
    await connection.execute("SELECT twolane.add_audit((SELECT json_agg(a) FROM twolane.audit a))")
    with pytest.raises(asyncpg.RaiseError, match="a line of the audit log is never"):
        await connection.execute(statement)
    await connection.close()


async def test_audit_writers_do_not_wait_for_each_other(database: str) -> None:
    """Of a line that is written and not committed no other writer hears."""
    store, connection = await open_store(database), await asyncpg.connect(database)
    await store.write(new(audit=(audit_line(),)))
    await connection.execute("BEGIN")
    await connection.execute("SELECT twolane.add_audit((SELECT json_agg(a) FROM twolane.audit a))")
    await store.write(moved(run(), audit=(audit_line("started"),)))
    assert [row.line.event for row in await store.audit(after=0, limit=9)] == ["verdict", "started"]
    await connection.execute("COMMIT")
    rows = await store.audit(after=0, limit=9)
    assert [row.line.event for row in rows] == ["verdict", "started", "verdict"] and broken(rows) is None
    await asyncio.gather(store.close(), connection.close())
