"""The objects of a database that may act without a word of a statement: who made them, and what reaches them.

A function of a user or of an extension is *foreign*, unless it belongs to an extension that the operator trusts. Casts,
operators, operator classes and types act through foreign functions; a user's cast or operator acts through any that is
not on our list. What no type of a user's stands between acts in any
statement. What one stands between acts where that type is reached: by its name, or by that of whatever holds it.
"""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gateway.plugin.word_lists import split_words

from .engine import EngineDoubt
from .postgres_functions import SOURCE, list_function_numbers, load_listed_functions
from .postgres_trees import TreeObjects, parse_trees

FIRST_OF_USERS: Final = 16384  # lower numbers belong to the server's own objects

#: Operators that a statement uses without writing them: IN, BETWEEN, LIKE, SIMILAR TO, USING, DISTINCT, ORDER BY.
_IMPLIED: Final = frozenset(("=", "<>", "<", "<=", ">", ">=", "~~", "!~~", "~~*", "!~~*", "~", "!~"))
#: Functions and relations of the server that show, compare or describe values of any type without its name.
_OF_ANY_TYPE: Final = split_words("""
    format_type to_regtype to_regprocedure to_regoperator regtype regprocedure regoperator has_function_privilege
    has_type_privilege pg_get_constraintdef pg_get_expr pg_get_function_arg_default pg_get_function_arguments
    pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody pg_get_functiondef pg_get_indexdef
    pg_get_partition_constraintdef pg_get_partkeydef pg_get_ruledef pg_get_statisticsobjdef
    pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_triggerdef pg_get_viewdef
    pg_attribute pg_statistic pg_statistic_ext_data pg_stats pg_stats_ext pg_stats_ext_exprs pg_mcv_list_items
    pg_indexes pg_matviews pg_policies pg_publication_tables pg_rules pg_seclabels pg_views pg_sequences
    pg_prepared_statements
    information_schema attributes check_constraints column_privileges columns domains element_types parameters routines
    sequences triggers views
""")
#: Functions of the server that ask dictionaries and parsers of a text search.
_SEARCHES: Final = split_words("""
    to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery json_to_tsvector jsonb_to_tsvector
    ts_headline ts_debug ts_parse ts_token_type ts_lexize ts_match_tt ts_match_tq
""")
_ANY_ARRAY: Final = 2277  # the type of columns that hold values of any type


def build_foreign_condition(function: str) -> str:
    """Return the condition that the number `function` is a foreign function's. $1: the trusted ones."""
    return f"({function} >= 16384 AND {function} <> ALL($1::oid[]))"


def build_unlisted_condition(function: str, made: str, listed: str) -> str:
    """Return the condition that an object `made` by a user calls a function of the server's that is not on our list.

    Any user may make an operator of `pg_terminate_backend`. `listed`: the parameter with the numbers on the list.
    """
    of_server = f"{function} BETWEEN 1 AND {FIRST_OF_USERS - 1}"
    return f"({made}.oid >= {FIRST_OF_USERS} AND {of_server} AND {function} <> ALL({listed}::oid[]))"


def build_foreign_operator_condition(operator: str, listed: str) -> str:
    """Return the condition that a row of pg_operator calls a foreign or unlisted function, or estimates with one."""
    calls = [build_foreign_condition(f"{operator}.{part}::oid") for part in ("oprcode", "oprrest", "oprjoin")]
    return "(" + " OR ".join((*calls, build_unlisted_condition(f"{operator}.oprcode::oid", operator, listed))) + ")"


def _build_extension_condition(catalogue: str, number: str) -> str:
    return f"""(SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
        WHERE d.classid = '{catalogue}'::regclass AND d.objid = {number} AND d.deptype = 'e'
            AND d.refclassid = 'pg_extension'::regclass LIMIT 1)"""  # noqa: S608 - pieces of our own


_TRUSTED: Final = """SELECT p.oid FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass
        AND d.refobjid = e.oid AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
    JOIN pg_proc p ON p.oid = d.objid JOIN pg_roles r ON r.oid = p.proowner AND r.rolsuper
    WHERE e.extname = ANY($1::text[]::name[])"""
