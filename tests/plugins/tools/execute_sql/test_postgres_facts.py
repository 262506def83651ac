"""What users and extensions define asks, however a statement reaches it; what an operator trusts does not."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from tests.judged.hostile import ANYWHERE, GUILTY, HOSTILE, OF_EXTENSIONS
from tests.judged.yards import POSTGRES_FULL

from .asking import EXCHANGE, calling

pytestmark = pytest.mark.postgres
#: What the fixture `server` prepares.
PREPARED = f"""CREATE ROLE writer LOGIN; {POSTGRES_FULL} {HOSTILE}
    CREATE TABLE plain (a int PRIMARY KEY, b text); GRANT ALL ON plain TO writer"""


@pytest.mark.parametrize("sql", [*GUILTY, *OF_EXTENSIONS])
async def test_implicitly_executed_functions_require_approval(tool: ExecuteSql, sql: str) -> None:
    """And let through as harmless, it fails before it runs."""
    verdict = await tool.examine(calling(sql), EXCHANGE)
    assert verdict is not None and verdict.rule == "sql.engine"
    result = await tool.call(calling(sql), EXCHANGE)
    assert not result.ok and ("let through" in result.content or "syntax error" in result.content)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b FROM plain WHERE a = 1 ORDER BY b LIKE 'x%'",
        "SELECT json_agg(x) FROM (SELECT a, upper(b) AS b FROM t) AS x",
        "SELECT count(*) FROM pg_stat_activity",
        "SELECT relname, n_live_tup FROM pg_stat_user_tables",
        "SELECT time_in, cash_in FROM (SELECT 1 AS time_in, 2 AS cash_in) AS x",
        "EXPLAIN INSERT INTO plain VALUES (1, 'x')",
        "SELECT * FROM v WHERE b = 'X'",
    ],
)
async def test_plain_statement_beside_user_definitions_needs_no_confirmation(tool: ExecuteSql, sql: str) -> None:
    """What it cannot reach does not make it ask."""
    assert await tool.examine(calling(sql), EXCHANGE) is None
    result = await tool.call(calling(sql), EXCHANGE)
    assert result.ok, result.content


@pytest.fixture
async def trusting(server: str) -> AsyncIterator[ExecuteSql]:
    url = f"postgresql://writer@{server}"
    tool = ExecuteSql(Config(url=url, trusted_extensions=("citext", "pg_trgm", "unaccent", "hstore"), timeout=5.0))
    yield tool
    await tool.close()


async def test_trusted_extension_needs_no_confirmation(tool: ExecuteSql, trusting: ExecuteSql) -> None:
    """Its functions, operators, casts, types, operator classes and dictionaries; a doubt names the setting."""
    statements = (
        "SELECT c FROM folded WHERE c = 'X'",
        "SELECT * FROM over_folded",
        "SELECT similarity('abc', 'abd'), 'abc' % 'abd'",
        "SELECT * FROM searched WHERE b LIKE '%abc%'",
        "SELECT h -> 'a' FROM stored",
        "SELECT to_tsvector('english', 'x')",
        "SELECT unaccent('x')",
    )
    for sql in statements:
        verdict = await tool.examine(calling(sql), EXCHANGE)
        assert verdict is not None, sql
        assert await trusting.examine(calling(sql), EXCHANGE) is None, sql
        result = await trusting.call(calling(sql), EXCHANGE)
        assert result.ok, result.content
    named = await tool.examine(calling("SELECT similarity('abc', 'abd')"), EXCHANGE)
    assert named is not None and "'pg_trgm'; tools.execute_sql.trusted_extensions" in named.reason
    for sql in GUILTY:
        assert await trusting.examine(calling(sql), EXCHANGE) is not None, sql


async def test_user_function_added_to_trusted_extension_requires_approval(server: str, trusting: ExecuteSql) -> None:
    """Its owner may add to an extension what a superuser never wrote."""
    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    await owner.execute("""CREATE FUNCTION added(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
        ALTER FUNCTION added(int) OWNER TO writer; ALTER EXTENSION citext ADD FUNCTION added(int)""")
    await owner.close()
    assert await trusting.examine(calling("SELECT added(1)"), EXCHANGE) is not None


async def test_user_operator_on_an_unsafe_server_function_requires_approval(server: str, tool: ExecuteSql) -> None:
    """No function of a user's is needed to end another connection, only a name for the server's own."""
    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    await owner.execute("""CREATE SCHEMA writer AUTHORIZATION writer; SET ROLE writer;
        CREATE OPERATOR writer.### (leftarg = int, rightarg = bigint, function = pg_terminate_backend);
        CREATE OPERATOR writer.=== (leftarg = text, rightarg = text, function = texteq, restrict = eqsel)""")
    try:
        ends = f"SELECT {owner.get_server_pid()} ### 0::bigint"
        verdict = await tool.examine(calling(ends), EXCHANGE)
        assert verdict is not None and "'###'" in verdict.reason
        assert "let through" in (await tool.call(calling(ends), EXCHANGE)).content
        assert await owner.fetchval("SELECT 1") == 1
        reads = "SELECT b === 'x' FROM plain"
        assert await tool.examine(calling(reads), EXCHANGE) is None
        assert (await tool.call(calling(reads), EXCHANGE)).ok
    finally:
        await owner.execute("RESET ROLE; DROP SCHEMA writer CASCADE")
        await owner.close()


@pytest.mark.parametrize("what", ANYWHERE)
async def test_implicitly_callable_user_code_makes_every_statement_confirm(server: str, what: str) -> None:
    """A user's cast, operator or order between the server's own types: no word says that it is used."""
    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    await owner.execute("CREATE DATABASE other")
    tool = ExecuteSql(Config(url=f"postgresql://writer@{server.replace('/postgres', '/other')}"))
    other = await asyncpg.connect(f"postgresql://owner@{server.replace('/postgres', '/other')}")
    try:
        assert await tool.examine(calling("SELECT 1"), EXCHANGE) is None
        await other.execute(ANYWHERE[what])
        assert await tool.examine(calling("SELECT 1"), EXCHANGE) is not None
    finally:
        await tool.close()
        await other.close()
        await owner.execute("DROP DATABASE other")
        await owner.close()


async def test_virtual_column_with_unsafe_functions_requires_approval(server: str, tool: ExecuteSql) -> None:
    """PostgreSQL 18 has such columns; before, a view does the same. A text search asks a dictionary of an extension."""
    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    if int(await owner.fetchval("SHOW server_version_num")) >= 180_000:
        made = "CREATE TABLE {0} (b text, v {1} GENERATED ALWAYS AS ({2}) VIRTUAL)"
    else:
        made = "CREATE VIEW {0} AS SELECT b, ({2})::{1} AS v FROM plain"
    await owner.execute(made.format("searching", "tsvector", "to_tsvector('english', b)"))
    await owner.execute(made.format("folding", "text", "upper(b)"))
    await owner.execute("GRANT SELECT ON searching, folding TO writer")
    try:
        verdict = await tool.examine(calling("SELECT * FROM searching"), EXCHANGE)
        assert verdict is not None and "'to_tsvector'" in verdict.reason
        assert not (await tool.call(calling("SELECT * FROM searching"), EXCHANGE)).ok
        assert await tool.examine(calling("SELECT * FROM folding"), EXCHANGE) is None
        assert (await tool.call(calling("SELECT * FROM folding"), EXCHANGE)).ok
    finally:
        kind = "TABLE" if "TABLE" in made else "VIEW"
        await owner.execute(f"DROP {kind} searching; DROP {kind} folding")
        await owner.close()


async def test_harmless_transaction_restricts_foreign_tables_and_idle_time(server: str, tool: ExecuteSql) -> None:
    """The server itself refuses it in the transaction of a harmless statement."""
    settings = await tool.call(calling("SHOW restrict_nonsystem_relation_kind"), EXCHANGE)
    assert "foreign-table" in settings.content
    timeout = await tool.call(calling("SHOW idle_in_transaction_session_timeout"), EXCHANGE)
    assert "7s" in timeout.content
