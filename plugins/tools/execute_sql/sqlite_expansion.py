"""The size that a statement has once SQLite has put what its names stand for in their place.

SQLite copies a common table expression, or a view, for each mention, and in the copy once more. Twenty expressions that
each mention the one before four times have no end, take all memory, and nothing interrupts it: SQLite does so while it
compiles. So this is counted before. So is what columns of subqueries stand for, which SQLite copies likewise.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.plugin.sql.expansion import expands_too_far
from gateway.plugin.sql.lexer import Token

MOST_WORDS: Final = 500_000  # half a second and 40 MB, SQLite 3.40
MOST_DEPTH: Final = 200  # a level takes room on the stack of the thread

_PIECE: Final = re.compile(
    r"""--[^\n]*+|/\*.*?(?:\*/|\Z)|(?P<quoted>"(?:[^"]++|"")*+"|'(?:[^']++|'')*+'|`(?:[^`]++|``)*+`|\[[^\]]*+\])"""
    r"|(?P<word>[\w$\u0080-\U0010ffff]++)|(?P<sign>[().,*])",
    re.DOTALL,
)
_AS: Final = Token("word", "as")
_BETWEEN: Final = ("not", "materialized")


class TooLargeError(ValueError):
    """A statement that SQLite does not get to compile."""


def check_expansion(sql: str, views: Iterable[tuple[str, str]]) -> None:
    """Raise TooLargeError for a statement that has too many words. `views`: their names and definitions."""
    bodies: dict[str, list[str]] = {}
    views = list(views)
    for name, definition in views:
        bodies.setdefault(name.lower(), []).extend(_divided(_words(definition), bodies))
    if _size(_divided(_words(sql), bodies), bodies, {}, MOST_DEPTH) > MOST_WORDS:
        raise TooLargeError("its common table expressions or views mention one another too often: use a table instead")
    if expands_too_far(_with_views(_tokens(sql), views), limit_keeps_apart=False):
        raise TooLargeError("its subqueries mention columns of one another too often: use a table instead")


def _words(sql: str) -> list[str]:
    """Return the names, strings and words of a text, each as SQLite compares it, with its parentheses and dots."""
    found = []
    for piece in _PIECE.finditer(sql):
        text, quoted = piece["word"] or (piece["sign"] or "").strip(",*"), piece["quoted"]
        if quoted:
            text = quoted[1:-1].replace(quoted[-1] * 2, quoted[-1]) or '""'
        if text:
            found.append(text.lower())
    return found


def _tokens(sql: str) -> list[Token]:
    """Return the same as tokens, however long the text is."""
    found = []
    for piece in _PIECE.finditer(sql):
        if quoted := piece["quoted"]:
            found.append(Token("string" if quoted[0] == "'" else "name", quoted[1:-1]))
        elif word := piece["word"]:
            found.append(Token("number" if word[0].isdigit() else "word", word.lower()))
        elif sign := piece["sign"]:
            found.append(Token("op" if sign == "*" else "punct", sign))
    return found


def _with_views(tokens: list[Token], views: Iterable[tuple[str, str]]) -> list[Token]:
    """Return the statement behind the views that it reads, as common table expressions."""
    definitions = {name.lower(): definition for name, definition in views}
    mentioned = tokens
    while mentioned:
        names = dict.fromkeys(token.text.lower() for token in mentioned)
        mentioned = []
        for name in names:
            if (definition := definitions.pop(name, None)) is not None:
                body = _tokens(definition)[3:]  # behind CREATE VIEW and the name
                mentioned += [Token("name", name), *_parenthesized(body)]
        tokens = [*mentioned, *tokens]
    return tokens


def _parenthesized(body: Sequence[Token]) -> list[Token]:
    begins = body.index(_AS) + 1 if _AS in body else len(body)
    return [*body[:begins], Token("punct", "("), *body[begins:], Token("punct", ")")]


def _divided(words: Sequence[str], bodies: dict[str, list[str]]) -> list[str]:
    """Add each name before `AS (` with what stands in the parentheses. Return the words that remain."""
    frames: list[tuple[int, list[str]]] = [(0, [])]
    for index, word in enumerate(words):
        if word == "(":
            frames.append((index, []))
        elif word == ")" and len(frames) > 1:
            opening, inside = frames.pop()
            around = frames[-1][1]
            if name := _defined(words, opening):
                bodies.setdefault(name, []).extend(inside)
                while around and around.pop() != name:
                    pass  # the name that is defined is no mention of it
            else:
                around.extend(inside)
        else:
            frames[-1][1].append(word)
    return [word for _, inside in frames for word in inside]


def _defined(words: Sequence[str], opening: int) -> str:
    index = opening - 1
    while index >= 0 and words[index] in _BETWEEN:
        index -= 1
    if index < 1 or words[index] != "as":
        return ""
    index -= 1
    if words[index] == ")":
        depth = 0
        while index > 0:
            depth += (words[index] == ")") - (words[index] == "(")
            index -= 1
            if not depth:
                break
    return words[index]


def _size(words: Sequence[str], bodies: Mapping[str, Sequence[str]], known: dict[str, int], depth: int) -> int:
    """Return how many words there are in the end. A name within its own definition is not followed."""
    if not depth:
        raise TooLargeError("its common table expressions or views are nested too deep: use a table instead")
    total = len(words)
    for index, word in enumerate(words):
        # `name.column` is no mention of a table, and neither is the column.
        if word not in bodies or words[index - 1 : index] == ["."] or words[index + 1 : index + 2] == ["."]:
            continue
        if word not in known:
            known[word] = 0
            known[word] = _size(bodies[word], bodies, known, depth - 1)
        total += known[word]
    return total
