"""Finds what takes time in proportion to the product of two values, in one step that PostgreSQL cannot interrupt.

`translate(a, b, c)` compares each letter of `a` with each of `b`: hours for two values of 1 MB, and neither
`statement_timeout` nor the end of the connection stops it. Where one of the two is written out in the statement, and
short, the time is proportional to the other. Only the operators that PostgreSQL interrupts may have two values from
elsewhere.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.words import RESERVED, TYPES
from gateway.plugin.word_lists import split_words

LONGEST_CHARS: Final = 1000  # of all that is written out, so that it is short
MOST_PARSED_CHARS: Final = 16_384  # of all that is parsed in time squared: 0.1 s
_ANY: Final = 1 << 20  # the length of a value that is not written out
#: Of the first two arguments of these, one has to be written out. `position` and `trim` divide theirs with a word.
_FUNCTIONS: Final = split_words("""
    translate btrim ltrim rtrim trim position strpos replace split_part string_to_array string_to_table like
    arraycontains to_date to_timestamp
""")
#: All but one argument of these have to be.
_RANKING: Final = split_words("ts_rank ts_rank_cd")
#: Types whose texts are parsed in time squared: 30,000 attributes take 20 s, a search of 100,000 words 25 s.
_PARSED: Final = split_words("xml tsquery")
_SEARCHES: Final = split_words("to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery")
_VECTOR: Final = "to_tsvector"
#: Where a name may be another's than that of a table beside it.
_AMBIGUOUS: Final = frozenset(("word", word) for word in split_words("using natural"))
_BEGINS_TABLE: Final = (("word", "from"), ("word", "join"), ("punct", ","))
_FROM_ENDS: Final = split_words("where group having window order limit offset fetch for union intersect except")
_DIVIDING: Final = (("punct", ","), ("word", "from"), ("word", "in"))
_TRIMMED: Final = split_words("leading trailing both")
#: Operators, as their letters follow one another: of lists, JSON, ranges and paths; and LIKE, spelled so.
_OPERATORS: Final = ("@>", "<@", "&&", "<->", "?|", "?&", "?#", "~~", "~=")
_PATTERNS: Final = (("word", "like"), ("word", "ilike"))
#: What a value that is written out is made of, besides literals: what keeps it as short as it is. Words that are no
#: names, calls of these functions, and types where nothing else can stand.
_RESERVED: Final = split_words("null true false array any all some current_date current_timestamp localtimestamp")
_CALLED: Final = (
    split_words("""
    chr lower upper concat row now point daterange tsrange tstzrange int4range int8range numrange
""")
    | _SEARCHES
)
_TYPES: Final = TYPES | split_words("""
    e text json jsonb uuid interval bytea boolean bool precision with without zone name regconfig tsquery
