"""Subqueries that mention columns of one another again and again ask: PostgreSQL writes each out in every place."""

import sys
from collections.abc import Callable

import pytest

from gateway.plugin.sql.expansion import MOST_DEPTH, MOST_READ, expands_too_far
from gateway.plugin.sql.lexer import Token, lex
from gateway.plugin.sql.statement import judge

FOUR = "x+x+x+x"


def nested(levels: int, column: str = FOUR, end: str = "") -> str:
    query = "SELECT a AS x FROM t"
    for number in range(levels):
        query = f"SELECT {column} AS x FROM ({query}{end}) s{number}"
    return query


def chained(levels: int, materialized: str = "") -> str:
    more = (f", a{n} AS {materialized} (SELECT {FOUR} AS x FROM a{n - 1})" for n in range(1, levels))
    return f"WITH a0 AS (SELECT a AS x FROM t){''.join(more)} SELECT x FROM a{levels - 1}"


def backwards(levels: int) -> str:
    first = (f"a{n}(x) AS (SELECT {FOUR} FROM a{n - 1}), " for n in range(levels - 1, 0, -1))
    return f"WITH RECURSIVE {''.join(first)}a0 AS (SELECT a AS x FROM t) SELECT x FROM a{levels - 1}"


def side_by_side(levels: int) -> str:
    more = (f", LATERAL (SELECT s{n - 1}.x+s{n - 1}.x+s{n - 1}.x AS x) s{n}" for n in range(1, levels))
    return f"SELECT s{levels - 1}.x FROM t, LATERAL (SELECT t.a AS x) s0{''.join(more)}"


@pytest.mark.parametrize(
    "made",
    [
        *(nested, chained, backwards, side_by_side),
        lambda levels: side_by_side(levels).replace("FROM t", "FROM (t", 1) + ")",
        lambda levels: nested(levels, "coalesce(x, 1) + coalesce(x, 2) + x"),
        lambda levels: nested(levels, "CASE WHEN x BETWEEN SYMMETRIC a AND b THEN 1 END"),
        lambda levels: nested(levels, "CASE WHEN x IN (a, b, c, d) THEN 1 END"),
        lambda levels: nested(levels, "row(s.*, s.*)"),
        lambda levels: nested(levels, "CASE WHEN x IS DISTINCT FROM x OR x IS DISTINCT FROM x THEN 1 END"),
        lambda levels: nested(levels, "+".join(["substring(x FROM x)"] * 2)),
        lambda levels: nested(levels, "CASE WHEN 1 IS DISTINCT FROM (SELECT x+x+x+x) THEN 1 END"),
        lambda levels: chained(levels, "NOT MATERIALIZED"),
        lambda levels: nested(levels, "CASE WHEN (x, 1) IN ((1, 1), (2, 2), (3, 3), (4, 4)) THEN 1 END"),
    ],
)
def test_multiplying_columns_need_approval(made: Callable[[int], str]) -> None:
    """A dozen of these take all memory, and nothing interrupts it."""
    doubt = judge(made(14), dialect="postgresql").doubt
    assert doubt is not None and "too often" in doubt[1]
    assert judge(made(2), dialect="postgresql").doubt is None


@pytest.mark.parametrize(
    "sql", [nested(14, end=" OFFSET 0"), nested(14, end=" LIMIT 5"), chained(14, "MATERIALIZED"), nested(14, "x + 1")]
)
def test_query_of_constant_size_needs_no_approval(sql: str) -> None:
    """PostgreSQL plans a part with a LIMIT on its own."""
    assert judge(sql, dialect="postgresql").doubt is None


def test_everyday_query_needs_no_approval() -> None:
    """Some mentions of each name, and three expressions that are read twice."""
    sql = """WITH paid AS (SELECT o.id, o.customer, o.total, o.day FROM orders o WHERE o.state = 'paid' AND o.day > $1),
        monthly AS (SELECT customer, date_trunc('month', day) AS month, sum(total) AS total, count(*) AS number
            FROM paid GROUP BY customer, date_trunc('month', day)),
        ranked AS (SELECT customer, month, total, total / number AS each,
            rank() OVER (PARTITION BY month ORDER BY total DESC) AS place FROM monthly)
        SELECT c.name, r.month, r.total, r.each, p.total AS before, r.total - p.total AS more FROM ranked r
            JOIN customers c ON c.id = r.customer LEFT JOIN ranked p ON p.customer = r.customer
            AND p.month = r.month - interval '1 month' WHERE r.place <= 10 ORDER BY r.month, r.place"""
    assert judge(sql, dialect="postgresql").doubt is None


def test_very_long_cte_chain_needs_approval() -> None:
    """Its length is that of the text, and each link takes room on the stack."""
    chain = ", ".join(f"a{n} AS (TABLE a{n - 1})" for n in range(1, 500))
    assert judge(f"WITH {chain} SELECT 1 FROM a499", dialect="postgresql").doubt is not None


def test_repeated_row_expansion_needs_approval() -> None:
    """`(x).*` is `(x).a, (x).b` and so on."""
    assert judge(nested(4, "row((x).*)"), dialect="postgresql").doubt is not None
    assert judge("SELECT (x).* FROM (SELECT x FROM t) s", dialect="postgresql").doubt is None


def copied(levels: int, arm: str = "SELECT FROM") -> str:
    """Return unions of ten in one another, which name no column at all."""
    union = " UNION ALL ".join
    first = f"u0 AS NOT MATERIALIZED ({union([f'{arm} information_schema.columns'] * 10)})"
    more = (f", u{n} AS NOT MATERIALIZED ({union([f'{arm} u{n - 1}'] * 10)})" for n in range(1, levels))
    return f"WITH {first}{''.join(more)} SELECT count(*) FROM u{levels - 1}"


