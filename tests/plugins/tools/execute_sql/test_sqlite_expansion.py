"""Statements that SQLite would compile for ever are not compiled, by the look neither."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.plugin.sql.expansion import expands_too_far
from gateway.plugins.tools.execute_sql import Config, ExecuteSql
from gateway.plugins.tools.execute_sql.sqlite_expansion import SMALL_CHARS, is_small, tokenize

from .asking import EXCHANGE, calling


def chain(length: int, *, mentions: int, quote: str = "{}", backwards: bool = False) -> str:
    """Expressions of which each mentions the one before so many times."""

    def defined(number: int) -> str:
        before = ", ".join(f"{quote.format(f'c{number - 1}')} AS x{each}" for each in range(mentions))
        return f"{quote.format(f'c{number}')} (a) AS (SELECT x0.a FROM {before})"

    parts = [f"{quote.format('c0')} AS (SELECT 1 AS a)", *(defined(number) for number in range(1, length))]
    if backwards:  # SQLite lets one mention a later one
        parts.reverse()
    return f"WITH {', '.join(parts)} SELECT count(*) FROM {quote.format(f'c{length - 1}')}"


def nested(levels: int, *, end: str = "", column: str = "x+x+x+x AS x") -> str:
    """Subqueries that each mention a column of the one within them four times."""
    query = f"SELECT a AS {column.rpartition(' AS ')[2]} FROM t"
    for number in range(levels):
        query = f"SELECT {column} FROM ({query}{end}) AS s{number}"
    return query


def reading(levels: int, *, quote: str) -> str:
    """Expressions that each mention a column of the one before four times."""
    parts = [f"c{number} AS (SELECT x+x+x+x AS x FROM {quote.format(f'c{number - 1}')})" for number in range(1, levels)]
    return f"WITH c0 AS (SELECT a AS x FROM t), {', '.join(parts)} SELECT x FROM {quote.format(f'c{levels - 1}')}"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (chain(20, mentions=4), "too often"),
        (chain(20, mentions=4, backwards=True), "too often"),
        (chain(20, mentions=4, quote='"x ""{}"'), "too often"),
        (chain(20, mentions=4, quote="[{}]"), "too often"),
        (chain(20, mentions=4, quote="'{}'"), "too often"),
        (f"SELECT * FROM ({chain(20, mentions=4)})", "too often"),
        ("SELECT * FROM v19", "too often"),
        (chain(2_000, mentions=1), "too deep"),
        (nested(14), "too often"),
        (nested(11, column='"x""y"+[x"y]+`x"y`+[x"y] AS "x""y"'), "too often"),
        (nested(14, column="key+key+key+key AS key"), "too often"),
        (reading(12, quote="{}"), "too often"),
        (reading(12, quote="'{}'"), "too often"),
        (nested(14, end=" LIMIT 9"), "too often"),
        (f"SELECT '{'x' * 20_000}' FROM ({nested(14)})", "too often"),
    ],
)
async def test_statement_with_exponential_expansion_is_not_compiled(place: Path, sql: str, says: str) -> None:
    """Also where a person approved it: the memory that it takes is the gateway's."""
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE VIEW v0 AS SELECT 1 AS a")
        for number in range(1, 20):
            before = ", ".join(f"v{number - 1} AS x{each}" for each in range(4))
            connection.execute(f"CREATE VIEW v{number} AS SELECT x0.a FROM {before}")
        connection.commit()
    tool = ExecuteSql(Config(url=f"sqlite:///{place}"))
    assert await tool.refusal(calling(sql), EXCHANGE) is None
    assert await tool.examine(calling(sql), EXCHANGE) is None
    for harmless in (True, False):
        result = await tool.call(replace(calling(sql), harmless=harmless), EXCHANGE)
        assert not result.ok and says in result.content


@pytest.mark.parametrize(
    "sql",
    [
        chain(6, mentions=3),
        chain(150, mentions=1),
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT n.x, n.x FROM n LIMIT 1",
        "WITH a AS (SELECT a FROM t), b AS (SELECT a.a, a.a + a.a AS c FROM a) SELECT count(*) FROM b, b AS d",
        'WITH "t t" AS NOT MATERIALIZED (SELECT count(*) FROM t) SELECT * FROM "t t"',
        "SELECT CAST(a AS VARCHAR(5)) FROM t LIMIT 1",
        f"{nested(3)} LIMIT 1",
        "SELECT s.a FROM (SELECT a FROM t WHERE a NOT IN ('x', 'y', 'x')) AS s WHERE s.a <> 'x' OR 'x' <> 'y' LIMIT 1",
    ],
)
async def test_ordinary_nested_and_recursive_queries_run(place: Path, sql: str) -> None:
    """A few levels, recursion, names of columns as those of tables."""
    tool = ExecuteSql(Config(url=f"sqlite:///{place}"))
    assert await tool.examine(calling(sql), EXCHANGE) is None
    result = await tool.call(calling(sql), EXCHANGE)
    assert result.ok and len(json.loads(result.content)["rows"]) == 1, result.content


async def test_expansion_limit_counts_columns_of_views(place: Path) -> None:
    """SQLite writes out a view's column as it does a subquery's."""
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE VIEW IF NOT EXISTS v0 AS SELECT a AS x FROM t")
        for number in range(1, 14):
            connection.execute(f'CREATE VIEW "v{number}" (x) AS SELECT x+x+x+x FROM v{number - 1}')
        connection.commit()
    tool = ExecuteSql(Config(url=f"sqlite:///{place}"))
    result = await tool.call(calling("SELECT x FROM v13"), EXCHANGE)
    assert not result.ok and "too often" in result.content
    assert (await tool.call(calling("SELECT x FROM v3"), EXCHANGE)).ok


@pytest.mark.parametrize("mention", ['"v ""2"', "[V1]", "`v1`", "'v1'", "main . v1", "(v1)", '"ÜBER"'])
async def test_expansion_limit_counts_views_under_any_quoting(place: Path, mention: str) -> None:
    """Also one that only another view names. Views that nothing mentions count for nothing."""
    with closing(sqlite3.connect(place)) as connection:
        connection.execute(f"CREATE VIEW v1 AS SELECT x AS a FROM ({nested(9)}) WHERE {'+'.join(['x'] * 99)}")
        connection.execute('CREATE VIEW "v ""2" AS SELECT a FROM V1')
        connection.execute('CREATE VIEW "ÜBER" AS SELECT a FROM v1')
        connection.commit()
    tool = ExecuteSql(Config(url=f"sqlite:///{place}"))
    result = await tool.call(calling(f"SELECT * FROM {mention}"), EXCHANGE)
    assert not result.ok and "too often" in result.content
    assert (await tool.call(calling("SELECT v.a FROM (SELECT a FROM t) AS v"), EXCHANGE)).ok


@pytest.mark.parametrize("column", ["x", "x.x", "*", "x BETWEEN x AND x", "x IN (x)"])
def test_uncounted_small_statements_stay_below_every_expansion_limit(column: str) -> None:
    """The longest statement of two queries that is small, and what the count says of it."""
    sizes = []
    for length in range(20):
        inner = f"SELECT {','.join(['x'] * length)} x FROM t NATURAL JOIN u"
        left = SMALL_CHARS - len(inner) - len("SELECT  FROM ()")
        sql = f"SELECT {','.join([column] * (left // (len(column) + 1)))} FROM ({inner})"
        assert is_small([sql]) and not is_small([sql + " " * SMALL_CHARS])
        sizes.append(expands_too_far(tokenize(sql), plans=False))
    assert not any(sizes)
