"""SQLite's own view of a statement that was judged harmless, and how SQLite enforces it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.execute_sql import Config, ExecuteSql

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "data.db"
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(
            """CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y');
            CREATE INDEX i ON t (b); CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END;"""
        )
    return place


def content(place: Path) -> tuple[object, ...]:
    with closing(sqlite3.connect(place)) as connection:
        return tuple(connection.iterdump())


async def doubted(place: Path, sql: str, *params: object) -> Verdict | None:
    tool = ExecuteSql(Config(url=f"sqlite:///{place}", read_only=False))
    arguments = {"sql": sql, "params": list(params)}
    return await tool.examine(ToolCall(id="c", tool="execute_sql", arguments=arguments), EXCHANGE)


async def as_harmless(place: Path, sql: str) -> ToolResult:
    tool = ExecuteSql(Config(url=f"sqlite:///{place}", read_only=False))
    return await tool.call(ToolCall(id="c", tool="execute_sql", arguments={"sql": sql}, harmless=True), EXCHANGE)


@pytest.fixture
def furnished(place: Path) -> Path:
    """A database with all that a query may meet."""
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(
            """CREATE VIEW good AS SELECT a, upper(b) AS u FROM t; CREATE VIEW bad AS SELECT sqlite_log(1, 'x');
            CREATE VIEW worse AS SELECT * FROM bad; CREATE VIRTUAL TABLE words USING fts5(body);
            CREATE VIRTUAL TABLE old USING fts4(body); CREATE VIRTUAL TABLE area USING rtree(id, x, y);
            INSERT INTO words VALUES ('one two'); INSERT INTO old VALUES ('one two'); INSERT INTO area VALUES (1, 2, 3);
            CREATE TABLE made (a, b AS (a + 1));"""
        )
    return place


READS = (
    "SELECT a, b FROM t WHERE a = ?",
    "SELECT count(*), max(b) FROM t GROUP BY a ORDER BY 1",
    "WITH r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT sum(n) FROM r",
    "SELECT * FROM good JOIN made ON made.a = good.a",
    "SELECT body, bm25(words) FROM words WHERE words MATCH 'one'",
    "SELECT snippet(old) FROM old WHERE body MATCH 'two'",
    "SELECT id FROM area WHERE x > 1",
    "SELECT value FROM json_each('[1, 2]')",
    "SELECT name FROM pragma_table_info('t')",
    "SELECT name, sql FROM sqlite_master",
    "PRAGMA table_info(t)",
    "EXPLAIN QUERY PLAN SELECT * FROM t",
    "EXPLAIN SELECT * FROM t",
    "-- all\nEXPLAIN SELECT 1",
    "VALUES (1), (2)",
    "SELECT hex(randomblob(4)), zeroblob(10), random()",
    "SELECT b GLOB 'x*', b LIKE 'x%', '[1]' -> 0, '[1]' ->> 0 FROM t",
)


@pytest.mark.parametrize("sql", READS)
async def test_sqlite_examination_accepts_reading_statements(furnished: Path, sql: str) -> None:
    """And such a statement runs under the rules that it was examined under."""
    params = [1] if "?" in sql else []
    assert await doubted(furnished, sql, *params) is None
    arguments = {"sql": sql, "params": params}
    tool = ExecuteSql(Config(url=f"sqlite:///{furnished}", read_only=False))
    result = await tool.call(ToolCall(id="c", tool="execute_sql", arguments=arguments, harmless=True), EXCHANGE)
    assert result.ok, result.content


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t",
        "INSERT INTO t VALUES (9, 'z') RETURNING a",
        "UPDATE t SET b = 'z'",
        "DROP TABLE t",
        "CREATE TEMP TABLE x (a)",
        "WITH x AS (SELECT 1) DELETE FROM t",
        "/* /* */ DELETE FROM t /*",
        "SELECT load_extension('x')",
        "SELECT sqlite_log(1, 'x')",
        "SELECT optimize(old) FROM old",
        "SELECT fts3_tokenizer('x')",
        "SELECT * FROM bad",
        "SELECT * FROM worse",
        "SELECT * FROM pragma_optimize",
        "SELECT * FROM pragma_journal_mode",
        "PRAGMA user_version = 5",
        "PRAGMA journal_mode = delete",
        "ATTACH 'x.db' AS x",
        "REINDEX",
        "ANALYZE",
        "COMMIT",
        "EXPLAIN DELETE FROM t",
        "SELECT * FROM fts3tokenize",
    ],
)
async def test_sqlite_examination_requires_confirmation_for_all_but_reads(furnished: Path, sql: str) -> None:
    """SQLite's own parser says so, whatever we took the text for; let through as harmless, it fails instead."""
    before = content(furnished)
    verdict = await doubted(furnished, sql)
    assert verdict is not None and (verdict.decision, verdict.rule) == ("confirm", "sql.engine"), verdict
    result = await as_harmless(furnished, sql)
    assert not result.ok and "only reads" in result.content and content(furnished) == before


@pytest.mark.parametrize("sql", ["VACUUM", "VACUUM INTO 'copy.db'"])
async def test_vacuum_statements_require_approval(furnished: Path, sql: str) -> None:
    """Let through as harmless it fails, because a call is a transaction."""
    verdict = await doubted(furnished, sql)
    assert verdict is not None and verdict.rule == "sql.engine"
    assert not (await as_harmless(furnished, sql)).ok and [*furnished.parent.iterdir()] == [furnished]


async def test_schema_change_after_examination_cannot_cause_a_write(furnished: Path) -> None:
    """The same rules hold when the statement runs."""
    sql = "SELECT * FROM good"
    assert await doubted(furnished, sql) is None
    with closing(sqlite3.connect(furnished)) as connection:
        connection.executescript("DROP VIEW good; CREATE VIEW good AS SELECT sqlite_log(1, 'x');")
    result = await as_harmless(furnished, sql)
    assert not result.ok and "'sqlite_log'" in result.content


@pytest.mark.parametrize("sql", ["SELECT * FROM not_there", "SELECT nope(1)", "SELEC 1", "SHOW TABLES", "DESCRIBE t"])
async def test_statement_that_does_not_compile_fails_without_confirmation(furnished: Path, sql: str) -> None:
    """It fails, and the model reads why."""
    assert await doubted(furnished, sql) is None
    assert not (await as_harmless(furnished, sql)).ok


async def test_statement_without_a_database_is_examined_in_every_dialect(tmp_path: Path) -> None:
    """Strictly: what some database would read in another way asks."""
    assert await doubted(tmp_path / "none.db", "SELECT 1") is None
    verdict = await doubted(tmp_path / "none.db", r"SELECT '\', pg_sleep(5) --'")
    assert verdict is not None and verdict.decision == "confirm"
