"""The possible meanings of a statement's words to PostgreSQL: functions, operators, casts, views, by its catalogue.

1. Any word of the text counts, also one in a comment or a quote: nothing here relies on how we would split the text.
2. A harmless function came with the server, or in C with an extension or a type. It is not volatile, or it is on our
   list.
"""

import re
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, Protocol

from gateway.plugin.sql.words import FUNCTIONS
from gateway.plugin.words import words

from .engine import Doubt
from .postgres_trees import Named, constant_calls, named

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
#: SQL has names of its own for types (`integer`, `character varying`), and a cast to a domain is one to what it is of.
_CASTS: Final = re.compile(r"::|\bcast\b", re.IGNORECASE)
#: What turns a value into the type of a column that the text does not name: casts, texts, parameters, records.
_CONVERTS: Final = re.compile(r"::|\bcast\b|['$]|record|#=", re.IGNORECASE)
_FIRST_OF_USERS: Final = 16384  # numbers below are those of the server's own objects
_KEPT: Final = 1000  # answers about relations

#: Not volatile, and yet they take a number for good, or run what their argument names.
_ACTING: Final = words("""
    txid_current pg_current_xact_id table_to_xml table_to_xmlschema table_to_xml_and_xmlschema schema_to_xml
    schema_to_xmlschema schema_to_xml_and_xmlschema database_to_xml database_to_xmlschema
    database_to_xml_and_xmlschema
""")
#: Operators that a statement uses without writing them: IN, BETWEEN, LIKE, USING, DISTINCT, ORDER BY.
_IMPLIED: Final = ("=", "<>", "<", "<=", ">", ">=", "~~", "!~~", "~~*", "!~~*", "~")


def _harmless(listed: str, acting: str = "$2") -> str:
    """Return the condition that `p`, a row of pg_proc, only reads. `listed`: whether a volatile one may be called.

    `acting`: names of those that act though they are not volatile.
    """
    return f"""(p.oid < 16384 AND p.proowner = 10
      AND (p.provolatile <> 'v' OR {listed} OR p.proname LIKE 'pg\\_stat\\_get\\_%') AND p.proname <> ALL({acting})
    OR p.prolang IN (12, 13) AND (p.provolatile <> 'v' OR {listed}) AND EXISTS (SELECT FROM pg_depend d
      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype IN ('e', 'i')))"""


_HARMLESS: Final = _harmless("p.proname = ANY($1)")
_ODD: Final = "~ '[^[:alnum:]_$]'"  # of a name: no word by itself


def _written(name: str) -> str:
    """Return the condition that the text $5 may contain this odd name. In quotes a quote is doubled."""
    return f"({name} {_ODD} AND position(replace({name}, '\"', '\"\"') IN $5) > 0)"


#: Expressions of a table that the planner simplifies: of each query; and, where $7, of the writing that is explained.
_PLANNED: Final = """
    SELECT indpred::text AS tree, indrelid AS owner FROM pg_index WHERE indpred IS NOT NULL
    UNION ALL SELECT indexprs::text, indrelid FROM pg_index WHERE indexprs IS NOT NULL
    UNION ALL SELECT conbin::text, conrelid FROM pg_constraint WHERE conbin IS NOT NULL AND conrelid <> 0
    UNION ALL SELECT stxexprs::text, stxrelid FROM pg_statistic_ext WHERE stxexprs IS NOT NULL
    UNION ALL SELECT partexprs::text, partrelid FROM pg_partitioned_table WHERE partexprs IS NOT NULL
    UNION ALL SELECT adbin::text, adrelid FROM pg_attrdef WHERE $7
    UNION ALL SELECT ev_action::text, ev_class FROM pg_rewrite WHERE $7 AND ev_type <> '1'
"""
_OF_USERS: Final = "~ ':(funcid|opfuncid) [0-9]{5,}'"  # of a tree: it calls a function of theirs

