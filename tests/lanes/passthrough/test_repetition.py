"""The requests that may be sent again: by method, by path, and because their client made them safe."""

import pytest
from lanes.assembled import read

from gateway.lanes.passthrough.repetition import REPEATABLE, computes, may_repeat, may_run_twice

CHAT, FILES = b"/v1/chat/completions", b"/v1/files"


def test_idempotent_methods_may_be_repeated() -> None:
    """RFC 9110 section 9.2.2, in upper case only: methods are case-sensitive."""
    assert sorted(REPEATABLE) == [b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PUT"]


@pytest.mark.parametrize(
    ("path", "is_computed"),
    [
        (CHAT, True),
        (CHAT + b"/", True),
        (b"/openai/deployments/d/embeddings", True),
        (b"/v1/messages/count_tokens", True),
        (FILES, False),
        (b"/v1/responses", False),
        (b"/v1/chat/completions/c1", False),
    ],
)
def test_computing_post_may_be_repeated(path: bytes, is_computed: bool) -> None:
    head = read(b"POST " + path + b" HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n\r\n")
    assert computes(head, path) is may_repeat(head, path) is is_computed


def test_an_idempotency_key_makes_a_request_safe() -> None:
    """Its client says that the upstream carries it out once. A handshake is never repeated."""
    raw = b"POST /v1/files HTTP/1.1\r\nHost: gw\r\nContent-Length: 2\r\n"
    assert not may_run_twice(read(raw + b"\r\n"), FILES)
    assert may_run_twice(read(raw + b"Idempotency-Key: k1\r\n\r\n"), FILES)
    handshake = b"GET /v1/realtime HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert not may_run_twice(read(handshake), b"/v1/realtime")
