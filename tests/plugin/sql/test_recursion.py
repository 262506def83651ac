"""Recursion without an end."""

import pytest

from gateway.plugin.sql.lexer import lex
from gateway.plugin.sql.recursion import has_unbounded_recursion


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t) SELECT * FROM t", True),
        ("WITH RECURSIVE t AS (SELECT 1 n UNION SELECT n+1 FROM t) SELECT * FROM t", True),
        ("WITH RECURSIVE t AS NOT MATERIALIZED (SELECT 1 UNION ALL SELECT 1 FROM t) SELECT 1", True),
        ("WITH t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t) SELECT * FROM t", True),
        ('WITH RECURSIVE "T"(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t) SELECT 1', True),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t WHERE n < 5) SELECT * FROM t", False),
        ("WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT c.id FROM c JOIN t ON c.p = t.id) SELECT 1", False),
        ("WITH t AS (SELECT 1 UNION ALL SELECT 2 FROM u) SELECT * FROM t", False),
        ("SELECT a AS (", False),
        ("AS", False),
        (") AS (", False),
    ],
)
def test_unbounded_recursion_is_detected(sql: str, expected: bool) -> None:
    """The recursive arm reads its own expression and neither filters, joins nor limits."""
    assert has_unbounded_recursion(lex(sql).tokens) is expected
