"""The possible meanings of a statement's words to PostgreSQL: functions, operators, types, relations, by its catalogue.

1. Any word of the text counts, also one in a comment or a quote: nothing here relies on how the gateway would split the
   text.
2. A harmless function is one of the server's own on the list, by identity (`postgres_functions`). Any other needs
   approval, however a statement reaches it (`postgres_facts`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from gateway.plugin.sql.lexer import TRAITS, lex
from gateway.plugin.sql.statement import find_list_doubt

from .engine import EngineDoubt
from .postgres_facts import (
    FIRST_OF_USERS,
    DatabaseFacts,
    Fetch,
    build_engine_doubt,
    build_foreign_condition,
    build_foreign_operator_condition,
    find_function_doubt,
    load_facts,
    shows_any_type,
)
from .postgres_functions import SOURCE, list_function_numbers, load_listed_functions
from .postgres_trees import parse_trees

#: A word to PostgreSQL, and what it cuts a longer one to.
_WORD: Final = re.compile(r"[A-Za-z0-9_$\u0080-\U0010ffff]+")
_NAME_BYTES: Final = 63  # in the encoding of the database
#: Words with a parenthesis behind them, or a dot before: only so can a statement call a function.
_CALLED: Final = re.compile(
    r"(?<![A-Za-z0-9_$\u0080-\U0010ffff])([A-Za-z0-9_$\u0080-\U0010ffff]++)\"?[ \t\n\r\f\v]*+\("
    r"|\.[ \t\n\r\f\v]*+\"?([A-Za-z0-9_$\u0080-\U0010ffff]++)"
)
_COMMENT: Final = re.compile(r"--|/\*")
_CALLS_TYPE: Final = "treat"  # TREAT(x AS f) calls the server's own function f
_ESCAPED_NAME: Final = re.compile(r"u&[\"']", re.IGNORECASE)
#: What lets a quote begin or end elsewhere than at a quote: comments, escapes, dollar quotes.
_ODD_QUOTES: Final = re.compile(r"--|/\*|\\|\$[^0-9]")
_QUOTED: Final = re.compile(r"'[^']*+'|\"[^\"]*+\"")
_KEPT: Final = 1000  # answers about relations

#: Expressions of a table that the planner simplifies: of each query; and, where $3, of the writing that is explained.
#: Checks are none of them: `constraint_exclusion` is off where a harmless statement runs.
_PLANNED: Final = """
    SELECT indpred::text AS tree, indrelid AS owner FROM pg_index WHERE indpred IS NOT NULL
    UNION ALL SELECT indexprs::text, indrelid FROM pg_index WHERE indexprs IS NOT NULL
    UNION ALL SELECT stxexprs::text, stxrelid FROM pg_statistic_ext WHERE stxexprs IS NOT NULL
    UNION ALL SELECT partexprs::text, partrelid FROM pg_partitioned_table WHERE partexprs IS NOT NULL
    UNION ALL SELECT adbin::text, adrelid FROM pg_attrdef WHERE $3
    UNION ALL SELECT d.typdefaultbin::text, v.attrelid FROM pg_attribute v JOIN pg_type d ON d.oid = v.atttypid
        WHERE $3 AND d.typdefaultbin IS NOT NULL
    UNION ALL SELECT conbin::text, conrelid FROM pg_constraint WHERE $3 AND conbin IS NOT NULL AND conrelid <> 0
    UNION ALL SELECT ev_action::text, ev_class FROM pg_rewrite WHERE $3 AND ev_type <> '1'
