"""The driver's own questions, about the types of a statement: they call nothing of a user's."""

import json
from collections.abc import AsyncIterator
from typing import cast

import asyncpg
import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from gateway.plugins.tools.execute_sql.postgres_connection import OWN_NAMES, connect, end_connection
from gateway.plugins.tools.execute_sql.postgres_facts import Fetch, load_facts
from tests.postgres import pooler

from .asking import EXCHANGE, calling

pytestmark = pytest.mark.postgres
#: Made by a role that may create objects in a schema of the path. asyncpg asks for types by `array_agg(oid)`.
PREPARED = """CREATE ROLE writer LOGIN; GRANT CREATE ON SCHEMA public TO writer; SET ROLE writer;
    CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE pairs (number int, mood mood);
    INSERT INTO pairs VALUES (1, 'glad');
    CREATE FUNCTION called(oid[], oid) RETURNS oid[] LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
    CREATE AGGREGATE array_agg(oid) (sfunc = called, stype = oid[])"""


@pytest.fixture(params=["direct", "pooled"])
async def asking(server: str, request: pytest.FixtureRequest) -> AsyncIterator[ExecuteSql]:
    if request.param == "direct":
        tool = ExecuteSql(Config(url=f"postgresql://writer@{server}", timeout=5.0))
        yield tool
        await tool.close()
        return
    with pooler(server) as pooled:
        client = await asyncpg.connect(f"postgresql://writer@{pooled}", statement_cache_size=0)
        await client.execute("CREATE TEMP TABLE pg_range (a int)")
        await client.close()
        tool = ExecuteSql(Config(url=f"postgresql://writer@{pooled}", timeout=5.0))
        yield tool
        await tool.close()


@pytest.mark.parametrize("column", ["pairs", "ARRAY[pairs]", "mood"])
async def test_column_type_lookup_calls_no_user_function(asking: ExecuteSql, column: str) -> None:
    """Rows of a table, lists of them and a type of a user's are read as ever."""
    call = calling(f"SELECT {column} FROM pairs")
    assert await asking.examine(call, EXCHANGE) is None
    result = await asking.call(call, EXCHANGE)
    assert result.ok and "glad" in result.content


async def test_parameter_type_lookup_calls_no_user_function(asking: ExecuteSql) -> None:
    """Already the look asks for these. Behind the question names mean what they mean to the statement."""
    call = calling("SELECT $1::pairs IS NULL, number FROM pairs", None)
    assert await asking.examine(call, EXCHANGE) is None
    result = await asking.call(call, EXCHANGE)
    assert json.loads(result.content)["rows"] == [[True, 1]]


async def test_type_lookup_leaves_the_search_path_unchanged(server: str) -> None:
    """Our own questions go on with the server's names, and a statement with its own."""
    connection = await connect(f"postgresql://writer@{server}", cached=10)
    await connection.execute(f"SET {OWN_NAMES}")
    await load_facts(cast(Fetch, connection.fetch), "", ["pg_trgm"])
    assert await connection.fetchval("SHOW search_path") == "pg_catalog, pg_temp"
    await end_connection(connection)
    for path in ("pg_catalog, pg_temp", '"$user", public', '"it\'s", public'):
        connection = await connect(f"postgresql://writer@{server}")
        await connection.execute(f"SET search_path = {path}")
        await connection.fetch("SELECT $1::pg_catalog.name[], ARRAY[NULL::public.pairs]", ["x"])
        assert await connection.fetchval("SHOW search_path") == path
        await end_connection(connection)


async def test_harmless_statement_runs_read_committed_despite_a_serializable_default(
    server: str, asking: ExecuteSql
) -> None:
    """A serializable one would, so that is not what a database makes of it."""
    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    await owner.execute("ALTER ROLE writer SET default_transaction_isolation = serializable")
    try:
        result = await asking.call(calling("SHOW transaction_isolation"), EXCHANGE)
        assert json.loads(result.content)["rows"] == [["read committed"]]
    finally:
        await owner.execute("ALTER ROLE writer RESET default_transaction_isolation")
        await owner.close()
