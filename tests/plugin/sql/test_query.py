"""The walk over one query."""

import pytest

from gateway.plugin.sql.lexer import lex
from gateway.plugin.sql.query import MAX_DEPTH, QueryDoubt, QueryWalk


def walk(sql: str, *, write: bool = False) -> QueryWalk:
    walk = QueryWalk(lex(sql).tokens, write=write)
    walk.run()
    return walk


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        ("SELECT delete_user(5)", "function"),
        ("SELECT a.lower(b)", "function"),
        ('SELECT "lower"(b)', "function"),
        ("SELECT users_seq.nextval", "function"),
        ("SELECT NEXT VALUE FOR s", "function"),
        ("SELECT @f(1)", "unclear_text"),
        ("SELECT 1 INTO t", "into"),
        ("SELECT 1 DROP TABLE t", "statement"),
        ("SELECT a FROM t SHUTDOWN", "statement"),
        ("SELECT 1 KILL 53", "statement"),
        ("SELECT 1 ; SELECT 2", "stacked"),
        ("SELECT * FROM 'f'", "file_as_table"),
        ('SELECT * FROM "a/b"', "file_as_table"),
        ('SELECT * FROM "a.csv"', "file_as_table"),
        ("SELECT * FROM a.b.c.d", "linked_server"),
        ("SELECT 'a", "unclear_text"),
        ("SELECT " + "(" * (MAX_DEPTH + 1), "too_deep"),
    ],
)
def test_unsafe_constructs_raise_a_named_query_doubt(sql: str, rule: str) -> None:
    """What is not known to be harmless is doubted, by name of the rule."""
    with pytest.raises(QueryDoubt) as raised:
        walk(sql)
    assert raised.value.rule == rule


@pytest.mark.parametrize(
    ("sql", "marks"),
    [
        ("SELECT a FROM t", set()),
        ("SELECT a FROM t FOR UPDATE", {"lock"}),
        ("SELECT a FROM t FOR UPDATE OF t SKIP LOCKED", {"lock"}),
        ("SELECT a FROM t FOR UPDATE NOWAIT", {"lock"}),
        ("SELECT a FROM t FOR NO KEY UPDATE", {"lock"}),
        ("SELECT a FROM t FOR SHARE", {"lock"}),
        ("SELECT a FROM t FOR KEY SHARE", {"lock"}),
        ("SELECT a FROM t LOCK IN SHARE MODE", {"lock"}),
        ("SELECT a FROM t WITH (UPDLOCK)", {"lock"}),
        ("SELECT a FROM t WITH (NOLOCK)", set()),
        ("SELECT @a := 1", {"assignment"}),
        ("SELECT @a = 1", {"assignment"}),
        ("SELECT 1 WHERE a = @a", set()),
        ("SELECT * FROM pg_shadow", {"sensitive_read"}),
        ("SELECT * FROM mysql.user", {"sensitive_read"}),
        ("SELECT * FROM pg_catalog.pg_authid a", {"sensitive_read"}),
        ("SELECT * FROM app.user", set()),
    ],
)
def test_locks_assignments_and_sensitive_tables_are_marked(sql: str, marks: set[str]) -> None:
    """Locks, assignments and sensitive tables are noted, and nothing is broken."""
    done = walk(sql)
    assert (done.marks, done.broken, done.complete) == (marks, None, True)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (1",
        "SELECT 1)",
        "SELECT 1 2",
        "SELECT a b c",
        "SELECT 1 (2)",
        "SELECT 1 SELECT 2",
        "SELECT 1 lower(a)",
        "SELECT * FROM t WHERE",
        "SELECT a,",
        "SELECT [1)",
        "SELECT = . a",
    ],
)
def test_malformed_query_is_reported_as_broken(sql: str) -> None:
    """Operands without operators, open parentheses and missing ends are broken, which is not the same as doubted."""
    assert walk(sql).broken


def test_write_statements_are_walked_with_write_enabled() -> None:
    """With `write` the words of INSERT, UPDATE and DELETE are read over; the functions in them are not."""
    assert walk("INSERT INTO s.t (a) SELECT lower(a) FROM u", write=True).broken is None
    with pytest.raises(QueryDoubt):
        walk("UPDATE t SET a = sleep(1)", write=True)
    with pytest.raises(QueryDoubt):
        walk("DELETE FROM t DROP TABLE t", write=True)