"""
_OF_USERS: Final = "~ ':(funcid|opfuncid|opno) [0-9]{5,}'"  # of a tree: it calls a user's function
#: Of a relation `c`: its own storage, an index or a partition key is not the server's.
_STORED: Final = """(c.relam >= 16384
    OR EXISTS (SELECT FROM pg_index i, unnest(i.indclass::oid[]) k WHERE i.indrelid = c.oid AND k >= 16384)
    OR EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND x.relam >= 16384)
    OR EXISTS (SELECT FROM pg_partitioned_table k, unnest(k.partclass::oid[]) o
        WHERE k.partrelid = c.oid AND o >= 16384))"""
#: Columns of a table that are computed where they are read (18).
_COMPUTED: Final = """FROM pg_attribute v JOIN pg_attrdef x ON x.adrelid = v.attrelid AND x.adnum = v.attnum
    WHERE v.attgenerated = 'v' AND v.attrelid ="""
_FOLLOWED: Final = f"""(c.relkind IN ('v', 'f') OR c.relrowsecurity OR c.relhassubclass OR {_STORED}
    OR EXISTS (SELECT {_COMPUTED} c.oid)
    OR EXISTS (SELECT FROM ({_PLANNED}) e WHERE e.owner = c.oid AND e.tree {_OF_USERS})
    OR $3 AND c.relhasrules)"""  # noqa: S608 - pieces of our own
#: The state of the catalogue: each transaction that has written changes it with its end. A snapshot of a standby does
#: not name the transactions under way, so there the place in the log counts, too.
#: Written so that it means the same on any path of names.
STATE: Final = """pg_catalog.concat(pg_catalog.txid_current_snapshot(), ' ',
    extract(epoch FROM pg_catalog.pg_postmaster_start_time()),
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.concat(' ', pg_catalog.pg_last_wal_replay_lsn()) END)"""
#: $1 all words; $2 the called ones; $3 it explains. Returns kind, name, number, source, extension.
_WORDS_MEAN: Final = f"""
SELECT 'function', p.proname::text, p.oid, {SOURCE}, CASE WHEN p.oid >= 16384 THEN (
        SELECT e.extname::text FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
                AND d.refclassid = 'pg_extension'::regclass LIMIT 1) END
    FROM pg_proc p WHERE p.proname = ANY($2::text[]::name[])
UNION ALL SELECT 'relation', c.relname, c.oid, '', NULL FROM pg_class c
    WHERE c.oid >= 16384 AND c.relname = ANY($1::text[]::name[]) AND {_FOLLOWED}
UNION ALL SELECT 'snapshot', {STATE}, 0, '', NULL
"""  # noqa: S608 - as above
#: The same for a text $4 with a double quote: only there can a name stand that is not a word, with its quotes doubled.
_NAMES_MEAN: Final = f"""{_WORDS_MEAN}
UNION ALL SELECT 'function', p.proname, p.oid, '', NULL FROM pg_proc p
    WHERE p.oid >= 16384 AND p.proname ~ '[^[:alnum:]_$]' AND position(replace(p.proname, '"', '""') IN $4) > 0
UNION ALL SELECT 'relation', c.relname, c.oid, '', NULL FROM pg_class c
    WHERE c.oid >= 16384 AND c.relname ~ '[^[:alnum:]_$]' AND position(replace(c.relname, '"', '""') IN $4) > 0
        AND {_FOLLOWED}
"""  # noqa: S608 - as above
#: All that stands behind relations $2, through views, row security and heirs: the expressions of their views and their
#: row security, what of them the planner simplifies, and the relations themselves with the types of their rows.
#: $1: trusted functions. $3: it explains. $4: numbers on our list.
_BEHIND: Final = f"""
WITH RECURSIVE behind(number) AS (
    SELECT unnest($2::oid[]) UNION SELECT w.number FROM behind b CROSS JOIN LATERAL (
        SELECT d.refobjid AS number FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass
            AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
            WHERE r.ev_class = b.number AND (r.ev_type = '1' OR $3)
        UNION ALL SELECT d.refobjid FROM pg_policy p JOIN pg_depend d ON d.classid = 'pg_policy'::regclass
            AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass WHERE p.polrelid = b.number
        UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = b.number OFFSET 0) w),
class(number) AS (
    SELECT k.oid FROM pg_opclass k WHERE k.oid >= 16384 AND (
        EXISTS (SELECT FROM pg_amproc a WHERE a.amprocfamily = k.opcfamily
            AND {build_foreign_condition("a.amproc::oid")})
        OR EXISTS (SELECT FROM pg_amop a JOIN pg_operator o ON o.oid = a.amopopr
            WHERE a.amopfamily = k.opcfamily AND {build_foreign_operator_condition("o", "$4")}))),
method(number) AS (SELECT oid FROM pg_am WHERE {build_foreign_condition("amhandler::oid")})
SELECT 'runs', r.ev_action::text, 0::oid, 0::oid FROM behind
    JOIN pg_rewrite r ON r.ev_class = number AND r.ev_type = '1'
