"""Statements by the million: harmless ones, acting ones, and acting ones in the disguises that a grammar can make.

Each is made of a query, a payload and what could hide it: comments, quotes, escapes, names and spaces in all the ways
that some database reads and another does not. The same seed makes the same statements.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

Kind = Literal["sqlite", "postgresql"]

#: Tables and views of the yards, and what is no table.
_TABLES: Final = (
    "t",
    "u",
    "main.t",
    "v",
    '"t"',
    "[t]",
    "`t`",
    "t AS x",
    "(SELECT a, b FROM t) AS x",
    "t JOIN u ON t.a = u.a",
)
#: Beside those of `hostile`: values that a user's cast, operator or order could reach.
_HOSTILE: Final = (
    *("row_to_json(moody) FROM moody", "json_agg(m) FROM moody", "m || 'x' FROM moody", "quote_literal(m) FROM moody"),
    *("c LIKE 'x' FROM tinted", "c NOT SIMILAR TO 'x' FROM tinted", "c BETWEEN SYMMETRIC 'red' AND 'blue' FROM tinted"),
    *("* FROM ladder WHERE r = 'one'", "* FROM inline_index WHERE a > 5", "* FROM measured WHERE a + 1 = 5"),
    *("effect_sum(a) FROM t", '(a)."do it" FROM t', "DISTINCT p FROM pairs", "p FROM pairs ORDER BY p USING <<<<"),
    *("c FROM folded WHERE c = 'x'", "h FROM stored", "* FROM over_folded", "a % 2 FROM t", "b LIKE '%x%' FROM t"),
    *("json_agg(t) FROM t", "row_to_json(x) FROM (SELECT a, b FROM t) AS x", "concat(b, a), quote_literal(b) FROM t"),
    *("count(*) FROM pg_stat_activity", "relname FROM pg_class LIMIT 3", "to_jsonb(u) FROM u", "a::text || b FROM t"),
    *("'[one,two]'::rung_range", "domain_in('5', (SELECT oid FROM pg_type WHERE typname = 'chec' || 'ked'), -1)"),
)
_COLUMNS: Final = (
    "a",
    "b",
    "t.a",
    "*",
    "count(*)",
    "upper(b)",
    "a + 1",
    "'x'",
    "NULL",
    "x'00'",
    "1.5",
    "max(a)",
    "b || 'y'",
)
_CONDITIONS: Final = (
    "a = 1",
    "b LIKE 'x%'",
    "a IN (1, 2)",
    "a BETWEEN 1 AND 2",
    "b IS NOT NULL",
    "NOT a > 1",
    "b = 'it''s'",
)
_TAILS: Final = (
    "",
    "",
    "",
    ";",
    " ORDER BY 1",
    " LIMIT 5",
    " GROUP BY 1",
    " -- end",
    " /* end */",
    "\n",
    " LIMIT 1 OFFSET 1",
)
#: What acts, by itself or inside a query.
_ACTS: Final = (
    "DROP TABLE t",
    "DELETE FROM t",
    "INSERT INTO t VALUES (9, 'z')",
    "UPDATE t SET b = 'z'",
    "CREATE TABLE w (a int)",
)
_DIALECT_ACTS: Final = {
    "sqlite": (
        *("PRAGMA user_version = 7", "ATTACH 'other.db' AS o", "VACUUM", "REPLACE INTO t VALUES (1, 'z')", "REINDEX"),
        *("CREATE TEMP TABLE w (a)", "PRAGMA journal_mode = MEMORY", "DROP VIEW v", "ANALYZE", "VACUUM INTO 'copy.db'"),
    ),
    "postgresql": (
        *(
            "TRUNCATE t",
            "SELECT 1 INTO w",
            "LOCK TABLE t",
            "SET search_path = x",
            "COPY t TO '/tmp/x'",
            "DO $$BEGIN END$$",
        ),
        *(
            "NOTIFY heard",
            "ALTER TABLE t ADD c int",
            "COMMENT ON TABLE t IS 'x'",
            "SET standard_conforming_strings = off",
        ),
    ),
}
_CALLS: Final = {
    "sqlite": (
        *(
            "effect(1)",
            '"effect"(1)',
            "effect (1)",
            "effect/**/(1)",
            "load_extension('x')",
            "sqlite_log(1, 'x')",
            "[effect](1)",
        ),
        *(
            "effect(nolock)",
            "fts3_tokenizer('x')",
            "EFFECT(a)",
            "`effect`(1)",
            "effect(+)",
            "count(effect(1))",
            "main.effect(1)",
        ),
    ),
    "postgresql": (
        *("effect(1)", '"effect"(1)', "effect (1)", "effect/**/(1)", "nextval('s')", "setval('s', 99)", "pg_sleep(3)"),
        *(
            "effect(nolock)",
            "public.effect(1)",
            "pg_advisory_lock(7)",
            "lo_create(0)",
            "x.effect_of",
            "(x).effect_of",
            "t.effect_of",
        ),
        *(
            "set_config('work_mem', '1MB', false)",
            "EFFECT(a)",
            'U&"\\0065ffect"(1)',
            "effect(+)",
            "pg_notify('heard', 'x')",
            "1 ==> 2",
        ),
        *(
            "'5'::checked",
            "CAST('5' AS checked)",
            "'(5)'::checked_row",
            "query_to_xml('SELECT effect(1)', true, true, '')",
        ),
        *("'5'::over_checked", "'{5}'::checked_list", "'(\"(5)\")'::row_of_row", "'[1,2]'::checked_range"),
        *("'5'::\"odd checked\"", "CAST(u AS integer)", "u::character varying", "(u)::int", "'{5}'::checked[]"),
    ),
}
_SOURCES: Final = {
    "sqlite": (
        "pragma_optimize",
        "pragma_user_version",
        "bad",
        "fsdir('.')",
        "pragma_journal_mode('off')",
        "fts3tokenize",
    ),
    "postgresql": (
        "bad",
        "worse",
        '"odd one"',
        "guarded",
        "effect(1)",
        "ROWS FROM (effect(1))",
        "nextval('s')",
        "LATERAL effect(1)",
        *("casting", "over_casting", '"quo""ted"', "planned WHERE a > 5"),
        *("(SELECT p FROM pairs ORDER BY p) AS y", "holder WHERE list = '{5}'", "holder WHERE list = $${5}$$"),
        *("holder, LATERAL jsonb_populate_record(holder, to_jsonb(holder))", "(SELECT 1 AS a FROM u) AS u"),
    ),
}
_WITHS: Final = (
    "WITH y AS ({act} RETURNING a) SELECT * FROM y",
    "WITH y AS (SELECT 1) {act}",
    "WITH y AS (SELECT {call}) {query}",
)
#: In front of an act, and behind it: what one reader takes for a comment or a text, and another does not.
_CLOAKS: Final = (
    *(("'", "'"), ('"', '"'), ("`", "`"), ("[", "]"), ("/*", "*/"), ("/* /* */", "*/"), ("/* /* */ -- ' */", "'")),
    *(
        (r"'\'", "'"),
        (r"'\'' ", "--'"),
        (r"E'\'", "'"),
        ("E'a'\n'\\'", "--'"),
        ("E'a' -- c\n '\\", "'--"),
        (r'E"\"', '--"'),
    ),
    *(
        ("$$", "$$"),
        ("$a$", "$a$"),
        ("$1$a$", "$a$"),
        ("#", "\n"),
        ("-- ", "\n"),
        ("--", "\r"),
        ("--x", "\n"),
        ("#x(", ")"),
    ),
    *(
        ("@a(')", "--'"),
        ("$a::b(')", "--'"),
        (":e'\\'", "--'"),
        ("#upper('),", "--'"),
        ("U&'\\0027'", "--'"),
        ("/*!", "*/"),
    ),
    *(
        ("SELECT '\n", "'"),
        (") ", " ("),
        ("; ", ""),
        (";", ";"),
        ("; -- ", "\n"),
        ("/*", ""),
        ("-- '\n", "--'"),
        (", (", ")"),
    ),
    *(
        ("B'1'\n'", "'"),
        ("N'\\'", "--'"),
        ("x'00' '", "'"),
        ("q'[", "]'"),
        ("''''", ""),
        ("'\\\\'", "--'"),
        ("/*'*/", "/*'*/"),
    ),
)
#: Put anywhere.
_SPLINTERS: Final = (
    *(
        "'",
        '"',
        "`",
        "[",
        "]",
        "(",
        ")",
        ";",
        "--",
        "-- ",
        "/*",
        "*/",
        "/**/",
        "#",
        "\\",
        "\\'",
        "$$",
        "$a$",
        "E'",
        "e",
        "U&",
        "::",
    ),
    *(
        "\n",
        "\r",
        "\t",
        "\f",
        "\v",
        "\u00a0",
        "\u2028",
        "\ufeff",
        "\u200b",
        "\uff07",
        "\u02bc",
        ",",
        ".",
        "*",
        "=",
        "?",
        ":a",
        "@b",
    ),
    *(
        "$1",
        "AS",
        "x",
        "1",
        "nolock",
        " UNION SELECT ",
        " FROM ",
        " INTO w",
        " RETURNING a",
        " FOR UPDATE",
        " ON CONFLICT",
        "é",
    ),
)
_SPACES: Final = (" ", " ", " ", "\n", "\t", "  ", " /**/ ", " /* c */ ", " -- c\n", "/**/", "\r\n", "\f")


@dataclass(frozen=True, slots=True)
class Statements:
    """An endless source."""

    kind: Kind
    seed: int

    def __iter__(self) -> Iterator[str]:
        random = Random(self.seed)
        while True:
            yield self._one(random)

    def _one(self, random: Random) -> str:
        sql = self._whole(random)
        if random.random() < 0.3:
            sql = _respaced(sql, random)
        for _ in range(random.choice((0, 0, 0, 1, 1, 2, 4))):
            sql = _spliced(sql, random)
        return random.choice((str, str, str, str.upper, str.lower, str.swapcase))(sql)

    def _whole(self, random: Random) -> str:
        query, act = self._query(random), random.choice((*_ACTS, *_DIALECT_ACTS[self.kind]))
        shape = random.random()
        if shape < 0.25:
            return query
        if shape < 0.35:
            return (
                f"{random.choice(('EXPLAIN ', 'EXPLAIN ANALYZE ', 'EXPLAIN (ANALYZE) ', 'EXPLAIN QUERY PLAN '))}{query}"
            )
        if shape < 0.40:
            if random.random() < 0.1:
                act = "INSERT INTO written (b) VALUES (1)"  # planned with its default
            return f"{random.choice(('', 'EXPLAIN ', 'EXPLAIN ANALYZE ', 'EXPLAIN (ANALYZE off) '))}{act}"
        if shape < 0.50:
            return random.choice(_WITHS).format(act=act, call=random.choice(_CALLS[self.kind]), query=query)
        before, behind = random.choice(_CLOAKS)
        hidden = act if random.random() < 0.5 else f", {random.choice(_CALLS[self.kind])} "
        place = random.choice(
            ("{q} {b}{h}{e}", "{b}{h}{e} {q}", "SELECT {b}{h}{e} {q}", "SELECT 1 {b}{h}{e}", "{q} {b} {q} {h}{e}")
        )
        return place.format(q=query, b=before, h=hidden, e=behind)

    def _query(self, random: Random) -> str:
        if self.kind == "postgresql" and random.random() < 0.15:
            return f"SELECT {random.choice(_HOSTILE)}"
        columns = [random.choice(_COLUMNS) for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.15:
            columns.append(random.choice(_CALLS[self.kind]))
        sql = "SELECT " + ", ".join(columns)
        source = random.choice(_SOURCES[self.kind] if random.random() < 0.15 else _TABLES)
        if random.random() < 0.9:
            sql += f" FROM {source}"
            if random.random() < 0.5:
                sql += f" WHERE {random.choice(_CONDITIONS)}"
        if random.random() < 0.1:
            sql += f" UNION ALL {self._query(random)}"
        return sql + random.choice(_TAILS)


def _respaced(sql: str, random: Random) -> str:
    return "".join(random.choice(_SPACES) if char == " " and random.random() < 0.5 else char for char in sql)


def _spliced(sql: str, random: Random) -> str:
    """With something put in, taken out or repeated."""
    at = random.randrange(len(sql) + 1)
    match random.randrange(4):
        case 0:
            return sql[:at] + sql[at + random.choice((1, 1, 3)) :]
        case 1:
            return sql[:at] + sql[max(0, at - 5) :]
    return sql[:at] + random.choice(_SPLINTERS) + sql[at:]