#: Types that a user's function makes or compares (domains with a constraint, types with an order), and whatever holds
#: one of them: domains, lists, ranges, rows. An index says which objects depend on a type, in a large database too.
#: $1: functions that act. Returns kind, name, number, and whether it is the row of a table or view.
_TYPES_ACT: Final = f"""
WITH RECURSIVE acting(kind, number) AS (
    SELECT 'domain', k.contypid FROM pg_constraint k WHERE k.oid >= 16384 AND k.contypid <> 0 AND EXISTS (
        SELECT FROM regexp_matches(k.conbin::text, ':(?:funcid|opfuncid) (\\d+)', 'g') m
        JOIN pg_proc p ON p.oid = m[1]::oid WHERE NOT {_harmless("false", "$1")})
    UNION ALL SELECT 'ordered', o.opcintype FROM pg_opclass o WHERE o.opcfamily IN (
        SELECT a.amprocfamily FROM pg_amproc a JOIN pg_proc p ON p.oid = a.amproc
            WHERE a.oid >= 16384 AND p.prolang NOT IN (12, 13)
        UNION ALL SELECT a.amopfamily FROM pg_amop a JOIN pg_operator r ON r.oid = a.amopopr
            JOIN pg_proc p ON p.oid = r.oprcode WHERE a.oid >= 16384 AND p.prolang NOT IN (12, 13))),
holding(kind, number) AS (
    SELECT kind, number FROM acting UNION SELECT h.kind, w.number FROM holding h CROSS JOIN LATERAL (
        SELECT CASE d.classid WHEN 'pg_type'::regclass THEN d.objid
            ELSE (SELECT c.reltype FROM pg_class c WHERE c.oid = d.objid) END AS number
        FROM pg_depend d WHERE d.refclassid = 'pg_type'::regclass AND d.refobjid = h.number
            AND d.classid IN ('pg_type'::regclass, 'pg_class'::regclass) OFFSET 0) w)
SELECT h.kind, t.typname, t.oid, t.of_table FROM holding h CROSS JOIN LATERAL (SELECT oid, typname,
        COALESCE((SELECT c.relkind <> 'c' FROM pg_class c WHERE c.oid = typrelid), false) AS of_table
    FROM pg_type WHERE oid = h.number OFFSET 0) t
"""  # noqa: S608 - pieces of our own
#: $3 all words; $4 those that are called; $5 the text; $6 operators that are implied; $7 it explains; $8 it casts.
#: Returns kind, name, number. Every transaction that writes changes the snapshot.
_WORDS_MEAN: Final = f"""
SELECT 'function', p.proname, 0::oid FROM pg_proc p
    WHERE p.proname = ANY($3::name[]) AND (p.oid < 16384 OR p.proname = ANY($4::name[])) AND NOT {_HARMLESS}
UNION ALL SELECT 'function', p.proname, 0 FROM pg_proc p
    WHERE p.oid >= 16384 AND {_written("p.proname::text")} AND NOT {_HARMLESS}
UNION ALL SELECT 'operator', o.oprname, 0 FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode
    WHERE o.oid >= 16384 AND (o.oprname = ANY($6::name[]) OR position(o.oprname::text IN $5) > 0) AND NOT {_HARMLESS}
UNION ALL SELECT 'cast', t.typname, 0 FROM pg_cast c JOIN pg_proc p ON p.oid = c.castfunc
    JOIN pg_type t ON t.oid = c.casttarget
    WHERE c.oid >= 16384 AND NOT {_HARMLESS} AND (c.castcontext = 'i' OR $8 OR t.typname = ANY($3::name[]))
UNION ALL SELECT CASE c.relkind WHEN 'f' THEN 'foreign' ELSE 'relation' END, c.relname, c.oid FROM pg_class c
    WHERE c.oid >= 16384 AND (c.relname = ANY($3::name[]) OR {_written("c.relname::text")})
        AND (c.relkind IN ('v', 'f') OR c.relrowsecurity OR c.relhassubclass
            OR EXISTS (SELECT FROM ({_PLANNED}) e WHERE e.owner = c.oid AND e.tree {_OF_USERS}))
UNION ALL SELECT 'snapshot', txid_current_snapshot()::text, 0
"""  # noqa: S608 - as above
#: All that stands behind relations $1, through views, row security and heirs: the expressions of their views and their
#: row security, what of them the planner simplifies, and the relations themselves. $2: it explains.
_BEHIND: Final = f"""
WITH RECURSIVE behind(number) AS (
    SELECT unnest($1::oid[]) UNION SELECT w.number FROM behind b CROSS JOIN LATERAL (
        SELECT d.refobjid AS number FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass
            AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass WHERE r.ev_class = b.number AND r.ev_type = '1'
        UNION ALL SELECT d.refobjid FROM pg_policy p JOIN pg_depend d ON d.classid = 'pg_policy'::regclass
            AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass WHERE p.polrelid = b.number
        UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = b.number OFFSET 0) w)
SELECT 'runs', r.ev_action::text, 0::oid FROM behind JOIN pg_rewrite r ON r.ev_class = number AND r.ev_type = '1'
UNION ALL SELECT 'runs', polqual::text, 0 FROM behind JOIN pg_policy ON polrelid = number WHERE polqual IS NOT NULL
UNION ALL SELECT 'runs', polwithcheck::text, 0 FROM behind JOIN pg_policy ON polrelid = number
    WHERE polwithcheck IS NOT NULL
UNION ALL SELECT 'planned', e.tree, 0 FROM behind JOIN ({_PLANNED.replace("$7", "$2")}) e ON e.owner = number
    WHERE e.tree {_OF_USERS}
UNION ALL SELECT CASE c.relkind WHEN 'f' THEN 'foreign' ELSE 'relation' END, c.relname, c.oid
    FROM behind JOIN pg_class c ON c.oid = number
"""  # noqa: S608 - as above
#: Of the functions $1 and those of the operators $3 that may act: name, whether it is volatile, whether it is harmless
#: if its name is on our list. To send the list costs more than all the rest.
_BY_NUMBER: Final = f"""
SELECT p.proname, p.provolatile = 'v', {_harmless("true")} FROM (
        SELECT unnest($1::oid[]) AS oid UNION SELECT oprcode FROM pg_operator WHERE oid = ANY($3::oid[])) called
    CROSS JOIN LATERAL (SELECT * FROM pg_proc WHERE pg_proc.oid = called.oid OFFSET 0) p
    WHERE NOT {_harmless("false")}
"""  # noqa: S608 - as above


