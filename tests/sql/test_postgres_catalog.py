"""What the words of a statement can mean to PostgreSQL, on a server with all that a query can call by."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from gateway.caller import Caller
from gateway.contracts import Exchange, ToolCall
from plugins.tools.execute_sql import Config, ExecuteSql
from tests.postgres import postgres_server

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")
pytestmark = pytest.mark.postgres
PREPARED = """CREATE ROLE writer LOGIN; CREATE TABLE t (a int PRIMARY KEY, b text); CREATE SEQUENCE s;
    GRANT ALL ON t, s TO writer; INSERT INTO t VALUES (1, 'x'), (2, 'y');
    CREATE TABLE calls (at timestamptz); GRANT ALL ON calls TO writer;
    CREATE FUNCTION purge(t) RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
        'BEGIN INSERT INTO calls VALUES (now()); RETURN 1; END';
    CREATE FUNCTION small(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 < 9';
    CREATE FUNCTION first_of(int, int) RETURNS int LANGUAGE sql AS 'SELECT $1';
    CREATE OPERATOR ==> (leftarg = int, rightarg = int, function = first_of);
    CREATE DOMAIN digit AS int CHECK (small(VALUE)); CREATE TYPE pair AS (one digit, two int);
    CREATE VIEW good AS SELECT a, upper(b) AS u FROM t; CREATE VIEW counted AS SELECT nextval('s') AS n;
    CREATE VIEW "over counted" AS SELECT * FROM counted; CREATE VIEW purged AS SELECT purge(t) FROM t;
    CREATE TABLE guarded (a int); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
    CREATE POLICY p ON guarded USING (small(a)); CREATE EXTENSION pg_trgm;
    GRANT CREATE ON SCHEMA public TO writer; GRANT SELECT ON good, counted, "over counted", purged, guarded TO writer"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(PREPARED) as place:
        yield place


@pytest.fixture
async def tool(server: str) -> AsyncIterator[ExecuteSql]:
    tool = ExecuteSql(Config(url=f"postgresql://writer@{server}", read_only=False, timeout=5.0))
    yield tool
    await tool.close()


def calling(sql: str, *params: object) -> ToolCall:
    return ToolCall(id="c", tool="execute_sql", arguments={"sql": sql, "params": list(params)}, harmless=True)


async def content(tool: ExecuteSql) -> list[str]:
    asked = ("SELECT * FROM t ORDER BY 1", "SELECT last_value, is_called FROM s", "SELECT * FROM calls")
    return [(await tool.call(replace(calling(sql), harmless=False), EXCHANGE)).content for sql in asked]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, upper(b) FROM t WHERE a = $1",
        "WITH x AS (SELECT * FROM t) SELECT count(*) FROM x",
        "TABLE t",
        "VALUES (1), (2);",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT * FROM good",
        "SELECT random(), now(), clock_timestamp(), gen_random_uuid()",
        "SELECT relname, n_live_tup FROM pg_stat_user_tables",
        "SELECT pid, state, query FROM pg_stat_activity",
        "SELECT pg_size_pretty(pg_total_relation_size('t'))",
        "SELECT pg_stat_get_live_tuples('t'::regclass)",
        "SELECT similarity('abc', 'abd'), 'abc' % 'abd'",
        "SELECT to_tsvector('english', b) @@ plainto_tsquery('english', 'x') FROM t",
        "SELECT string_to_table('a,b', ',')",
        "SHOW server_version",
        "EXPLAIN SELECT * FROM t",
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM t",
        "EXPLAIN DELETE FROM t",
        "SELECT E'a\\'b', $x$ 'c' $x$ -- d",
    ],
)
async def test_the_server_agrees_to_reading(tool: ExecuteSql, sql: str) -> None:
    """And such a statement runs, in a transaction that can only read."""
    call = calling(sql, *([1] if "$1" in sql else []))
    assert await tool.examine(call, EXCHANGE) is None
    result = await tool.call(call, EXCHANGE)
    assert result.ok, result.content


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t RETURNING a",
        "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
        "SELECT * INTO other FROM t",
        "EXPLAIN ANALYZE DELETE FROM t",
        "EXPLAIN (ANALYZE) INSERT INTO t VALUES (9, 'z')",
        "LOCK TABLE t",
        "SET search_path = x",
        "SELECT nextval('s')",
        "SELECT setval('s', 99)",
        "SELECT pg_sleep(9)",
        'SELECT "pg_sleep"(9)',
        "SELECT pg_catalog.pg_sleep /* */ (9)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_terminate_backend(0)",
        "SELECT pg_notify('a', 'b')",
        "SELECT set_config('a.b', 'c', false)",
        "SELECT txid_current()",
        "SELECT lo_create(0)",
        "SELECT query_to_xml('DELETE FROM t', true, true, '')",
        "SELECT table_to_xml('purged', true, true, '')",
        "SELECT purge(t) FROM t",
        "SELECT x.purge FROM t x",
        "SELECT (x). purge FROM t x",
        "SELECT x./**/purge FROM t x",
        'SELECT U&"\\0070urge"(t) FROM t',
        "SELECT 1 ==> 2",
        "SELECT '10'::digit",
        "SELECT '(1,2)'::pair",
        "SELECT digit('10')",
        "SELECT digit(10)",
        "SELECT pair '(1,2)'",
        "SELECT * FROM counted",
        'SELECT * FROM "over counted"',
        "SELECT * FROM purged",
        "SELECT * FROM guarded",
    ],
)
async def test_the_server_doubts_everything_else(tool: ExecuteSql, sql: str) -> None:
    """By what its words can mean there; let through as harmless, it fails and leaves nothing behind."""
    before = await content(tool)
    verdict = await tool.examine(calling(sql), EXCHANGE)
    assert verdict is not None and (verdict.decision, verdict.rule) == ("confirm", "sql.engine")
    assert not (await tool.call(calling(sql), EXCHANGE)).ok
    assert await content(tool) == before
