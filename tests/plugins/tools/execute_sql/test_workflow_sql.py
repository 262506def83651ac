"""Values of a workflow in a statement: bound, so that the engine reads none of them as SQL."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.contracts.templates import split_pieces
from gateway.plugins.tools.execute_sql.workflow_sql import Dialect, build_statement

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
HOSTILE = st.text("'\"`;-/*\\ \n()|?$[]:ax\ue000\ue0010", max_size=30)


def statement(template: str, *, dialect: Dialect = "sqlite", **params: object) -> tuple[str, list[object]]:
    return build_statement(split_pieces(template, {"params": params}), dialect=dialect)


@pytest.mark.parametrize(
    ("template", "sqlite", "bound"),
    [
        ("SELECT {{params.n}}", "SELECT ?1", [7]),
        ("SELECT '{{params.n}}'", "SELECT ?1", ["7"]),
        ("SELECT {{params.list}}, {{params.absent}}", "SELECT ?1, ?2", ["[1,2]", None]),
        ("SELECT '{{params.absent}}'", "SELECT ?1", [""]),
        ("SELECT 'it''s {{params.n}}' -- plain", "SELECT ('it''s ' || ?1 || '') -- plain", ["7"]),
        ('SELECT "a b", /* {{x}} */ {{params.n}}', 'SELECT "a b", /* {{x}} */ ?1', [7]),
        ("SELECT 1", "SELECT 1", []),
    ],
)
def test_workflow_reference_becomes_a_placeholder(template: str, sqlite: str, bound: list[object]) -> None:
    """A value outside quotes has its type, one that fills a string or stands in it is a text."""
    assert statement(template, n=7, list=[1, 2]) == (sqlite, bound)


def test_postgres_placeholders_are_numbered_with_a_dollar_sign() -> None:
    """And is told the type where it could not know."""
    sql, bound = statement("SELECT {{params.n}}, '%{{params.n}}'", dialect="postgres", n=7)
    assert (sql, bound) == ("SELECT $1, ('%' || $2::text || '')", [7, "7"])


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    "template",
    [
        "SELECT 1 -- {{params.x}}",
        "SELECT 1 /* {{params.x}} */",
        "SELECT 1 /* {{params.x}}",
        'SELECT "{{params.x}}"',
        "SELECT a{{params.x}}",
        "SELECT {{params.x}}_b",
        "SELECT {{params.x}}{{params.x}}",
        "SELECT 'a {{params.x}}",
        "SELECT :{{params.x}}",
    ],
)
def test_workflow_reference_in_a_comment_or_name_is_refused(dialect: Dialect, template: str) -> None:
    """The reason names the reference, and what to do."""
    with pytest.raises(ValueError, match=r"\{\{params\.x\}\} stands .* move it out"):
        statement(template, dialect=dialect, x="1")


@pytest.mark.parametrize(
    ("dialect", "template"),
    [
        ("sqlite", "SELECT `{{params.x}}`"),
        ("sqlite", "SELECT [{{params.x}}]"),
        ("postgres", r"SELECT E'\'{{params.x}}'"),
        ("postgres", "SELECT $$ {{params.x}} $$"),
        ("postgres", "SELECT $a$ {{params.x}} $$ $a$"),
        ("postgres", "SELECT /* /* */ {{params.x}} */ 1"),
        ("postgres", "SELECT U&'{{params.x}}'"),
    ],
)
def test_workflow_reference_in_dialect_specific_quotes_is_refused(dialect: Dialect, template: str) -> None:
    """What is a name or a literal to one engine may be code to another: each template is read as its engine does."""
    with pytest.raises(ValueError, match="where no value can"):
        statement(template, dialect=dialect, x="1")


def test_comments_of_sqlite_do_not_nest() -> None:
    """Behind the first end stands SQL again."""
    assert statement("SELECT /* /* */ {{params.x}}", x="1") == ("SELECT /* /* */ ?1", ["1"])


TEMPLATES = [
    "SELECT {{params.x}}",
    "SELECT '{{params.x}}'",
    "SELECT 'a{{params.x}}'",
    "SELECT /* ' */ '{{params.x}}' -- '",
    "SELECT x FROM (SELECT {{params.x}} AS x) WHERE '' = ''",
]


@pytest.mark.parametrize("template", TEMPLATES)
@given(value=TEXT | HOSTILE)
@example("' OR '1'='1")
@example("'; DROP TABLE pets; --")
@example("\ue0000\ue001")
def test_sqlite_reads_a_workflow_value_literally(template: str, value: str) -> None:
    """Whatever is in it."""
    sql, bound = statement(template, x=value)
    with closing(sqlite3.connect(":memory:")) as connection:
        ((found,),) = connection.execute(sql, bound).fetchall()
    assert found == ("a" + value if "'a{" in template else value)
