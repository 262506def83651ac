"""The list of the server's own functions, compared with real servers: by identity, and with nothing forgotten."""

import asyncpg
import pytest

from gateway.plugins.tools.execute_sql import ExecuteSql
from gateway.plugins.tools.execute_sql.postgres_functions import load_listed_functions

from .asking import EXCHANGE, calling
from .server_functions import EXCLUDED, functions_of

pytestmark = pytest.mark.postgres
#: What the fixture `server` prepares.
PREPARED = "CREATE ROLE writer LOGIN"
#: One of each reason for which a function is left out.
LEFT_OUT = (
    *("pg_sleep(1)", "pg_advisory_lock(1)", "nextval('s')", "set_config('a.b', 'c', true)", "txid_current()"),
    *("pg_notify('a', 'b')", "pg_cancel_backend(0)", "pg_switch_wal()", "pg_stat_reset()", "lo_create(0)"),
    *("pg_read_file('x')", "query_to_xml('SELECT 1', true, true, '')", "amvalidate(0)", "fmgr_c_validator(0)"),
    *("gin_clean_pending_list(0)", "pg_nextoid(1, 'oid', 2)", "domain_in('1', 23, -1)", "textin('x')"),
)


async def test_function_list_covers_every_function_of_the_server(server: str) -> None:
    """By number, name and source; `server_functions` writes the list anew where a version has changed."""
    connection = await asyncpg.connect(f"postgresql://owner@{server}")
    found = {(number, name, source) for number, name, _, source in await functions_of(connection)}
    await connection.close()
    unknown = sorted(name for _, name, _ in found - load_listed_functions())
    assert not unknown, f"not on the list, or with another identity: {unknown}"
    assert len(found) > 2000


@pytest.mark.parametrize("call", LEFT_OUT)
async def test_excluded_functions_require_approval(tool: ExecuteSql, call: str) -> None:
    """Each reason of the exclusions, and the functions that take what only the server makes."""
    verdict = await tool.examine(calling(f"SELECT {call}"), EXCHANGE)
    assert verdict is not None and verdict.rule == "sql.engine"


async def test_each_exclusion_pattern_matches_a_server_function(server: str) -> None:
    """An exclusion that matches nothing in any version is a spelling mistake; the newest server has nearly all."""
    connection = await asyncpg.connect(f"postgresql://owner@{server}")
    for pattern in EXCLUDED:
        number = await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname ~ $1", f"^({pattern})$")
        assert number, pattern
    await connection.close()