@pytest.mark.parametrize("made", [copied, lambda levels: copied(levels, "TABLE")])
def test_multiplying_tables_need_approval(made: Callable[[int], str]) -> None:
    """PostgreSQL opens each of them in each copy: a thousand of this view take half a gigabyte."""
    assert judge(made(3), dialect="postgresql").doubt is not None
    assert judge(made(1), dialect="postgresql").doubt is None
    once = made(3).replace("NOT MATERIALIZED", "MATERIALIZED")
    assert judge(once, dialect="postgresql").doubt is None


def test_subquery_values_and_view_columns_count_toward_expansion() -> None:
    """The planner copies the tables of the one, and the expression of the other."""
    value = "SELECT (SELECT count(*) FROM u) AS x FROM t"
    column = "SELECT data_type AS x FROM information_schema.columns"
    for query in (value, column):
        assert judge(nested(6).replace("SELECT a AS x FROM t", query), dialect="postgresql").doubt is not None
        assert judge(nested(3).replace("SELECT a AS x FROM t", query), dialect="postgresql").doubt is None
    assert judge(nested(6), dialect="postgresql").doubt is None
    assert not expands_too_far(lex(nested(6).replace("SELECT a AS x FROM t", value)).tokens, plans=False)


@pytest.mark.parametrize("letter", ["n", "\u00e9", "\u540d"])
def test_names_with_equal_first_63_bytes_count_as_equal(letter: str) -> None:
    """It cuts them at 63 bytes, so that a label and its mention may be spelled differently."""
    names = [letter * 63 + end for end in "abcd"]
    for column, label in (
        (f"{names[0]}+{names[1]}+{names[2]}+{names[3]}", names[0]),
        ("+".join([names[0]] * 4), names[1]),
    ):
        query = nested(14).replace("x+x+x+x AS x", f"{column} AS {label}").replace("a AS x", f"a AS {label}")
        assert judge(query, dialect="postgresql").doubt is not None


@pytest.mark.parametrize("name", ["key", "path", "option", "by"])
def test_keyword_used_as_a_name_counts_as_a_name(name: str) -> None:
    """Databases take most of their words for the name of a column, without quotes."""
    for plans in (True, False):
        assert expands_too_far(lex(nested(14).replace("x", name)).tokens, plans=plans)
        assert not expands_too_far(lex(nested(2).replace("x", name)).tokens, plans=plans)


def test_depth_and_read_limits_report_expansion_without_counting() -> None:
    """The count would take as long as what it guards from: each of these limits holds by itself."""
    for depth, asks in ((MOST_DEPTH - 1, False), (MOST_DEPTH + 1, True)):
        deep = f"SELECT {'(' * depth}x{')' * depth} FROM (SELECT x FROM t) s"
        assert expands_too_far(lex(deep).tokens) is asks
    for queries, asks in ((80, False), (101, True)):
        begins = [Token("word", "select"), Token("number", "1"), Token("word", "from"), Token("punct", "(")]
        read = [Token("number", "1")] * (MOST_READ // 100)
        assert expands_too_far([*begins * queries, *read, *[Token("punct", ")")] * queries]) is asks


def joined(levels: int) -> str:
    """Return joins in one another whose only column has one name for two."""
    more = (f", a{n} AS NOT MATERIALIZED (SELECT x FROM a{n - 1} l NATURAL FULL JOIN t)" for n in range(1, levels))
    return f"WITH a0 AS (SELECT a AS x FROM t){''.join(more)} SELECT x FROM a{levels - 1}"


@pytest.mark.parametrize(
    "made", [joined, lambda levels: joined(levels).replace("NATURAL ", "").replace("JOIN t", "JOIN t USING (x)")]
)
def test_columns_compared_by_a_join_count_as_mentions(made: Callable[[int], str]) -> None:
    """A full join puts two of them into one as well."""
    assert judge(made(14), dialect="postgresql").doubt is not None


def _split(sql: str) -> list[str]:
    for sign in "().,[]+=|":
        sql = sql.replace(sign, f" {sign} ")
    return sql.split()


@pytest.mark.parametrize(
    "made",
    [
        lambda size: "(" * size + "SELECT 1" + ")" * size,
        lambda size: "SELECT x + x FROM ( " * size + "t" + ") s" * size,
        lambda size: "WITH " + ", ".join(["a AS (SELECT a, a, a FROM a)"] * size) + " SELECT a FROM a",
        lambda size: "SELECT x FROM (" * 150 + "SELECT 1" + ", x" * size * 4 + ") s" * 150,
        lambda size: "SELECT CASE WHEN x THEN 1 ELSE x" + " END" * size + " FROM (SELECT x FROM t) s",
        lambda size: "SELECT f(" + "a(" * 150 + "x, x" * size + ")" * 150 + ") FROM (SELECT x FROM t) s",
    ],
)
def test_expansion_count_takes_linear_steps(made: Callable[[int], str]) -> None:
    """SQLite's texts have up to 400 kB, and deep ones took 20 seconds. Steps are calls of functions."""
    few, many = (_steps(made(size)) for size in (3000, 6000))
    assert many < 2.5 * few


def _steps(sql: str) -> int:
    tokens = [Token("word" if one.isalnum() else "punct", one.lower()) for one in _split(sql)]
    taken = 0

    def count(*_: object) -> None:
        nonlocal taken
        taken += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        expands_too_far(tokens)
    finally:
        sys.setprofile(before)
    return taken
