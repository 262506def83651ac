"""Finds where a list of any length is taken away from JSON: `data - keys` compares each key with each name, at one go.

20,000 of each take 9 seconds of PostgreSQL, which cannot interrupt it. The types are not known here, so a list is what
makes one, and each name that may stand for what contains one. Which columns of tables hold lists the database knows.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Final

from gateway.plugin.sql.column_names import iterate_listed_names
from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.words import RESERVED
from gateway.plugin.word_lists import split_words

_MAKING: Final = ("array", "regexp_match", "regexp_split_to_array", "string_to_array", "current_schemas")
#: `text[]` and what becomes one by itself, as the catalogue names them: `b::_text`.
_TYPES: Final = split_words("_text _varchar _bpchar _name _cstring")
#: What is called by one of these has its name, where it has no label.
_HANDING_ON: Final = split_words(
    "coalesce greatest least nullif case max min any_value first_value last_value lag lead mode"
)
#: Columns of these have the names of the first of them.
_COMBINING: Final = frozenset(("word", word) for word in split_words("union intersect except"))
_BEGINS_ITEM: Final = split_words("select distinct all from join lateral on by where having set")
_CASTS: Final = ("op", "::")
_OPENING: Final = (("punct", "("), ("punct", "["), ("word", "case"))
_CLOSING: Final = (("punct", ")"), ("punct", "]"), ("word", "end"))


def find_unbounded_difference(tokens: Sequence[Token], stored: Set[str] = frozenset()) -> str | None:
    """Return the minus sign of a statement of PostgreSQL that may take a long list from a JSON object. None: none.

    `stored`: names of columns that hold lists, in lower case.
    """
    signs = [index for index, token in enumerate(tokens) if token == ("op", "-")]
    if not signs or not (stored or any(_makes_list(tokens, index) for index in range(len(tokens)))):
        return None
    lists = _find_named_lists(tokens, stored)
    for index in signs:
        operand = range(index + 1, _find_operand_end(tokens, index + 1))
        if any(_makes_list(tokens, at) and not _is_written(tokens, at) for at in operand) or any(
            _is_mention(tokens, at) and tokens[at].text.lower() in lists for at in operand
        ):
            return "-"
    return None


def _makes_list(tokens: Sequence[Token], index: int) -> bool:
    token, following = tokens[index], _get_token(tokens, index + 1)
    if token == ("punct", "["):
        return following == ("punct", "]")
    if token.kind not in ("word", "name") or following == ("punct", "."):
        return False
    return token.text.lower().startswith(_MAKING) or token.text.lower() in _TYPES


def _is_written(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the list is `ARRAY['a', 'b']`, or the type of one literal."""
    if tokens[index].text.lower() in _TYPES:
        return _get_token(tokens, index - 1) == _CASTS and _get_token(tokens, index - 2).kind in ("string", "param")
    if tokens[index] == ("punct", "["):
        return _get_token(tokens, index - 2) == _CASTS and _get_token(tokens, index - 3).kind in ("string", "param")
    if tokens[index] != ("word", "array") or _get_token(tokens, index + 1) != ("punct", "["):
        return False
    end = index + 2
    while _get_token(tokens, end).kind in ("string", "param", "number") or _get_token(tokens, end) == ("punct", ","):
        end += 1
    return _get_token(tokens, end) == ("punct", "]")


def _find_operand_end(tokens: Sequence[Token], start: int) -> int:
    """Return the index behind the operand that begins at `start`."""
    depth = 0
    for index in range(start, len(tokens)):
        token = tokens[index]
        if not depth:
            connects = token.kind == "word" and token.text in RESERVED and token not in _OPENING
            operates = token.kind == "op" and token != _CASTS and index > start
            if token in _CLOSING or token == ("punct", ",") or operates or connects:
                return index
        depth += (token in _OPENING) - (token in _CLOSING)
    return len(tokens)


def _find_named_lists(tokens: Sequence[Token], stored: Set[str]) -> set[str]:
    """Return the names that may stand for a list: labels of what contains one, or another such name."""
    named = {token.text.lower() for token in iterate_listed_names(tokens)} | _HANDING_ON | stored
    standing: dict[str, list[str]] = {}
    for name, expression in _iterate_labels(tokens):
        if any(_makes_list(tokens, at) for at in expression) or not _COMBINING.isdisjoint(tokens):
            named.add(name)
        for at in expression:
            if _is_mention(tokens, at):
                standing.setdefault(tokens[at].text.lower(), []).append(name)
    waiting = list(named)
    while waiting:
        new = [name for name in standing.pop(waiting.pop(), ()) if name not in named]
        named.update(new)
        waiting += new
    return named


def _iterate_labels(tokens: Sequence[Token]) -> Iterator[tuple[str, range]]:
    """Yield each label, with the indexes of what it is the label of."""
    for index, token in enumerate(tokens):
        before = _get_token(tokens, index - 1)
        if token.kind not in ("word", "name") or (token.kind == "word" and token.text in RESERVED):
            continue
        spelled = before == ("word", "as")
        connects = before.kind in ("op", "param") or (before.kind == "word" and before.text in RESERVED)
        if not spelled and (connects or before in _OPENING or before.text in (",", ".")):
            continue
        start, depth = index - 1 - spelled, 0
        while start >= 0:
            at = tokens[start]
            depth += (at in _CLOSING) - (at in _OPENING)
            if depth < 0 or (not depth and (at == ("punct", ",") or (at.kind == "word" and at.text in _BEGINS_ITEM))):
                break
            start -= 1
        yield token.text.lower(), range(start + 1, index)


def _is_mention(tokens: Sequence[Token], index: int) -> bool:
    return tokens[index].kind in ("word", "name") and _get_token(tokens, index + 1) != ("punct", "(")


def _get_token(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else Token("punct", "")