UNION ALL SELECT 'runs', polqual::text, 0, 0 FROM behind JOIN pg_policy ON polrelid = number WHERE polqual IS NOT NULL
UNION ALL SELECT 'runs', polwithcheck::text, 0, 0 FROM behind JOIN pg_policy ON polrelid = number
    WHERE polwithcheck IS NOT NULL
UNION ALL SELECT 'runs', v.tree, 0, 0 FROM behind CROSS JOIN LATERAL (SELECT x.adbin::text AS tree
    {_COMPUTED} number) v
UNION ALL SELECT 'planned', e.tree, 0, 0 FROM behind JOIN ({_PLANNED}) e ON e.owner = number WHERE e.tree {_OF_USERS}
    OR $3
UNION ALL SELECT CASE WHEN c.relkind = 'f' THEN 'foreign' WHEN c.relam IN (TABLE method)
        OR EXISTS (SELECT FROM pg_index i, unnest(i.indclass::oid[]) k WHERE i.indrelid = c.oid AND k IN (TABLE class))
        OR EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
            WHERE i.indrelid = c.oid AND x.relam IN (TABLE method))
        OR EXISTS (SELECT FROM pg_partitioned_table k, unnest(k.partclass::oid[]) o
            WHERE k.partrelid = c.oid AND o IN (TABLE class)) THEN 'stored' ELSE 'relation' END,
        c.relname, c.oid, c.reltype
    FROM behind JOIN pg_class c ON c.oid = number
