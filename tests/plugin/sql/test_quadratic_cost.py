"""Two long values are not compared unasked where PostgreSQL could not be stopped: one of them is written out."""

import pytest

from gateway.plugin.sql.statement import judge


@pytest.mark.parametrize(
    "expression",
    [
        *("replace(b, 'a', 'c')", "replace(b, 'a', b)", "replace(b, chr(10), ' ')", "trim(b)", "btrim(b)"),
        *("ltrim(b, '0')", "trim(both 'x' from b)", "trim(leading from b)", "position($1 in b)", "strpos(b, $1)"),
        *("split_part(b, ',', 2)", "string_to_array(b, ',')", "translate(b, 'abc', 'xyz')", "b LIKE 'x%'"),
        *("b LIKE '%' || $1 || '%' AND a = 1", "b ILIKE $1 OR b NOT LIKE 'x'", "lower(b) LIKE lower('%X%')"),
        *("(b LIKE 'x%') AND b LIKE any (ARRAY['a%', 'b'])", "tags @> ARRAY['a', 'b']::text[] AND a = 1"),
        *("tags && ARRAY['a'] OR tags @> $1", "data @> '{\"a\": 1}'::jsonb", "'{a}' <@ tags", "data ?| ARRAY['a']"),
        *("period && daterange('2026-01-01', '2026-02-01')", "period @> now()", "loc <-> point(1, 2)"),
        *("to_date(b, 'YYYY')", "to_timestamp(a / 1000)", "shape ~= '((0,0),(1,1))'"),
        *("ts_rank(v, to_tsquery('english'::regconfig, 'a'))", "ts_rank_cd(ARRAY[1, 1], v, 'a & b', 32)"),
        *("CASE WHEN b LIKE 'a%' THEN 1 END", "b LIKE 'x' ESCAPE '!'", "data ? 'a'", "a < 3 AND a - 1 > a & 2"),
    ],
)
def test_operation_with_one_literal_needs_no_approval(expression: str) -> None:
    """The time is in proportion to the other one."""
    for sql in (f"SELECT {expression} FROM t", f"SELECT a FROM t WHERE ({expression}) IS NULL ORDER BY b"):
        assert judge(sql, dialect="postgresql").doubt is None, sql


@pytest.mark.parametrize(
    "expression",
    [
        *("replace(b, c, 'x')", "translate(repeat('x', 9), repeat('y', 9), '')", "btrim(b, c)", "trim(b, c)"),
        *("trim(both c from b)", "trim(c from b)", "position(c in b)", "strpos(b, c)", "split_part(b, c, 1)"),
        *("string_to_array(b, c)", "replace(b, text, 'x')", "replace(b, (SELECT c FROM t), 'x')"),
        *("b LIKE c", "b LIKE '%' || c", "b LIKE '%' || c || '%'", "b LIKE (SELECT c FROM t)", "b ILIKE c"),
        *("b LIKE repeat('x', 9)", "b LIKE ('x' || c)", "b LIKE any (ARRAY[c])", "b LIKE concat('%', c)"),
        *("b LIKE 'x'::text || c", "b LIKE 'x' COLLATE \"C\" || c", "b ~~ c", "b !~~* c", "like(b, c)"),
        *("x && y", "x &&y", "x @> y", "x @>y", "x<@y", "x ?| y", "x <-> y", "arraycontains(x, y)"),
        *("x @> ARRAY(SELECT a FROM t)", "x @> '{1}'::int[] || y", "y || '{1}' <@ z", "x @> any (SELECT y)"),
        *("normalize(b)", "b IS NFC NORMALIZED", "to_date(b, c)", "to_timestamp(b, c)", "x ~= y"),
        *("ts_rank(v, q)", "ts_rank(ARRAY[1, 1], v, q)", "ts_rank_cd(v, to_tsquery(b), 32)"),
    ],
)
def test_operation_on_two_unbounded_values_needs_approval(expression: str) -> None:
    """In PostgreSQL's dialect; SQLite has bounds of its own."""
    doubt = judge(f"SELECT {expression} FROM t", dialect="postgresql").doubt
    assert doubt is not None and doubt[0] == "product"


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "to_tsquery('a & b')",
            "to_tsvector('english', b) @@ plainto_tsquery('english', $1)",
            "v @@ 'a & b'::tsquery",
        ),
        *("to_tsvector(b) @@ q", "v @@ websearch_to_tsquery($1)", "b @@ 'word'", "v @@ to_tsquery('english', 'a')"),
        *("phraseto_tsquery('a b') @@ v", "'a'::tsquery @@ v", "q @@ to_tsvector(b)", "data @@ '$.a > 1'"),
        *(
            "xml '<a/>'",
            "CAST('<a/>' AS xml)",
            "'<a/>'::xml IS DOCUMENT",
            "t.xml",
            "xml",
            "b AS xml",
            "$1::pg_catalog.xml",
        ),
    ],
)
def test_parsing_a_literal_text_needs_no_approval(expression: str) -> None:
    """So is a column that has the name of such a type."""
    assert judge(f"SELECT {expression} FROM t", dialect="postgresql").doubt is None


@pytest.mark.parametrize(
    "expression",
    [
        *("to_tsquery(b)", "plainto_tsquery('english', repeat('a ', 9))", "phraseto_tsquery(b || 'x')", "b::tsquery"),
        *("websearch_to_tsquery(b)", "CAST(b || 'x' AS tsquery)", "(b || 'x')::xml", "b::pg_catalog.xml", 'b::"xml"'),
        "x.key FROM json_to_record(b) AS x(key xml)",
        *("'{}'::xml[]", "x.a FROM json_to_record(b) AS x(a xml)", "b @@ c", "b @@ repeat('a ', 9)", "'a' @@ b"),
        *(
            "s.tsquery @@ b",
            "b @@ s.to_tsvector",
            "b @@@ c",
        ),
    ],
)
def test_parsing_an_unbounded_text_needs_approval(expression: str) -> None:
    """PostgreSQL parses a search, and the attributes of an element, in time squared, and looks at no clock."""
    doubt = judge(f"SELECT {expression} FROM t", dialect="postgresql").doubt
    assert doubt is not None and doubt[0] == "product"


def test_literals_count_as_bounded_only_while_short() -> None:
    """All of it together, as one row is computed without a look at the clock."""
    for sql in ("SELECT a FROM t WHERE b LIKE '{}'", "SELECT replace(b, '{}', 'x') FROM t", "SELECT '{}' <@ b FROM t"):
        assert judge(sql.format("x" * 900), dialect="postgresql").doubt is None
        assert judge(sql.format("x" * 1100), dialect="postgresql").doubt is not None
    several = " OR ".join(f"b LIKE '%{'x' * 90}{number}%'" for number in range(12))
    assert judge(f"SELECT a FROM t WHERE {several}", dialect="postgresql").doubt is not None
    listed = ", ".join(f"'{number}'" for number in range(300))
    assert judge(f"SELECT a FROM t WHERE b LIKE 'x' AND c IN ({listed})", dialect="postgresql").doubt is None


def test_quadratic_cost_is_not_doubted_for_sqlite() -> None:
    assert judge("SELECT replace(b, c, 'x') FROM t WHERE b LIKE c", dialect="sqlite").doubt is None
