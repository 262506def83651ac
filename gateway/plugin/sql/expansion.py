"""Counts how large a database may make a statement before it looks at the clock again.

PostgreSQL's planner writes what a column of a subquery stands for in each place that mentions the column, and in the
copy once more: 13 subqueries of `SELECT x+x+x+x AS x FROM (...)` take 40 GB, and the server ends when there is no more.

Tables weigh more where they are copied, as a subquery that is a value or NOT MATERIALIZED is: the planner opens each,
and writes views out. 1,600 characters of UNION ALL in one another are 100,000 views, of half a megabyte each. So do the
columns of the server's own views.

The count is an upper bound. A query is at most as large as its own text and all that it reads from, times the mentions
of its commonest name. Names that only ever mean a table's own column do not count (`column_names.py`). MATERIALIZED
keeps a subquery apart, and to PostgreSQL so do LIMIT and OFFSET. SQLite does the same while it compiles, in the
gateway's own memory.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from gateway.plugin.sql.column_names import find_plain_names
from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.recursion import find_defined_name
from gateway.plugin.sql.words import RESERVED
from gateway.plugin.word_lists import split_words

MOST_TOKENS: Final = 1_000_000  # half a second and 200 MB, PostgreSQL 15 and SQLite 3.40
MOST_DEPTH: Final = 200  # of parentheses, and of queries that read one another
MOST_READ: Final = 500_000  # tokens, each once for every query that it stands in: a second
MOST_OF_ONE_NAME: Final = 20  # common table expressions
MOST_COLUMNS: Final = 1600  # of one row of PostgreSQL
TABLE_TOKENS: Final = 2000  # each in a copy: of a view like `information_schema.columns`, half a megabyte and 5 ms
VIEW_TOKENS: Final = 50  # for each that may mention what such a view computes
_QUERY: Final = split_words("select with values table")
_BEGINS_TABLE: Final = split_words("from join table")
_SYSTEM_VIEWS: Final = ("information_schema", "pg_")
_KEEPS_APART: Final = split_words("limit offset fetch")
_LABELS: Final = (("word", "as"), ("punct", "."))
#: Before `*` that stands for columns, and not for multiplication.
_LISTS: Final = (
    ("word", "select"),
    ("word", "distinct"),
    ("word", "all"),
    ("punct", ","),
    ("punct", "."),
    ("punct", ")"),
)


#: BETWEEN SYMMETRIC has two more; a join compares columns that it does not mention, and puts two into one.
_TWICE: Final = (("word", "symmetric"), ("word", "natural"), ("word", "using"))
#: A name is a label or a table behind the one, a table or a function before the other.
_BEFORE_OTHERS: Final = (("word", "as"), ("word", "join"))
_BEHIND_OTHERS: Final = (("punct", "."), ("punct", "("))
_BEFORE_BY: Final = split_words("group order partition")  # where it is not a name


@dataclass(slots=True)
class _Block:
    """The text between two parentheses, or the whole. `name`: it is the common table expression of that name.

    `closed`: it is read by the query around it, and cannot name what that one reads. `head`: where it begins, with its
    name and its list of columns. `copied`: it is written out for each mention, with its tables.
    """

    opening: int
    head: int = 0
    end: int = 0
    name: str = ""
    closed: bool = False
    copied: bool = False
    views: bool = False
    apart: bool = False
    lateral: bool = False
    names: list[tuple[int, str]] = field(default_factory=list)
    inner: list["_Block"] = field(default_factory=list)


def expands_too_far(tokens: Sequence[Token], *, plans: bool = True) -> bool:
    """Return whether a query in the statement may be too large once it is planned. `plans`: by PostgreSQL."""
    if _measure_depth(tokens) > MOST_DEPTH:
        return True
    whole = _list_blocks(tokens, plans=plans)
    every = _list_all(whole)
    if len(every) == 1:
        return len(tokens) > MOST_TOKENS
    if sum(block.end - block.opening for block in every) > MOST_READ:
        return True
    named: dict[str, list[_Block]] = {}
    for block in every:
        named.setdefault(block.name, []).append(block)
    named.pop("", None)
    if any(len(blocks) > MOST_OF_ONE_NAME for blocks in named.values()):
        return True
    known: dict[int, int] = {}
    plain = find_plain_names(tokens) - named.keys()
    return any(_measure_size(tokens, block, named, known, plain, MOST_DEPTH) > MOST_TOKENS for block in every)


def _measure_depth(tokens: Sequence[Token]) -> int:
    signs = (1 if token.text == "(" else -1 for token in tokens if token.kind == "punct" and token.text in "()")
    return max(accumulate(signs), default=0)


def _list_blocks(tokens: Sequence[Token], *, plans: bool) -> _Block:
    """Return the whole statement, with the queries in it."""
    frames, last_list = [_Block(-1, end=len(tokens))], -1
    for index, token in enumerate(tokens):
        frame = frames[-1]
        if token == ("punct", "("):
            name = find_defined_name(tokens, index, last_list)
            head = next(at for at in range(index, -1, -1) if not name or tokens[at].text.lower() == name)
            frames.append(_Block(index, head, len(tokens), name))
        elif token == ("punct", ")") and len(frames) > 1:
            frames.pop().end = index
            last_list = frame.opening
            first = tokens[frame.opening + 1]
            if frame.name or (first.kind == "word" and first.text in _QUERY):
                frames[-1].inner.append(frame)
                while frames[-1].names and frames[-1].names[-1][0] >= frame.head:
                    frames[-1].names.pop()
                frame.closed = bool(frame.name) or _is_read(tokens, frame.opening, frames[-1].opening)
                before = tokens[frame.opening - 2 : frame.opening]
                materialized = list(before[1:]) == [("word", "materialized")]
                frame.apart |= materialized and before[0] != ("word", "not")
                frame.copied = plans and (not frame.closed or (materialized and before[0] == ("word", "not")))
            else:
                frames[-1].names += frame.names
                frames[-1].inner += frame.inner
                frames[-1].lateral |= frame.lateral
                frames[-1].views |= frame.views
        elif token.kind in ("word", "name"):
            frame.names.append((index, token.text.lower()))
            word = token.text if token.kind == "word" and tokens[index - 1] not in _LABELS else ""
            frame.apart |= plans and word in _KEEPS_APART
            frame.lateral |= word == "lateral"
            frame.views |= plans and token.text.lower().startswith(_SYSTEM_VIEWS)
    while len(frames) > 1:
        frames[-2].inner.append(frames.pop())
    return frames[0]


def _list_all(block: _Block) -> list[_Block]:
    """Return the block and all within it, outer ones first."""
    found = [block]
    for one in found:
        found += one.inner
    return found


def _measure_size(
    tokens: Sequence[Token],
    block: _Block,
    named: Mapping[str, list[_Block]],
    known: dict[int, int],
    plain: Set[str],
    depth: int,
) -> int:
    """Return the bound of one query. One that reads itself is a table there. `plain`: names that do not multiply."""
    if block.opening in known:
        return known[block.opening]
    if not depth:
        return MOST_TOKENS + 1
    known[block.opening] = 1
    read = [inner for inner in block.inner if not inner.name]
    read += [one for _, name in block.names for one in named.get(name, ())]
    total = 0
    for one in read:
        size = _measure_size(tokens, one, named, known, plain, depth - 1)
        # One that is LATERAL reads the ones before it.
        before = total * _count_mentions(tokens[one.opening + 1 : one.end], plain) if block.lateral else 0
        total = min(total + before + (1 if one.apart else size), MOST_TOKENS + 1)
    text = _open_text(tokens, block)
    own = _count_own_tokens(tokens, block, text)
    known[block.opening] = min(own + _count_mentions(text, plain) * total, MOST_TOKENS + 1)
    return known[block.opening]


def _count_own_tokens(tokens: Sequence[Token], block: _Block, text: Sequence[Token]) -> int:
    """Return how much the `text` of a query counts for, with the tables that it has in each copy."""
    inside = tokens[block.opening + 1 : block.end] if block.copied else ()
    tables = sum(token.kind == "word" and token.text in _BEGINS_TABLE for token in inside)
    return len(text) * (VIEW_TOKENS if block.views else 1) + tables * TABLE_TOKENS


def _is_read(tokens: Sequence[Token], opening: int, around: int) -> bool:
    """Return whether the query at `opening` stands behind FROM or JOIN of the query at `around`."""
    begins = tokens[around + 1]
    if begins.kind != "word" or begins.text not in _QUERY or tokens[opening - 1].kind != "word":
        return False
    return tokens[opening - 1].text in ("from", "join") and tokens[opening - 2] != ("word", "distinct")


def _open_text(tokens: Sequence[Token], block: _Block) -> list[Token]:
    """Return the text that may contain the names that the query reads."""
    found, start = list[Token](), block.opening + 1
    for inner in sorted(block.inner, key=lambda one: one.opening):
        if inner.closed:
            found += tokens[start : inner.head]
            start = inner.end
    return [*found, *tokens[start : block.end]]


def _count_mentions(tokens: Sequence[Token], plain: Set[str]) -> int:
    """Return how often the commonest name that is not plain is mentioned, with what stands for several mentions."""
    names: Counter[str] = Counter()
    more, depth, lists = 0, 0, list[int]()
    before = Token("punct", "")
    for index, token in enumerate(tokens):
        begins_list = before == ("word", "from") and tokens[index - 2] != ("word", "distinct")
        following = tokens[index + 1] if index + 1 < len(tokens) else before
        if token == ("punct", "("):
            more += bool(lists) and before.text in ("(", ",")  # (a, b) = (1, 2) OR (a, b) = (3, 4)
            depth += 1
            lists += [depth] if before == ("word", "in") else []
        elif token == ("punct", ")"):
            lists = [one for one in lists if one != depth]
            depth -= 1
        elif token == ("op", "*"):
            more += before in _LISTS
            # (a).* is (a).x, (a).y
            more += MOST_COLUMNS * (list(tokens[max(index - 2, 0) : index]) == [("punct", ")"), ("punct", ".")])
        elif token == ("word", "between"):  # a >= b AND a <= c
            more += 1
        elif token in _TWICE:
            more += 2
        elif not (begins_list and depth == 0) and _is_mention(token, before, following):
            names[token.text.lower()] += token.text.lower() not in plain
            more += bool(lists)  # a = b OR a = c
        before = token
    return max(max(names.values(), default=0) + more, 1)


def _is_mention(token: Token, before: Token, following: Token) -> bool:
    """Return whether the name may be that of a column, or of a row."""
    if token.kind not in ("word", "name") or before in _BEFORE_OTHERS or following in _BEHIND_OTHERS:
        return False
    if token == ("word", "by") and before.text in _BEFORE_BY:
        return False
    return token.kind == "name" or before == ("punct", ".") or token.text not in RESERVED