_MADE_BY: Final = (
    *("typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze", "typsubscript"),
)
_CAST_CALLS: Final = f"({build_foreign_condition('c.castfunc')} OR {build_unlisted_condition('c.castfunc', 'c', '$2')})"
_PARSED_BY: Final = ("prsstart", "prstoken", "prsend", "prsheadline", "prslextype")
#: $1: trusted functions. $2: numbers on our list. Returns what it is, its name, its number, its extension. `anywhere`:
#: any statement may use it.
_FACTS: Final = f"""
WITH member(family, method, one, other) AS (
    SELECT f.oid, f.opfmethod, a.amproclefttype, a.amprocrighttype FROM pg_amproc a
        JOIN pg_opfamily f ON f.oid = a.amprocfamily WHERE {build_foreign_condition("a.amproc::oid")}
    UNION ALL SELECT f.oid, f.opfmethod, a.amoplefttype, a.amoprighttype FROM pg_amop a
        JOIN pg_operator o ON o.oid = a.amopopr JOIN pg_opfamily f ON f.oid = a.amopfamily
        WHERE {build_foreign_operator_condition("o", "$2")})
SELECT 'anywhere' AS what, format('the cast from %s to %s', a.typname, b.typname) AS name, 0::oid,
        {_build_extension_condition("pg_cast", "c.oid")} AS extension
    FROM pg_cast c JOIN pg_type a ON a.oid = c.castsource JOIN pg_type b ON b.oid = c.casttarget
    WHERE {_CAST_CALLS} AND c.castsource < 16384 AND c.casttarget < 16384
UNION ALL SELECT 'type', t.typname, t.oid, {_build_extension_condition("pg_cast", "c.oid")}
    FROM pg_cast c JOIN pg_type t ON t.oid IN (c.castsource, c.casttarget)
    WHERE {_CAST_CALLS} AND t.oid >= 16384
UNION ALL SELECT 'operator', o.oprname, 0, {_build_extension_condition("pg_operator", "o.oid")}
    FROM pg_operator o WHERE {build_foreign_operator_condition("o", "$2")} AND o.oprleft < 16384 AND o.oprright < 16384
UNION ALL SELECT 'type', t.typname, t.oid, {_build_extension_condition("pg_operator", "o.oid")}
    FROM pg_operator o JOIN pg_type t ON t.oid IN (o.oprleft, o.oprright)
    WHERE {build_foreign_operator_condition("o", "$2")} AND t.oid >= 16384
UNION ALL SELECT CASE WHEN t.oid < 16384 THEN 'anywhere'
        WHEN {build_foreign_condition("t.typmodin::oid")}
            OR {build_foreign_condition("t.typmodout::oid")} THEN 'shown' ELSE 'type' END,
        t.typname, t.oid, {_build_extension_condition("pg_type", "t.oid")}
    FROM pg_type t WHERE {" OR ".join(build_foreign_condition(f"t.{part}::oid") for part in _MADE_BY)}
UNION ALL SELECT 'type', t.typname, t.oid, {_build_extension_condition("pg_type", "t.oid")}
    FROM pg_range r JOIN pg_type t ON t.oid IN (r.rngtypid, r.rngmultitypid)
    WHERE {build_foreign_condition("r.rngcanonical::oid")} OR {build_foreign_condition("r.rngsubdiff::oid")}
        OR EXISTS (SELECT FROM pg_opclass k JOIN member m ON m.family = k.opcfamily WHERE k.oid = r.rngsubopc)
UNION ALL SELECT 'anywhere', format('the order of %s', t.typname), 0,
    {_build_extension_condition("pg_opfamily", "m.family")}
    FROM member m JOIN pg_type t ON t.oid = m.one
    WHERE (m.method IN (403, 405) OR m.family < 16384) AND m.one < 16384 AND m.other < 16384
UNION ALL SELECT 'type', t.typname, t.oid, {_build_extension_condition("pg_opfamily", "m.family")}
    FROM member m JOIN pg_type t ON t.oid IN (m.one, m.other) WHERE t.oid >= 16384
UNION ALL SELECT 'type', t.typname, t.oid, {_build_extension_condition("pg_opfamily", "m.family")}
    FROM member m JOIN pg_opclass k ON k.opcfamily = m.family JOIN pg_type t ON t.oid = k.opcintype
    WHERE t.oid >= 16384
UNION ALL SELECT 'anywhere', format('the conversion %s', c.conname), 0,
    {_build_extension_condition("pg_conversion", "c.oid")}
    FROM pg_conversion c WHERE {build_foreign_condition("c.conproc::oid")}
UNION ALL SELECT 'search', t.tmplname, 0, {_build_extension_condition("pg_ts_template", "t.oid")}
    FROM pg_ts_template t WHERE {build_foreign_condition("t.tmplinit::oid")}
        OR {build_foreign_condition("t.tmpllexize::oid")}
UNION ALL SELECT 'search', p.prsname, 0, {_build_extension_condition("pg_ts_parser", "p.oid")}
    FROM pg_ts_parser p WHERE {" OR ".join(build_foreign_condition(f"p.{part}::oid") for part in _PARSED_BY)}
UNION ALL SELECT 'domain', k.conbin::text, k.contypid, NULL
    FROM pg_constraint k WHERE k.contypid <> 0 AND k.oid >= 16384
"""  # noqa: S608 - pieces of this module
#: The types $1 and whatever holds one of them: domains, lists, ranges, rows of tables. An index lists the objects that
#: depend on a type, in a large database, too. Returns name, number, the type of $1, and whether it is a table's row.
_HOLDING: Final = """
WITH RECURSIVE holding(acting, number) AS (
    SELECT a, a FROM unnest($1::oid[]) a UNION SELECT h.acting, w.number FROM holding h CROSS JOIN LATERAL (
        SELECT CASE d.classid WHEN 'pg_type'::regclass THEN d.objid
            ELSE (SELECT c.reltype FROM pg_class c WHERE c.oid = d.objid) END AS number
        FROM pg_depend d WHERE d.refclassid = 'pg_type'::regclass AND d.refobjid = h.number
            AND d.classid IN ('pg_type'::regclass, 'pg_class'::regclass) OFFSET 0) w)
SELECT t.typname, t.oid, h.acting, EXISTS (SELECT FROM pg_class c WHERE c.oid = t.typrelid AND c.relkind <> 'c')
    FROM holding h JOIN pg_type t ON t.oid = h.number"""
