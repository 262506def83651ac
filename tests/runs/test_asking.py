"""Two requests are the same, or they are not."""

from gateway.contracts.store import Json
from gateway.runs.asking import fingerprint


def test_what_makes_two_requests_the_same() -> None:
    """Caller, path, steering headers and the raw body; nothing can be shifted from one to another."""
    base: Json = {"tenant": "t", "caller": "c", "path": "/p", "steering": {"chain": "a"}, "content": b"{}"}
    others: list[Json] = [
        {"tenant": "tc", "caller": ""},
        {"caller": "d"},
        {"path": "/q"},
        {"steering": {"chain": "b"}},
        {"steering": {}},
        {"content": b"{ }"},
        {"path": "/pchain=a", "steering": {}},
    ]
    prints = [fingerprint(**{**base, **other}) for other in others]
    assert len({fingerprint(**base), *prints}) == len(others) + 1
