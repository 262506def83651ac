"""`gateway audit`: the log is read out of the store's file, and whatever was done to it is found."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.cli.audit import PAGE, AuditError, NotedHash, list_audit_lines, store_file, verify_log
from gateway.config import LoadedConfig, Settings
from gateway.contracts.storage.audit_chain import link
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.migrations import AUDIT_TRIGGERS
from gateway.plugins.stores.sqlite.store_url import SqliteBeside
from tests.plugins.stores.records import audit_line, new, run


async def written(folder: Path, lines: int = 5) -> str:
    """A store with so many lines, of a gateway that has stopped; its file."""
    place = str(folder / "gateway.db")
    store = SqliteStore(place)
    await store.open()
    await store.write(new(run(), audit=tuple(audit_line(step=number) for number in range(1, lines + 1))))
    await store.close()
    return place


def tampered(place: str, *statements: str) -> None:
    """As somebody does who may write the file, knows SQLite, and leaves the triggers as they were."""
    with closing(sqlite3.connect(place)) as connection, connection:
        for trigger in AUDIT_TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        for statement in statements:
            connection.execute(statement)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
            for trigger in AUDIT_TRIGGERS.values():
                connection.execute(trigger)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER audit_is_not_deleted",
        "DROP TRIGGER audit_grows_at_its_end",
        "CREATE TRIGGER more AFTER INSERT ON audit BEGIN SELECT 1; END",
    ],
)
async def test_verify_rejects_a_log_with_changed_triggers(tmp_path: Path, statement: str) -> None:
    """Each line is as it was written, and somebody has prepared to change that."""
    place = await written(tmp_path)
    assert next(verify_log(SqliteBeside(place), noted=None)).startswith("5 lines")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(AuditError, match=statement.split()[2]):
        list(verify_log(SqliteBeside(place), noted=None))


def last_hash(place: str) -> str:
    return str(json.loads(list(list_audit_lines(SqliteBeside(place), after=0, as_json=True))[-1])["hash"])


async def test_verify_reports_line_count_last_hash_and_check_command(tmp_path: Path) -> None:
    """How many lines, the last hash, and the command that checks it later."""
    place = await written(tmp_path)
    last = last_hash(place)
    assert list(verify_log(SqliteBeside(place), noted=None)) == [
        "5 lines, none of them changed or missing",
        f"last hash {last}",
        f"note it down elsewhere; later: gateway audit verify --expect {last} --at 5",
    ]
    assert list(verify_log(SqliteBeside(place), noted=NotedHash(5, last)))[1] == "line 5 is the one that was noted down"


async def test_audit_verify_accepts_an_empty_log(tmp_path: Path) -> None:
    """There is nothing to note down yet."""
    place = await written(tmp_path, lines=0)
    assert list(verify_log(SqliteBeside(place), noted=None)) == ["0 lines, none of them changed or missing"]
    assert list(list_audit_lines(SqliteBeside(place), after=0, as_json=False)) == []


async def test_audit_log_is_readable_during_gateway_writes(tmp_path: Path) -> None:
    """As far as it has come by then."""
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    await store.write(new(run(), audit=(audit_line(),)))
    lines = verify_log(SqliteBeside(store.place), noted=None)
    assert next(lines).startswith("1 lines")
    await store.write(new(run("run_2"), audit=(audit_line(run_id="run_2"),)))
    assert next(verify_log(SqliteBeside(store.place), noted=None)).startswith("2 lines")
    await store.close()


@pytest.mark.parametrize("name", ["tenant", "caller", "run_id", "event", "tool", "decision", "by", "via", "created_s"])
async def test_audit_verify_names_a_changed_line(tmp_path: Path, name: str) -> None:
    """Whatever of it was changed, and whatever stands there now."""
    place = await written(tmp_path)
    for value in ("'x'", "x'ff'", "9e999", "cast(x'1b5b324aff' AS TEXT)"):
        tampered(place, f'UPDATE audit SET "{name}" = {value} WHERE seq = 3')
        with pytest.raises(AuditError, match=r"^line 3 of the audit log is not as it was written: 3  "):
            list(verify_log(SqliteBeside(place), noted=None))
        assert len(list(list_audit_lines(SqliteBeside(place), after=0, as_json=True))) == 5


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM audit WHERE seq = 3", "has line 4 where line 3 should be"),
        ("DELETE FROM audit WHERE seq = 1", "has line 2 where line 1 should be"),
        ("UPDATE audit SET seq = -2 WHERE seq = 2", "has line -2 where line 1 should be"),
        ("UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 1) WHERE seq = 4", "line 4 of the audit log is"),
    ],
)
async def test_a_line_that_was_taken_out_or_moved_is_found(tmp_path: Path, statement: str, message: str) -> None:
    """The first one that is not there is named."""
    place = await written(tmp_path)
    tampered(place, statement)
    with pytest.raises(AuditError, match=message):
        list(verify_log(SqliteBeside(place), noted=None))


async def test_a_long_log_is_read_in_pieces(tmp_path: Path) -> None:
    """A break is found at their seams, too, and so is the line that was noted down."""
    place = await written(tmp_path, lines=2 * PAGE + 1)
    hashes = [json.loads(line)["hash"] for line in list_audit_lines(SqliteBeside(place), after=0, as_json=True)]
    for seq in (1, PAGE, PAGE + 1, 2 * PAGE + 1):
        assert list(verify_log(SqliteBeside(place), noted=NotedHash(seq, hashes[seq - 1])))[1].startswith(
            f"line {seq} is"
        )
    tampered(place, f"DELETE FROM audit WHERE seq = {PAGE + 1}")
    with pytest.raises(AuditError, match=f"has line {PAGE + 2} where line {PAGE + 1} should be"):
        list(verify_log(SqliteBeside(place), noted=None))


async def test_audit_verify_detects_truncation_by_the_noted_hash(tmp_path: Path) -> None:
    """The chain alone cannot tell."""
    place = await written(tmp_path)
    last = last_hash(place)
    tampered(place, "DELETE FROM audit WHERE seq > 3")
    assert next(verify_log(SqliteBeside(place), noted=None)).startswith("3 lines")
    with pytest.raises(AuditError, match="line 5 of the audit log is gone: it ends with line 3"):
        list(verify_log(SqliteBeside(place), noted=NotedHash(5, last)))


async def test_audit_verify_detects_a_rewritten_log_by_the_noted_hash(tmp_path: Path) -> None:
    """Whoever changes a line and chains all that follow leaves other hashes."""
    place = await written(tmp_path)
    last = last_hash(place)
    views = [json.loads(line) for line in list_audit_lines(SqliteBeside(place), after=0, as_json=True)]
    previous, statements = "0" * 64, []
    for view in views:
        line = {name: value for name, value in view.items() if name not in ("seq", "hash")} | {"by": "eve"}
        previous = link(previous, line)
        statements.append(f"UPDATE audit SET \"by\" = 'eve', hash = '{previous}' WHERE seq = {view['seq']}")
    tampered(place, *statements)
    assert next(verify_log(SqliteBeside(place), noted=None)).startswith("5 lines")
    with pytest.raises(AuditError, match=f"has the hash {previous} now: the log was written anew"):
        list(verify_log(SqliteBeside(place), noted=NotedHash(5, last)))


async def test_audit_list_prints_lines_with_valid_hashes(tmp_path: Path) -> None:
    """From behind a number; as JSON with all that the hash covers."""
    place = await written(tmp_path)
    lines = list(list_audit_lines(SqliteBeside(place), after=3, as_json=False))
    assert [line.split()[0] for line in lines] == ["4", "5"]
    views = [json.loads(line) for line in list_audit_lines(SqliteBeside(place), after=0, as_json=True)]
    previous = "0" * 64
    for number, view in enumerate(views, 1):
        assert view.pop("seq") == number
        found = view.pop("hash")
        assert found == link(previous, view)
        previous = found


def _foreign(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("CREATE TABLE t (a)")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        pytest.param(lambda place: place.write_bytes(b"no database" * 100), "cannot be read", id="no-database"),
        pytest.param(lambda place: place.mkdir(), "is not a file", id="folder"),
        pytest.param(_foreign, "is not the store of a gateway", id="foreign"),
    ],
)
def test_audit_rejects_a_path_that_is_not_a_gateway_store(
    tmp_path: Path, made: Callable[[Path], object], message: str
) -> None:
    """In one sentence; nothing is made or changed."""
    made(tmp_path / "x.db")
    for command in (
        verify_log(SqliteBeside(str(tmp_path / "x.db")), noted=None),
        list_audit_lines(SqliteBeside(str(tmp_path / "x.db")), after=0, as_json=True),
    ):
        with pytest.raises(AuditError, match=message):
            list(command)


async def test_audit_rejects_a_store_without_a_numbered_audit_table(tmp_path: Path) -> None:
    """Also where its lines have no numbers."""
    place = await written(tmp_path)
    tampered(place, "CREATE TABLE other AS SELECT * FROM audit", "DROP TABLE audit")
    with pytest.raises(AuditError, match="no such table: audit"):
        list(verify_log(SqliteBeside(place), noted=None))
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE other SET seq = 'x'")
        connection.execute("ALTER TABLE other RENAME TO audit")
    with pytest.raises(AuditError, match="lines have numbers"):
        list(verify_log(SqliteBeside(place), noted=None))


def _loaded(folder: Path, store: str) -> LoadedConfig:
    settings = Settings.model_validate({"store": store}, context={"folder": folder})
    return LoadedConfig(settings=settings, warnings=(), file=None, folder=folder)


async def test_audit_uses_the_store_of_the_configuration(tmp_path: Path) -> None:
    """A relative file is beneath the folder of the configuration."""
    place = await written(tmp_path)
    assert store_file(_loaded(tmp_path, "sqlite:///./gateway.db"))[0] == str(tmp_path / "./gateway.db")
    assert store_file(_loaded(Path("/nowhere"), f"sqlite:///{place}"))[0] == place


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("sqlite:///:memory:", "ask GET /context/audit instead"),
        ("mysql://db/x", "ask GET /context/audit instead"),
        ("sqlite:///none.db", "there is no store"),
    ],
)
def test_audit_rejects_a_store_without_a_database_file(tmp_path: Path, store: str, message: str) -> None:
    """With the way that there is."""
    with pytest.raises(AuditError, match=message):
        store_file(_loaded(tmp_path, store))
    assert list(tmp_path.iterdir()) == []
