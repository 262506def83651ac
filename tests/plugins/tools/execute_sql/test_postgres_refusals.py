"""The statements that PostgreSQL refuses, by their first words; test_execute_sql_postgres.py asks a real server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.tools.execute_sql.postgres_refusals import find_postgres_refusal

SEVERAL = "cannot insert multiple commands into a prepared statement"


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("INSERT INTO t VALUES (1)", "cannot execute INSERT in a read-only transaction"),
        ("-- note\n/* a /* b */ c */ update t SET a = 1", "cannot execute UPDATE in a read-only transaction"),
        ("TRUNCATE t", "cannot execute TRUNCATE TABLE in a read-only transaction"),
        ("create table u (a int)", "cannot execute CREATE TABLE in a read-only transaction"),
        ("; DROP VIEW v;", "cannot execute DROP VIEW in a read-only transaction"),
        ("SELECT 1; SELECT 2", SEVERAL),
        ("DELETE FROM t; SELECT 1", SEVERAL),
    ],
)
def test_statement_certain_to_fail_read_only_is_refused_early(sql: str, error: str) -> None:
    """In the server's own words."""
    assert find_postgres_refusal(sql, read_only=True) == error


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT 1", "SELECT 1;;", "SELECT ';' ; -- x;y", "SELECT $$a;b$$", "", ";", "insert", "'DELETE' FROM t"),
        *("CREATE UNIQUE INDEX i ON t (a)", "CREATE OR REPLACE VIEW v AS SELECT 1", "SELECT 'open", "INSERT \x00"),
        *("WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x", "EXPLAIN ANALYZE DELETE FROM t"),
    ],
)
def test_statement_not_certain_to_fail_is_left_to_the_server(sql: str) -> None:
    """A refusal here cannot be appealed against."""
    assert find_postgres_refusal(sql, read_only=True) is None


def test_writable_mode_refuses_only_multiple_statements() -> None:
    """The body of a function has semicolons of its own."""
    assert find_postgres_refusal("INSERT INTO t VALUES (1)", read_only=False) is None
    assert find_postgres_refusal("INSERT INTO t VALUES (1); SELECT 1", read_only=False) == SEVERAL
    body = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END"
    assert find_postgres_refusal(body, read_only=False) is None


@given(st.text(), st.booleans())
def test_early_refusal_never_raises_for_any_text(sql: str, read_only: bool) -> None:
    """Whatever the text is."""
    assert find_postgres_refusal(sql, read_only=read_only) in (None, SEVERAL) or read_only
