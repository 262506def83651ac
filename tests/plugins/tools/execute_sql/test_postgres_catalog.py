"""What the words of a statement can mean to PostgreSQL, on a server with all that a query can call by."""

from dataclasses import replace

import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from gateway.plugins.tools.execute_sql.postgres_catalog import Catalogue, FactsCache
from tests.postgres import postgres_server

from .asking import EXCHANGE, calling

pytestmark = pytest.mark.postgres
#: What the fixture `server` prepares.
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
    CREATE FUNCTION counting(int) RETURNS boolean LANGUAGE sql AS 'SELECT nextval(''s'') > $1';
    CREATE DOMAIN over_digit AS digit; CREATE DOMAIN digits AS digit[]; CREATE DOMAIN "odd digit" AS digit;
    CREATE TYPE pair_of_pairs AS (inner_pair pair); CREATE TYPE digit_range AS RANGE (subtype = digit);
    CREATE TABLE holder (one digit, list digit[], inner_pair pair_of_pairs, more digit_range);
    CREATE VIEW casting AS SELECT a::over_digit FROM t; CREATE VIEW counted_casting AS SELECT count(*) FROM casting;
    CREATE VIEW reading AS SELECT one FROM holder; CREATE VIEW "quo""ted" AS SELECT nextval('s') AS n;
    CREATE VIEW "bÉ" AS SELECT nextval('s') AS n;
    CREATE TABLE indexed (a int, b int); CREATE INDEX ON indexed (b) WHERE small(b);
    CREATE TABLE planned (a int); CREATE INDEX ON planned (a) WHERE a > 1 AND small(1);
    CREATE FUNCTION today() RETURNS date LANGUAGE sql STABLE AS 'SELECT current_date';
    CREATE TABLE written (a date DEFAULT today(), b boolean DEFAULT counting(1));
    CREATE DOMAIN dated AS date DEFAULT today(); CREATE TABLE of_dated (a int, at dated);
    CREATE VIEW over_dated AS SELECT * FROM of_dated;
    CREATE EXTENSION tsm_system_rows; CREATE VIEW sampled AS SELECT * FROM t TABLESAMPLE system_rows(1);
    CREATE TYPE spot AS (x int, y int);
    CREATE FUNCTION compared(spot, spot) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0';
    CREATE OPERATOR CLASS spot_ops DEFAULT FOR TYPE spot USING btree AS FUNCTION 1 compared(spot, spot);
    CREATE TABLE sorted (p spot);
    CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
    CREATE TABLE parent (line text); CREATE FOREIGN TABLE heir () INHERITS (parent) SERVER files
        OPTIONS (program 'true', format 'text'); CREATE VIEW of_parent AS SELECT * FROM parent;
    CREATE TABLE rows_of (kind int, line text) PARTITION BY LIST (kind);
    CREATE FOREIGN TABLE rows_of_1 PARTITION OF rows_of FOR VALUES IN (1) SERVER files
        OPTIONS (program 'true', format 'text');
    CREATE TABLE cut (kind int, line text) PARTITION BY LIST (kind); CREATE TABLE cut_1 PARTITION OF cut DEFAULT;
    GRANT USAGE ON FOREIGN SERVER files TO writer; GRANT SELECT ON ALL TABLES IN SCHEMA public TO writer;
    GRANT CREATE ON SCHEMA public TO writer; GRANT SELECT ON good, counted, "over counted", purged, guarded TO writer"""


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
        "SELECT to_tsvector('english', b) @@ plainto_tsquery('english', 'x') FROM t",
        "SELECT string_to_table('a,b', ',')",
        "SHOW server_version",
        "EXPLAIN SELECT * FROM t",
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM t",
        "EXPLAIN DELETE FROM t",
        "SELECT E'a\\'b', $x$ 'c' $x$ -- d",
        "SELECT * FROM written",
        "SELECT * FROM cut",
        "SELECT * FROM of_dated",
        "SELECT a AS treatment FROM t",
    ],
)
async def test_postgres_examination_accepts_reading_statements(tool: ExecuteSql, sql: str) -> None:
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
        "SELECT treat(9 AS pg_sleep)",
        "SELECT treat('s' AS nextval)",
        "SELECT * FROM sampled",
        "EXPLAIN INSERT INTO of_dated (a) VALUES (1)",
        "EXPLAIN UPDATE of_dated SET at = DEFAULT",
        "EXPLAIN INSERT INTO over_dated (a) VALUES (1)",
        "SELECT * FROM counted",
        'SELECT * FROM "over counted"',
        "SELECT * FROM purged",
        "SELECT * FROM guarded",
        "SELECT '5'::over_digit",
        "SELECT '{5}'::digits",
        "SELECT '5'::\"odd digit\"",
        "SELECT '(\"(5,1)\")'::pair_of_pairs",
        "SELECT '[1,2]'::digit_range",
        "SELECT * FROM json_to_record('{\"a\": 5}') AS r(a over_digit)",
        "SELECT jsonb_populate_record(h, to_jsonb(h)) FROM holder h",
        "SELECT * FROM holder WHERE list = '{5}'",
        "SELECT * FROM holder WHERE list = $${5}$$",
        "SELECT * FROM holder WHERE more = '[1,2]'",
        "SELECT * FROM casting",
        "SELECT * FROM counted_casting",
        'SELECT * FROM "quo""ted"',
        "SELECT * FROM BÉ",
        "SELECT * FROM planned WHERE a > 5",
        "SELECT * FROM indexed WHERE b > 5",
        "SELECT one FROM holder",
        "SELECT count(*) FROM holder GROUP BY one",
        "SELECT * FROM reading",
        "SELECT similarity('abc', 'abd')",
        "SELECT 'abc' % 'abd'",
        "EXPLAIN INSERT INTO written VALUES (DEFAULT)",
        "SELECT p FROM sorted ORDER BY p",
        "SELECT count(*) FROM (SELECT DISTINCT p FROM sorted) AS x",
        "SELECT * FROM parent",
        "SELECT * FROM of_parent",
        "SELECT * FROM rows_of",
    ],
)
async def test_postgres_examination_requires_confirmation_for_all_but_reads(tool: ExecuteSql, sql: str) -> None:
    """By what its words can mean there; let through as harmless, it fails and leaves nothing behind."""
    before = await content(tool)
    verdict = await tool.examine(calling(sql), EXCHANGE)
    assert verdict is not None and (verdict.decision, verdict.rule) == ("confirm", "sql.engine")
    assert not (await tool.call(calling(sql), EXCHANGE)).ok
    assert await content(tool) == before


CASTS = """CREATE FUNCTION number_of(t) RETURNS int LANGUAGE sql AS 'SELECT 1';
    CREATE FUNCTION text_of(t) RETURNS text LANGUAGE sql AS 'SELECT ''x''::text'; CREATE DOMAIN counted_as AS int;
    CREATE CAST (t AS int) WITH FUNCTION number_of(t); CREATE CAST (t AS varchar) WITH FUNCTION text_of(t)"""


async def test_user_defined_cast_requires_confirmation(server: str, tool: ExecuteSql) -> None:
    """Whatever SQL calls the type: the server's name of it need not stand in the text."""
    import asyncpg

    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    await owner.execute(CASTS)
    try:
        for target in ("int", "integer", "int4", "character varying", "varchar(3)", "counted_as"):
            for sql in (f"SELECT x::{target} FROM t x", f"SELECT CAST(x AS {target}) FROM t x"):
                assert await tool.examine(calling(sql), EXCHANGE) is not None, sql
        assert await tool.examine(calling("SELECT line FROM cut WHERE line = 'x'"), EXCHANGE) is None
    finally:
        await owner.execute("DROP CAST (t AS int); DROP CAST (t AS varchar); DROP DOMAIN counted_as")
        await owner.close()