#: Of the functions $2 and the ones behind the operators $3: name, number, source, whether volatile, whether foreign,
#: extension.
_BY_NUMBER: Final = f"""
SELECT p.proname, p.oid, {SOURCE}, p.provolatile = 'v', {build_foreign_condition("p.oid")},
    {_build_extension_condition("pg_proc", "p.oid")} FROM (
        SELECT unnest($2::oid[]) AS oid UNION SELECT oprcode FROM pg_operator
            WHERE oid = ANY($3::oid[]) UNION SELECT e FROM pg_operator, unnest(ARRAY[oprrest::oid, oprjoin::oid]) e
            WHERE pg_operator.oid = ANY($3::oid[]) AND e >= 16384) called
    CROSS JOIN LATERAL (SELECT * FROM pg_proc WHERE pg_proc.oid = called.oid OFFSET 0) p
"""  # noqa: S608 - as above


class Fetch(Protocol):
    """The function that runs one query of the gateway."""

    def __call__(self, sql: str, *params: object) -> Awaitable[Sequence[Sequence[Any]]]: ...


@dataclass(slots=True)
class DatabaseFacts:
    """The answers of one database about its own objects, valid until a transaction writes there."""

    snapshot: str = ""
    #: Functions of extensions that the operator trusts.
    trusted: Sequence[int] = ()
    #: The doubt about any statement at all.
    anywhere: EngineDoubt | None = None
    #: Foreign operators between the server's own types, with the extension.
    operators: dict[str, str | None] = field(default_factory=dict)
    #: Types that act and what holds them, by name, with the extension of the first; and their numbers.
    types: dict[str, str | None] = field(default_factory=dict)
    type_numbers: frozenset[int] = frozenset()
    #: One of them of which the server's own functions show values or modifiers: a table holds it, or it has modifiers.
    shown: str | None = None
    #: The extension or the name of a foreign dictionary or parser.
    search: str | None = None
    #: What stands behind relations, by these and by whether the statement explains one that writes.
    behind: dict[tuple[frozenset[int], bool], EngineDoubt | None] = field(default_factory=dict)
    #: Statements that the server has read as queries that change nothing.
    read: set[str] = field(default_factory=set)

    def find_operator_doubt(self, text: str) -> EngineDoubt | None:
        """Return the doubt about an operator in `text`, a statement without its quotes."""
        for name, extension in self.operators.items():
            if name in _IMPLIED or name in text:
                return build_engine_doubt(
                    f"The operator {name!r} calls no function of the server's that only reads", extension
                )
        return None

    def find_type_doubt(self, every: frozenset[str], sql: str) -> EngineDoubt | None:
        """Return the doubt about a type that acts, or about what holds one, by its name among the words `every`."""
        for name, extension in self.types.items():
            # Characters that are in no word stand in quotes, where a quote is doubled.
            if name in every or (not name.isidentifier() and name.replace('"', '""') in sql):
                return build_engine_doubt(f"Values in {name!r} call functions that are not the server's own", extension)
        shows = every & _OF_ANY_TYPE if self.shown else None
        return self.find_any_type_doubt(repr(min(shows))) if shows else None

    def find_any_type_doubt(self, name: str) -> EngineDoubt:
        """Return the doubt about what shows values of any type, where one of them acts."""
        shown = self.shown or ""
        what = f"{name} may show values of {shown!r}, whose functions are not the server's own"
        return build_engine_doubt(what, self.types.get(shown))

    @property
    def asks(self) -> frozenset[str]:
        """Return the names of the server's functions and relations that are doubted in this database."""
        return (_OF_ANY_TYPE if self.shown else frozenset()) | (_SEARCHES if self.search else frozenset())

    def find_search_doubt(self, every: frozenset[str], sql: str) -> EngineDoubt | None:
        """Return the doubt about a text search, where a foreign dictionary or parser is in the database."""
        if self.search is None or not (every & _SEARCHES or "@@" in sql):
            return None
        return build_engine_doubt(f"A text search may ask {self.search!r}, which is not the server's own", self.search)


