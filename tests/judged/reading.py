"""Statements that read and run to their end: queries of the yards' tables, with calls of all kinds of functions.

PostgreSQL's calls are those of the list of its own functions, each with values of its types.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from gateway.plugins.tools.execute_sql.postgres_functions import LIST
from gateway.plugins.tools.execute_sql.sqlite_rules import FUNCTIONS

from .statements import Kind

_SHAPES: Final = (
    *("SELECT {call}", "SELECT {call}, a FROM t", "SELECT a FROM t WHERE {call} IS NOT NULL", "VALUES (({call}))"),
    *("SELECT x.* FROM (SELECT {call} AS y, b FROM t) AS x", "WITH q AS (SELECT {call} AS y) SELECT y FROM q"),
    *("SELECT a, {call} FROM t ORDER BY 1 LIMIT 2", "SELECT count(*) FROM t WHERE a = 1 AND {call} IS NULL"),
    *("SELECT b, max(a) FROM t GROUP BY b HAVING {call} IS NOT NULL", "(SELECT {call}) UNION ALL (SELECT {call})"),
    *("SELECT CASE WHEN a > 1 THEN {call} END FROM t", "SELECT v.b, {call} FROM v JOIN u ON u.a = v.a"),
)
_TAILS: Final = ("", "", ";", " -- end", "\n", " /* c */")
_SAMPLES: Final = {
    **dict.fromkeys(("smallint", "integer", "bigint"), ("1", "2", "0", "NULL")),
    "oid": ("1", "16384", "NULL"),
    **dict.fromkeys(("numeric", "real", "double precision", "money"), ("1.5", "2", "0")),
    **dict.fromkeys(("text", "character varying", "character", "name"), ("'x'", "'abc'", "''", "'t'", "'1'", "b")),
    **dict.fromkeys(("json", "jsonb"), ("'{\"a\": 1}'", "'[1, 2]'", "'null'")),
    **dict.fromkeys(
        ("date", "timestamp without time zone", "timestamp with time zone"), ("'2026-01-02'", "now()::date")
    ),
    **dict.fromkeys(('"any"', "anyelement", "anycompatible", "anynonarray"), ("a", "b", "1", "'x'::text", "t")),
    **dict.fromkeys(("anyarray", "anycompatiblearray", "integer[]"), ("ARRAY[1, 2]", "'{}'::int[]")),
    "text[]": ("ARRAY['a', 'b']",),
    **dict.fromkeys(("anyrange", "anycompatiblerange"), ("int4range(1, 5)", "'empty'::int4range")),
    **dict.fromkeys(("anymultirange", "anycompatiblemultirange"), ("int4multirange(int4range(1, 5))",)),
    "boolean": ("true", "false", "a = 1"),
    "regclass": ("'t'", "'u'", "'v'"),
    "bytea": ("'\\x01'", "''"),
    "interval": ("'1 day'",),
    "xid": ("'1'",),
    "record": ("ROW(1, 'x'::text)", "t"),
    "tsvector": ("'a b'",),
    "tsquery": ("'a'",),
}
_FOR_SQLITE: Final = ("1", "2", "'x'", "'abc'", "NULL", "a", "b", "'[1, 2]'", "x'00'", "1.5", "'2026-01-02'")


@dataclass(frozen=True, slots=True)
class Readings:
    """An endless source."""

    kind: Kind
    seed: int

    def __iter__(self) -> Iterator[str]:
        random = Random(self.seed)
        make = _call_of_postgres if self.kind == "postgresql" else _call_of_sqlite
        while True:
            sql = random.choice(_SHAPES).format(call=make(random))
            yield sql + random.choice(_TAILS)


def _call_of_postgres(random: Random) -> str:
    name, types = random.choice(_signatures())
    values = (random.choice(_SAMPLES.get(kind) or (f"NULL::{kind}",)) for kind in types)
    return f"{name}({', '.join(values)})"


def _call_of_sqlite(random: Random) -> str:
    name = random.choice(sorted(function for function in FUNCTIONS if function.isidentifier()))
    if name in ("randomblob", "zeroblob"):
        return f"{name}(10)"
    return f"{name}({', '.join(random.choice(_FOR_SQLITE) for _ in range(random.choice((0, 1, 1, 2, 3))))})"


@cache
def _signatures() -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = (line.split("\t")[1].removesuffix(")").partition("(") for line in LIST.read_text().splitlines())
    return tuple((name, tuple(types.split(", ")) if types else ()) for name, _, types in found)
