"""The calls that are known to be harmless."""

import pytest

from gateway.plugin.sql.calls import is_known_call
from gateway.plugin.sql.lexer import Token

CLOSE, ONE = Token("punct", ")"), Token("number", "1")


@pytest.mark.parametrize(
    ("name", "behind", "known"),
    [
        ("upper", (ONE, CLOSE), True),
        ("varchar", (ONE, CLOSE), True),
        ("pg_stat_get_live_tuples", (ONE, CLOSE), True),
        ("pg_stat_reset", (CLOSE, CLOSE), False),
        ("purge", (ONE, CLOSE), False),
        ("last_insert_id", (CLOSE, CLOSE), True),
        ("last_insert_id", (ONE, CLOSE), False),
        ("randomblob", (Token("number", "999999"), CLOSE), True),
        ("randomblob", (Token("number", "1000000"), CLOSE), False),
        ("randomblob", (ONE, Token("op", "*")), False),
        ("zeroblob", (Token("word", "a"), CLOSE), False),
    ],
)
def test_known_call_depends_on_name_and_arguments(name: str, behind: tuple[Token, Token], known: bool) -> None:
    """Some are harmless with some arguments only."""
    assert is_known_call(name, *behind) is known
