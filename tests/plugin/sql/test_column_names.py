"""A name counts as a table's own column only where the statement, or the database, gives it to nothing else."""

import pytest

from gateway.plugin.sql.column_names import find_plain_names
from gateway.plugin.sql.expansion import expands_too_far
from gateway.plugin.sql.lexer import TRAITS, lex


@pytest.mark.parametrize(
    "item",
    [
        *(
            "x+x+x+x AS id",
            "x+x+x+x id",
            "id+id+id+id AS id",
            "id[id + id + id]",
            "(row(x, x, x, x)).id AS x, id AS id",
        ),
        *(
            "id + id + id AS x, x + x + x AS id",
            "CASE WHEN id = id OR id = id THEN 1 ELSE id END",
            "(id + x + id) IS NULL id",
        ),
        *("(id + id + id)::public.id", "CAST(id + id + id AS my.id)", "(id || id || id || id)::a.b.id"),
        *("lower(lower || lower || lower) AS lower", "lower(lower || lower || lower)", "CAST(x + x + x + x AS id)"),
    ],
)
def test_redefined_column_name_counts_toward_expansion(item: str) -> None:
    """`id` of a table may be mentioned at will; what a query calls `id` may be long."""
    column = "lower" if "lower" in item else "id"
    query = f"SELECT {column}, a AS x FROM t"
    for number in range(24):
        query = f"SELECT {item} FROM ({query}) s{number}"
    tokens = lex(query, traits=TRAITS["postgresql"], dialect="postgresql").tokens
    assert expands_too_far(tokens)


def test_server_type_name_is_not_a_plain_column() -> None:
    """What is cast to `bit varying` is called `varbit`."""
    sql = "SELECT varbit, id FROM (SELECT (id || id)::bit varying, id FROM t) s"
    assert find_plain_names(lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens) >= {"id"}
    assert "varbit" not in find_plain_names(lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens)


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT id FROM t", "SELECT s.id AS id FROM (SELECT id FROM t) s WHERE id > 0 AND s.id IN (1, 2)"),
        *('SELECT "s"."id" AS "id", x AS y FROM t s', "WITH a AS (SELECT x, id FROM t) SELECT id, x + 1 AS x FROM a b"),
        "SELECT x, sum(y) AS y FROM t JOIN u USING (id) GROUP BY id, x",
    ],
)
def test_passed_on_column_name_is_plain(sql: str) -> None:
    """It has the same name everywhere."""
    assert "id" in find_plain_names(lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens)


@pytest.mark.parametrize(
    "sql",
    [
        *(
            "SELECT id FROM t UNION SELECT x FROM t",
            "SELECT id FROM a NATURAL FULL JOIN b",
            "SELECT x IS NULL id FROM t",
        ),
        *("WITH a(id) AS (SELECT x + x FROM t) SELECT id FROM a", "SELECT id FROM (SELECT x + x FROM t) AS s (id)"),
        *("SELECT id FROM (SELECT x + x FROM t) AS key(id)", "SELECT id FROM index key(id)"),
        *("SELECT id FROM t AS s(x, id)", "WITH a AS (SELECT 1), b(x, id) AS (SELECT 1, x) SELECT id FROM b"),
        *("SELECT id FROM (SELECT 1) id", "SELECT x::id, id FROM t", "SELECT id(x), id FROM t", "SELECT x id FROM t"),
        *("SELECT x::public.id, id FROM t", 'SELECT CAST(x AS "my".id), id FROM t'),
        *(
            "SELECT CAST(CASE WHEN a THEN 1 ELSE id END AS int) FROM t",
            "SELECT x AS 'id', id FROM t",
            "SELECT - id AS id",
        ),
    ],
)
def test_name_bound_to_another_expression_is_not_plain(sql: str) -> None:
    """Each of these may be as long as the expression that it stands for."""
    assert "id" not in find_plain_names(lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens)