"""  # noqa: S608 - as above
#: Which of the names $1, or of others in the text $2, is a column of a user's table or view for texts in a list, or for
#: a domain over one.
_LISTS: Final = """SELECT DISTINCT v.attname::text FROM pg_attribute v JOIN pg_type t ON t.oid = v.atttypid
    LEFT JOIN pg_type e ON e.oid = t.typelem
    WHERE v.attrelid >= 16384 AND t.typcategory = 'A' AND coalesce(e.typcategory, 'S') = 'S'
        AND (v.attname = ANY($1::text[]::name[]) OR v.attname ~ '[^[:alnum:]_$]'
            AND position(replace(v.attname, '"', '""') IN $2) > 0)"""


@dataclass(slots=True)
class FactsCache:
    """The answers of the catalogue, as far as they cannot have changed since, of one snapshot of the server."""

    facts: DatabaseFacts = field(default_factory=DatabaseFacts)


class Catalogue:
    """The catalogue of one database, as one connection sees it. `known` is filled, and may outlive a look.

    `extensions`: the ones whose functions the operator trusts.
    """

    def __init__(self, fetch: Fetch, known: FactsCache, extensions: Sequence[str]) -> None:
        self._fetch = fetch
        self._known = known
        self._extensions = extensions
        #: Of the catalogue, at the beginning of the last look (`STATE`), and its answer to it.
        self.state = ""
        self.facts = known.facts

    async def find_doubt(self, sql: str) -> EngineDoubt | None:
        """Return the doubt about an object that the words of `sql` may reach and that is not known to be harmless."""
        if _ESCAPED_NAME.search(sql):
            return EngineDoubt("engine", "Names in it may be written with escapes.")
        every = _list_spellings(_WORD.findall(sql))
        called = every
        if not _COMMENT.search(sql) and _CALLS_TYPE not in every:
            called = _list_spellings(name for pair in _CALLED.findall(sql) for name in pair)
        explains = "explain" in every
        question, names = (_NAMES_MEAN, (sql,)) if '"' in sql else (_WORDS_MEAN, ())
        found = await self._fetch(question, every, called, explains, *names)
        self.state = next(row[1] for row in found if row[0] == "snapshot")
        self.facts = facts = await self._read_facts(self.state)
        if facts.anywhere is not None:
            return facts.anywhere
        known, trusted, relations = load_listed_functions(), frozenset(facts.trusted), set[int]()
        for kind, name, number, source, extension in found:
            if kind == "relation":
                relations.add(number)
            elif kind == "function" and (number, name, source) not in known and number not in trusted:
                return build_engine_doubt(
                    f"{name!r} is no function of the server's that is known to read only", extension
                )
        words = frozenset(every)
        doubt = (
            facts.find_type_doubt(words, sql)
            or facts.find_operator_doubt(_remove_quotes(sql))
            or facts.find_search_doubt(words, sql)
        )
        if doubt is None and relations:
            doubt = await self._find_relations_doubt(facts, frozenset(relations), explains=explains)
        if doubt is None and "-" in sql:
            doubt = await self._find_list_doubt(sql, every)
        return doubt

    async def _find_list_doubt(self, sql: str, every: Sequence[str]) -> EngineDoubt | None:
        """Return the doubt about `data - tags`, where `tags` is a column of any length."""
        stored = frozenset(name.lower() for (name,) in await self._fetch(_LISTS, every, sql))
        if not stored:
            return None
        reason = find_list_doubt(lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens, stored)
        return None if reason is None else EngineDoubt("engine", reason)

    async def _read_facts(self, snapshot: str) -> DatabaseFacts:
        if self._known.facts.snapshot != snapshot:
            self._known.facts = await load_facts(self._fetch, snapshot, self._extensions)
        return self._known.facts

    async def _find_relations_doubt(
        self, facts: DatabaseFacts, relations: frozenset[int], *, explains: bool
    ) -> EngineDoubt | None:
        """Return the doubt about the objects behind these relations."""
        behind, asked = facts.behind, (relations, explains)
        if asked not in behind:
            if len(behind) >= _KEPT:
                behind.clear()
            behind[asked] = await self._follow_relations(facts, relations, explains=explains)
        return behind[asked]

    async def _follow_relations(
        self, facts: DatabaseFacts, relations: frozenset[int], *, explains: bool
    ) -> EngineDoubt | None:
        """Follow views, row security and heirs down to tables."""
        trees: dict[str, set[str]] = {"runs": set(), "planned": set()}
        reached, rows = set[int](), set[int]()
        for kind, text, number, row in await self._fetch(
            _BEHIND, facts.trusted, sorted(relations), explains, list_function_numbers()
        ):
            if kind in trees:
                trees[kind].add(text)
            elif kind == "relation":
                reached.add(number)
                rows.add(row)
            else:
                return build_engine_doubt(_REASONS[kind].format(text), None)
        runs, planned = parse_trees(" ".join(trees["runs"])), parse_trees(" ".join(trees["planned"]))
        if (runs.types | planned.types | rows) & facts.type_numbers:
            return build_engine_doubt(
                "A view or a table in it has values that call functions that are not the server's own", None
            )
        if any(number >= FIRST_OF_USERS and number not in reached for number in runs.relations):
            return EngineDoubt(
                "engine", "A view or a row security policy in it reads a table that it does not depend on."
            )
        if facts.shown and shows_any_type(trees["runs"]):
            return facts.find_any_type_doubt("A view in it")
        return await find_function_doubt(
            self._fetch, facts.trusted, runs, asks=facts.asks
        ) or await find_function_doubt(self._fetch, facts.trusted, planned, planned=True)


_REASONS: Final = {
    "foreign": "{!r} is a table on another server",
    "stored": "The storage, an index or a partition key of {!r} calls functions that are not the server's own",
}


def _remove_quotes(sql: str) -> str:
    """Return the text without its strings and quoted names; the whole text where something else could hold a quote."""
    return sql if _ODD_QUOTES.search(sql) else _QUOTED.sub(" ", sql)


#: And of the Turkish letter that a server with one byte a letter makes an ASCII one.
_ASCII_LOWER: Final = str.maketrans(ascii_uppercase + "\u0130", ascii_lowercase + "i")


def _list_spellings(found: Iterable[str]) -> list[str]:
    """Return the words as the server may read them: in lower case (of ASCII, or of all), cut, and behind a number.

    A database may have an encoding of one byte a letter, so words are also cut at letters.
    """
    names = set[str]()
    for word in set(found):
        for name in (word, word.lstrip("0123456789")):
            names.update((name, name.lower()) if name.isascii() else (name, name.lower(), name.translate(_ASCII_LOWER)))
    return sorted({cut for name in names for cut in (_cut_words(name), name[:_NAME_BYTES])})


def _cut_words(name: str) -> str:
    if len(name) * 4 <= _NAME_BYTES:
        return name
    return name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
