"""The engine of PostgreSQL: it reads what the judge read, looks again when a statement runs, and finds its way back."""

import json
from dataclasses import replace

import pytest

from gateway.plugins.tools.execute_sql import ExecuteSql

from .asking import EXCHANGE, calling

pytestmark = pytest.mark.postgres
#: What the fixture `server` prepares.
PREPARED = """CREATE ROLE writer LOGIN; CREATE TABLE t (a int PRIMARY KEY, b text); CREATE SEQUENCE s;
    GRANT CREATE ON SCHEMA public TO writer"""


async def changed(tool: ExecuteSql, sql: str) -> None:
    result = await tool.call(replace(calling(sql), harmless=False), EXCHANGE)
    assert result.ok, result.content


async def test_a_role_that_reads_quotes_in_another_way_is_overruled(tool: ExecuteSql) -> None:
    """`standard_conforming_strings` is what the judge takes it for, whatever the role's default is."""
    await changed(tool, "ALTER ROLE writer SET standard_conforming_strings = off")
    try:
        result = await tool.call(calling(r"SELECT 'a\' AS b, 1 AS c"), EXCHANGE)
        assert json.loads(result.content)["rows"] == [["a\\", 1]]
    finally:
        await changed(tool, "ALTER ROLE writer RESET standard_conforming_strings")


async def test_a_function_that_appears_behind_the_look_is_not_called(tool: ExecuteSql) -> None:
    """The server looks again when the statement runs."""
    call = calling("SELECT late(1)")
    assert await tool.examine(call, EXCHANGE) is None  # there is no such function yet
    await changed(tool, "CREATE FUNCTION late(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    result = await tool.call(call, EXCHANGE)
    assert not result.ok and "'late'" in result.content


async def test_what_changes_between_two_looks_is_looked_at_again(tool: ExecuteSql) -> None:
    """Answers about a view or a type are as old as the last transaction that wrote anything, and no older."""
    await changed(tool, "CREATE SEQUENCE moves")
    await changed(tool, "CREATE VIEW shown AS SELECT 1::bigint AS n")
    await changed(tool, "CREATE DOMAIN small AS int")
    harmless, moved = calling("SELECT n FROM shown"), "A view, a policy or an index in it calls 'nextval'"
    for _ in range(2):
        assert await tool.examine(harmless, EXCHANGE) is None
        assert await tool.examine(calling("SELECT '1'::small"), EXCHANGE) is None
    await changed(tool, "CREATE OR REPLACE VIEW shown AS SELECT nextval('moves') AS n")
    verdict = await tool.examine(harmless, EXCHANGE)
    assert verdict is not None and verdict.reason.startswith(moved)
    await changed(tool, "ALTER DOMAIN small ADD CHECK (nextval('moves') > 0) NOT VALID")
    assert await tool.examine(calling("SELECT '1'::small"), EXCHANGE) is not None
    await changed(tool, "CREATE OR REPLACE VIEW shown AS SELECT 2::bigint AS n")
    assert await tool.examine(harmless, EXCHANGE) is None


async def test_the_looking_connection_is_made_anew(tool: ExecuteSql) -> None:
    """A server that ended it is asked again; one that is away leaves the text alone."""
    assert await tool.examine(calling("SELECT 1"), EXCHANGE) is None
    ended = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND usename = 'writer'"""
    await changed(tool, ended)
    for _ in range(2):
        assert await tool.examine(calling("SELECT 1"), EXCHANGE) is None
    verdict = await tool.examine(calling("SELECT nextval('s')"), EXCHANGE)
    assert verdict is not None and verdict.rule == "sql.engine"
