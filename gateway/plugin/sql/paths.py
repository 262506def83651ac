"""Finds paths into JSON (jsonpath) that compare each of many values with each of many others.

`$ ? (@.a[*] == @.b[*])` does so in one step that PostgreSQL cannot interrupt: an hour for two lists of 1 MB. A
comparison with a value that the path itself writes out is none of them. A path that is not written out is not known.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.plugin.sql.lexer import Token
from gateway.plugin.word_lists import split_words

#: An operator of comparison, and the beginning of another path to the right of it.
_COMPARED: Final = re.compile(r"[=<>](?:[\s(+-]|/\*(?>.*?\*/))*+[$@]", re.DOTALL)
_PATH_FUNCTIONS: Final = "jsonb_path_"
_STANDARD: Final = split_words("json_value json_query json_exists json_table")
_TYPE: Final = "jsonpath"
_WRITTEN: Final = ("string", "param")
_OPENING: Final = (("punct", "("), ("punct", "["))
_CLOSING: Final = (("punct", ")"), ("punct", "]"))


def compares_paths(text: str) -> bool:
    """Return whether a path with this text may compare the values of two paths."""
    return _COMPARED.search(text) is not None


def find_unbounded_path(tokens: Sequence[Token]) -> str | None:
    """Return the path of a statement of PostgreSQL that may compare values of any number with each other, or its place.

    None: there is none.
    """
    uses = False
    for index, token in enumerate(tokens):
        if token.kind in ("word", "name"):
            name = token.text.lower()
            if (_TYPE in name and not _casts_literal(tokens, index)) or (
                name in _STANDARD and not _has_literal_path(tokens, index + 1)
            ):
                return name
            uses = uses or _TYPE in name or name in _STANDARD or name.startswith(_PATH_FUNCTIONS)
        elif token.kind in ("op", "param"):
            uses = uses or "@" in token.text
    if not uses:
        return None
    # Literals that follow one another are one to PostgreSQL.
    text = "".join(token.text for token in tokens if token.kind == "string")
    escaped = any(first == ("word", "e") and "\\" in second.text for first, second in pairwise(tokens))
    return _TYPE if escaped or compares_paths(text) else None


def _casts_literal(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the type at `index` is that of one literal or parameter."""
    opening, value, between, own, following = (_get_token(tokens, place) for place in range(index - 3, index + 2))
    if own.text.lower() != _TYPE or following in (("punct", "["), ("word", "array")):
        return False
    casts = between == ("op", "::") or (between == ("word", "as") and opening == ("punct", "("))
    return following.kind == "string" or (casts and value.kind in _WRITTEN)


def _has_literal_path(tokens: Sequence[Token], opening: int) -> bool:
    """Return whether the second argument behind the parenthesis at `opening` is one literal or parameter."""
    if _get_token(tokens, opening) != ("punct", "("):
        return True  # it is not a call
    depth = 0
    for index in range(opening, len(tokens)):
        token = tokens[index]
        depth += (token in _OPENING) - (token in _CLOSING)
        if token == ("punct", ",") and depth == 1:
            return _get_token(tokens, index + 1).kind in _WRITTEN and _get_token(tokens, index + 2).kind in (
                "word",
                "punct",
            )
        if not depth:
            break
    return False


def _get_token(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else Token("punct", "")
