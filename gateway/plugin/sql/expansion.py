"""Counts how large PostgreSQL's planner may make a statement, before it looks at the clock again.

The planner writes what a column of a subquery stands for in each place that mentions the column, and in the copy once
more: 13 subqueries of `SELECT x+x+x+x AS x FROM (...)` take 40 GB, and the server ends when there is no more.

The count is an upper bound. A query is at most as large as all that it reads from, times the mentions of its commonest
name. LIMIT, OFFSET and MATERIALIZED keep a subquery apart.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.recursion import defined_name
from gateway.plugin.sql.words import CONNECTING
from gateway.plugin.words import words

MOST_MENTIONS: Final = 250_000  # 0.4 s and 170 MB, PostgreSQL 15
MOST_DEPTH: Final = 100  # of queries that read one another
_QUERY: Final = words("select with values table")
_KEEPS_APART: Final = words("limit offset fetch")
_LABELS: Final = (("word", "as"), ("punct", "."))
#: Before `*` that stands for columns, and is no multiplication.
_LISTS: Final = (
    ("word", "select"),
    ("word", "distinct"),
    ("word", "all"),
    ("punct", ","),
    ("punct", "."),
    ("punct", ")"),
)


@dataclass(slots=True)
class _Block:
    """The text between two parentheses, or the whole. `name`: it is the common table expression of that name.

    `closed`: it is read by the query around it, and cannot name what that one reads.
    """

    opening: int
    end: int = 0
    name: str = ""
    closed: bool = False
    apart: bool = False
    lateral: bool = False
    names: list[str] = field(default_factory=list)
    inner: list["_Block"] = field(default_factory=list)


def expands_too_far(tokens: Sequence[Token]) -> bool:
    """Return whether a query in the statement may have too many mentions of names once it is planned."""
    whole = _blocks(tokens)
    every = list(_all(whole))
    named: dict[str, list[_Block]] = {}
    for block in every:
        named.setdefault(block.name, []).append(block)
    named.pop("", None)
    known: dict[int, int] = {}
    return any(_size(tokens, block, named, known, MOST_DEPTH) > MOST_MENTIONS for block in every)


def _blocks(tokens: Sequence[Token]) -> _Block:
    """Return the whole statement, with the queries in it."""
    frames, last_list = [_Block(-1, len(tokens))], -1
    for index, token in enumerate(tokens):
        frame = frames[-1]
        if token == ("punct", "("):
            frames.append(_Block(index, len(tokens), defined_name(tokens, index, last_list)))
        elif token == ("punct", ")") and len(frames) > 1:
            frames.pop().end = index
            last_list = frame.opening
            first = tokens[frame.opening + 1]
            if frame.name or (first.kind == "word" and first.text in _QUERY):
                frames[-1].inner.append(frame)
                frame.closed = bool(frame.name) or _is_read(tokens, frame.opening, frames[-1].opening)
                before = tokens[frame.opening - 2 : frame.opening]
                frame.apart |= list(before[1:]) == [("word", "materialized")] and before[0] != ("word", "not")
            else:
                frames[-1].names += frame.names
                frames[-1].inner += frame.inner
                frames[-1].lateral |= frame.lateral
        elif token.kind in ("word", "name"):
            frame.names.append(token.text.lower())
            word = token.text if token.kind == "word" and tokens[index - 1] not in _LABELS else ""
            frame.apart |= word in _KEEPS_APART
            frame.lateral |= word == "lateral"
    while len(frames) > 1:
        frames[-2].inner.append(frames.pop())
    return frames[0]


def _all(block: _Block) -> Iterator[_Block]:
    yield block
    for inner in block.inner:
        yield from _all(inner)


def _size(
    tokens: Sequence[Token], block: _Block, named: Mapping[str, list[_Block]], known: dict[int, int], depth: int
) -> int:
    """Return the bound of one query. One that reads itself is a table there."""
    if block.opening in known:
        return known[block.opening]
    if not depth:
        return MOST_MENTIONS + 1
    known[block.opening] = 1
    read = [inner for inner in block.inner if not inner.name]
    read += [one for name in block.names for one in named.get(name, ())]
    total = 0 if not block.lateral else 1
    for one in read:
        size = _size(tokens, one, named, known, depth - 1)
        part = 1 if one.apart else size
        # One that is LATERAL reads those before it.
        total = min(total * max(part, 1) if block.lateral else total + part, MOST_MENTIONS + 1)
    known[block.opening] = min(_mentions(_open_text(tokens, block)) * max(total, 1), MOST_MENTIONS + 1)
    return known[block.opening]


def _is_read(tokens: Sequence[Token], opening: int, around: int) -> bool:
    """Return whether the query at `opening` stands behind FROM or JOIN of the query at `around`."""
    begins = tokens[around + 1]
    if begins.kind != "word" or begins.text not in _QUERY or tokens[opening - 1].kind != "word":
        return False
    return tokens[opening - 1].text in ("from", "join") and tokens[opening - 2] != ("word", "distinct")


def _open_text(tokens: Sequence[Token], block: _Block) -> list[Token]:
    """Return the text whose names may be those that the query reads."""
    found, start = list[Token](), block.opening + 1
    for inner in sorted(block.inner, key=lambda one: one.opening):
        if inner.closed:
            found += tokens[start : inner.opening]
            start = inner.end
    return [*found, *tokens[start : block.end]]


def _mentions(tokens: Sequence[Token]) -> int:
    """Return how often the commonest name is mentioned, with what stands for several mentions."""
    names: Counter[str] = Counter()
    more, depth, lists = 1, 0, list[int]()
    before = Token("punct", "")
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else before
        if token == ("punct", "("):
            depth += 1
            lists += [depth] if before == ("word", "in") else []
        elif token == ("punct", ")"):
            lists = [one for one in lists if one != depth]
            depth -= 1
        elif token == ("op", "*"):
            more += before in _LISTS
        elif token == ("word", "between"):  # a >= b AND a <= c
            more += 1
        elif token == ("word", "symmetric"):
            more += 2
        elif _is_mention(token, before, following):
            names[token.text.lower()] += 1
            more += bool(lists)  # a = b OR a = c
        before = token
    return max(names.values(), default=0) + more


def _is_mention(token: Token, before: Token, following: Token) -> bool:
    if token.kind == "name":
        return before != ("word", "as") and following not in (("punct", "."), ("punct", "("))
    if token.kind != "word" or before == ("word", "as") or following in (("punct", "."), ("punct", "(")):
        return False
    return before == ("punct", ".") or token.text not in CONNECTING
