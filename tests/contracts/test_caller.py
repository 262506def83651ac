"""The caller of a request."""

from gateway.contracts.caller import Caller


def test_a_caller_is_a_fact() -> None:
    """Two of the same name, tenant and scopes are the same; it can be a key of a mapping."""
    one, same = (Caller("ci", "team", frozenset(("context",))) for _ in range(2))
    assert one == same and len({one, same}) == 1
