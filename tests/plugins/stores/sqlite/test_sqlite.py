"""The SQLite store: the contract in a file and in memory, and what only a file can go through."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.contracts.storage.journal import AskBefore
from gateway.contracts.storage.store import Store, StoredPrompt, StoreError
from gateway.plugins.stores.sqlite import PLUGIN, Config, SqliteStore
from gateway.plugins.stores.sqlite.file import IN_MEMORY
from gateway.plugins.stores.sqlite.migrations import APPLICATION_ID, MIGRATIONS
from tests.plugins.stores.contract import *  # noqa: F403 - the tests of the contract run here
from tests.plugins.stores.contract import RUN, Reopen
from tests.plugins.stores.contract_approvals import *  # noqa: F403
from tests.plugins.stores.contract_grants import *  # noqa: F403
from tests.plugins.stores.contract_journal import *  # noqa: F403
from tests.plugins.stores.contract_keys import *  # noqa: F403
from tests.plugins.stores.contract_leases import *  # noqa: F403
from tests.plugins.stores.contract_lists import *  # noqa: F403
from tests.plugins.stores.contract_memories import *  # noqa: F403
from tests.plugins.stores.contract_quota import *  # noqa: F403
from tests.plugins.stores.contract_replicas import *  # noqa: F403
from tests.plugins.stores.contract_responses import *  # noqa: F403
from tests.plugins.stores.contract_sessions import *  # noqa: F403
from tests.plugins.stores.contract_tool_runs import *  # noqa: F403
from tests.plugins.stores.contract_usage import *  # noqa: F403
from tests.plugins.stores.records import new, run

ROOT = Path(__file__).parents[4]


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "gateway.db") if request.param == "file" else IN_MEMORY)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def place(tmp_path: Path) -> str:
    """A file that has been a store."""
    place = str(tmp_path / "gateway.db")
    store = await opened(place)
    await store.put_prompt("p", "text", tenant="acme", now_s=1.0)
    for i in range(200):
        await store.write(new(run(f"run_{i}", answer=b"x" * 500)))
    await store.close()
    return place


@pytest.fixture
async def reopened(tmp_path: Path) -> AsyncIterator[Reopen]:
    stores: list[SqliteStore] = []

    async def reopen() -> Store:
        await asyncio.gather(*(store.close() for store in stores))
        stores.append(await opened(str(tmp_path / "gateway.db")))
        return stores[-1]

    yield reopen
    await stores[-1].close()


async def opened(place: str) -> SqliteStore:
    store = SqliteStore(place)
    await store.open()
    return store


async def refusal(place: str) -> str:
    """What a store says that refuses to open; it can be closed all the same."""
    store = SqliteStore(place)
    with pytest.raises(StoreError) as caught:
        await store.open()
    await store.close()
    return str(caught.value)


def test_store_url_must_name_a_file() -> None:
    """The default is a file in the working folder; anything but sqlite:///FILE is refused with an example."""
    assert Config().url == "sqlite:///./gateway.db"
    for url in ("postgresql://db/x", "sqlite:///", "sqlite://x.db", "gateway.db"):
        with pytest.raises(ValidationError, match="sqlite:///FILE"):
            Config(url=url)
    assert PLUGIN.config is Config


async def test_unopened_store_refuses_operations() -> None:
    """A store that nobody opened says so, and can be closed."""
    store = SqliteStore(IN_MEMORY)
    with pytest.raises(StoreError, match="not open"):
        await store.list_prompts(tenant="acme", limit=99)
    with pytest.raises(StoreError, match="not open"):
        await store.write(new(RUN))
    await store.close()


async def test_new_store_files_have_mode_0600(tmp_path: Path) -> None:
    """Mode 0600, also of what SQLite puts beside it; no draft is left behind."""
    place = tmp_path / "gateway.db"
    store = await opened(str(place))
    await store.write(new(RUN))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("gateway.db", "gateway.db-wal", "gateway.db-shm"), 0o600)
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.db"]


