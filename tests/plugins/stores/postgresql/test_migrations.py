"""The schema of the PostgreSQL store: made once, by whoever comes first, and refused where it does not fit."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import asyncpg
import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.postgresql import migrations
from gateway.plugins.stores.postgresql.migrations import SCHEMA, SchemaStep, migrate
from tests.plugins.stores.postgresql.conftest import execute, url_of
from tests.plugins.stores.records import new

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


def with_next(monkeypatch: pytest.MonkeyPatch, script: str, *, compatible_from: int = 1) -> tuple[SchemaStep, ...]:
    """The schema of a later program: one step more."""
    read = migrations.read_script
    monkeypatch.setattr(migrations, "read_script", lambda name: script if name == "next" else read(name))
    return (*SCHEMA, SchemaStep(SCHEMA[-1].version + 1, compatible_from=compatible_from, files=("next",)))


async def test_concurrent_first_starts_make_one_schema(blank: str) -> None:
    """Workers start together: one of them makes it, and all of them use it."""
    await asyncio.gather(*(migrate(blank) for _ in range(6)))
    assert await fetch(blank, "SELECT version FROM twolane.schema_versions") == [(step.version,) for step in SCHEMA]


async def test_older_program_goes_on_with_a_compatible_newer_schema(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions run at the same time during an upgrade."""
    store = await open_store(new_database)
    await migrate(new_database, schema=with_next(monkeypatch, "ALTER TABLE twolane.runs ADD COLUMN further text"))
    await store.write(new())
    await store.close()
    again = await open_store(new_database)
    assert await again.run("run_1", tenant="acme") is not None
    await again.close()


async def test_older_program_refuses_an_incompatible_schema(new_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = with_next(monkeypatch, "SELECT 1", compatible_from=SCHEMA[-1].version + 1)
    await migrate(new_database, schema=newer)
    with pytest.raises(StoreError, match="start a newer gateway"):
        await migrate(new_database)
    await migrate(new_database, schema=newer)


async def test_failing_step_changes_nothing(new_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a step or none of it: the older program goes on."""
    broken = with_next(monkeypatch, "CREATE TABLE twolane.half (x int); CREATE TABLE twolane.runs (x int)")
    with pytest.raises(StoreError, match="already exists"):
        await migrate(new_database, schema=broken)
    assert await fetch(new_database, "SELECT to_regclass('twolane.half')") == [(None,)]
    await migrate(new_database)


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
    with pytest.raises(StoreError, match=words):
        await migrate(url_of(server, database).replace("owner", role))


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
    assert replace(SCHEMA[0], files=()).build_script() == ""
