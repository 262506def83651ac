"""The statements that PostgreSQL refuses by their first words alone, with its messages. The server is not contacted."""

from collections.abc import Sequence
from typing import Final

from gateway.plugin.sql.lexer import TRAITS, Token, lex
from gateway.plugin.word_lists import split_words

_WRITES: Final = split_words("insert update delete merge grant revoke comment")
_DEFINES: Final = split_words("create alter drop")
_DEFINED: Final = split_words("table index view sequence schema function procedure trigger role database type domain")


def find_postgres_refusal(sql: str, *, read_only: bool) -> str | None:
    """Return the server's error for several statements, or for writing in a read-only transaction, if it is certain."""
    tokens = lex(sql, traits=TRAITS["postgresql"], dialect="postgresql").tokens
    while tokens and tokens[0] == ("punct", ";"):
        tokens = tokens[1:]
    if not tokens or tokens[0].kind != "word" or tokens[-1].kind in ("error", "unterminated"):
        return None
    # The body of a function, or of a rule, contains further semicolons.
    if tokens[0].text != "create" and _has_several(tokens):
        return "cannot insert multiple commands into a prepared statement"
    tag = _read_tag(tokens) if read_only else None
    return tag and f"cannot execute {tag} in a read-only transaction"


def _has_several(tokens: Sequence[Token]) -> bool:
    ends = [index for index, token in enumerate(tokens) if token == ("punct", ";")]
    return bool(ends) and any(token != ("punct", ";") for token in tokens[ends[0] :])


def _read_tag(tokens: Sequence[Token]) -> str | None:
    """Return the name of the command as in the server's messages.

    None: it reads, or its name depends on more than two words.
    """
    first, second = tokens[0].text, tokens[1].text if len(tokens) > 1 else ""
    if first in _WRITES and second:
        return first.upper()
    if first == "truncate" and second:
        return "TRUNCATE TABLE"
    return f"{first} {second}".upper() if first in _DEFINES and second in _DEFINED else None
