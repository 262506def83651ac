"""The SQL tool on SQLite: what reads runs, what writes does not, and nothing runs for ever."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from gateways import until
from pydantic import ValidationError

from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.execute_sql import MAX_SQL, PLUGIN, Config, ExecuteSql
from gateway.plugins.tools.execute_sql.sqlite import THREADS

from .asking import EXCHANGE

FOR_EVER = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
Ask = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
def ask(place: Path) -> Ask:
    async def asked(sql: Any, **config: Any) -> ToolResult:
        tool = ExecuteSql(Config(url=f"sqlite:///{place}", **config))
        result = await tool.call(ToolCall(id="c", tool="execute_sql", arguments={"sql": sql}), EXCHANGE)
        await tool.close()
        await tool.close()
        return result

    return asked


async def refused(place: Path, sql: str, *, read_only: bool) -> str | None:
    tool = ExecuteSql(Config(url=f"sqlite:///{place}", read_only=read_only))
    return await tool.refusal(ToolCall(id="c", tool="execute_sql", arguments={"sql": sql}), EXCHANGE)


def content(place: Path) -> tuple[object, ...]:
    with closing(sqlite3.connect(place)) as connection:
        return tuple(connection.iterdump())


async def test_tool_description_names_database_and_access_mode() -> None:
    """The model reads which database it is and whether it can change it."""
    (spec,) = await PLUGIN.build(Config(), None).list_tools()  # type: ignore[arg-type]
    assert (spec.name, spec.untrusted, spec.requires_approval) == ("execute_sql", False, False)
    assert "SQLite" in spec.description and "read-only" in spec.description
    (spec,) = await ExecuteSql(Config(read_only=False, untrusted=True, requires_approval=True)).list_tools()
    assert "read-only" not in spec.description and spec.untrusted and spec.requires_approval


async def test_spec_server_identifies_database_and_role_but_not_password() -> None:
    """A new password makes it no other one."""

    async def server(url: str) -> str:
        (spec,) = await ExecuteSql(Config(url=url)).list_tools()
        return spec.server

    same = await server("postgresql://ann:one@db,[::1]:5433/shop?sslmode=require")
    assert same == await server("postgresql://ann:two@db,[::1]:5433/shop?sslmode=require&password=x")
    others = [
        "postgresql://bob:one@db,[::1]:5433/shop?sslmode=require",
        "postgresql://ann:one@db,[::1]:5433/farm?sslmode=require",
        "postgresql://ann:one@db,[::1]:5434/shop?sslmode=require",
        "postgresql://ann:one@db,[::1]:5433/shop?sslmode=require&database=farm",
        "sqlite:///shop.db",
        "sqlite:///farm.db",
    ]
    assert len({same, *[await server(url) for url in others]}) == 1 + len(others)


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "mysql://h/d", "data.db", "sqlite:///a\0b"])
def test_invalid_url_is_rejected_without_being_repeated(url: str) -> None:
    """It may hold a password; the text shows how one is written."""
    with pytest.raises(ValidationError, match="expected sqlite:///FILE or postgresql://"):
        Config(url=url)
    assert "secret" not in repr(Config(url="sqlite:///secret"))


async def test_rows_come_as_compact_json(ask: Ask) -> None:
    """Columns, rows and whether that is all; blobs are described, infinity is a word."""
    result = await ask("SELECT a, b, NULL AS n, 1.5 AS f, 9e999 AS i, x'0102' AS \"é\" FROM t -- all of them")
    assert result == ToolResult(
        '{"columns":["a","b","n","f","i","é"],'
        '"rows":[[1,"x",null,1.5,"inf","[2 bytes]"],[2,"y",null,1.5,"inf","[2 bytes]"]],"truncated":false}'
    )


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT 1;", "SELECT 1; -- done", "/* a */ SELECT 1", "VALUES (1)", "EXPLAIN QUERY PLAN SELECT * FROM t"),
        *(
            "PRAGMA table_info(t)",
            "pragma INDEX_LIST('t')",
            "SELECT * FROM sqlite_master",
            "SELECT count(*) FROM t, t AS u",
        ),
        *(
            "WITH x AS (SELECT 1 AS n) SELECT n FROM x",
            "SELECT ';'",
            "SELECT b FROM t WHERE b LIKE 'x%' ORDER BY a LIMIT 1",
        ),
        *(
            "SELECT row_number() OVER (ORDER BY a) FROM t",
            "SELECT json_extract('{\"a\":1}', '$.a')",
            "SELECT date('now')",
        ),
    ],
)
async def test_ordinary_reading_statements_work_on_sqlite(ask: Ask, sql: str) -> None:
    """A comment, a semicolon at the end, the schema, plans, windows, JSON."""
    result = await ask(sql)
    assert result.ok and json.loads(result.content)["rows"]


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT 1; DROP TABLE t", "/**/DROP TABLE t", "--\nDROP TABLE t", "EXPLAIN DELETE FROM t", "DELETE FROM t"),
        *("INSERT INTO t VALUES (9, 'z') RETURNING *", "UPDATE t SET b = 'z'", "REPLACE INTO t VALUES (1, 'z')"),
        *("WITH x AS (SELECT 9) INSERT INTO t SELECT 9, 'z' FROM x", "CREATE TABLE u (a)", "CREATE TEMP TABLE u (a)"),
        *(
            "ALTER TABLE t RENAME TO u",
            "DROP INDEX i",
            "DROP TRIGGER g",
            "ANALYZE",
            "VACUUM",
            "CREATE VIEW v AS SELECT 1",
        ),
        *(
            "PRAGMA writable_schema = 1",
            "PRAGMA writable_schema=ON",
            "PRAGMA journal_mode = DELETE",
            "PRAGMA query_only = 0",
        ),
        *(
            "PRAGMA user_version = 5",
            "PRAGMA temp_store_directory = '/tmp'",
            "PRAGMA hard_heap_limit = 1",
            "PRAGMA wal_checkpoint",
        ),
        *("BEGIN", "COMMIT", "ROLLBACK", "END", "SAVEPOINT s", "BEGIN IMMEDIATE", "SELECT load_extension('x')"),
        *(
            "SELECT fts3_tokenizer('simple')",
            "DETACH main",
            "SELECT writefile('x', 'y')",
            "CREATE VIRTUAL TABLE v USING fts5(a)",
        ),
        *("ＤＲＯＰ TABLE t", "DROP\u00a0TABLE t", "SELECT 1;;DROP TABLE t", "SELECT 1 /* ; */; DELETE FROM t"),
    ],
)
async def test_read_only_database_runs_no_writing_statement(ask: Ask, place: Path, sql: str) -> None:
    """T22: the connection decides, whatever the words are."""
    before = content(place)
    result = await ask(sql)
    assert not result.ok and result.content.startswith("The statement failed: ")
    assert content(place) == before


@pytest.mark.parametrize(
    ("sql", "read_only"),
    [
        *((sql, True) for sql in ("DROP TABLE t", "/* c */ DELETE FROM t", "INSERT INTO t VALUES (3, 'z')")),
        *(
            (sql, True)
            for sql in ("WITH x AS (SELECT 9) INSERT INTO t SELECT *, 'z' FROM x", "REPLACE INTO t VALUES (1, 'z')")
        ),
        *(
            (sql, True)
            for sql in ("CREATE TABLE u (a)", "PRAGMA user_version = 5", "BEGIN", "SELECT load_extension('x')")
        ),
        *((sql, flag) for sql in ("SELECT 1; DROP TABLE t", "SELECT 1;;SELECT 2", "COMMIT") for flag in (True, False)),
        *((sql, flag) for sql in ("ATTACH 'other.db' AS x", "PRAGMA journal_mode = DELETE") for flag in (True, False)),
    ],
)
async def test_forbidden_statements_are_refused_before_approval_is_requested(
    ask: Ask, place: Path, sql: str, read_only: bool
) -> None:
    """In the words of the call; nothing is done to find that out."""
    before = content(place)
    refusal = await refused(place, sql, read_only=read_only)
    assert refusal is not None and refusal.startswith("The statement failed: ")
    assert content(place) == before
    assert await ask(sql, read_only=read_only) == ToolResult(refusal, ok=False)


@pytest.mark.parametrize(
    ("sql", "read_only"),
    [
        *((sql, True) for sql in ("SELECT * FROM t", "SELECT 1; -- one", "PRAGMA table_info(t)", "EXPLAIN SELECT 1")),
        *((sql, False) for sql in ("DROP TABLE t", "INSERT INTO t VALUES (3, 'z')", "CREATE TABLE u (a)")),
        *((sql, True) for sql in ("SELECT * FROM not_yet", "SELEKT 1", FOR_EVER)),
    ],
)
async def test_refusal_accepts_statements_that_an_approver_may_judge(place: Path, sql: str, read_only: bool) -> None:
    """Also what is wrong for now: a table may be there when the call's turn comes."""
    before = content(place)
    assert await refused(place, sql, read_only=read_only) is None
    assert content(place) == before


