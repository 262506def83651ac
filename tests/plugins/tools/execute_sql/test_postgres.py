"""The engine of PostgreSQL: it reads what the judge read, looks again when a statement runs, and finds its way back."""

import asyncio
import json
from dataclasses import replace

import asyncpg
import pytest
from gateways import until_read

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from tests.postgres import pooler, postgres_server, standby_server

from .asking import EXCHANGE, calling

pytestmark = pytest.mark.postgres
#: What the fixture `server` prepares.
PREPARED = """CREATE ROLE writer LOGIN; CREATE TABLE t (a int PRIMARY KEY, b text); CREATE SEQUENCE s;
    CREATE FUNCTION acts(int) RETURNS int LANGUAGE sql AS 'SELECT 1'; GRANT CREATE ON SCHEMA public TO writer;
    GRANT CREATE ON DATABASE postgres TO writer"""


async def changed(tool: ExecuteSql, sql: str) -> None:
    result = await tool.call(replace(calling(sql), harmless=False), EXCHANGE)
    assert result.ok, result.content


async def test_role_default_for_string_quoting_is_overridden(tool: ExecuteSql) -> None:
    """`standard_conforming_strings` is what the judge takes it for, whatever the role's default is."""
    await changed(tool, "ALTER ROLE writer SET standard_conforming_strings = off")
    try:
        result = await tool.call(calling(r"SELECT 'a\' AS b, 1 AS c"), EXCHANGE)
        assert json.loads(result.content)["rows"] == [["a\\", 1]]
    finally:
        await changed(tool, "ALTER ROLE writer RESET standard_conforming_strings")


