"""What the words of a statement can mean to PostgreSQL: functions, operators, casts, views, by the server's catalogue.

1. Any word of the text counts, also one in a comment or a quote: nothing here relies on how we would split the text.
2. Harmless are functions that came with the server or an extension, in C, and are not volatile, or on our list.
"""

import re
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, Protocol

from gateway.sql.engine import Doubt
from gateway.wire.sql_words import FUNCTIONS
from gateway.wire.wordlist import words

#: A word to PostgreSQL, and what it cuts a longer one to.
_WORD: Final = re.compile(r"[A-Za-z0-9_$\u0080-\U0010ffff]+")
_NAME_BYTES: Final = 63
#: Words with a parenthesis behind them, or a dot before: only so can a statement call a function that a user made.
_CALLED: Final = re.compile(
    r"(?<![A-Za-z0-9_$\u0080-\U0010ffff])([A-Za-z0-9_$\u0080-\U0010ffff]++)\"?\s*+\("
    r"|\.\s*+\"?([A-Za-z0-9_$\u0080-\U0010ffff]++)"
)
_COMMENT: Final = re.compile(r"--|/\*")
_ESCAPED_NAME: Final = re.compile(r"u&[\"']", re.IGNORECASE)
_CASTS: Final = re.compile(r"::|\bcast\b|'", re.IGNORECASE)
#: Functions, aggregates and operators in an expression that the server has stored.
_FUNCTION_IDS: Final = r":(?:funcid|opfuncid|aggfnoid|winfnoid|hashfuncid) (\d+)"
_OPERATOR_IDS: Final = r":opno (\d+)"
_RELATION_IDS: Final = r":relid (\d+)"
_FIRST_OF_USERS: Final = 16384  # numbers below are those of the server's own objects

#: Not volatile, and yet they take a number for good, or run what their argument names.
_ACTING: Final = words("""
    txid_current pg_current_xact_id table_to_xml table_to_xmlschema table_to_xml_and_xmlschema schema_to_xml
    schema_to_xmlschema schema_to_xml_and_xmlschema database_to_xml database_to_xmlschema
    database_to_xml_and_xmlschema
""")
#: Operators that a statement uses without writing them: IN, BETWEEN, LIKE, USING, DISTINCT, ORDER BY.
_IMPLIED: Final = ("=", "<>", "<", "<=", ">", ">=", "~~", "!~~", "~~*", "!~~*", "~")
_MAX_DEPTH: Final = 32  # views of views

#: Of `p`, a row of pg_proc. $1: volatile ones that may be called; $2: others that may not.
_HARMLESS: Final = """(p.oid < 16384 AND p.proowner = 10
      AND (p.provolatile <> 'v' OR p.proname = ANY($1) OR p.proname LIKE 'pg\\_stat\\_get\\_%') AND p.proname <> ALL($2)
    OR p.prolang IN (12, 13) AND (p.provolatile <> 'v' OR p.proname = ANY($1)) AND EXISTS (SELECT FROM pg_depend d
      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))"""
_ODD: Final = "~ '[^[:alnum:]_$]'"  # of a name: no word by itself

#: $3 all words; $4 those that are called; $5 the text; $6 operators that are implied.
_WORDS_MEAN: Final = f"""
SELECT 'function', p.proname, 0::oid FROM pg_proc p
    WHERE p.proname = ANY($3::name[]) AND (p.oid < 16384 OR p.proname = ANY($4::name[])) AND NOT {_HARMLESS}
UNION ALL SELECT 'function', p.proname, 0 FROM pg_proc p
    WHERE p.oid >= 16384 AND p.proname {_ODD} AND position(p.proname::text IN $5) > 0 AND NOT {_HARMLESS}
UNION ALL SELECT 'operator', o.oprname, 0 FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode
    WHERE o.oid >= 16384 AND (o.oprname = ANY($6::name[]) OR position(o.oprname::text IN $5) > 0) AND NOT {_HARMLESS}
UNION ALL SELECT 'cast', t.typname, 0 FROM pg_cast c JOIN pg_proc p ON p.oid = c.castfunc
    JOIN pg_type t ON t.oid = c.casttarget
    WHERE c.oid >= 16384 AND NOT {_HARMLESS}
        AND (c.castcontext = 'i' OR t.typname = ANY($3::name[]) OR t.typname {_ODD})
UNION ALL SELECT 'domain', t.typname, t.oid FROM pg_constraint k JOIN pg_type t ON t.oid = k.contypid
    WHERE k.oid >= 16384 AND k.contypid <> 0 AND EXISTS (
        SELECT FROM regexp_matches(k.conbin::text, '{_FUNCTION_IDS}', 'g') m JOIN pg_proc p ON p.oid = m[1]::oid
        WHERE NOT {_HARMLESS})
UNION ALL SELECT CASE c.relkind WHEN 'f' THEN 'foreign' ELSE 'relation' END, c.relname, c.oid FROM pg_class c
    WHERE c.oid >= 16384 AND (c.relname = ANY($3::name[]) OR (c.relname {_ODD} AND position(c.relname::text IN $5) > 0))
        AND (c.relkind IN ('v', 'f') OR c.relrowsecurity)
"""  # noqa: S608 - pieces of our own
#: What stands behind relations $1: the expressions of their views and of their row security.
_BEHIND: Final = """
SELECT r.ev_action::text FROM pg_rewrite r WHERE r.ev_class = ANY($1::oid[]) AND r.ev_type = '1'
UNION ALL SELECT polqual::text FROM pg_policy WHERE polrelid = ANY($1::oid[]) AND polqual IS NOT NULL
UNION ALL SELECT polwithcheck::text FROM pg_policy WHERE polrelid = ANY($1::oid[]) AND polwithcheck IS NOT NULL
"""
_BY_NUMBER: Final = f"""
SELECT p.proname FROM (
        SELECT unnest($3::oid[]) AS oid UNION SELECT oprcode FROM pg_operator WHERE oid = ANY($4::oid[])) called
    CROSS JOIN LATERAL (SELECT * FROM pg_proc WHERE pg_proc.oid = called.oid OFFSET 0) p WHERE NOT {_HARMLESS}
"""  # noqa: S608 - as above
_FOREIGN: Final = "SELECT relname FROM pg_class WHERE oid = ANY($1::oid[]) AND relkind = 'f'"
#: The names of domains $1, and of the rows that hold such.
_HOLDING: Final = """
SELECT typname, true FROM pg_type WHERE oid = ANY($1::oid[]) OR typelem = ANY($1::oid[])
UNION SELECT c.relname, false
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.atttypid = ANY($1::oid[]) OR t.typelem = ANY($1::oid[])
"""


