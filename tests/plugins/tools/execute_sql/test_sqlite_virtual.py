"""Virtual tables, which run statements of their own: what a file has these read is bounded, or not read."""

import asyncio
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql

from .asking import EXCHANGE, calling

TABLES = """CREATE VIRTUAL TABLE notes USING fts5(body); INSERT INTO notes VALUES ('one two');
    CREATE VIRTUAL TABLE old USING fts4(body); INSERT INTO old VALUES ('one two');
    CREATE VIRTUAL TABLE area USING rtree(id, x, y); INSERT INTO area VALUES (1, 2, 3);
    CREATE VIEW notes_content_of AS SELECT a AS rowid, b AS body FROM t;
    CREATE VIRTUAL TABLE viewed USING fts5(body, content='notes_content_of');
    CREATE VIEW bare_content AS SELECT a AS rowid, b AS body FROM t;
    CREATE VIRTUAL TABLE bare USING fts5(body, content='bare_content');"""
DAMAGED = "The statement failed: the file is damaged: {!r} is not the table that {!r} keeps"


@pytest.fixture
def searched(place: Path) -> Path:
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(TABLES)
    return place


def tool_on(place: Path, *, timeout: float = 5.0) -> ExecuteSql:
    return ExecuteSql(Config(url=f"sqlite:///{place}", timeout=timeout))


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT body FROM notes WHERE notes MATCH 'two'", ["one two"]),
        ("SELECT body FROM old WHERE body MATCH 'two'", ["one two"]),
        ("SELECT id FROM area WHERE x > 1", [1]),
        ("SELECT body FROM viewed LIMIT 1", ["x"]),
        ("SELECT body FROM bare LIMIT 1", ["x"]),
    ],
)
async def test_virtual_tables_can_be_read(searched: Path, sql: str, row: list[object]) -> None:
    """Before anybody is asked about a call, too: a module declares its columns as if it made a table."""
    tool = tool_on(searched)
    assert await tool.refusal(calling(sql), EXCHANGE) is None
    assert await tool.examine(calling(sql), EXCHANGE) is None
    assert json.loads((await tool.call(calling(sql), EXCHANGE)).content)["rows"] == [row]


@pytest.mark.parametrize(
    ("own", "of", "instead"),
    [
        ("notes_config", "notes", "CREATE VIEW notes_config AS SELECT 'version' AS k, 4 AS v"),
        ("notes_content", "notes", "CREATE VIEW notes_content AS SELECT 1 AS id, 'x' AS c0"),
        ("old_segdir", "old", "CREATE VIEW OLD_SEGDIR AS SELECT 1"),
        ("area_node", "area", "CREATE TABLE area_node (nodeno INTEGER PRIMARY KEY, data AS (nodeno || 'x'))"),
        ("notes_data", "notes", "CREATE VIRTUAL TABLE notes_data USING rtree(id, x, y)"),
    ],
)
async def test_shadow_table_replaced_by_a_view_makes_the_database_refused(
    searched: Path, own: str, of: str, instead: str
) -> None:
    """What somebody wrote would run as soon as any statement is compiled, and stop at nothing."""
    with closing(sqlite3.connect(searched, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE tbl_name = ?", (own,))
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute(instead)
    tool, told = tool_on(searched), DAMAGED.format(instead.split(" ")[2 + ("VIRTUAL" in instead)], of)
    assert (await tool.refusal(calling("SELECT a FROM t"), EXCHANGE) or "").startswith(told)
    result = await tool.call(calling("SELECT a FROM t"), EXCHANGE)
    assert not result.ok and result.content.startswith(told)


async def test_values_read_by_virtual_tables_are_bounded(searched: Path) -> None:
    """A view behind a full-text search calls what compares each place of two values: they are short then."""
    with closing(sqlite3.connect(searched, isolation_level=None)) as connection:
        connection.executescript(
            """CREATE VIEW long AS SELECT 1 AS id, trim(printf('%.*c', 70000, 'x'), 'yz') AS body;
            CREATE VIRTUAL TABLE wide USING fts5(body, content='long', content_rowid='id')"""
        )
    result = await tool_on(searched).call(calling("SELECT length(body) FROM wide"), EXCHANGE)
    assert json.loads(result.content)["rows"] == [[None]]  # FTS5 takes a row that fails for one that is not there


@pytest.mark.parametrize("name", ["many", "ma'ny"])
async def test_virtual_table_over_an_exponential_view_is_refused(searched: Path, name: str) -> None:
    """FTS4 compiles a query of its own on what it reads, whatever the statement is about."""
    copies = ", ".join(f"c{i + 1} AS (SELECT 1 FROM {', '.join([f'c{i}'] * 4)})" for i in range(9))
    with closing(sqlite3.connect(searched, isolation_level=None)) as connection:
        connection.execute(f'CREATE TABLE "{name}" (body)')
        connection.execute(f'CREATE VIRTUAL TABLE wide USING fts4(body, content="{name}")')
        connection.execute(f'DROP TABLE "{name}"')
        connection.execute(f'CREATE VIEW "{name}" AS WITH c0 AS (SELECT 1), {copies} SELECT 1 AS body FROM c9')
    result = await tool_on(searched).call(calling("SELECT a FROM t"), EXCHANGE)
    assert not result.ok and f"{name!r}, which a virtual table reads, cannot be read" in result.content


async def test_stopped_statement_ends_its_thread_at_the_next_step(place: Path) -> None:
    """And not a thousand steps later, of which each may take a second."""
    tool = tool_on(place, timeout=0.5)
    sql = """WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000)
        SELECT count(*) FROM c WHERE instr(hex(zeroblob(120000 + x)), hex(zeroblob(60000)) || 'x')"""
    assert "stopped" in (await tool.call(calling(sql), EXCHANGE)).content
    for _ in range(40):  # a step takes a tenth of a second, and all of them together two minutes
        if not any(thread.name == "execute_sql" for thread in threading.enumerate()):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("its thread goes on")