async def load_facts(fetch: Fetch, snapshot: str, extensions: Sequence[str]) -> DatabaseFacts:
    """Return the catalogue's facts now. `extensions`: the ones whose functions are trusted."""
    trusted = [row[0] for row in await fetch(_TRUSTED, extensions)] if extensions else []
    facts = DatabaseFacts(snapshot, trusted)
    acting: dict[int, str | None] = {}
    domains: list[tuple[TreeObjects, int]] = []
    shown = set[int]()
    for what, name, number, extension in await fetch(_FACTS, trusted, list_function_numbers()):
        match what:
            case "anywhere":
                facts.anywhere = build_engine_doubt(
                    f"Any statement may call {name}, which is not the server's own", extension
                )
            case "operator":
                facts.operators[name] = extension
            case "search":
                facts.search = extension or name
            case "domain":
                domains.append((parse_trees(name), number))
            case _:
                acting[number] = extension
                shown.update([number] if what == "shown" else [])
    for tree, number in domains:
        if await find_function_doubt(fetch, trusted, tree) is not None:
            acting[number] = None
    # A constraint of a domain may convert to a type that acts, so look once more whenever there is one more.
    while acting:
        held = await fetch(_HOLDING, sorted(acting))
        facts.type_numbers = frozenset(number for _, number, *_ in held)
        facts.types = {name: acting[of] for name, _, of, _ in held}
        facts.shown = next((name for name, number, _, of_table in held if of_table or number in shown), None)
        more = [number for tree, number in domains if number not in acting and tree.types & facts.type_numbers]
        if not more:
            break
        acting.update(dict.fromkeys(more))
    return facts


async def find_function_doubt(
    fetch: Fetch,
    trusted: Sequence[int],
    tree: TreeObjects,
    *,
    asks: frozenset[str] = frozenset(),
    planned: bool = False,
) -> EngineDoubt | None:
    """Return the doubt about functions that a stored expression calls.

    `asks`: names of the server's functions that are doubted in this database. `planned`: the expression is simplified
    and not run, and the planner calls no volatile function.
    """
    if not tree.functions and not tree.operators:
        return None
    known = load_listed_functions()
    rows = await fetch(_BY_NUMBER, trusted, tree.functions, tree.operators)
    for name, number, source, is_volatile, is_foreign, extension in rows:
        harmless = (number, name, source) in known and name not in asks
        trusts = number >= FIRST_OF_USERS and not is_foreign
        if not (harmless or trusts or (planned and is_volatile and not is_foreign)):
            return build_engine_doubt(f"A view, a policy or an index in it calls {name!r}", extension)
    return None


def shows_any_type(trees: Iterable[str]) -> bool:
    """Return whether a tree reads a column that holds values of any type."""
    return any(f":vartype {_ANY_ARRAY} " in tree for tree in trees)


def build_engine_doubt(what: str, extension: str | None) -> EngineDoubt:
    """Return the doubt of the database, which names the setting for an extension's objects."""
    if extension is None:
        return EngineDoubt("engine", f"{what}: it may do more than read.")
    where = f"the extension {extension!r}; tools.execute_sql.trusted_extensions names those that only read"
    return EngineDoubt("engine", f"{what}: it may do more than read ({where}).")
