"""Copies of whole stores, between SQLite and PostgreSQL."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from gateway.cli.main import main
from gateway.contracts.storage.store import Store
from gateway.contracts.storage.tables import TABLES
from gateway.contracts.storage.usage import DIMENSIONS
from gateway.plugins.stores.postgresql.store import PostgresqlStore
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.filling import fill
from tests.plugins.stores.postgresql.conftest import execute
from tests.plugins.stores.records import audit_line, broken, event, memory, new, run

pytestmark = pytest.mark.postgres

#: What follows from the tables, or is of processes, schema and numbers (`sequences`).
FURTHER_TABLES = {
    *("memory_words", "memory_word_counts", "new_events", "schema_versions", "seals", "writers"),
    # No gateway is at work on a store that is copied.
    *("quota_gateways", "quota_limits", "quota_shares", "replica_leases"),
}
FURTHER_COLUMNS = {
    *(("memory_owners", "memories"), ("runs", "pending"), ("runs", "idle_s"), ("usage_writers", "has_more")),
    *(("approvals", "number"), ("grants", "number"), ("audit", "id")),
}


async def fetch(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@pytest.fixture
def new_url(new_database: str) -> str:
    """The URL of a database with an empty store that no other test uses."""
    return new_database


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A SQLite store with rows in every table."""
    store = SqliteStore(str(tmp_path / "a.db"))
    await store.open()
    await fill(store)
    await store.close()
    return tmp_path / "a.db"


async def copy(source: str, target: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """Return what the command prints, and its errors."""
    await asyncio.to_thread(main, ["store", "copy", source, target])
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err


async def test_tables_of_the_schema_are_copied(server: str) -> None:
    """Each table and each column: what is neither copied nor known to follow from the others is forgotten."""
    found = await fetch(
        f"postgresql://owner@{server.partition('/')[0]}/empty_store",
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'twolane'",
    )
    copied = {(table, column) for table, columns in TABLES.items() if table != "sequences" for column in columns}
    columns = {(table, column) for table, column in found if table not in FURTHER_TABLES}
    assert columns == copied | FURTHER_COLUMNS


async def test_store_is_copied_to_postgresql_and_back(
    file: Path, new_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same rows, numbers and hashes."""
    there, _ = await copy(f"sqlite:///{file}", new_url, capsys)
    back, _ = await copy(new_url, f"sqlite:///{file}.2", capsys)
    assert there[:-2] == back[:-2] and "both stores have the same rows" in back[-2]
    counts = {line.split()[0]: int(line.split()[1]) for line in there[:-2]}
    assert list(counts) == list(TABLES) and min(counts.values()) > 0
    assert dump(file) == dump(Path(f"{file}.2"))


def dump(file: Path) -> dict[str, Sequence[object]]:
    """Return all tables of a SQLite store but the one with its mark, and the counts of changes."""
    with closing(sqlite3.connect(file)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in names
            if name not in ("counters", "memory_changes")
        }


#: What a reader of the store gets, by the methods of the contract.
READS: Sequence[Callable[[Store], Awaitable[object]]] = (
    lambda store: store.list_all_prompts(),
    lambda store: store.list_services(),
    lambda store: store.list_reported_services(since_s=0.0),
    lambda store: store.get_generation(),
    lambda store: store.count_key_changes(),
    lambda store: store.list_keys_in_use(),
    lambda store: store.get_or_create_secret("a\0b"),
    lambda store: store.run("run_1", tenant="tenant a\0b"),
    lambda store: store.list_steps("run_1", tenant="tenant a\0b"),
    lambda store: store.list_approvals(tenant="tenant a\0b", limit=9),
    lambda store: store.list_grants(tenant="tenant a\0b", now_s=0.0, limit=9),
    lambda store: store.list_asks(tenant="t", now_s=0.0, limit=9),
    lambda store: store.list_events(after=0, limit=99),
    lambda store: store.get_last_event(),
    lambda store: store.audit(after=0, limit=999),
    lambda store: store.recall("fact 3", tenant="acme", owner="user:ann", conversation="c\0d", limit=9),
    lambda store: store.list_memories(tenant="acme", owner="user:快速", before=None, limit=9),
    lambda store: store.find_hidden_turns(["快速 🦊", "common"], tenant="t"),
    lambda store: store.list_response_chain("resp_5", tenant="acme", limit=9),
    lambda store: store.list_answer_chunks("resp_5", tenant="acme", start=0, limit=9),
    lambda store: store.list_all_items("conv_1", tenant="acme"),
    lambda store: store.sum_usage(since="2026-11-29", until="2026-11-30", by=DIMENSIONS, tenant=None),
    lambda store: store.list_usage_changes(since="2026-11-29", until="2026-11-30"),
)


async def test_copy_is_a_working_store(file: Path, new_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It gives what the source gives, its log verifies, and what comes next gets the next numbers."""
    await copy(f"sqlite:///{file}", new_url, capsys)
    source, target = SqliteStore(str(file)), PostgresqlStore(new_url, place="test", size=2)
    for store in (source, target):
        await store.open()
    try:
        for read in READS:
            assert await read(target) == await read(source)
        assert await fetch(new_url, "SELECT state, pending FROM twolane.runs WHERE id = 'run_0'") == [
            ("awaiting_approval", 1)
        ]
        last = await target.get_last_event()
        line = audit_line(run_id="next")
        await target.write(new(run("next"), events=(event(run_id="next"),), audit=(line,)))
        assert [found.seq for found in await target.list_events(after=last, limit=9)] == [last + 1]
        lines = await target.audit(after=0, limit=999)
        assert broken(lines) is None and lines[-1].line == line
        assert await target.remember(memory(77), limit=99)
        newest = (await target.list_memories(tenant="acme", owner="user:ann", before=None, limit=1)).memories
        assert list(newest) == [memory(77)]
    finally:
        await source.close()
        await target.close()


async def test_target_that_is_not_empty_stays_as_it_is(
    file: Path, new_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a target that has nothing but a number of an event."""
    await execute(new_url, "UPDATE twolane.seals SET seq = 1 WHERE name = 'events'")
    printed, error = await copy(f"sqlite:///{file}", new_url, capsys)
    assert printed == [] and "is not empty (sequences)" in error
    assert await fetch(new_url, "SELECT count(*) FROM twolane.prompts") == [(0,)]


async def test_store_in_use_is_not_copied(tmp_path: Path, new_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a gateway wrote from then on would be missing."""
    store = PostgresqlStore(new_url, place="test", size=1)
    await store.open()
    await store.get_generation()
    printed, error = await copy(new_url, f"sqlite:///{tmp_path}/a.db", capsys)
    await store.close()
    assert printed == [] and "a gateway uses the store" in error and not list(tmp_path.iterdir())


async def test_database_without_a_store_is_no_source(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, error = await copy(f"postgresql://owner@{server}", f"sqlite:///{tmp_path}/a.db", capsys)
    assert printed == [] and "there is no store in 'postgresql://owner@" in error


async def test_rows_that_arrive_changed_are_not_kept(
    file: Path, new_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new store is compared with the source before it is one."""
    await execute(
        new_url,
        """CREATE FUNCTION twolane.spoil() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN NEW.text = NEW.text || ''!''; RETURN NEW; END'""",
        "CREATE TRIGGER spoil BEFORE INSERT ON twolane.prompts FOR EACH ROW EXECUTE FUNCTION twolane.spoil()",
    )
    printed, error = await copy(f"sqlite:///{file}", new_url, capsys)
    assert printed == [] and "the table 'prompts' is not the same" in error
    assert await fetch(new_url, "SELECT count(*) FROM twolane.runs") == [(0,)]
