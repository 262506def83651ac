"""Hidden turns in a file: answers without one are written together, none is lost, and nothing searches a table."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.contracts.storage.store import HiddenTurn
from gateway.plugins.stores.sqlite import SqliteStore, hidden_turns

TURN = HiddenTurn(id="a", run_id="run_1", start=0, end=1, before=[{"role": "tool"}], behind=[])


@pytest.mark.parametrize("statement", [hidden_turns.KEYS, hidden_turns.TURNS])
def test_hidden_turn_lookups_use_an_index(connection: sqlite3.Connection, statement: str) -> None:
    """However many rows there are."""
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", ("acme", "[]")).fetchall()
    assert [row[3] for row in plan if row[3].startswith("SCAN") and "json_each" not in row[3]] == []


async def test_concurrent_readers_each_get_their_own_hidden_turns(tmp_path: Path) -> None:
    """However many requests share a look: each tenant, and each list of keys."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    theirs = replace(TURN, id="b")
    await store.put_hidden(TURN, keys=["x", "y"], tenant="acme", now_s=1.0)
    await store.put_hidden(theirs, keys=["x"], tenant="other", now_s=1.0)
    asked = [("acme", ["x"]), ("other", ["x", "y"]), ("acme", ["y", "z"]), ("third", ["x"])]
    found = await asyncio.gather(*(store.find_hidden_turns(keys, tenant=tenant) for tenant, keys in asked))
    assert found == [{"x": TURN}, {"x": theirs}, {"y": TURN}, {}]
    await store.close()


async def test_recorded_answers_are_written_when_the_store_closes(tmp_path: Path) -> None:
    """Another store knows them then."""
    store, other = SqliteStore(str(tmp_path / "a.db")), SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await store.record_answer("b", keys=["x", "y"], tenant="acme", now_s=1.0)
    await store.close()
    await other.open()
    await other.put_hidden(TURN, keys=["x", "z"], tenant="acme", now_s=2.0)
    assert await other.find_hidden_turns(["x", "z"], tenant="acme") == {"x": None, "z": TURN}
    await other.close()


async def test_unwritable_recorded_answers_are_dropped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All that waited together, in one line. The next ones are written."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute("ALTER TABLE hidden_keys RENAME TO away")
    with caplog.at_level(logging.WARNING, "gateway"):
        await store.record_answer("b", keys=["x", "y"], tenant="acme", now_s=1.0)
        await store.record_answer("c", keys=["z"], tenant="acme", now_s=1.0)
        with pytest.raises(Exception, match="hidden_keys"):
            await store.find_hidden_turns(["z"], tenant="acme")
    assert [record.getMessage() for record in caplog.records if "not kept" in record.getMessage()] == [
        f"3 keys of answers without hidden turns are not kept: the store {store.place!r} failed: "
        "no such table: hidden_keys"
    ]
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute("ALTER TABLE away RENAME TO hidden_keys")
    await store.record_answer("d", keys=["z"], tenant="acme", now_s=1.0)
    await store.put_hidden(TURN, keys=["x", "z"], tenant="acme", now_s=2.0)
    assert await store.find_hidden_turns(["x", "z"], tenant="acme") == {"x": TURN, "z": None}
    await store.close()
