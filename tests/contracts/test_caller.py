"""The caller of a request."""

from gateway.contracts.caller import LOCAL, Caller


def test_equal_callers_compare_and_hash_equal() -> None:
    """Two of the same name, tenant and scopes are the same; it can be a key of a mapping."""
    one, same = (Caller("ci", "team", frozenset(("context",))) for _ in range(2))
    assert one == same and len({one, same}) == 1


def test_affinity_key_is_conversation_or_else_caller_key() -> None:
    """Of one tenant. A caller without a key and a conversation belongs nowhere."""
    one, other = Caller("ci", "team", frozenset()), Caller("qa", "team", frozenset())
    assert one.get_cache_group(b"c") == other.get_cache_group(b"c") != one.get_cache_group(b"d")
    assert one.get_cache_group(b"") != other.get_cache_group(b"") != b""
    assert LOCAL.get_cache_group(b"") == b"" != LOCAL.get_cache_group(b"c")
