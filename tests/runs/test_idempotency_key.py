"""Two requests are the same, or they are not."""

from gateway.contracts.storage.store import Json
from gateway.runs.idempotency_key import hash_request


def test_fingerprint_depends_on_caller_path_steering_and_content() -> None:
    """Caller, path, steering headers and what the body says; nothing can be shifted from one to another."""
    base: Json = {"tenant": "t", "caller": "c", "path": "/p", "steering": {"chain": "a"}, "content": b"{}"}
    others: list[Json] = [
        {"tenant": "tc", "caller": ""},
        {"caller": "d"},
        {"path": "/q"},
        {"steering": {"chain": "b"}},
        {"steering": {}},
        {"content": b"[]"},
        {"content": b'{"a": [1, 2]}'},
        {"content": b'{"a": [2, 1]}'},
        {"path": "/pchain=a", "steering": {}},
    ]
    prints = [hash_request(**{**base, **other}) for other in others]
    assert len({hash_request(**base), *prints}) == len(others) + 1


def test_fingerprint_ignores_json_key_order_and_whitespace() -> None:
    """Nor do blanks. What is no JSON is its bytes."""
    facts: Json = {"tenant": "t", "caller": "c", "path": "/p", "steering": {}}
    first = hash_request(**facts, content=b'{"a": {"x": 1, "y": 2}, "b": 3}')
    assert hash_request(**facts, content=b'{"b":3,"a":{"y":2,"x":1}}') == first
    assert hash_request(**facts, content=b"{a}") != hash_request(**facts, content=b"{ a }")


def test_ignored_fields_make_no_difference() -> None:
    """At the top of the body alone; what is no object has none."""
    facts: Json = {"tenant": "t", "caller": "c", "path": "/p", "steering": {}, "ignored": {"stream"}}
    first = hash_request(**facts, content=b'{"a": {"stream": true}, "stream": true}')
    assert hash_request(**facts, content=b'{"a": {"stream": true}}') == first
    assert hash_request(**facts, content=b'{"a": {}, "stream": true}') != first
    assert hash_request(**facts, content=b'["stream"]') != hash_request(**facts, content=b"[]")