""")
_GOES_ON: Final = split_words("collate at operator")  # an operand does, behind these
_JOINING: Final = tuple(("op", text) for text in ("||", "::", "-", "+"))
_OPENING: Final = (("punct", "("), ("punct", "["))
_CLOSING: Final = (("punct", ")"), ("punct", "]"))
_BEGINS: Final = split_words("select where and or not on when then else having by")
#: Sorts the marks of one letter, each against each.
_ALONE: Final = split_words("normalize normalized")


def find_unbounded_product(tokens: Sequence[Token]) -> str | None:
    """Return what of a statement of PostgreSQL may compare two values that are both of any length. None: nothing.

    The values that are written out count together: one row is computed without a look at the clock.
    """
    chars, parsed, searches = 0, 0, _list_named_searches(tokens)
    tokens = _with_searches(tokens, searches)
    for index, token in enumerate(tokens):
        text, added = token.text.lower(), 0
        if token.kind in ("word", "name"):
            parsed += _measure_parsed_chars(tokens, index)
            if parsed > MOST_PARSED_CHARS:
                return text
            if text in _ALONE:
                return text
            if text in _FUNCTIONS and _get_token(tokens, index + 1) == ("punct", "("):
                added = _measure_argument_chars(tokens, index + 2, 2)
            elif text in _RANKING and _get_token(tokens, index + 1) == ("punct", "("):
                added = _measure_argument_chars(tokens, index + 2, len(tokens))
            if token in _PATTERNS:  # also before a parenthesis, which is not a list of arguments then
                added = max(added, _measure_operand_chars(tokens, index + 1))
        elif token.kind in ("op", "param"):
            text, end = _read_operator(tokens, index)
            if text:
                left, right = _measure_literal_chars(tokens, index - 1), _measure_operand_chars(tokens, end)
                added = min(left, right)
            elif _searches_unwritten(tokens, index, searches):
                return "@@"
        chars += added
        if chars > LONGEST_CHARS:
            return text
    return None


def _measure_parsed_chars(tokens: Sequence[Token], index: int) -> int:
    """Return the length of what the name at `index` parses. `_ANY`: not all of it is written out."""
    text, following = tokens[index].text.lower(), _get_token(tokens, index + 1)
    if text in _SEARCHES and following == ("punct", "("):
        return _measure_argument_chars(tokens, index + 2, len(tokens), free=0)
    if text not in _PARSED:
        return 0
    if following.kind == "string":
        return len(following.text)
    at = index - 1
    if _get_token(tokens, at) == ("punct", "."):
        if _get_token(tokens, at - 1).text.lower() != "pg_catalog":
            return 0  # a column
        at -= 2
    before, value = _get_token(tokens, at), _get_token(tokens, at - 1)
    casts = before == ("word", "as") and following == ("punct", ")")
    if before == ("op", "::") or casts:
        alone = value.kind in ("string", "param") and (not casts or _get_token(tokens, at - 2) == ("punct", "("))
        return len(value.text) if alone and following != ("punct", "[") else _ANY
    defines = before.kind == "name" or (before.kind == "word" and before.text not in RESERVED)
    return _ANY if defines else 0


def _searches_unwritten(tokens: Sequence[Token], index: int, searches: Collection[str]) -> bool:
    """Return whether `@@` at `index` may search for a text that is not written out, as `text @@ text` does."""
    if tokens[index] != ("op", "@") or _get_token(tokens, index + 1) != ("op", "@"):
        return False
    left, right = index - 1, index + 2
    if _measure_operand_chars(tokens, right) < _ANY:
        return False
    named = _get_token(tokens, left).text.lower() in searches and _get_token(tokens, left - 1) != ("punct", ".")
    named |= _get_token(tokens, right).text.lower() in searches and _get_token(tokens, right + 1) not in (
        ("punct", "."),
        *_OPENING,
    )
    cast = _get_token(tokens, left).text.lower() == "tsquery" and _get_token(tokens, left - 1) == ("op", "::")
    vector = _get_token(tokens, right).text.lower().endswith(_VECTOR) and _get_token(tokens, right + 1) == (
        "punct",
        "(",
    )
    return not (named or cast or vector or _find_call_name(tokens, left).endswith((_VECTOR, *_SEARCHES)))


def _find_call_name(tokens: Sequence[Token], end: int) -> str:
    """Return the name of the call that ends at `end`. Empty: none does."""
    depth = 0
    for index in range(end, -1, -1):
        depth += (tokens[index] in _CLOSING) - (tokens[index] in _OPENING)
        if not depth:
            return _get_token(tokens, index - 1).text.lower() if index < end else ""
    return ""


def _list_named_searches(tokens: Sequence[Token]) -> dict[str, str]:
    """Return the names of searches in FROM, with their texts, where no other query may mean something else by them."""
    if tokens.count(Token("word", "select")) != 1 or not _AMBIGUOUS.isdisjoint(tokens):
        return {}
    return dict(_iterate_searches(tokens))


def _with_searches(tokens: Sequence[Token], found: Mapping[str, str]) -> Sequence[Token]:
    """Return the statement with what stands in FROM as `to_tsquery('a & b') query` in the place of such arguments."""
    if not found:
        return tokens
    return [
        Token("string", found[token.text.lower()])
        if token.kind in ("word", "name")
        and token.text.lower() in found
        and _get_token(tokens, index - 1) in (("punct", "("), ("punct", ","))
        and _get_token(tokens, index + 1) in (("punct", ")"), ("punct", ","))
        else token
        for index, token in enumerate(tokens)
    ]


def _iterate_searches(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Yield the names of FROM that stand for a search that is written out, with its text."""
    depth, inside, opening = 0, False, -1
    for index, token in enumerate(tokens):
        before = _get_token(tokens, index - 1)
        if token == ("punct", "("):
            depth += 1
            begins = _get_token(tokens, index - 2)
            search = before.kind == "word" and before.text in _SEARCHES and begins in _BEGINS_TABLE
            opening = index if depth == 1 and inside and search else opening if depth > 1 else -1
        elif token == ("punct", ")"):
            depth -= 1
            if depth == 0 and opening >= 0:
                named = _get_token(tokens, index + 1 + (_get_token(tokens, index + 1) == ("word", "as")))
                written = tokens[opening + 1 : index]
                if named.kind in ("word", "name") and all(_is_short(tokens, at) for at in range(opening + 1, index)):
                    yield named.text.lower(), "".join(one.text for one in written)
        elif depth == 0 and token.kind == "word":
            inside = (inside or (token.text == "from" and before != ("word", "distinct"))) and (
                token.text not in _FROM_ENDS
            )


