"""The tables of the store fit what is put into them, and the audit log only grows."""

import re
import sqlite3
from contextlib import closing
from dataclasses import fields

import pytest

from gateway.contracts.storage.grants import ask_id
from gateway.contracts.storage.store import StoredPrompt, StoredService, WorkerService
from gateway.plugins.stores.sqlite.migrations import MIGRATIONS, execute_statements

IDS_OF_ASKS = next(steps for steps in MIGRATIONS if "DROP TABLE asks_without_ids" in steps)
KEYS_OF_RUNS = next(steps for steps in MIGRATIONS if "ALTER TABLE runs ADD COLUMN holds_key INTEGER" in steps)
ASKED_BY = next(steps for steps in MIGRATIONS if "ALTER TABLE approvals ADD COLUMN user TEXT" in steps)


@pytest.mark.parametrize(
    ("table", "fact"),
    [("prompts", StoredPrompt), ("services", StoredService), ("worker_services", WorkerService)],
)
def test_table_columns_match_the_record_fields(connection: sqlite3.Connection, table: str, fact: type) -> None:
    """A field that is added to one of them is missing in the other until there is a migration."""
    columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    assert columns == {field.name for field in fields(fact)}


LINE = ("acme", "ann", "run_1", 1, "verdict", "sh", "a", "confirm", "default", "rule", "", "", 1.0, "hash")


def put_line(connection: sqlite3.Connection, *, seq: int, how: str = "INSERT") -> None:
    connection.execute(f"{how} INTO audit VALUES (?{', ?' * len(LINE)})", (seq, *LINE))


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE audit SET rule = 'x'", "never changed"),
        ("UPDATE audit SET seq = 5 WHERE seq = 2", "never changed"),
        ("DELETE FROM audit WHERE seq = 2", "never deleted"),
        ("DELETE FROM audit", "never deleted"),
    ],
)
def test_audit_log_rows_cannot_be_changed(connection: sqlite3.Connection, statement: str, text: str) -> None:
    """Not by any program that does not take the triggers away first."""
    for seq in (1, 2):
        put_line(connection, seq=seq)
    with pytest.raises(sqlite3.IntegrityError, match=text):
        connection.execute(statement)
    assert connection.execute("SELECT seq, rule FROM audit").fetchall() == [(1, "rule"), (2, "rule")]


@pytest.mark.parametrize("how", ["INSERT", "INSERT OR REPLACE", "REPLACE"])
@pytest.mark.parametrize("seq", [0, 1, 2, 4])
def test_audit_row_must_follow_the_last_one(connection: sqlite3.Connection, how: str, seq: int) -> None:
    """Never in the place of another, and never with a gap."""
    for number in (1, 2):
        put_line(connection, seq=number)
    with pytest.raises(sqlite3.IntegrityError, match="right behind the last one"):
        put_line(connection, seq=seq, how=how)
    put_line(connection, seq=3, how=how)


@pytest.mark.parametrize(
    ("state", "request_body", "user"),
    [
        ("pending", b'{"user": "ann", "body": {}}', "ann"),
        ("pending", b'{"user": null}', None),
        ("pending", b"{}", None),
        ("pending", b"no JSON", None),
        ("done", b'{"user": "ann"}', None),
    ],
)
def test_migration_copies_the_end_user_into_pending_approvals(
    state: str, request_body: bytes, user: str | None
) -> None:
    """From the request of its run, where that can be read."""
    with closing(sqlite3.connect(":memory:")) as connection, connection:
        execute_statements(MIGRATIONS[: MIGRATIONS.index(ASKED_BY)], connection)
        connection.execute("INSERT INTO requests (tenant, run_id, request) VALUES ('t', 'run_1', ?)", (request_body,))
        row = ("ap_1", "t", "key", "run_1", *["x"] * 7, state, *["x"] * 2)
        connection.execute(
            f"""INSERT INTO approvals (id, tenant, caller, run_id, tool, arguments, sha256, definition_sha256,
            policy_sha256, basis, rule, state, reason, remember, step, created_s, expires_s)
            VALUES ({", ".join("?" * len(row))}, 0, 1, 2)""",
            row,
        )
        execute_statements([ASKED_BY], connection)
        assert connection.execute("SELECT user FROM approvals").fetchone() == (user,)
    connection.close()