async def test_locked_or_missing_database_causes_no_refusal(place: Path) -> None:
    """It may be free, or there, when the call's turn comes."""
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert await refused(place, "DELETE FROM t", read_only=False) is None
    place.unlink()
    assert await refused(place, "SELECT 1", read_only=True) is None
    assert not place.exists()


@pytest.mark.parametrize("read_only", [True, False])
async def test_attach_and_vacuum_into_open_no_other_file(ask: Ask, place: Path, read_only: bool) -> None:
    """T22: ATTACH and VACUUM INTO are refused, also where writing is allowed."""
    others = (place.with_name("other.db"), Path("/etc/passwd"))
    for sql in (*(f"ATTACH '{other}' AS x" for other in others), f"VACUUM INTO '{others[0]}'"):
        assert not (await ask(sql, read_only=read_only)).ok
    assert [path.name for path in place.parent.iterdir()] == ["data.db"]


async def test_changes_are_committed_where_they_are_allowed(ask: Ask, place: Path) -> None:
    """With the number of rows; RETURNING gives them; what fails changes nothing."""
    assert json.loads((await ask("UPDATE t SET b = 'z'", read_only=False)).content)["changed"] == 2
    result = await ask("INSERT INTO t VALUES (3, 'n'), (4, 'm') RETURNING a", read_only=False)
    assert json.loads(result.content)["rows"] == [[3], [4]]
    assert not (await ask("INSERT INTO t VALUES (5, 'n'), (1, 'twice')", read_only=False)).ok
    assert not (await ask("PRAGMA writable_schema = 1", read_only=False)).ok
    assert not (await ask("COMMIT", read_only=False)).ok
    assert json.loads((await ask("SELECT a, b FROM t")).content)["rows"] == [[1, "z"], [2, "z"], [3, "n"], [4, "m"]]