@pytest.mark.parametrize("name", ["with space.db", "a?mode=memory", "ü#%41.db", "100%.db"])
async def test_any_file_name_is_used_literally(tmp_path: Path, name: str) -> None:
    """Nothing in a name means anything to SQLite."""
    store = await opened(str(tmp_path / name))
    await store.write(new(RUN))
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_concurrent_first_opens_share_one_new_store(tmp_path: Path) -> None:
    """Workers start together: one of them makes the file, all of them use it (N7)."""
    stores = [SqliteStore(str(tmp_path / "gateway.db")) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(
        *(store.put_prompt("p", "text", tenant="acme", now_s=1.0) for store in stores for _ in range(5))
    )
    assert await stores[0].get_generation() == 40
    found = await stores[3].get_prompt("p", tenant="acme")
    assert found is not None and found.version == 40
    await asyncio.gather(*(store.close() for store in stores))


async def test_last_concurrent_close_removes_the_wal(tmp_path: Path) -> None:
    """Bytes 18 and 19 of its head say that the file is whole without a log; before, they say that it is not."""
    place = tmp_path / "gateway.db"
    stores = [SqliteStore(str(place)) for _ in range(4)]
    for store in stores:
        await store.open()
    await stores[0].close()
    assert place.read_bytes()[18:20] == b"\x02\x02"
    await asyncio.gather(*(store.close() for store in stores[1:]))
    assert place.read_bytes()[18:20] == b"\x01\x01"
    assert list(tmp_path.iterdir()) == [place]


async def test_leftover_draft_file_does_not_prevent_opening(tmp_path: Path) -> None:
    """A process killed while it made the file leaves no half store: the next one starts (N7)."""
    (tmp_path / "gateway.db.new-abc").write_bytes(b"half")
    store = await opened(str(tmp_path / "gateway.db"))
    await store.write(new(RUN))
    await store.close()


async def test_acknowledged_write_survives_sigkill(tmp_path: Path) -> None:
    """kill -9 right after a write was told as done: it is there, and the store opens (N24)."""
    code = """
import asyncio, os, signal, sys
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import new, run
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for i in range(50):
        await store.write(new(run(f"run_{i}")))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    place = str(tmp_path / "gateway.db")
    done = subprocess.run([sys.executable, "-c", code, place], cwd=ROOT)
    assert done.returncode == -9
    store = await opened(place)
    assert len(await store.list_runs_by_fingerprint(RUN.fingerprint, tenant="acme", since_s=0.0)) == 50
    await store.close()


async def test_write_waits_for_the_lock_of_another_process(tmp_path: Path) -> None:
    """A lock that somebody holds for a moment delays a write and fails none."""
    place = str(tmp_path / "gateway.db")
    store = await opened(place)
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        put = asyncio.ensure_future(store.write(new(RUN)))
        assert await store.list_prompts(tenant="acme", limit=99) == []  # a reader waits for nobody
        assert not put.done()
        other.execute("COMMIT")
        await put
    await store.close()


@pytest.mark.parametrize("place", ["nowhere/gateway.db", "/proc/nowhere/gateway.db"])
async def test_a_missing_folder_is_named(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text says which folder to create."""
    monkeypatch.chdir(tmp_path)
    assert f"create {str(Path(place).absolute().parent)!r}" in await refusal(place)


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """N22: replaced by a directory."""
    assert "is not a file" in await refusal(str(tmp_path))


async def test_empty_file_is_refused_as_a_store(tmp_path: Path) -> None:
    """N22: a store that was emptied never looks like one that is new."""
    place = tmp_path / "gateway.db"
    place.touch()
    assert "is empty" in await refusal(str(place))
    assert place.stat().st_size == 0


async def test_store_refuses_to_open_without_its_main_file(place: str) -> None:
    """What SQLite left beside it would be played into the new file."""
    Path(place).rename(f"{place}-wal")
    assert "is gone" in await refusal(place)
    assert not Path(place).exists()


async def test_opening_a_text_file_as_store_fails_with_advice(tmp_path: Path) -> None:
    """The text names the file and what to do, and the file stays as it is."""
    place = tmp_path / "gateway.db"
    place.write_text("hello\n" * 500)
    text = await refusal(str(place))
    assert str(place) in text and "damaged" in text and "put a copy back" in text
    assert place.read_text() == "hello\n" * 500


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
async def test_truncated_store_file_stops_the_start(place: str, part: float) -> None:
    """N22: cut short, wherever."""
    os.truncate(place, int(Path(place).stat().st_size * part))
    assert "damaged" in await refusal(place)


async def test_a_store_with_overwritten_pages_stops_the_start(place: str) -> None:
    """N22: pages that are no pages any more are found at the start, not when they are read."""
    with Path(place).open("r+b") as file:
        file.seek(Path(place).stat().st_size // 2)
        file.write(os.urandom(20_000))
    assert "damaged" in await refusal(place)


async def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """A file with somebody else's tables is not migrated into a store."""
    place = str(tmp_path / "data.db")
    with closing(sqlite3.connect(place)) as other:
        other.execute("CREATE TABLE prompts (x)")
    before = Path(place).read_bytes()
    assert "another program" in await refusal(place)
    assert Path(place).read_bytes() == before


async def test_a_newer_store_is_refused(place: str) -> None:
    """N23: the text names the file, its version, ours, and the way out."""
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA user_version = 99")
    text = await refusal(place)
    assert place in text and "version 99" in text and "start the newer program" in text


NEXT: Sequence[Sequence[str]] = (*MIGRATIONS, ("ALTER TABLE prompts ADD COLUMN note TEXT",))


async def test_an_older_store_is_migrated_and_a_copy_kept(place: str) -> None:
    """N23: what was in it is there, and the file as it was lies beside it."""
    newer = SqliteStore(place, migrations=NEXT)
    await newer.open()
    assert await newer.get_prompt("p", tenant="acme") == StoredPrompt("p", "acme", "text", 1, 1.0)
    await newer.close()
    with closing(sqlite3.connect(place)) as now, closing(sqlite3.connect(f"{place}.v{len(MIGRATIONS)}")) as before:
        versions = [c.execute("PRAGMA user_version").fetchone()[0] for c in (now, before)]
        assert versions == [len(NEXT), len(MIGRATIONS)]
        assert before.execute("SELECT text FROM prompts").fetchall() == [("text",)]
    assert stat.S_IMODE(Path(f"{place}.v{len(MIGRATIONS)}").stat().st_mode) == 0o600


async def test_a_store_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    """N23: its prompts and runs are there; what was running has nothing to go on from; new ones are written."""
    place = str(tmp_path / "gateway.db")
    old = SqliteStore(place, migrations=MIGRATIONS[:1])
    await old.open()
    await old.close()
    row = "INSERT INTO runs VALUES ('acme', ?, 'ann', 'assistant', ?, 'k', ?, 1, 1.0, 2.0, ?, NULL)"
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("INSERT INTO prompts VALUES ('p', 'text', 1, 1.0)")
        connection.execute(row, ("done", RUN.fingerprint, "completed", b"{}"))
        connection.execute(row, ("torn", RUN.fingerprint, "running", None))
    store = await opened(place)
    done, torn = await store.run("done", tenant="acme"), await store.run("torn", tenant="acme")
    facts = {"fingerprint": RUN.fingerprint, "idempotency_key": "k", "effects": True, "request": b""}
    assert done == run("done", state="completed", created_s=1.0, updated_s=2.0, answer=b"{}", **facts)
    assert torn is not None and (torn.state, torn.kind, torn.fence) == ("interrupted", "chat", 0)
    # A prompt was everybody's: each tenant that the store has seen keeps it, as its own.
    for tenant in ("acme", "local"):
        assert await store.get_prompt("p", tenant=tenant) == StoredPrompt("p", tenant, "text", 1, 1.0)
    assert await store.get_prompt("p", tenant="new") is None
    await store.write(new(RUN))
    assert len(await store.list_runs_by_fingerprint(RUN.fingerprint, tenant="acme", since_s=0.0)) == 3
    await store.close()
    with closing(sqlite3.connect(f"{place}.v1")) as before:
        assert before.execute("SELECT id, state FROM runs ORDER BY id").fetchall() == [
            ("done", "completed"),
            ("torn", "running"),
        ]


async def test_asks_of_an_older_store_are_found_by_their_ids(tmp_path: Path) -> None:
    """They are listed, and taken back, as before."""
    place = str(tmp_path / "gateway.db")
    old = SqliteStore(place, migrations=MIGRATIONS[:12])
    await old.open()
    await old.close()
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("INSERT INTO asks VALUES ('acme', 'ann', 'c1', 1.0, 9.0)")
    ask_id = "ask_2ab72dd6f2e0ee6c1d497f99"
    kept = AskBefore(id=ask_id, tenant="acme", caller="ann", conversation="c1", created_s=1.0, expires_s=9.0)
    store = await opened(place)
    assert await store.list_asks(tenant="acme", now_s=5.0, limit=9) == [kept]
    assert await store.ask_by_id(ask_id, tenant="acme") == kept
    await store.put_ask(replace(kept, expires_s=20.0))
    assert await store.ask_by_id(ask_id, tenant="acme") == replace(kept, expires_s=20.0)
    assert await store.delete_ask(kept, audit=()) is True
    await store.close()


async def test_a_migration_that_fails_changes_nothing(place: str) -> None:
    """All steps or none: the older program still opens its store."""
    broken = SqliteStore(place, migrations=(*NEXT, ("CREATE TABLE half (x)", "CREATE TABLE prompts (x)")))
    with pytest.raises(StoreError, match="already exists"):
        await broken.open()
    store = await opened(place)
    assert await store.get_prompt("p", tenant="acme") == StoredPrompt("p", "acme", "text", 1, 1.0)
    await store.close()


async def test_store_file_has_its_application_id(place: str) -> None:
    """`file` and other programs can tell it from any SQLite file; a log line shows which one it is."""
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert repr(SqliteStore(place)) == f"SqliteStore({place!r})"