async def test_function_created_after_examination_is_not_called(tool: ExecuteSql) -> None:
    """The server looks again when the statement runs."""
    call = calling("SELECT late(1)")
    assert await tool.examine(call, EXCHANGE) is None  # there is no such function yet
    await changed(tool, "CREATE FUNCTION late(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    result = await tool.call(call, EXCHANGE)
    assert not result.ok and "'late'" in result.content


async def test_catalogue_change_between_examinations_is_detected(tool: ExecuteSql) -> None:
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


@pytest.mark.parametrize("sql", ["SELECT n FROM front", "SELECT n FROM behind", "EXPLAIN ANALYZE SELECT n FROM front"])
async def test_view_changed_while_the_statement_waits_is_examined_again(
    server: str, tool: ExecuteSql, sql: str
) -> None:
    """A view is locked by who changes it: the catalogue still has the old one, and what waits would run the new one."""
    await changed(tool, "DROP VIEW IF EXISTS front, behind")
    await changed(tool, "CREATE VIEW behind AS SELECT 1 AS n")
    await changed(tool, "CREATE VIEW front AS SELECT n FROM behind")
    changing = await asyncpg.connect(f"postgresql://writer@{server}")
    try:
        transaction = changing.transaction()
        await transaction.start()
        await changing.execute("CREATE OR REPLACE VIEW behind AS SELECT acts(1) AS n")
        task = asyncio.create_task(tool.call(calling(sql), EXCHANGE))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        await until_read(lambda: changing.fetchval(waiting))
        await transaction.commit()
        result = await task
    finally:
        await changing.close()
    assert not result.ok and "'acts'" in result.content


async def test_cached_examination_is_repeated_after_a_catalogue_change(tool: ExecuteSql) -> None:
    """The server analyses it once in a state of the catalogue; a function that fits better makes another state."""
    call, wrong = calling("SELECT abs(1) AS a"), calling("DELETE FROM t")
    for _ in range(3):
        assert await tool.examine(call, EXCHANGE) is None and await tool.examine(wrong, EXCHANGE) is not None
    await changed(tool, "CREATE FUNCTION abs(int, int DEFAULT 1) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    for _ in range(2):
        verdict = await tool.examine(call, EXCHANGE)
        assert verdict is not None and "'abs'" in verdict.reason
    await changed(tool, "DROP FUNCTION abs(int, int)")
    assert await tool.examine(call, EXCHANGE) is None
    result = await tool.call(call, EXCHANGE)
    assert json.loads(result.content)["rows"] == [[1]]


async def test_examination_connection_is_reopened_after_a_server_disconnect(tool: ExecuteSql) -> None:
    """A server that ended it is asked again; one that is away leaves the text alone."""
    assert await tool.examine(calling("SELECT 1"), EXCHANGE) is None
    ended = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND usename = 'writer'"""
    await changed(tool, ended)
    for _ in range(2):
        assert await tool.examine(calling("SELECT 1"), EXCHANGE) is None
    verdict = await tool.examine(calling("SELECT nextval('s')"), EXCHANGE)
    assert verdict is not None and verdict.rule == "sql.engine"


#: By a role that may create objects in a schema of the path: they fit our questions better than what the server has.
BESIDE_THE_PATH = """
    CREATE FUNCTION concat(txid_snapshot, text, numeric) RETURNS text LANGUAGE plpgsql AS
        'BEGIN RAISE ''called''; END';
    CREATE FUNCTION is_at_least(oid, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR >= (leftarg = oid, rightarg = int, function = is_at_least)"""


async def test_catalogue_queries_call_no_user_defined_function(server: str) -> None:
    """The catalogue is asked in the server's own names; with `>=` of that user, it would have no objects of users."""
    owner = await asyncpg.connect(f"postgresql://owner@{server}")
    place = f"{server.rpartition('/')[0]}/beside"
    await owner.execute("CREATE DATABASE beside")
    inside = await asyncpg.connect(f"postgresql://owner@{place}")
    await inside.execute("GRANT CREATE ON SCHEMA public TO writer; SET ROLE writer")
    await inside.execute(BESIDE_THE_PATH)
    await inside.close()
    tool = ExecuteSql(Config(url=f"postgresql://writer@{place}", read_only=False, timeout=5.0))
    try:
        verdict = await tool.examine(calling("SELECT 1"), EXCHANGE)
        assert verdict is not None and "The operator '>='" in verdict.reason
        refused = await tool.call(calling("SELECT 1"), EXCHANGE)
        assert not refused.ok and "The operator '>='" in refused.content
    finally:
        await tool.close()
        await owner.execute("DROP DATABASE beside WITH (FORCE)")
        await owner.close()


async def test_temporary_tables_of_a_pooled_session_cannot_shadow_the_catalogue(server: str) -> None:
    """Its temporary tables stay with the server's process, which looks next; the path of names stays, too."""
    with pooler(server) as pooled:
        client = await asyncpg.connect(f"postgresql://writer@{pooled}", statement_cache_size=0)
        await client.execute("CREATE TEMP TABLE pg_proc AS TABLE pg_catalog.pg_proc WITH NO DATA")
        await client.close()
        tool = ExecuteSql(Config(url=f"postgresql://writer@{pooled}", read_only=False, timeout=5.0))
        verdict = await tool.examine(calling("SELECT acts(1)"), EXCHANGE)
        assert verdict is not None and "'acts'" in verdict.reason
        result = await tool.call(calling("SELECT acts(1)"), EXCHANGE)
        assert not result.ok and "'acts'" in result.content
        await tool.close()


async def test_statement_names_resolve_by_the_search_path_of_the_role(server: str, tool: ExecuteSql) -> None:
    """Our own path ends before the statement is analysed, whether it runs approved or not."""
    await changed(tool, "CREATE SCHEMA aside")
    await changed(tool, "CREATE TABLE aside.only_there AS SELECT 7 AS a")
    await changed(tool, "ALTER ROLE writer SET search_path = aside, public")
    there = ExecuteSql(Config(url=f"postgresql://writer@{server}", read_only=False, timeout=5.0))
    try:
        for sql in ("SELECT a FROM only_there", "SHOW search_path"):
            assert await there.examine(calling(sql), EXCHANGE) is None
            for harmless in (True, False):
                result = await there.call(replace(calling(sql), harmless=harmless), EXCHANGE)
                assert json.loads(result.content)["rows"] in ([[7]], [["aside, public"]])
        verdict = await there.examine(calling("DELETE FROM only_there"), EXCHANGE)
        assert verdict is not None and "changes nothing" in verdict.reason
    finally:
        await there.close()
        await changed(tool, "ALTER ROLE writer RESET search_path")


OPERATOR = """CREATE FUNCTION first_of(int, int) RETURNS int LANGUAGE sql AS 'SELECT $1';
    CREATE OPERATOR ==> (leftarg = int, rightarg = int, function = first_of)"""


async def test_standby_server_is_examined_again_for_each_statement() -> None:
    """Its snapshots do not name the transactions under way, so that one may end and its snapshot stay the same."""
    prepared = "CREATE ROLE writer LOGIN; CREATE TABLE t (a int)"
    with postgres_server(prepared) as place, standby_server(place) as behind:
        longest, defining, short = [await asyncpg.connect(f"postgresql://owner@{place}") for _ in range(3)]
        reader = await asyncpg.connect(f"postgresql://owner@{behind}")
        tool = ExecuteSql(Config(url=f"postgresql://writer@{behind}", timeout=5.0))

        async def replayed() -> None:
            await short.execute("SELECT pg_switch_wal()")
            written = await short.fetchval("SELECT pg_current_wal_insert_lsn()::text")
            await until_read(
                lambda: reader.fetchval("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written), bool
            )

        await longest.execute("BEGIN; INSERT INTO t VALUES (1)")
        await defining.execute(f"BEGIN; {OPERATOR}")
        await short.execute("INSERT INTO t VALUES (2)")
        await replayed()
        before = await reader.fetchval("SELECT txid_current_snapshot()::text")
        assert await tool.examine(calling("SELECT 1"), EXCHANGE) is None
        await defining.execute("COMMIT")
        await replayed()
        assert await reader.fetchval("SELECT txid_current_snapshot()::text") == before
        verdict = await tool.examine(calling("SELECT 1 ==> 2"), EXCHANGE)
        assert verdict is not None and "'==>'" in verdict.reason
        assert not (await tool.call(calling("SELECT 1 ==> 2"), EXCHANGE)).ok
        await tool.close()
        for connection in (longest, defining, short, reader):
            await connection.close()


async def test_bound_parameter_is_judged_like_a_literal(tool: ExecuteSql) -> None:
    """A pattern that is long, or a path that compares two, asks; what is compared with one value only does not."""
    for sql in ("SELECT count(*) FROM t WHERE b LIKE $1", "SELECT strpos(b, $1) FROM t"):
        assert await tool.examine(calling(sql, "x" * 900), EXCHANGE) is None
        verdict = await tool.examine(calling(sql, "x" * 1100), EXCHANGE)
        assert verdict is not None and "PostgreSQL cannot interrupt it" in verdict.reason
        assert "cannot interrupt it" in (await tool.call(calling(sql, "x" * 1100), EXCHANGE)).content
    path = "SELECT jsonb_path_exists(to_jsonb(t), $1::jsonpath) FROM t"
    assert await tool.examine(calling(path, "$.a ? (@ > 1)"), EXCHANGE) is None
    assert await tool.examine(calling(path, "$ ? (@.a[*] == @.b[*])"), EXCHANGE) is not None
    many = calling("SELECT count(*) FROM t WHERE a = ANY($1)", list(range(5000)))
    assert await tool.examine(many, EXCHANGE) is None


@pytest.mark.parametrize(
    ("sql", "asks"),
    [
        ("SELECT data - tags FROM tagged", True),
        ("SELECT x.data - x.tags AS rest FROM tagged x", True),
        ("SELECT data - l FROM (SELECT data, tags AS l FROM tagged) s", True),
        ("SELECT data - shown FROM seen", True),
        ('SELECT data - "The Marks" FROM tagged', True),
        ("SELECT data - 'a', n - 1, tags FROM tagged", False),
        ("SELECT n - numbers[1], data - 'tags' FROM tagged", False),
    ],
)
async def test_json_minus_a_text_array_column_requires_confirmation(tool: ExecuteSql, sql: str, asks: bool) -> None:
    """PostgreSQL compares each key with each name at one go: the catalogue knows which columns are lists of names."""
    await changed(tool, "DROP TABLE IF EXISTS tagged CASCADE")
    await changed(tool, "DROP DOMAIN IF EXISTS marks")
    await changed(tool, "CREATE DOMAIN marks AS varchar[]")
    await changed(tool, 'CREATE TABLE tagged (n int, data jsonb, tags text[], "The Marks" marks, numbers int[])')
    await changed(tool, "CREATE VIEW seen AS SELECT data, tags AS shown FROM tagged")
    verdict = await tool.examine(calling(sql), EXCHANGE)
    assert (verdict is not None and "may take very long" in verdict.reason) is asks
