"""Whether a statement is harmless: the siblings of the cases that the assessor is measured on."""

import json
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugin.sql.lexer import Dialect
from gateway.plugin.sql.statement import judge

SIBLINGS = [
    json.loads(line) for line in (Path(__file__).parents[2] / "data/sql_siblings.jsonl").read_text().splitlines()
]


def test_everyday_read_statements_are_harmless() -> None:
    """Plain reading statements of every dialect are not doubted."""
    harmless = [case["sql"] for case in SIBLINGS if case["expect"] == "auto"]
    assert len(harmless) > 180 and [(sql, doubt) for sql in harmless if (doubt := judge(sql).doubt)] == []


def test_confirm_cases_are_all_doubted_with_a_reason() -> None:
    """Writes, effects, files, stacked statements, tricks and prose are doubted, with a reason for a person."""
    doubted = [(case["sql"], judge(case["sql"]).doubt) for case in SIBLINGS if case["expect"] == "confirm"]
    assert len(doubted) > 250 and [sql for sql, doubt in doubted if doubt is None] == []
    for sql, doubt in doubted:
        assert doubt and doubt[0].islower() and doubt[1].endswith(".") and len(doubt[1]) < 200, sql


@pytest.mark.parametrize(
    ("sql", "marks"),
    [
        ("WITH x AS (SELECT 1) SELECT * FROM x", {"with"}),
        ("VALUES (1)", {"values"}),
        ("TABLE users", {"table"}),
        ("PRAGMA table_info(t)", {"pragma"}),
        ("EXPLAIN ANALYZE SELECT 1", {"explain_analyze"}),
        ("EXPLAIN (ANALYZE off) SELECT 1", set()),
        ("WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 1 FROM t) SELECT 1", {"with", "recursion"}),
        ("SELECT * FROM t FOR UPDATE", {"lock"}),
        ("EXPLAIN ANALYZE SELECT * FROM pg_shadow", {"explain_analyze", "sensitive_read"}),
    ],
)
def test_unusual_read_statements_carry_marks(sql: str, marks: set[str]) -> None:
    """Statements beyond the short list, and reading with side effects, carry marks."""
    assert judge(sql) == judge(sql.lower()) and judge(sql).marks == marks and judge(sql).doubt is None


QUIET = st.text(alphabet="abc 1,.()=*+<>\n\t", max_size=30)


@given(QUIET, st.sampled_from(["DROP TABLE t", "DELETE FROM t", "UPDATE t SET a=1", "SELECT 2", "x"]))
def test_second_statement_is_never_harmless(middle: str, second: str) -> None:
    """Whatever stands before the semicolon, what follows it is doubted."""
    assert judge(f"SELECT 1 {middle}; {second}").doubt


PIECES = [
    *("SELECT", "1", "a", "FROM t", "DROP TABLE t", "DELETE FROM t", "UPDATE t SET a=1", "INSERT INTO t VALUES (1)"),
    *(
        ";",
        "'",
        "''",
        '"',
        "--",
        "-- ",
        "--x",
        "/*",
        "/*!",
        "*/",
        "#",
        "\n",
        "\r",
        "(",
        ")",
        "[",
        "]",
        "]]",
        "[a",
        "a]",
        "`",
    ),
    *("\\", "\\'", "$$", "$a$", "E'", "q'", "'a'", ",", "*", "=", "?", ":a", "@b", " ", "UNION", "AS", "x", "INTO"),
    *("WITH x AS (", "VALUES (1)", "random()"),
]
#: What SQLite may be asked for by a statement that reads, and the COMMIT in front of a script.
READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
}


@settings(max_examples=300)
@given(
    st.sampled_from(["SELECT 1", "SELECT a FROM t", "SELECT '", "SELECT [", "SELECT 1 /*", 'SELECT "', "VALUES (1)"]),
    st.lists(st.sampled_from(PIECES), max_size=8),
    st.sampled_from(["", " "]),
)
def test_harmless_statements_only_read_in_sqlite(start: str, pieces: list[str], gap: str) -> None:
    """What is found harmless makes SQLite do nothing but read, in whatever way it splits the text."""
    sql = start + gap + gap.join(pieces)
    asked: set[int] = set()

    def authorize(action: int, *_: object) -> int:
        asked.add(action)
        return sqlite3.SQLITE_OK

    if judge(sql).doubt is None:
        database = sqlite3.connect(":memory:")
        try:
            database.execute("CREATE TABLE t (a)")
            database.set_authorizer(authorize)
            database.executescript(sql)
        except (sqlite3.Error, sqlite3.Warning, ValueError):
            pass
        finally:
            database.close()
    assert asked <= READING