def _read_operator(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Return the known operator that begins at `index`, and where its right side begins."""
    spelled, end = "", index
    while end < len(tokens) and len(spelled) < 3 and tokens[end].kind in ("op", "param"):
        spelled += tokens[end].text
        end += 1
        for operator in _OPERATORS:
            if operator in spelled:
                # A name may be glued to it: `<@b` ends in a parameter to other dialects.
                return operator, end - (tokens[end - 1].kind == "param" and not spelled.endswith(operator))
    return "", index


def _measure_literal_chars(tokens: Sequence[Token], index: int) -> int:
    """Return the length of what ends at `index`. `_ANY`: it is not one literal and no more."""
    if _get_token(tokens, index).kind not in ("string", "param"):
        return _ANY
    before = _get_token(tokens, index - 1)
    alone = before in (("punct", "("), ("punct", ",")) or (before.kind == "word" and before.text in _BEGINS)
    return len(tokens[index].text) if alone else _ANY


def _measure_argument_chars(tokens: Sequence[Token], start: int, most: int, *, free: int = 1) -> int:
    """Return the length of what is written out of the first `most` arguments behind the parenthesis before `start`.

    `_ANY`: more than `free` of them are not.
    """
    unwritten, depth, arguments, written, chars = 0, 0, 0, True, 0
    for index in range(start, len(tokens)):
        token = tokens[index]
        if depth == 0 and (token in _DIVIDING or token == ("punct", ")")):
            unwritten, arguments, written = unwritten + (not written), arguments + 1, True
            if arguments == most or token == ("punct", ")"):
                break
            continue
        depth += (token in _OPENING) - (token in _CLOSING)
        short = _is_short(tokens, index) or (token.kind == "word" and token.text in _TRIMMED)
        written, chars = written and short, chars + len(token.text) * short
    return _ANY if unwritten > free else chars


def _measure_operand_chars(tokens: Sequence[Token], start: int) -> int:
    """Return the length of the operand that begins at `start`. `_ANY`: not all of it is written out."""
    depth, last, chars = 0, Token("op", "||"), 0
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token in _CLOSING and not depth:
            break
        if not _is_short(tokens, index):
            ends = token.kind == "op" or (token.kind == "word" and token.text not in _GOES_ON)
            return chars if ends and depth == 0 and last.kind != "op" else _ANY
        if token == ("punct", ",") and not depth:
            break
        depth += (token in _OPENING) - (token in _CLOSING)
        last, chars = token, chars + len(token.text)
    return chars if last.kind != "op" else _ANY


def _is_short(tokens: Sequence[Token], index: int) -> bool:
    token = tokens[index]
    if token.kind in ("string", "number"):
        return True
    if token.kind != "word":
        return token in (*_JOINING, *_OPENING, *_CLOSING, ("punct", ",")) or (
            token.kind == "param" and token.text.startswith("$")
        )
    if token.text in _CALLED:
        return _get_token(tokens, index + 1) == ("punct", "(")
    return token.text in _RESERVED or (token.text in _TYPES and _is_type(tokens, index))


def _is_type(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the word at `index` is a type's: behind `::`, or before a literal."""
    first = index
    while _get_token(tokens, first).kind == "word" and tokens[first].text in _TYPES:
        first -= 1
    return _get_token(tokens, first) == ("op", "::") or _get_token(tokens, index + 1).kind == "string"


def _get_token(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else Token("punct", "")