OLD_ASK = "INSERT INTO asks (tenant, caller, conversation, created_s, expires_s) VALUES (?, ?, ?, 1.0, 9.0)"


def test_migrated_asks_keep_their_ids() -> None:
    """The same that was computed from their names; one that an older program adds beside gets one, too."""
    whose = [("acme", "ann", "c1"), ("acme", "ann", "a/b?c#d"), ("acme", "bob", "快速"), ("other", "ann", "c1")]
    connection = sqlite3.connect(":memory:", isolation_level=None)
    execute_statements(MIGRATIONS[: MIGRATIONS.index(IDS_OF_ASKS)], connection)
    connection.executemany(OLD_ASK, whose)
    execute_statements([IDS_OF_ASKS], connection)
    kept = connection.execute("SELECT id, tenant, caller, conversation, created_s, expires_s FROM asks").fetchall()
    assert sorted(kept) == sorted((ask_id(*each), *each, 1.0, 9.0) for each in whose)
    connection.executemany(OLD_ASK, [("acme", "ann", "c2"), ("acme", "ann", "c3")])
    given = connection.execute("SELECT DISTINCT id FROM asks WHERE conversation IN ('c2', 'c3')").fetchall()
    assert len(given) == 2 and all(re.fullmatch("ask_[0-9a-f]{24}", row[0]) for row in given)
    connection.close()


def test_migrated_idempotency_key_belongs_to_the_newest_run() -> None:
    """Of those of one caller. A program of before that adds another one beside changes nothing of that."""
    told = [("r1", "ann", "k", 5.0), ("r2", "ann", "k", 9.0), ("r3", "ann", "k", 7.0), ("r4", "bob", "k", 1.0)]
    told += [("r5", "ann", "l", 2.0), ("r6", "ann", None, 3.0), ("r7", "ann", None, 4.0)]
    add = """INSERT INTO runs (tenant, id, caller, chain, fingerprint, idempotency_key, state, effects, created_s,
        updated_s) VALUES ('acme', ?, ?, 'c', 'f', ?, 'completed', 0, ?, 9.0)"""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    execute_statements(MIGRATIONS[: MIGRATIONS.index(KEYS_OF_RUNS)], connection)
    connection.executemany(add, told)
    execute_statements([KEYS_OF_RUNS], connection)
    connection.execute(add, ("r8", "ann", "k", 10.0))
    holding = connection.execute("SELECT id FROM runs WHERE holds_key = 1 ORDER BY id").fetchall()
    assert [run_id for (run_id,) in holding] == ["r2", "r4", "r5"]
    connection.close()


def test_migration_deletes_hidden_turns_but_keeps_taint_marks() -> None:
    """Their keys do not say which end user they are of. A mark has no messages."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    at = next(i for i, steps in enumerate(MIGRATIONS) if HIDDEN_OF_USERS in steps)
    execute_statements(MIGRATIONS[:at], connection)
    for turn, before, behind in (("mark", "[]", "[]"), ("one", "[{}]", "[]"), ("two", "[]", "[{}]")):
        connection.execute("INSERT INTO hidden VALUES ('t', ?, 'r', 0, 0, ?, ?, 1, 1.0)", (turn, before, behind))
        connection.execute("INSERT INTO hidden_keys VALUES ('t', ?, ?, 1.0)", (f"of {turn}", turn))
    connection.execute("INSERT INTO hidden_keys VALUES ('t', 'of both', NULL, 1.0)")
    execute_statements(MIGRATIONS[at:], connection)
    assert connection.execute("SELECT id, conversation FROM hidden").fetchall() == [("mark", None)]
    assert connection.execute("SELECT key FROM hidden_keys").fetchall() == [("of mark",)]
    connection.close()


HIDDEN_OF_USERS = "ALTER TABLE hidden ADD COLUMN conversation TEXT"
