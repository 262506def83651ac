"""Finds the names of a statement that stand for a table's own column wherever they are mentioned.

However often a query mentions one, the planner writes no more in its place than a column. A name is none of these where
the statement gives it to anything else, or where a database does: a call without a label has its function's name.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.words import FUNCTIONS, RESERVED, TYPES
from gateway.plugin.word_lists import split_words

#: What stands at one place of several queries has the name that the first of them gives.
_COMBINING: Final = frozenset(("word", word) for word in split_words("union intersect except values table lateral"))
#: A column of a full join may have one name for two.
_MERGING: Final = frozenset((("word", "natural"), ("word", "using")))
#: Names that databases give, besides the names of most functions and types.
_GIVEN: Final = re.compile(
    r"column\d+|(?s:.*[^a-z0-9_].*)|(?:pg_|hash_|record_|quote_|num_n|json|xml)\w*|(?:int|float)\d"
)
_OTHERS: Final = split_words("timezone varbit bpchar timetz timestamptz bool overlaps case array row exists grouping")
#: Behind these words no label begins.
_BEFORE_COLUMNS: Final = split_words("""
    select distinct all from join where and or not on by having when then else case in like ilike glob between
""")
_NOT_LISTING: Final = RESERVED | split_words("as over filter group in exists materialized")
_MATERIALIZED: Final = split_words("not materialized")
_NAMED: Final = ("word", "name")
_CALLS: Final = (("punct", "("), ("punct", "["))
_CASTS: Final = (("op", "::"), ("word", "as"))


def find_plain_names(tokens: Sequence[Token]) -> frozenset[str]:
    """Return the names that are never given to what is computed. None of them where queries are combined."""
    merges = ("word", "full") in tokens and not _MERGING.isdisjoint(tokens)
    if merges or not _COMBINING.isdisjoint(tokens):
        return frozenset()
    every = {token.text.lower() for token in tokens if token.kind in _NAMED}
    given = {
        token.text.lower()
        for token in (*_iter_given_names(tokens), *iterate_listed_names(tokens), *_iterate_case_names(tokens))
    }
    return frozenset(name for name in every - given if not _is_of_database(name))


def _is_of_database(name: str) -> bool:
    return name in FUNCTIONS or name in TYPES or name in _OTHERS or _GIVEN.fullmatch(name) is not None


def _iter_given_names(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the names where they may mean something other than a column of that name."""
    for index, token in enumerate(tokens):
        before, following = _get_token(tokens, index - 1), _get_token(tokens, index + 1)
        if token.kind == "string":  # SQLite takes one for a name, too
            yield token
        elif token.kind not in _NAMED:
            continue
        elif before == ("word", "as"):
            if not _is_same(tokens, index):
                yield token
        elif before == ("punct", "."):
            if _get_token(tokens, index - 2).kind not in _NAMED or following in _CALLS or _is_of_type(tokens, index):
                yield token
        elif (
            following in _CALLS
            or before.kind in ("string", "number", "param", "name")
            or before.text in (")", "]", "::")
            or (before.kind == "word" and before.text not in _BEFORE_COLUMNS)
        ):
            yield token


def _is_of_type(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the name at `index` ends that of a type in a schema: what is cast without a label is called so."""
    while _get_token(tokens, index - 1) == ("punct", ".") and _get_token(tokens, index - 2).kind in _NAMED:
        index -= 2
    return _get_token(tokens, index - 1) in _CASTS


def _is_same(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the label at `index` is the name of the column before it, which is the whole item."""
    at = index - 2
    if _get_token(tokens, at).kind not in _NAMED or tokens[at].text.lower() != _get_token(tokens, index).text.lower():
        return False
    if _get_token(tokens, at - 1) == ("punct", ".") and _get_token(tokens, at - 2).kind in _NAMED:
        at -= 2
    return _get_token(tokens, at - 1) in (("word", "select"), ("punct", ","))


def iterate_listed_names(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the names of columns behind the name of a table or an expression."""
    for index, token in enumerate(tokens):
        named, before = _get_token(tokens, index - 1), _get_token(tokens, index - 2)
        if token != ("punct", "(") or named.kind not in _NAMED or (named.kind == "word" and named.text in _NOT_LISTING):
            continue
        end = index + 1
        while end < len(tokens) and tokens[end].text not in ("(", ")"):
            end += 1
        begins = _get_token(tokens, end + 2) == ("punct", "(") or _get_token(tokens, end + 2).text in _MATERIALIZED
        expression = before == ("punct", ",") and _get_token(tokens, end + 1) == ("word", "as") and begins
        renaming = before.kind == "word" and (before.text in ("as", "with", "recursive") or before.text not in RESERVED)
        if expression or renaming or before.kind == "name" or before == ("punct", ")"):
            yield from (one for one in tokens[index:end] if one.kind in _NAMED)


def _iterate_case_names(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the names behind ELSE: PostgreSQL gives them to a CASE that has no label."""
    start = len(tokens)
    for index, token in enumerate(tokens):
        if token == ("word", "else"):
            start = index
        elif token == ("word", "end"):
            yield from (one for one in tokens[start:index] if one.kind in _NAMED)
            start = index


def _get_token(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else Token("punct", "")
