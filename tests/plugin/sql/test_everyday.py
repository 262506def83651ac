"""Everyday analytical SQL of people, ORMs and reporting tools does not ask, and SQLite compiles it."""

import pytest

from gateway.plugin.sql.statement import judge
from gateway.plugins.tools.execute_sql.sqlite_expansion import check_expansion

from .everyday import POSTGRES, STATEMENTS

#: Texts that are too long to be judged: these ask for that reason, and run once they are approved.
LONG = (
    "twenty steps",
    "ids",
    "words",
    "ids of a subquery",
    "ids in an expression",
    "ids twice",
    "or",
    "or of a subquery",
)


@pytest.mark.parametrize("name", [name for name in (*STATEMENTS, *POSTGRES) if name not in LONG])
def test_everyday_postgresql_statements_need_no_approval(name: str) -> None:
    """It has no product of two long values, nothing that multiplies, and no function that acts."""
    assert judge({**STATEMENTS, **POSTGRES}[name], dialect="postgresql").doubt is None


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name not in LONG])
def test_everyday_sqlite_statements_need_no_approval(name: str) -> None:
    """Such a text reads only."""
    assert judge(STATEMENTS[name], dialect="sqlite").doubt is None


@pytest.mark.parametrize("name", STATEMENTS)
def test_everyday_statements_pass_the_sqlite_expansion_check(name: str) -> None:
    """An estimate that is too large would refuse what a person has approved."""
    check_expansion(STATEMENTS[name], [])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ts_rank(v, query) FROM docs JOIN (SELECT v AS query FROM docs) s USING (query)",
        "SELECT ts_rank(v, query), to_tsquery('a') query FROM docs",
        "SELECT ts_rank(v, query) FROM docs, to_tsquery(title) query",
        "SELECT ts_rank(v, query) FROM docs LEFT JOIN to_tsquery('a') query USING (query)",
        "SELECT (SELECT ts_rank(v, query) FROM docs) FROM to_tsquery('a') query",
        "SELECT a IS DISTINCT FROM to_tsquery('a') query, ts_rank(v, query) FROM docs",
        f"SELECT ts_rank(v, query) FROM docs, to_tsquery('{'a&' * 600}a') query",
    ],
)
def test_unbounded_text_search_ranking_is_doubted(sql: str) -> None:
    """The name has to be that of a search which FROM writes out."""
    doubt = judge(sql, dialect="postgresql").doubt
    assert doubt is not None and "ts_rank" in doubt[1]