async def test_truncated_returning_result_still_commits_all_changes(ask: Ask) -> None:
    """The limit is on what is shown."""
    result = await ask("UPDATE t SET b = 'z' RETURNING a", read_only=False, max_rows=1)
    assert json.loads(result.content)["truncated"] is True
    assert json.loads((await ask("SELECT count(*) FROM t WHERE b = 'z'")).content)["rows"] == [[2]]


async def test_statement_over_the_timeout_is_stopped(ask: Ask) -> None:
    """T23: and the next one runs."""
    result = await ask(FOR_EVER, timeout=0.2)
    assert result == ToolResult("The statement took longer than 0.2 seconds: stopped.", ok=False)
    assert (await ask("SELECT 1")).ok


async def test_uninterruptible_statement_does_not_block_the_next_call(ask: Ask) -> None:
    """T23: one function call can work for seconds; the answer comes long before its end, and so does the next one's."""
    begun_s = time.process_time()
    assert not (await ask("SELECT printf('%.*c', 600000000, 'x')", timeout=0.2)).ok
    assert time.process_time() - begun_s < 2  # the whole call takes seven seconds of CPU
    assert (await ask("SELECT 1")).ok


@pytest.mark.parametrize(
    "sql",
    [
        *(
            "SELECT zeroblob(1000000000)",
            "SELECT replace(hex(zeroblob(2000000)), '0', 'aaaaaaaaaa')",
            "SELECT randomblob(1e9)",
        ),
        *(
            "SELECT " + ",".join(["1"] * 10_000),
            "SELECT " + "(" * 500 + "1" + ")" * 500,
            "SELECT 'a' LIKE '" + "%a" * 5000 + "'",
        ),
        *(
            "SELECT group_concat(hex(zeroblob(1000000))) FROM t, t AS u, t AS v",
            "SELECT ?",
            "SELECT :a",
            "SELECT 'a\0b'",
        ),
        *(
            "SELECT '\ud800'",
            "SELECT abs(-9223372036854775808)",
            "SELECT",
            "nonsense",
            "SHOW; DROP",
            "SELECT * FROM nowhere",
        ),
    ],
    ids=lambda sql: repr(sql[:30]),
)
async def test_oversized_or_invalid_statement_fails_with_a_short_text(ask: Ask, sql: str) -> None:
    """T23: no row or statement takes more than a few MB."""
    result = await ask(sql, timeout=5.0)
    assert not result.ok and result.content.startswith("The statement failed: ") and len(result.content) < 1000
    assert result.content.encode()


