"""The calls that are known to be harmless, by the function's name and by what stands in its parentheses."""

from typing import Final

from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.words import FUNCTIONS, TYPES
from gateway.plugin.word_lists import split_words

#: Functions of PostgreSQL that read one number of its statistics.
_COUNTERS: Final = "pg_stat_get_"
#: Harmless only without arguments: with one they write.
_WITHOUT_ARGUMENTS: Final = split_words("last_insert_id")
#: Harmless with a number of bytes below a million.
_SIZED: Final = split_words("randomblob zeroblob")
_SIZE_DIGITS: Final = 6


def is_known_call(name: str, first: Token, second: Token) -> bool:
    """Return whether `name(first second ...` changes nothing, reaches no file and no network, and does not wait."""
    if name in _WITHOUT_ARGUMENTS:
        return first == ("punct", ")")
    if name in _SIZED:
        return first.kind == "number" and len(first.text) <= _SIZE_DIGITS and second == ("punct", ")")
    return name in FUNCTIONS or name in TYPES or name.startswith(_COUNTERS)