async def test_identifier_truncation_follows_the_database_encoding(server: str) -> None:
    """LATIN1 has one byte for a letter that takes two in UTF-8, so that it cuts a name later."""
    import asyncpg

    owner, name = await asyncpg.connect(f"postgresql://owner@{server}"), "\u00e9" * 40
    await owner.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    place = f"{server.rpartition('/')[0]}/latin"
    inside = await asyncpg.connect(f"postgresql://owner@{place}")
    await inside.execute(f"CREATE SEQUENCE s; CREATE VIEW {name} AS SELECT nextval('s'); CREATE VIEW b AS SELECT 1")
    tool = ExecuteSql(Config(url=f"postgresql://writer@{place}", read_only=False, timeout=5.0))
    try:
        assert await tool.examine(calling(f"SELECT * FROM {name}"), EXCHANGE) is not None
        assert await tool.examine(calling(f"SELECT * FROM b AS {name}s"), EXCHANGE) is None
    finally:
        await tool.close()
        await inside.close()
        await owner.execute("DROP DATABASE latin WITH (FORCE)")
        await owner.close()


async def test_facts_cache_is_discarded_when_the_server_changes(server: str) -> None:
    """A new server on the same address begins to count its transactions anew, and may come to the same number."""
    import asyncpg

    known = FactsCache()
    with postgres_server("SELECT 1") as other:
        plain = await asyncpg.connect(f"postgresql://owner@{other}")
        acting = await asyncpg.connect(f"postgresql://owner@{server}")
        counts = [await each.fetchval("SELECT txid_current()") for each in (plain, acting)]
        behind = plain if counts[0] < counts[1] else acting
        for _ in range(abs(counts[0] - counts[1])):
            await behind.execute("SELECT txid_current()")
        assert await Catalogue(plain.fetch, known, ()).find_doubt("SELECT 1 ==> 2") is None
        assert await Catalogue(acting.fetch, known, ()).find_doubt("SELECT 1 ==> 2") is not None
        await plain.close()
        await acting.close()