async def test_rows_are_cut_at_max_rows_and_max_bytes(ask: Ask) -> None:
    """T23: what is there is whole JSON and says that there is more."""
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n, 'some text' FROM r"
    few = json.loads((await ask(endless, max_rows=3)).content)
    assert (len(few["rows"]), few["truncated"]) == (3, True)
    small = await ask(endless, max_bytes=1000)
    assert json.loads(small.content)["truncated"] is True and 900 < len(small.content) < 1100
    exact = json.loads((await ask("SELECT a FROM t", max_rows=2)).content)
    assert (len(exact["rows"]), exact["truncated"]) == (2, False)


async def test_long_cell_is_cut_without_dropping_its_row(ask: Ask) -> None:
    """One long text does not take the row with it."""
    (row,) = json.loads((await ask("SELECT 1, hex(zeroblob(50000))")).content)["rows"]
    assert row[0] == 1 and row[1].endswith("[... 83616 more characters]")


async def test_invalid_utf_8_text_is_returned_with_replacements(ask: Ask) -> None:
    """Replaced, not an error."""
    assert json.loads((await ask("SELECT CAST(x'ff41' AS TEXT)")).content)["rows"] == [["�A"]]


@pytest.mark.parametrize(
    "sql", [None, "", "  \n", 5, ["SELECT 1"], {"$gt": ""}, "x" * (MAX_SQL + 1)], ids=lambda v: repr(v)[:20]
)
async def test_invalid_sql_argument_is_refused_before_approval(ask: Ask, sql: object) -> None:
    """T25: whatever the arguments are; nobody is asked about them."""
    result = await ask(sql)
    assert not result.ok and result.content.startswith("`sql` is ")
    tool = ExecuteSql(Config())
    assert await tool.refusal(ToolCall(id="c", tool="execute_sql", arguments={"sql": sql}), EXCHANGE) == result.content


async def test_missing_database_is_reported_and_not_created(ask: Ask, place: Path) -> None:
    """A wrong path never becomes an empty database."""
    place.unlink()
    for read_only in (True, False):
        assert "there is no database" in (await ask("SELECT 1", read_only=read_only)).content
    assert list(place.parent.iterdir()) == []
    place.write_text("no database at all, " * 100)
    assert "not a database" in (await ask("SELECT * FROM t")).content


async def test_cancelling_stops_the_statement_and_changes_nothing(place: Path) -> None:
    """The call ends at once, and a change that was under way is not there afterwards, nor later."""
    tool = ExecuteSql(Config(url=f"sqlite:///{place}", read_only=False))
    endless = FOR_EVER.replace("count(*)", "n, 'z'")
    call = ToolCall(id="c", tool="execute_sql", arguments={"sql": f"INSERT OR IGNORE INTO t {endless}"})
    task = asyncio.ensure_future(tool.call(call, EXCHANGE))
    with closing(sqlite3.connect(place, timeout=0, isolation_level=None)) as other:
        await until(lambda: locked(other))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not locked(other)
        assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)


def locked(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    return False


async def test_locked_database_is_reported(ask: Ask, place: Path) -> None:
    """After a moment, not after the whole time of the call."""
    with closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        result = await ask("SELECT * FROM t")
        assert result == ToolResult("The statement failed: database is locked.", ok=False)


async def test_concurrent_calls_share_a_bounded_thread_pool(place: Path) -> None:
    """Threads are bounded, and waiting for one is part of a call's time; short calls all get through."""
    held = ExecuteSql(Config(url=f"sqlite:///{place}", timeout=1))
    endless, quick = (ToolCall(id="c", tool="execute_sql", arguments={"sql": sql}) for sql in (FOR_EVER, "SELECT 1"))
    results = await asyncio.gather(*(held.call(endless, EXCHANGE) for _ in range(2 * THREADS)))
    assert all("took longer" in result.content for result in results)
    assert (await held.call(quick, EXCHANGE)).ok
    tool = ExecuteSql(Config(url=f"sqlite:///{place}"))
    assert all(result.ok for result in await asyncio.gather(*(tool.call(quick, EXCHANGE) for _ in range(200))))
