"""The caller of a request."""

from gateway.contracts.caller import LOCAL, Caller


def test_a_caller_is_a_fact() -> None:
    """Two of the same name, tenant and scopes are the same; it can be a key of a mapping."""
    one, same = (Caller("ci", "team", frozenset(("context",))) for _ in range(2))
    assert one == same and len({one, same}) == 1


def test_what_belongs_together_is_a_conversation_else_a_key() -> None:
    """Of one tenant. A caller without a key and a conversation belongs nowhere."""
    one, other = Caller("ci", "team", frozenset()), Caller("qa", "team", frozenset())
    assert one.together(b"c") == other.together(b"c") != one.together(b"d")
    assert one.together(b"") != other.together(b"") != b""
    assert LOCAL.together(b"") == b"" != LOCAL.together(b"c")
