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
#: A query begins with one of these, and a named part contains one, too. A text may have them in other places.
_QUERIES: Final = re.compile("select|values|table|with|window", re.IGNORECASE)
#: Two queries in so many characters stay below all bounds: a name is mentioned as often as there are characters, and
#: each is at most three mentions; but `(a).*` is many.
SMALL_CHARS: Final = 500
_PLAIN_NAME: Final = re.compile(r"[\w$]++", re.ASCII)
_AS: Final = Token("word", "as")
_BETWEEN: Final = ("not", "materialized")


class TooLargeError(ValueError):
    """A statement that SQLite does not get to compile."""


def check_expansion(sql: str, views: Iterable[tuple[str, str]]) -> None:
    """Raise TooLargeError for a statement that has too many words. `views`: their names and definitions."""
    views = _find_mentioned_views(sql, views)
    if is_small([sql, *(definition for _, definition in views)]):
        return
    bodies: dict[str, list[str]] = {}
    for name, definition in views:
        bodies.setdefault(name.lower(), []).extend(_split_definitions(_split_words(definition), bodies))
    if _measure_size(_split_definitions(_split_words(sql), bodies), bodies, {}, MOST_DEPTH) > MOST_WORDS:
        raise TooLargeError("its common table expressions or views mention one another too often: use a table instead")
    if expands_too_far(_with_views(tokenize(sql), views), plans=False):
        raise TooLargeError("its subqueries mention columns of one another too often: use a table instead")


def _find_mentioned_views(sql: str, views: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the views that the statement may read, by themselves or by others, in their order."""
    views = list(views)
    found: set[str] = set()
    text = sql.lower()
    while new := [one for one in views if one[0] not in found and _may_name(text, one[0])]:
        found.update(name for name, _ in new)
        text = "\n".join(definition for _, definition in new).lower()
    return [one for one in views if one[0] in found]


def _may_name(text: str, name: str) -> bool:
    return name.lower() in text or not _PLAIN_NAME.fullmatch(name)  # other names can be written in several ways


def is_small(texts: Sequence[str]) -> bool:
    """Return whether these together are too little to expand far, whatever they contain."""
    n_queries = sum(len(_QUERIES.findall(text)) for text in texts)
    if n_queries > 2 or sum(text.count("(") for text in texts) > MOST_DEPTH:
        return False
    return n_queries < 2 or (sum(map(len, texts)) <= SMALL_CHARS and not _may_list(texts))


def _may_list(texts: Sequence[str]) -> bool:
    """Return whether there may be a row in parentheses with a star behind it."""
    return all(any(sign in text for text in texts) for sign in ").*")


def _split_words(sql: str) -> list[str]:
    """Return the names, strings and words of a text, each as SQLite compares it, with its parentheses and dots."""
    found = []
    for piece in _PIECE.finditer(sql):
        text = piece["word"] or (piece["sign"] or "").strip(",*")
        if quoted := piece["quoted"]:
            text = _unquote_name(quoted) or '""'
        if text:
            found.append(text.lower())
    return found


def tokenize(sql: str) -> list[Token]:
    """Return the same as tokens, however long the text is. A string is a name, as SQLite takes it where it fits."""
    found = []
    for piece in _PIECE.finditer(sql):
        if quoted := piece["quoted"]:
            found.append(Token("name", _unquote_name(quoted)))
        elif word := piece["word"]:
            found.append(Token("number" if word[0].isdigit() else "word", word.lower()))
        elif sign := piece["sign"]:
            found.append(Token("op" if sign == "*" else "punct", sign))
    return found


def _unquote_name(quoted: str) -> str:
    return quoted[1:-1].replace(quoted[-1] * 2, quoted[-1])


def _with_views(tokens: list[Token], views: Iterable[tuple[str, str]]) -> list[Token]:
    """Return the statement behind the views that it reads, as common table expressions."""
    definitions = {name.lower(): definition for name, definition in views}
    mentioned = tokens
    while mentioned:
        names = dict.fromkeys(token.text.lower() for token in mentioned)
        mentioned = []
        for name in names:
            if (definition := definitions.pop(name, None)) is not None:
                body = tokenize(definition)[3:]  # behind CREATE VIEW and the name
                mentioned += [Token("name", name), *_parenthesize_body(body)]
        tokens = [*mentioned, *tokens]
    return tokens


def _parenthesize_body(body: Sequence[Token]) -> list[Token]:
    begins = body.index(_AS) + 1 if _AS in body else len(body)
    return [*body[:begins], Token("punct", "("), *body[begins:], Token("punct", ")")]


def _split_definitions(words: Sequence[str], bodies: dict[str, list[str]]) -> list[str]:
    """Add each name before `AS (` with what stands in the parentheses. Return the words that remain."""
    frames: list[tuple[int, list[str]]] = [(0, [])]
    for index, word in enumerate(words):
        if word == "(":
            frames.append((index, []))
        elif word == ")" and len(frames) > 1:
            opening, inside = frames.pop()
            around = frames[-1][1]
            if name := _find_defined_name(words, opening):
                bodies.setdefault(name, []).extend(inside)
                while around and around.pop() != name:
                    pass  # the name that is defined is not a mention of it
            else:
                around.extend(inside)
        else:
            frames[-1][1].append(word)
    return [word for _, inside in frames for word in inside]


def _find_defined_name(words: Sequence[str], opening: int) -> str:
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


def _measure_size(words: Sequence[str], bodies: Mapping[str, Sequence[str]], known: dict[str, int], depth: int) -> int:
    """Return how many words there are in the end. A name within its own definition is not followed."""
    if not depth:
        raise TooLargeError("its common table expressions or views are nested too deep: use a table instead")
    total = len(words)
    for index, word in enumerate(words):
        # `name.column` does not mention a table, and neither does the column.
        if word not in bodies or words[index - 1 : index] == ["."] or words[index + 1 : index + 2] == ["."]:
            continue
        if word not in known:
            known[word] = 0
            known[word] = _measure_size(bodies[word], bodies, known, depth - 1)
        total += known[word]
    return total