class Fetch(Protocol):
    """Runs one query of ours."""

    def __call__(self, sql: str, *params: object) -> Awaitable[Sequence[Sequence[Any]]]: ...


class Catalogue:
    """The catalogue of one database, as one connection sees it."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def doubt(self, sql: str) -> Doubt | None:
        """Returns what the words of `sql` may reach that is not known to be harmless."""
        if _ESCAPED_NAME.search(sql):
            return Doubt("engine", "Names in it may be written with escapes.")
        every = _spellings(_WORD.findall(sql))
        called = every
        if not _COMMENT.search(sql):
            called = _spellings(name for pair in _CALLED.findall(sql) for name in pair)
        # Long lists would cost the server more to plan than to look up.
        known, acting = sorted(FUNCTIONS.intersection(every)), sorted(_ACTING.intersection(every))
        found = await self._fetch(_WORDS_MEAN, known, acting, every, called, sql, _IMPLIED)
        domains, relations = [], []
        for kind, name, number in found:
            match kind:
                case "domain":
                    domains.append(number)
                case "relation":
                    relations.append(number)
                case _:
                    return Doubt("engine", _REASONS[kind].format(name))
        return await self._of_domains(domains, every, sql) or await self._behind(relations)

    async def _of_domains(self, domains: Sequence[int], every: Iterable[str], sql: str) -> Doubt | None:
        """A cast to a domain runs what its constraints call, also one inside of a row or a list; `name(1)` is one."""
        if not domains:
            return None
        found = await self._fetch(_HOLDING, domains)
        casts = _CASTS.search(sql) is not None
        used = sorted({name for name, itself in found if itself or casts}.intersection(every))
        return Doubt("engine", _REASONS["domain"].format(used[0])) if used else None

    async def _behind(self, relations: Sequence[int]) -> Doubt | None:
        """Follows views and row security down to tables."""
        seen: set[int] = set()
        for _ in range(_MAX_DEPTH):
            seen.update(relations)
            if not relations:
                return None
            expressions = " ".join(text for (text,) in await self._fetch(_BEHIND, relations))
            if not expressions:
                return None
            functions, operators = _numbers(_FUNCTION_IDS, expressions), _numbers(_OPERATOR_IDS, expressions)
            for (name,) in await self._fetch(_BY_NUMBER, *_LISTS, functions, operators):
                return Doubt("engine", f"A view or a row security policy in it calls {name!r}.")
            relations = [n for n in _numbers(_RELATION_IDS, expressions) if n >= _FIRST_OF_USERS and n not in seen]
            for (name,) in await self._fetch(_FOREIGN, relations) if relations else ():
                return Doubt("engine", _REASONS["foreign"].format(name))
        return Doubt("engine", "Its views are nested too deep to follow.")


#: The server sets `search_path`, so a word may be any function of that name, in any schema.
_REASONS: Final = {
    "function": "{!r} is a function that may do more than read.",
    "operator": "The operator {!r} is a function of a user's, which may do more than read.",
    "cast": "A cast to {!r} is a function of a user's, which may do more than read.",
    "domain": "A cast to {!r} checks a constraint that may do more than read.",
    "foreign": "{!r} is a table on another server.",
}
_LISTS: Final = (sorted(FUNCTIONS), sorted(_ACTING))


def _spellings(found: Iterable[str]) -> list[str]:
    """The words as the server may read them: in lower case, cut, and behind a number."""
    names = set[str]()
    for word in found:
        for name in (word, word.lower(), word.lstrip("0123456789")):
            names.add(name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore"))
    return sorted(names)


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in set(re.findall(pattern, text))]
