"""Judges one SQL text: whether it is known to be harmless, and what in it an operator may still want to ask about.

Where the dialect is known, only its reading counts. Where it is not, each reading is judged: one that does harm or that
we cannot follow decides, one with an open quote runs nothing in its dialect, and at least one has to be harmless.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from gateway.plugin.sql.expansion import expands_too_far
from gateway.plugin.sql.json_list_removal import find_unbounded_difference
from gateway.plugin.sql.lexer import Dialect, Token, list_readings
from gateway.plugin.sql.paths import find_unbounded_path
from gateway.plugin.sql.quadratic_cost import LONGEST_CHARS, find_unbounded_product
from gateway.plugin.sql.query import QueryDoubt, QueryWalk
from gateway.plugin.sql.recursion import has_unbounded_recursion
from gateway.plugin.sql.words import BARE_PRAGMAS, CONNECTING, EXPLAINED, EXPLAINING, READING_PRAGMAS, SHOWING, SHOWN

_QUERY = frozenset({"select", "with", "values", "table", "("})
_ANALYZE = ("analyze", "analyse")
_OFF = ("off", "false", "0")
_PRODUCT = (
    "{!r} may take very long with long values: PostgreSQL cannot interrupt it. "
    f"Patterns written out, of {LONGEST_CHARS} characters at most, are fine."
)
#: The planner's time grows with the cube: 250 took 10 s of PostgreSQL 15, 400 a minute.
_MOST_JOINS = 100
#: PostgreSQL ends a statement between two rows, and not between two calls: one with long values takes a second.
_MOST_CALLS = 300
_WORKING = frozenset(("*", "/", "%", "^", "||", "::", "<", ">", "<=", ">="))
_NAME_BYTES = 63
_ROW_BEGINS = (Token("punct", "("), Token("word", "row"))


@dataclass(frozen=True, slots=True)
class Judgement:
    """`doubt`: why the text needs approval, as (rule, reason); None: it is harmless. `marks`: what it uses.

    Marks: with, values, table, pragma, explain_analyze; lock, assignment, recursion, sensitive_read.
    """

    doubt: tuple[str, str] | None
    marks: frozenset[str] = frozenset()


def judge(sql: str, *, dialect: Dialect = "any") -> Judgement:
    """Return what is known about `sql`, in this dialect or in every one. Never raises."""
    found = list_readings(sql, dialect=dialect)
    if found is None:
        return Judgement(("ambiguous_text", "Databases would read the quotes and comments in it in different ways."))
    marks: set[str] = set()
    harmless, broken = False, ("not_a_query", "It is not a statement that is known to read only.")
    for tokens in found:
        try:
            what = _judge_reading(tokens, marks)
        except QueryDoubt as doubt:
            return Judgement((doubt.rule, doubt.reason))
        if what is None:
            if dialect == "postgresql" and (found_product := find_uninterruptible(tokens)) is not None:
                return Judgement(("product", found_product))
            harmless = True
            continue
        broken = ("not_a_query", f"The statement has {what}.")
        # An open quote runs nowhere; nor does `#` where it is read as a comment that it is not, or the other way round.
        if not tokens or (tokens[-1].kind != "unterminated" and "#" not in sql):
            return Judgement(broken)
    return Judgement(None if harmless else broken, frozenset(marks))


def find_uninterruptible(tokens: Sequence[Token]) -> str | None:
    """Return what of a statement of PostgreSQL may take a time that nothing there can end. None: nothing."""
    if expands_too_far([_truncate_name(token) for token in tokens]):
        return "Its subqueries mention columns of one another too often: PostgreSQL writes each out in every place."
    if tokens.count(Token("word", "join")) > _MOST_JOINS:
        return f"It joins more than {_MOST_JOINS} tables: PostgreSQL cannot interrupt the planning of so many."
    if _count_calls(tokens) > _MOST_CALLS:
        return f"It calls functions and operators in more than {_MOST_CALLS} places: PostgreSQL ends nothing in a row."
    found = find_unbounded_product(tokens) or find_unbounded_path(tokens)
    return _PRODUCT.format(found[:40]) if found else find_list_doubt(tokens)


def _count_calls(tokens: Sequence[Token]) -> int:
    """Return in how many places a row calls what may take long with long values."""
    functions = sum(
        second == ("punct", "(") and first.kind == "word" and first.text not in CONNECTING
        for first, second in pairwise(tokens)
    )
    return functions + sum(token.kind == "op" and token.text in _WORKING for token in tokens)


def find_list_doubt(tokens: Sequence[Token], stored: Set[str] = frozenset()) -> str | None:
    """Return the doubt about a list that is taken from JSON. `stored`: names of columns with lists, in lower case."""
    found = find_unbounded_difference(tokens, stored)
    return found and _PRODUCT.format(found)


def _truncate_name(token: Token) -> Token:
    """Return a long name as every one that PostgreSQL may cut to the same: at 63 bytes, of one to four a letter."""
    if token.kind not in ("word", "name") or len(token.text) <= _NAME_BYTES // 4:
        return token
    return Token(token.kind, token.text[: _NAME_BYTES if token.text.isascii() else _NAME_BYTES // 4])


def _judge_reading(tokens: Sequence[Token], marks: set[str]) -> str | None:
    """None: harmless. A text: what makes this reading no SQL. Raises Doubt."""
    end = len(tokens)
    while end and tokens[end - 1] == ("punct", ";"):
        end -= 1
    tokens = tokens[:end]
    if ("punct", ";") in tokens:
        raise QueryDoubt("stacked", "There is more than one statement.")
    if tokens and tokens[-1].kind == "error":
        raise QueryDoubt("unclear_text", f"The statement has {tokens[-1].text}.")
    if tokens and tokens[-1].kind == "unterminated":
        return tokens[-1].text
    if len(tokens) < 2:
        return "fewer than two words"
    return _judge_statement(tokens, marks)


def _judge_statement(tokens: Sequence[Token], marks: set[str]) -> str | None:
    first = tokens[0]
    if first.kind == "op":
        # A comment to MySQL, an operator to others, who refuse a statement that begins with one.
        return _judge_query(tokens, marks) or "an operator at its beginning"
    if first == ("punct", "(") or (first.kind == "word" and first.text in _QUERY):
        return _judge_query(tokens, marks)
    match first.text if first.kind == "word" else "":
        case "show":
            return _judge_show(tokens[1:])
        case "explain" | "describe" | "desc":
            return _judge_explain(tokens[1:], marks)
        case "pragma":
            marks.add("pragma")
            return _judge_pragma(tokens[1:])
    raise QueryDoubt("statement", f"{first.text[:40].upper()!r} does not begin a statement that is known to read only.")


def _judge_query(tokens: Sequence[Token], marks: set[str], *, explained: bool = False) -> str | None:
    walk = QueryWalk(tokens)
    walk.run()
    marks |= walk.marks
    begin = next((index for index, token in enumerate(tokens) if token != ("punct", "(")), 0)
    first, following = tokens[begin], tokens[begin + 1 : begin + 2]
    if begin and not (first.kind == "word" and first.text in _QUERY):
        raise QueryDoubt("statement", f"{first.text[:40].upper()!r} in parentheses is not a query.")
    if first.kind == "word" and first.text in ("with", "values", "table") and not explained:
        marks.add(first.text)
    if not following or following[0] == ("punct", ")"):
        return "nothing in its query"
    if first == ("word", "values") and not (following and following[0] in _ROW_BEGINS):
        return "no row behind VALUES"
    if first == ("word", "table") and not (following and _is_table_name(following[0])):
        return "no name behind TABLE"
    if ("word", "with") in tokens and has_unbounded_recursion(tokens):
        marks.add("recursion")
    if not walk.complete:
        return "no query in it"
    return walk.broken


def _is_table_name(token: Token) -> bool:
    return token.kind == "name" or (token.kind == "word" and token.text not in CONNECTING)


def _judge_show(tokens: Sequence[Token]) -> str | None:
    first = tokens[0]
    if first.kind == "word" and first.text in SHOWN:
        rest = tokens[1:] if first.text in ("create", "table") else tokens
        if not rest:
            return f"nothing after SHOW {first.text.upper()}"
        walk = QueryWalk(_join_accounts(rest), connecting=SHOWING)
        walk.run()
        return walk.broken
    return None if _skip_qualified_name(tokens) == len(tokens) else "words after SHOW that it does not know"


def _join_accounts(tokens: Sequence[Token]) -> list[Token]:
    """Without the host part of root@localhost."""
    kept: list[Token] = []
    for token in tokens:
        if (
            token.kind == "param"
            and token.text.startswith("@")
            and kept
            and kept[-1].kind in ("word", "name", "string")
        ):
            continue
        kept.append(token)
    return kept


def _skip_qualified_name(tokens: Sequence[Token], *, start: int = 0) -> int:
    """Return the index behind the name of one or more parts at `start`; `start` where there is none."""
    index = start
    while index < len(tokens) and tokens[index].kind in ("word", "name"):
        index += 1
        if index < len(tokens) - 1 and tokens[index] == ("punct", "."):
            index += 1
        else:
            break
    return index


def _judge_pragma(tokens: Sequence[Token]) -> str | None:
    end = _skip_qualified_name(tokens)
    name = tokens[end - 1].text if end else ""
    rest = tokens[end:]
    simple_argument = (
        len(rest) == 3
        and (rest[0].text, rest[2].text) == ("(", ")")
        and rest[1].kind in ("word", "name", "string", "number")
    )
    if (name in READING_PRAGMAS and (not rest or simple_argument)) or (name in BARE_PRAGMAS and not rest):
        return None
    raise QueryDoubt("pragma", f"PRAGMA {name[:40]} may change the database.")


# EXPLAIN and DESCRIBE, which MySQL takes for the same.


def _judge_explain(tokens: Sequence[Token], marks: set[str]) -> str | None:
    start, runs = _explain_options(tokens)
    if start == len(tokens):
        return None if start == 1 and not runs else "nothing to explain"
    first = tokens[start]
    text = first.text if first.kind in ("word", "punct") else ""
    if runs:
        marks.add("explain_analyze")
    if text in _QUERY:
        return _judge_query(tokens[start:], marks, explained=True)
    if text in EXPLAINED and not runs:
        walk = QueryWalk(tokens[start:], write=True)
        walk.run()
        return walk.broken
    if runs:
        raise QueryDoubt("explain_analyze", "EXPLAIN ANALYZE runs the statement that it explains.")
    return _judge_describe(tokens[start:])


def _judge_describe(tokens: Sequence[Token]) -> str | None:
    """Return the name of a table, and of a column of it or a pattern; or FOR CONNECTION 5."""
    if tokens[0] == ("word", "connection") and [token.kind for token in tokens[1:]] == ["number"]:
        return None
    QueryWalk(tokens).run()
    end = _skip_qualified_name(tokens)
    one_more = end == len(tokens) - 1 and tokens[end].kind in ("word", "name", "string")
    if end and (end == len(tokens) or one_more):
        return None
    return "words that do not name a table"


def _explain_options(tokens: Sequence[Token]) -> tuple[int, bool]:
    """Return the index behind the options, and whether the statement is run."""
    index, runs = 0, False
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "word" and token.text in _ANALYZE:
            runs = True
        elif token == ("word", "format"):
            index += 2 if index + 1 < len(tokens) and tokens[index + 1] == ("op", "=") else 1
            runs = runs or (index < len(tokens) and tokens[index].text.lower() in _ANALYZE)
        elif token == ("punct", "(") and not _begins_query(tokens, index + 1):
            index, listed = _read_option_list(tokens, start=index + 1)
            runs = runs or listed
        elif not (token.kind == "word" and token.text in EXPLAINING) or _is_name(tokens, index):
            break
        index += 1
    return min(index, len(tokens)), runs


def _is_name(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the option word at `index` is rather a name: schema.name, or TABLE at the beginning of a query."""
    return index + 1 < len(tokens) and tokens[index + 1] == ("punct", ".")


def _begins_query(tokens: Sequence[Token], start: int) -> bool:
    return start < len(tokens) and tokens[start].kind in ("word", "punct") and tokens[start].text in _QUERY


def _read_option_list(tokens: Sequence[Token], *, start: int) -> tuple[int, bool]:
    """(FORMAT JSON, ANALYZE off): the index of the closing parenthesis, and whether the statement is run."""
    runs = False
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token == ("punct", ")"):
            return index, runs
        # "analyze" in quotes is the same option.
        if token.kind == "name" or (token.kind == "punct" and token.text != ","):
            break
        if token.kind == "word" and token.text in _ANALYZE:
            following = tokens[index + 1] if index + 1 < len(tokens) else token
            runs = runs or not (following.kind in ("word", "number") and following.text in _OFF)
    raise QueryDoubt("explain_options", "The options of EXPLAIN are not understood.")
