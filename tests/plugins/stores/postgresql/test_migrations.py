"""The schema of the PostgreSQL store: made once, by whoever comes first, and refused where it does not fit."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from gateways import until, until_read

from gateway.contracts.storage.store import StoreAwayError, StoreError
from gateway.plugins.stores.postgresql import migrations
from gateway.plugins.stores.postgresql.migrations import SCHEMA, SchemaStep, migrate
from gateway.testing.ports import free_port
from tests.plugins.stores.postgresql.conftest import execute, url_of
from tests.plugins.stores.records import event, new

from .conftest import open_store

pytestmark = pytest.mark.postgres


async def fetch(url: str, sql: str) -> Sequence[object]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


@pytest.fixture
async def blank(server: str) -> str:
    """The URL of a database without the schema."""
    await execute(url_of(server, "postgres"), "DROP DATABASE IF EXISTS blank WITH (FORCE)", "CREATE DATABASE blank")
    return url_of(server, "blank")


@pytest.fixture
def unused_server() -> str:
    return f"postgresql://owner@127.0.0.1:{free_port()}/postgres"


def with_next(folder: Path, script: str, *, compatible_from: int = 1) -> tuple[SchemaStep, ...]:
    """The schema of a later program: one step more, whose file stands in a folder of its own."""
    (folder / "next.sql").write_text(script)
    version = SCHEMA[-1].version + 1
    return (*SCHEMA, SchemaStep(version, compatible_from=compatible_from, files=("next",), folder=folder))


async def test_concurrent_first_starts_make_one_schema(blank: str) -> None:
    """Workers start together: one of them makes it, and all of them use it."""
    await asyncio.gather(*(migrate(blank) for _ in range(6)))
    assert await fetch(blank, "SELECT version FROM twolane.schema_versions") == [(step.version,) for step in SCHEMA]


async def test_older_program_goes_on_with_a_compatible_newer_schema(new_database: str, tmp_path: Path) -> None:
    """Both versions run at the same time during an upgrade."""
    store = await open_store(new_database)
    await migrate(new_database, schema=with_next(tmp_path, "ALTER TABLE twolane.runs ADD COLUMN further text"))
    await store.write(new())
    await store.close()
    again = await open_store(new_database)
    assert await again.run("run_1", tenant="acme") is not None
    await again.close()


async def test_older_program_refuses_an_incompatible_schema(new_database: str, tmp_path: Path) -> None:
    newer = with_next(tmp_path, "SELECT 1", compatible_from=SCHEMA[-1].version + 1)
    await migrate(new_database, schema=newer)
    with pytest.raises(StoreError, match="start a newer gateway"):
        await migrate(new_database)
    await migrate(new_database, schema=newer)


async def test_failing_step_changes_nothing(new_database: str, tmp_path: Path) -> None:
    """All of a step or none of it: the older program goes on."""
    broken = with_next(tmp_path, "CREATE TABLE twolane.half (x int); CREATE TABLE twolane.runs (x int)")
    with pytest.raises(StoreError, match="already exists"):
        await migrate(new_database, schema=broken)
    assert await fetch(new_database, "SELECT to_regclass('twolane.half')") == [(None,)]
    await migrate(new_database)


async def test_step_gives_way_to_a_transaction_that_has_its_table(
    new_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Gateways at work would wait behind it. It begins again, until the table is free."""
    monkeypatch.setattr(migrations, "TABLE_MS", 50)
    caplog.set_level("INFO")
    newer = with_next(tmp_path, "ALTER TABLE twolane.runs ADD COLUMN further text")
    holder, store = await asyncpg.connect(new_database), await open_store(new_database)
    await holder.execute("BEGIN; SELECT FROM twolane.runs")
    changing = asyncio.create_task(migrate(new_database, schema=newer))
    await until(lambda: sum("waits for those who use a table" in line for line in caplog.messages) == 2)
    await store.write(new())
    await holder.execute("COMMIT")
    await changing
    assert await fetch(new_database, "SELECT max(version) FROM twolane.schema_versions") == [(newer[-1].version,)]
    await asyncio.gather(holder.close(), store.close())


async def test_call_that_waits_while_its_table_changes_is_sent_again(
    new_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL refuses it, because its result has a column more than when it began."""
    holder, store = await asyncpg.connect(new_database), await open_store(new_database)
    await store.write(replace(new(), events=(event(),)))
    await holder.execute("BEGIN; SELECT FROM twolane.seals WHERE name = 'events' FOR UPDATE")
    reading = asyncio.create_task(store.list_events(after=0, limit=9))

    async def is_waiting() -> bool:
        return bool(await fetch(new_database, "SELECT FROM pg_locks WHERE NOT granted"))

    await until_read(is_waiting)
    await holder.execute("ALTER TABLE twolane.events ADD COLUMN further text NOT NULL DEFAULT ''; COMMIT")
    assert len(await reading) == 1
    assert any("is sent again" in line for line in caplog.messages)
    await asyncio.gather(holder.close(), store.close())


async def test_server_that_is_away_is_no_refusal(unused_server: str) -> None:
    """A start may wait for it."""
    with pytest.raises(StoreAwayError, match=r"(?i)connect"):
        await migrate(unused_server)


@pytest.mark.parametrize(
    ("role", "database", "words"),
    [
        ("writer", "blank", "GRANT CREATE ON DATABASE"),
        ("owner", "absent", "createdb"),
        ("nobody", "blank", "role"),
    ],
)
async def test_unusable_database_is_refused_with_the_next_step(
    server: str, blank: str, role: str, database: str, words: str
) -> None:
    del blank
    await execute(
        url_of(server, "postgres"),
        "DO $$ BEGIN CREATE ROLE writer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    with pytest.raises(StoreError, match=words) as refused:
        await migrate(url_of(server, database).replace("owner", role))
    assert not isinstance(refused.value, StoreAwayError), "no start waits for it"


async def test_database_must_have_unicode_text(server: str) -> None:
    await execute(
        url_of(server, "postgres"),
        "DROP DATABASE IF EXISTS latin",
        "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    with pytest.raises(StoreError, match="createdb --encoding UTF8"):
        await migrate(url_of(server, "latin"))


def test_every_script_belongs_to_one_step() -> None:
    """None is forgotten, and none is carried out twice."""
    named = [name for step in SCHEMA for name in step.files]
    assert sorted(named) == sorted(path.stem for path in migrations.FOLDER.glob("*.sql"))
    assert [step.version for step in SCHEMA] == list(range(1, len(SCHEMA) + 1))
    assert all(step.compatible_from <= step.version for step in SCHEMA)
    assert replace(SCHEMA[0], files=()).read_scripts() == ""
