"""Bounds of a row: a long list would be decoded at one go, and hold up all other answers."""

import json

import pytest

from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from gateway.plugins.tools.execute_sql.postgres_meter import LISTS_BYTES
from tests.plugins.tools.execute_sql.asking import EXCHANGE, calling

pytestmark = pytest.mark.postgres
PREPARED = "CREATE ROLE writer LOGIN"
TOO_LARGE = "The statement failed: a list, a record or the bits in one of its rows are larger than {} bytes:"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT array_agg('1.2.3.4'::inet) FROM generate_series(1, 50000)",
        "SELECT 1, array_agg(NULL::int) FROM generate_series(1, 100000)",
        "SELECT array_agg(ROW(i)) FROM generate_series(1, 20000) i",
        "SELECT ROW(array_agg(i), 'x') FROM generate_series(1, 50000) i",
        "SELECT array_agg(int4range(i, i + 1)) FROM generate_series(1, 20000) i",
        "SELECT repeat('1', 8 * 300000)::varbit",
        "SELECT array_agg(i), array_agg(i + 1) FROM generate_series(1, 20000) i",
    ],
)
async def test_oversized_array_results_are_refused(tool: ExecuteSql, sql: str) -> None:
    """Each of them, whatever it is a list of, and together in one row."""
    result = await tool.call(calling(sql), EXCHANGE)
    assert not result.ok and result.content.startswith(TOO_LARGE.format(LISTS_BYTES))


async def test_max_bytes_setting_raises_the_array_limit(server: str) -> None:
    tool = ExecuteSql(Config(url=f"postgresql://writer@{server}", max_bytes=1 << 20))
    sql = "SELECT array_agg(i) FROM generate_series(1, {}) i"
    assert len(json.loads((await tool.call(calling(sql.format(50_000)), EXCHANGE)).content)["rows"][0][0]) == 50_000
    result = await tool.call(calling(sql.format(500_000)), EXCHANGE)
    assert not result.ok and result.content.startswith(TOO_LARGE.format(1 << 20))


async def test_long_text_beside_an_array_is_returned(tool: ExecuteSql) -> None:
    """Values that are absent have no length; rows come in several pieces, in which a number may be cut."""
    sql = (
        "SELECT repeat('x', 700001), ARRAY[i, NULL], NULL::int[], NULL::text, ROW(i, 'y') FROM generate_series(1, 23) i"
    )
    rows = json.loads((await tool.call(calling(sql), EXCHANGE)).content)["rows"]
    assert [row[1:] for row in rows[:2]] == [[[1, None], None, None, [1, "y"]], [[2, None], None, None, [2, "y"]]]
    assert len(rows) == 15  # of 16 KiB each, in 256 KiB