class Fetch(Protocol):
    """The function that runs one query of ours."""

    def __call__(self, sql: str, *params: object) -> Awaitable[Sequence[Sequence[Any]]]: ...


@dataclass(frozen=True, slots=True)
class _Type:
    """A type whose values a user's function makes or compares, or that contains such values."""

    kind: str  # "domain", "ordered"
    name: str
    number: int
    of_table: bool  # the row of a table or view


@dataclass(slots=True)
class Known:
    """The answers of the catalogue, as far as they cannot have changed since."""

    #: Numbers of the server's own functions and operators that do no more than read.
    functions: set[int] = field(default_factory=set)
    operators: set[int] = field(default_factory=set)
    #: While this is the server's snapshot no transaction has written, so none has changed the catalogue.
    snapshot: str = ""
    #: Types that act; None: not asked for yet.
    types: Sequence[_Type] | None = None
    #: What stands behind relations, by these and by whether the statement explains one that writes.
    behind: dict[tuple[frozenset[int], bool], Doubt | None] = field(default_factory=dict)

    def at(self, snapshot: str) -> None:
        """Forget the answers that may differ in another snapshot."""
        if snapshot != self.snapshot:
            self.snapshot, self.types = snapshot, None
            self.behind.clear()


class Catalogue:
    """The catalogue of one database, as one connection sees it. `known` is filled, and may outlive a look."""

    def __init__(self, fetch: Fetch, known: Known) -> None:
        self._fetch = fetch
        self._known = known

    async def doubt(self, sql: str) -> Doubt | None:
        """Return the doubt about an object that the words of `sql` may reach and that is not known to be harmless."""
        if _ESCAPED_NAME.search(sql):
            return Doubt("engine", "Names in it may be written with escapes.")
        every = _spellings(_WORD.findall(sql))
        called = every
        if not _COMMENT.search(sql):
            called = _spellings(name for pair in _CALLED.findall(sql) for name in pair)
        explains = "explain" in every
        # Long lists would cost the server more to plan than to look up.
        known, acting = sorted(FUNCTIONS.intersection(every)), sorted(_ACTING.intersection(every))
        casts = _CASTS.search(sql) is not None
        found = await self._fetch(_WORDS_MEAN, known, acting, every, called, sql, _IMPLIED, explains, casts)
        relations = set[int]()
        for kind, name, number in found:
            if kind == "snapshot":
                self._known.at(name)
            elif kind == "relation":
                relations.add(number)
            else:
                return Doubt("engine", _REASONS[kind].format(name))
        if self._known.types is None:
            self._known.types = [_Type(*row) for row in await self._fetch(_TYPES_ACT, sorted(_ACTING))]
        if self._known.types and (doubt := _of_types(self._known.types, frozenset(every), sql)) is not None:
            return doubt
        return await self._behind(frozenset(relations), explains=explains) if relations else None

    async def _behind(self, relations: frozenset[int], *, explains: bool) -> Doubt | None:
        """Return the doubt about the objects behind these relations.

        The answer is cached as long as nothing is written.
        """
        behind, asked = self._known.behind, (relations, explains)
        if asked not in behind:
            if len(behind) >= _KEPT:
                behind.clear()
            behind[asked] = await self._followed(relations, {one.number for one in self._known.types or ()}, explains)
        return behind[asked]

    async def _followed(self, relations: frozenset[int], acting_types: set[int], explains: bool) -> Doubt | None:
        """Follow views, row security and heirs down to tables."""
        trees: dict[str, set[str]] = {"runs": set(), "planned": set()}
        reached = set[int]()
        for kind, text, number in await self._fetch(_BEHIND, sorted(relations), explains):
            if kind in trees:
                trees[kind].add(text)
            elif kind == "relation":
                reached.add(number)
            else:
                return Doubt("engine", _REASONS[kind].format(text))
        runs = named(" ".join(trees["runs"]))
        if runs.types & acting_types:
            return Doubt("engine", "A view in it makes values of a type that calls a user's function.")
        if any(number >= _FIRST_OF_USERS and number not in reached for number in runs.relations):
            return Doubt("engine", "A view or a row security policy in it reads a table that it does not depend on.")
        for name, _ in await self._by_number(runs):
            return Doubt("engine", f"A view or a row security policy in it calls {name!r}.")
        for name, is_volatile in await self._by_number(*map(constant_calls, trees["planned"])):
            if not is_volatile:  # the planner calls no others
                return Doubt("engine", f"To plan it calls {name!r}, a user's function in an index or a check.")
        return None

    async def _by_number(self, *found: Named) -> Sequence[tuple[str, bool]]:
        """Return (name, whether it is volatile) of those functions that may act, also of those behind the operators."""
        functions = {number for one in found for number in one.functions} - self._known.functions
        operators = {number for one in found for number in one.operators} - self._known.operators
        if not functions and not operators:
            return ()
        rows = await self._fetch(_BY_NUMBER, sorted(functions), sorted(_ACTING), sorted(operators))
        acting = [(name, is_volatile) for name, is_volatile, if_listed in rows if not (if_listed and name in FUNCTIONS)]
        if not acting:
            self._known.functions.update(number for number in functions if number < _FIRST_OF_USERS)
            self._known.operators.update(number for number in operators if number < _FIRST_OF_USERS)
        return acting