@given(st.text(max_size=300))
def test_any_text_is_judged_without_error(sql: str) -> None:
    """No text raises."""
    judge(sql)
    judge(f"SELECT {sql}")
    judge(f"EXPLAIN ({sql}")


HOSTILE = (
    "(",
    "1,",
    "f(x)",
    "a(b,c,",
    "WITH a(b), ",
    "x AS ((",
    "lower(",
    "SELECT 1 UNION ",
    "a AS (SELECT 1 UNION SELECT 1 FROM a), ",
    "a#b--c\n",
    "$$x$$ # ",
    "a.",
    "EXPLAIN ",
    "SHOW ",
)


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("start", ["SELECT ", "WITH ", "EXPLAIN (", "SHOW TABLES "])
def test_hostile_text_takes_linear_time(start: str, piece: str) -> None:
    """100 kB of anything are judged in less than 100 ms."""
    sql = start + piece * (100_000 // len(piece))
    took = []
    for _ in range(3):
        started = time.thread_time()
        judge(sql)
        took.append(time.thread_time() - started)
    assert min(took) < 0.1


@pytest.mark.parametrize(
    "sql", ["SHOW TABLE", "SHOW CREATE", "SHOW TABLE;", "(SELECT)", "((SELECT))", "VALUES", "(VALUES)", "TABLE"]
)
def test_truncated_statement_is_doubted(sql: str) -> None:
    """Whatever should have followed."""
    assert judge(sql).doubt is not None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ('PG_VERSION'::text).pg_read_file",
        "SELECT x.pg_sleep FROM unnest(ARRAY[5.0::float8]) x",
        'SELECT x.U&"\\0070g_sleep" FROM unnest(ARRAY[5.0::float8]) x',
        "SELECT $1.pg_sleep",
        "SELECT (5).delete_user",
    ],
)
def test_attribute_that_may_be_a_call_is_doubted(sql: str) -> None:
    """PostgreSQL takes `x.f` for `f(x)`; the fields of well-known records are still read."""
    doubt = judge(sql).doubt
    assert doubt is not None and doubt[0] in ("function", "unclear_text")
    assert judge("SELECT (jsonb_each(data)).key, t.id FROM pg_catalog.pg_class t").doubt is None


DIALECTS: tuple[Dialect, ...] = ("any", "sqlite", "postgresql")


@pytest.mark.parametrize(
    ("sql", "asks"),
    [
        ("/* /* */ -- ' */ SELECT '\nDROP TABLE users /*'", ("any", "sqlite")),
        ("WITH x AS (SELECT '\\') DELETE FROM users /*') SELECT 1", DIALECTS),
        ("SELECT 1 /* open", DIALECTS),
        ("SELECT '\\', pg_sleep(5) --'", DIALECTS),
        ("SELECT E'a'\n'\\' || pg_sleep(5)::text --'", DIALECTS),
        ('SELECT E"\\", pg_sleep(5) --"', DIALECTS),
        ("SELECT pg_terminate_backend(nolock)", DIALECTS),
        ("SELECT * FROM nextval(nolock)", DIALECTS),
        ("SELECT load_extension(nolock)", DIALECTS),
        ("SELECT #upper('), load_extension('x", DIALECTS),
        ("SELECT @a('), load_extension('x", DIALECTS),
        ("SELECT * FROM pragma_optimize", DIALECTS),
        ("SELECT * FROM a, pragma_wal_checkpoint", DIALECTS),
        ("SELECT name FROM fsdir WHERE path = '/etc'", DIALECTS),
        ("SELECT * FROM zipfile('a.zip')", DIALECTS),
        ("SELECT a[b].pg_sleep FROM t", DIALECTS),
        ("SELECT zeroblob(1000000000)", DIALECTS),
        ("SELECT randomblob(a) FROM t", DIALECTS),
    ],
)
def test_statement_with_ambiguous_reading_is_doubted_per_dialect(sql: str, asks: tuple[Dialect, ...]) -> None:
    """A reading that is broken, open, or that its own engine would not share is never harmless."""
    assert [dialect for dialect in DIALECTS if judge(sql, dialect=dialect).doubt] == list(asks)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT random(), hex(randomblob(4))",
        "SELECT string_to_table('a,b', ',')",
        "SELECT pg_stat_get_live_tuples(c.oid) FROM pg_class c",
        "SELECT quantile_disc(x, 0.5) FROM t",
        "SELECT * FROM t WHERE id = ANY(ARRAY[1, 2])",
        "SELECT e.data #>> '{a,b}' FROM events e WHERE data ? 'k'",
    ],
)
def test_reading_is_harmless_in_each_dialect(sql: str) -> None:
    """Where one database knows the words and another does not, that one refuses them by itself."""
    assert [judge(sql, dialect=dialect).doubt for dialect in DIALECTS] == [None, None, None]


