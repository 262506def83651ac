"""One step of SQLite cannot be interrupted: values are only as long as a statement's functions allow."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from gateway.plugins.tools.execute_sql.engine import Statement, StatementError
from gateway.plugins.tools.execute_sql.rows import SqlRows
from gateway.plugins.tools.execute_sql.sqlite import Sqlite

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")
LONG_CHARACTERS = 2_000_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "data.db"
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE doc (id INTEGER PRIMARY KEY, body TEXT)")
        connection.execute("INSERT INTO doc VALUES (1, ?)", ("a" * LONG_CHARACTERS,))
        connection.executescript(
            """CREATE TABLE note (body TEXT, mark TEXT);
            CREATE VIEW trimmed AS SELECT trim(body, 'ab' || body) FROM doc;
            CREATE TRIGGER marks AFTER INSERT ON note BEGIN
                UPDATE note SET mark = (SELECT instr(body, body || 'b') FROM doc); END;"""
        )
        connection.commit()
    return place


async def ask(place: Path, sql: str, *params: object) -> ToolResult:
    tool = ExecuteSql(Config(url=f"sqlite:///{place}", read_only=False, timeout=5))
    arguments = {"sql": sql, "params": list(params)}
    return await tool.call(ToolCall(id="c", tool="execute_sql", arguments=arguments), EXCHANGE)


@pytest.mark.parametrize(
    ("sql", "function", "most_bytes"),
    [
        ("SELECT instr(body, substr(body, 1, 1000000) || 'b') FROM doc", "instr", 262_144),
        ("SELECT INSTR(body, 'a') FROM doc", "instr", 262_144),
        ("SELECT replace(body, substr(body, 1, 1000000) || 'b', '') FROM doc", "replace", 262_144),
        ("SELECT trim(body, substr(body, 1, 100000) || 'b') FROM doc", "trim", 65_536),
        ("SELECT instr('a', 'b'), ltrim(body, substr(body, 1, 100000)) FROM doc", "ltrim", 65_536),
        ("SELECT count(*) FROM doc GROUP BY rtrim(body, 'a')", "rtrim", 65_536),
        ("SELECT json_patch('{}', '{\"a\": \"' || body || '\"}') FROM doc", "json_patch", 65_536),
        ("SELECT * FROM trimmed", "trim", 65_536),
        ("INSERT INTO note VALUES ('', '')", "instr", 262_144),
        ("SELECT body || body || body LIKE '%b' FROM doc", "like", 2_097_152),
        ("SELECT body || body || body GLOB '*b' FROM doc", "glob", 2_097_152),
    ],
)
async def test_quadratic_functions_get_a_lower_value_size_limit(
    place: Path, sql: str, function: str, most_bytes: int
) -> None:
    """Wherever the call stands, a view or a trigger too; the model reads which function, and how much."""
    says = f"too big: a value has at most {most_bytes} bytes where a statement calls `{function}`."
    result = await ask(place, sql)
    assert not result.ok and result.content.endswith(says), result


async def test_like_pattern_too_long_fails_and_reports_its_limit(place: Path) -> None:
    result = await ask(place, "SELECT count(*) FROM doc WHERE body LIKE ?", "%" + "a" * 200 + "b")
    assert result.content == "The statement failed: LIKE or GLOB pattern too complex: it has at most 128 bytes."


async def test_oversized_value_is_reported_with_the_limit(place: Path) -> None:
    result = await ask(place, "SELECT length(body || body || body) FROM doc")
    assert result.content == "The statement failed: string or blob too big: a value has at most 4194304 bytes."


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT length(trim(body)) FROM doc", LONG_CHARACTERS),
        ("SELECT length(upper(body)) FROM doc", LONG_CHARACTERS),
        ("SELECT substr(body, -3) FROM doc", "aaa"),
        ("SELECT count(*) FROM doc WHERE body LIKE '%aab%'", 0),
        ("SELECT count(*) FROM doc WHERE body GLOB 'aa*a'", 1),
        ("SELECT instr('needle', 'd') FROM doc", 4),
        ("SELECT replace(id, '1', 'one') FROM doc", "one"),
    ],
)
async def test_two_megabyte_values_can_be_read_and_searched(place: Path, sql: str, value: object) -> None:
    """A bound holds for the values that a statement touches, not for those of the table."""
    result = await ask(place, sql)
    assert result.ok and json.loads(result.content)["rows"] == [[value]], result


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


async def test_harmless_statement_is_stopped_at_the_step_limit(place: Path) -> None:
    """Whatever its time is; an approved one takes as many as its time allows."""
    engine, table = Sqlite(str(place), read_only=True, most_steps=100_000), SqlRows(10, 1000)
    with pytest.raises(StatementError, match="more than 100000 steps of SQLite's machine: only an approved call"):
        await engine.run(Statement(ENDLESS, harmless=True), table)
    bounded = ENDLESS.replace("FROM c)", "FROM c WHERE x < 100000)")
    await engine.run(Statement(bounded), table)
    assert table.rows == ["[100000]"]


SORTED = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {}) "
    "SELECT length(a) FROM (SELECT x, printf('%100000d', x) AS a FROM c) ORDER BY -x, a LIMIT 5000"
)


async def test_harmless_statement_is_stopped_at_the_temporary_file_limit(place: Path) -> None:
    """SQLite sorts in temporary files, which may be as large as the disk; an approved call has its time alone."""
    engine = Sqlite(str(place), read_only=True, most_bytes=8 << 20)
    with pytest.raises(StatementError, match="more than 8388608 bytes of temporary files: only an approved call"):
        await engine.run(Statement(SORTED.format(5000), harmless=True), SqlRows(10, 1000))
    for statement in (Statement(SORTED.format(20), harmless=True), Statement(SORTED.format(500))):
        table = SqlRows(1, 1000)
        await engine.run(statement, table)
        assert table.rows == ["[100000]"]


async def test_a_harmless_statement_opens_the_file_for_reading_only(place: Path) -> None:
    """Also where the tool may write: the file is never locked for a writer."""
    engine = Sqlite(str(place), read_only=False)
    with closing(sqlite3.connect(place, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        await engine.run(Statement("SELECT 1", harmless=True), SqlRows(10, 1000))
    with pytest.raises(StatementError, match="inserts rows"):
        await engine.run(Statement("INSERT INTO doc VALUES (1)", harmless=True), SqlRows(10, 1000))


@pytest.mark.parametrize("harmless", [True, False])
async def test_row_of_many_long_values_is_limited_for_harmless_statements(place: Path, harmless: bool) -> None:
    """2,000 columns of 4 MB each would: a value is shorter where an unasked statement has many."""
    columns = ", ".join(f"substr(body, 1, 500000) || {number}" for number in range(100))
    statement, rows = Statement(f"SELECT {columns} FROM doc", (), harmless), SqlRows(10, 10_000_000)
    engine = Sqlite(str(place), read_only=True)
    if not harmless:
        await engine.run(statement, rows)
        return
    with pytest.raises(StatementError, match="string or blob too big: a value has at most"):
        await engine.run(statement, rows)
    await engine.run(Statement("SELECT body, length(body) FROM doc", (), harmless), rows)
    assert rows.rows