#: The server sets `search_path`, so a word may be any function of that name, in any schema.
_REASONS: Final = {
    "function": "{!r} is a function that may do more than read.",
    "operator": "The operator {!r} is a function of a user's, which may do more than read.",
    "cast": "A cast to {!r} is a function of a user's, which may do more than read.",
    "domain": "A cast to {!r} checks a constraint that may do more than read.",
    "ordered": "Values in {!r} are compared by a function of a user's, which may do more than read.",
    "foreign": "{!r} is a table on another server.",
}


def _of_types(types: Sequence[_Type], every: frozenset[str], sql: str) -> Doubt | None:
    """Return the doubt about types whose values act when they are made or sorted.

    A value that becomes one of a domain runs the domain's constraints, and so does a value that contains one. Sorting
    runs the functions by which a type is sorted. A text that names a table only makes such a value by converting
    another one to it.
    """
    converts = _CONVERTS.search(sql) is not None
    for one in types:
        is_named = one.name in every or (_WORD.fullmatch(one.name) is None and one.name.replace('"', '""') in sql)
        if is_named and (converts or one.kind == "ordered" or not one.of_table):
            return Doubt("engine", _REASONS[one.kind].format(one.name))
    return None


_ASCII_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


def _spellings(found: Iterable[str]) -> list[str]:
    """Return the words as the server may read them: in lower case (of ASCII, or of all), cut, and behind a number."""
    names = set[str]()
    for word in set(found):
        for name in (word, word.lstrip("0123456789")):
            names.update((name, name.lower()) if name.isascii() else (name, name.lower(), name.translate(_ASCII_LOWER)))
    return sorted({_cut(name) for name in names})


def _cut(name: str) -> str:
    if len(name) * 4 <= _NAME_BYTES:
        return name
    return name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
