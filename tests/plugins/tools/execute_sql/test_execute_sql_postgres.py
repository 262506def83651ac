"""The SQL tool on PostgreSQL: a server of its own for these tests (Debian's package `postgresql`)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gateways import until_read

from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.execute_sql import Config, ExecuteSql

from .asking import EXCHANGE

pytestmark = pytest.mark.postgres
Ask = Callable[..., Awaitable[ToolResult]]
#: What the fixture `server` prepares.
PREPARED = """CREATE ROLE writer LOGIN; CREATE TABLE t (a int PRIMARY KEY, b text);
    CREATE ROLE files LOGIN IN ROLE pg_read_server_files; CREATE ROLE deputy LOGIN NOINHERIT IN ROLE owner;
    CREATE SEQUENCE s; GRANT ALL ON t, s TO writer; INSERT INTO t VALUES (1, 'x'), (2, 'y')"""


@pytest.fixture
def ask(server: str) -> Ask:
    async def asked(sql: str, *, role: str = "writer", params: object = (), **config: Any) -> ToolResult:
        tool = ExecuteSql(Config(url=f"postgresql://{role}@{server}", **config))
        arguments = {"sql": sql, "params": list(params) if isinstance(params, tuple) else params}
        result = await tool.call(ToolCall(id="c", tool="execute_sql", arguments=arguments), EXCHANGE)
        await tool.close()
        return result

    return asked


async def test_rows_come_as_json(ask: Ask) -> None:
    """Types without a JSON type come as text; blobs are described."""
    result = await ask(
        "SELECT a, b, NULL AS n, date '2026-01-02' AS d, 1.50::numeric AS m, 'NaN'::float8 AS f, '{\"a\": 1}'::jsonb"
        " AS j, ARRAY[1, 2] AS l, '\\x0102'::bytea AS y, true AS o FROM t WHERE a = 1"
    )
    assert json.loads(result.content) == {
        "columns": ["a", "b", "n", "d", "m", "f", "j", "l", "y", "o"],
        "rows": [[1, "x", None, "2026-01-02", "1.50", "nan", '{"a": 1}', [1, 2], "[2 bytes]", True]],
        "truncated": False,
    }


@pytest.mark.parametrize(
    "sql", ["SHOW server_version", "EXPLAIN SELECT * FROM t", "VALUES (1)", "TABLE t", "SELECT 1;"]
)
async def test_ordinary_reading_statements_work_on_postgres(ask: Ask, sql: str) -> None:
    """Also by a role that may write."""
    result = await ask(sql)
    assert result.ok and json.loads(result.content)["rows"]


@pytest.mark.parametrize(
    "sql",
    [
        *(
            "SELECT 1; DROP TABLE t",
            "/**/DROP TABLE t",
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
            "DELETE FROM t",
        ),
        *(
            "EXPLAIN ANALYZE DELETE FROM t",
            "SELECT * INTO u FROM t",
            "CREATE TEMP TABLE u (a int)",
            "SELECT nextval('s')",
        ),
        *("SELECT setval('s', 5)", "SELECT * FROM t FOR UPDATE", "COPY t FROM STDIN", "COPY t TO PROGRAM 'id'"),
        *(
            "COPY t TO '/tmp/never'",
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT lo_import('/etc/passwd')",
            "CALL p()",
        ),
        *("SET TRANSACTION READ WRITE", "SELECT set_config('transaction_read_only', 'off', false)", "SET ROLE owner"),
        *("DO $$ BEGIN SET TRANSACTION READ WRITE; DELETE FROM t; END $$", "DO $$ BEGIN DELETE FROM t; COMMIT; END $$"),
        *(
            "BEGIN; DELETE FROM t; COMMIT",
            "COMMIT; DELETE FROM t",
            "SELECT 1/0",
            "nonsense",
            "SELECT $1",
            "SELECT '\0'",
        ),
    ],
)
async def test_read_only_mode_runs_no_writing_statement(ask: Ask, sql: str) -> None:
    """T22: the transaction decides, also for a role that may write, and no statement opens it."""
    result = await ask(sql)
    assert not result.ok and result.content.startswith("The statement failed: ")
    assert json.loads((await ask("SELECT count(*) FROM t")).content)["rows"] == [[2]]


@pytest.mark.parametrize(
    "sql", ["COMMIT", "ROLLBACK", "SET default_transaction_read_only = off", "SELECT lo_create(4711)"]
)
async def test_session_changes_end_with_their_call(ask: Ask, sql: str) -> None:
    """Settings, transactions and what a rollback undoes: the next call is read-only as ever."""
    await ask(sql)
    assert not (await ask("DELETE FROM t")).ok
    assert json.loads((await ask("SELECT count(*) FROM pg_largeobject_metadata")).content)["rows"] == [[0]]


@pytest.mark.parametrize("role", ["owner", "files", "deputy"])
@pytest.mark.parametrize("read_only", [True, False])
async def test_role_with_superuser_or_file_rights_is_refused(ask: Ask, role: str, read_only: bool) -> None:
    """A superuser could run programs and read files of the server, in a read-only transaction, too."""
    result = await ask("SELECT 1", role=role, read_only=read_only)
    assert not result.ok and "the role of this database may leave it" in result.content


async def test_changes_are_committed_where_they_are_allowed(ask: Ask) -> None:
    """With the number of rows; what fails changes nothing."""
    result = await ask("INSERT INTO t VALUES (3, 'n'), (4, 'm') RETURNING a", read_only=False)
    assert json.loads(result.content)["rows"] == [[3], [4]]
    assert not (await ask("INSERT INTO t VALUES (5, 'n'), (1, 'twice')", read_only=False)).ok
    assert json.loads((await ask("DELETE FROM t WHERE a > 2", read_only=False)).content)["changed"] == 2
    assert json.loads((await ask("SELECT count(*) FROM t")).content)["rows"] == [[2]]


@pytest.mark.parametrize("sql", ["SELECT pg_sleep(60)", "SELECT count(*) FROM generate_series(1, 1000000000000)"])
async def test_statement_over_the_timeout_is_stopped_at_the_server(ask: Ask, sql: str) -> None:
    """T23: in time, and nothing goes on there."""
    result = await ask(sql, timeout=0.5)
    assert result == ToolResult("The statement took longer than 0.5 seconds: stopped.", ok=False)
    await nothing_under_way(ask)


async def under_way(ask: Ask) -> int:
    others = "usename = 'writer' AND state = 'active' AND pid <> pg_backend_pid()"
    sql = f"SELECT count(*) FROM pg_stat_activity WHERE {others}"
    return int(json.loads((await ask(sql)).content)["rows"][0][0])


async def nothing_under_way(ask: Ask) -> None:
    """The server is told at once, and looks within moments."""
    await until_read(lambda: under_way(ask), lambda number: number == 0)


async def test_cancelling_stops_the_statement_at_the_server(ask: Ask) -> None:
    """The server is told; it does not wait for its own time limit."""
    task = asyncio.ensure_future(ask("SELECT pg_sleep(60)", timeout=60.0))
    await until_read(lambda: under_way(ask))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_under_way(ask)


async def test_rows_are_cut_at_max_rows_and_max_bytes(ask: Ask) -> None:
    """T23: only as much is fetched as is shown."""
    result = json.loads((await ask("SELECT generate_series(1, 100000000), 'text'", max_rows=7)).content)
    assert (len(result["rows"]), result["truncated"]) == (7, True)
    large = await ask("SELECT repeat('x', 1000000) FROM generate_series(1, 1000)", max_bytes=100_000)
    assert large.ok and len(large.content) < 110_000


async def test_oversized_row_is_refused_before_full_transfer(ask: Ask) -> None:
    """T23: the connection ends long before a row of 200 MB is here."""
    result = await ask("SELECT repeat('x', 200000000)")
    assert result == ToolResult("The statement failed: its rows are too large.", ok=False)


async def test_unreachable_database_is_reported_without_its_url(server: str) -> None:
    """The model reads what is wrong; user, password and host stay with the operator."""
    for url in (f"postgresql://nobody:secret@{server}", "postgresql://a:secret@127.0.0.1:1/x"):
        tool = ExecuteSql(Config(url=url))
        result = await tool.call(ToolCall(id="c", tool="execute_sql", arguments={"sql": "SELECT 1"}), EXCHANGE)
        assert "cannot be reached" in result.content
        assert "secret" not in result.content + repr(Config(url=url)) and "127" not in result.content


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT 1; SELECT 2", "INSERT INTO t VALUES (9, 'z')", "update t set a = 1", "DELETE FROM t", "TRUNCATE t"),
        *("CREATE TABLE u (a int)", "DROP TABLE t", "ALTER TABLE t ADD c int", "GRANT SELECT ON t TO PUBLIC"),
        *("COMMENT ON TABLE t IS 'x'", "CREATE INDEX i ON t (a)", "CREATE SCHEMA x", "DROP FUNCTION nothing()"),
        "MERGE INTO t USING t AS o ON false WHEN NOT MATCHED THEN INSERT VALUES (9, 'z')",
    ],
)
async def test_early_refusal_equals_the_error_of_the_server(ask: Ask, server: str, sql: str) -> None:
    """The same words, before anybody is asked."""
    tool = ExecuteSql(Config(url=f"postgresql://owner@{server}"))
    refusal = await tool.refusal(ToolCall(id="c", tool="execute_sql", arguments={"sql": sql}), EXCHANGE)
    assert refusal is not None and await ask(sql) == ToolResult(refusal, ok=False)


# Values for its parameters.


async def test_parameters_are_bound_with_the_types_of_the_server(ask: Ask) -> None:
    """The server says which type each has; a quote in one is a quote."""
    types = ("text", "int", "numeric", "date", "timestamptz", "jsonb", "int[]", "bool", "uuid", "text")
    number = "00000000-0000-0000-0000-000000000001"
    params = ["x'; DROP TABLE t", 7, 1.5, "2026-01-02", "2026-01-02T03:04:05Z", '{"a": 1}', [1, 2], True, number, None]
    result = await ask("SELECT " + ", ".join(f"${i}::{kind}" for i, kind in enumerate(types, start=1)), params=params)
    (row,) = json.loads(result.content)["rows"]
    assert row[:4] == ["x'; DROP TABLE t", 7, "1.5", "2026-01-02"] and row[4].startswith("2026-01-02 03:04:05")
    assert row[5:] == ['{"a": 1}', [1, 2], True, "00000000-0000-0000-0000-000000000001", None]
    found = await ask("SELECT b FROM t WHERE a = ANY($1) AND b <> $2 LIMIT $3", params=[[1, 2], 5, 1.0])
    assert json.loads(found.content)["rows"] == [["x"]]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ([], "1 parameters, and `params` has 0"),
        (["one"], "the value of $1 is no int4"),
        ([1.5], "no int4"),
        ([[1]], "no int4"),
    ],
)
async def test_unsuitable_parameter_values_are_reported_with_their_type(ask: Ask, params: object, says: str) -> None:
    """With the parameter and its type."""
    result = await ask("SELECT b FROM t WHERE a = $1", params=params)
    assert not result.ok and says in result.content