PUMPED = (
    "a AS (SELECT 1) , ",
    "AS ",
    "x(a) AS (",
    ") ",
    "(a) ",
    "EXPLAIN (a) ",
    "a.b.c.d ",
    "with a(b, ",
    "'\\' ",
    "/* ",
)


def _lines_run(sql: str) -> int:
    """The work of one verdict: lines of our code, which no other load on the machine changes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        judge(sql)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("piece", PUMPED)
@pytest.mark.parametrize("start", ["SELECT ", "WITH x AS (SELECT 1 UNION SELECT 1 FROM x), ", "EXPLAIN "])
def test_judging_twice_the_text_takes_at_most_twice_the_work(start: str, piece: str) -> None:
    """Below the limits, too, behind which nothing is read any more."""
    small, large = (start + piece * (count // len(piece.split())) for count in (200, 400))
    assert _lines_run(large) < 2.5 * _lines_run(small) + 500


@pytest.mark.parametrize("before", [r'"\"', r'"a\"b"', r'"\\"', r'N"\"', r'"\" "\"', r"""'' "\""""])
@pytest.mark.parametrize("string", [r"'\''", r"'a\'b'", r"N'\''", r"'\'' '\''"])
def test_backslash_in_a_quoted_name_does_not_hide_a_call(before: str, string: str) -> None:
    """Strings may escape a quote where names do not: PostgreSQL with `standard_conforming_strings` off."""
    assert judge(f"SELECT {before}, {string}, pg_sleep(1) --'").doubt is not None
    assert judge(f'SELECT {before}, {string}, pg_sleep(1) --"').doubt is not None


@pytest.mark.parametrize("call", ["upper(name)", "a * b", "a || b", "a::text", "a < b"])
def test_too_many_function_calls_need_approval(call: str) -> None:
    """PostgreSQL ends nothing between them, whatever its timeout is."""

    def calling(n: int) -> str:
        return f"SELECT {', '.join([call] * n)} FROM t WHERE id IN (1, 2) AND (a = b)"

    assert judge(calling(300), dialect="postgresql").doubt is None
    doubt = judge(calling(301), dialect="postgresql").doubt
    assert doubt is not None and doubt[0] == "product" and "more than 300 places" in doubt[1]
    assert judge(calling(301), dialect="sqlite").doubt is None


@pytest.mark.parametrize("join", ["JOIN t{i} ON true", "CROSS JOIN t{i}", "NATURAL LEFT JOIN t{i}"])
def test_too_many_joins_need_approval(join: str) -> None:
    """PostgreSQL does not look at the clock while it plans, and its time grows with their cube."""

    def joined(n: int) -> str:
        return " ".join(("SELECT 1 FROM t", *(join.format(i=i) for i in range(n))))

    assert judge(joined(100), dialect="postgresql").doubt is None
    doubt = judge(joined(101), dialect="postgresql").doubt
    assert doubt is not None and doubt[0] == "product" and "joins more than 100 tables" in doubt[1]
