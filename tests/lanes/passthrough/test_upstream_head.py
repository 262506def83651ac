"""The head that goes upstream: the lines that came, but for the few that a rule names."""

import pytest
from lanes.assembled import endpoint, read

from gateway.auth.keyring import Identity
from gateway.contracts.caller import LOCAL
from gateway.lanes.passthrough.upstream_head import build_upstream_head
from gateway.upstream.endpoint import Endpoint

NOBODY = Identity(LOCAL, frozenset((b"x-gateway-key",)))


def planned(
    *lines: bytes, to: Endpoint | None = None, identity: Identity = NOBODY, method: bytes = b"GET"
) -> tuple[list[bytes], list[bytes]]:
    """The lines before the digits of Content-Length, and behind them."""
    head = read(b"\r\n".join((method + b" /v1/x HTTP/1.1", b"Host: gw", *lines, b"", b"")))
    before, after = build_upstream_head(head, b"/target", to or endpoint(), identity)
    assert (before + after).endswith(b"\r\n\r\n")
    return before.removesuffix(b"\r\n\r\n").split(b"\r\n"), after.removesuffix(b"\r\n\r\n").split(b"\r\n")


def test_the_start_line_has_the_given_target() -> None:
    """And Host, in the client's spelling, the endpoint's authority."""
    assert planned(b"A: 1", b"b:2 ") == ([b"GET /target HTTP/1.1", b"Host: up.example", b"A: 1", b"b:2 "], [b""])


def test_upstream_head_is_split_at_the_content_length_digits() -> None:
    """What stands between the two parts is the number, and nothing else."""
    before, after = planned(b"A: 1", b"Content-Length: 123", b"B: 2", method=b"POST")
    assert (before[-1], after) == (b"Content-Length: ", [b"", b"B: 2"])


def test_upstream_head_drops_hop_by_hop_context_and_key_fields() -> None:
    """Hop-by-hop, nominated, X-Context-*, and what carried the gateway's key."""
    identity = Identity(LOCAL, frozenset((b"x-gateway-key", b"x-api-key")))
    lines = [
        b"Connection: X-Hop, close",
        b"x-hop: 1",
        b"Keep-Alive: 5",
        b"TE: trailers",
        b"X-Context-Mode: passthrough",
    ]
    before, _ = planned(*lines, b"X-Gateway-Key: gk", b"x-api-key: gk", b"Stays: 1", identity=identity)
    assert before[2:] == [b"Stays: 1"]


@pytest.mark.parametrize(
    ("lines", "auth_header", "expected"),
    [
        ((), None, [b"Authorization: Bearer sk"]),
        ((b"A: 1", b"x-API-key: mine", b"B: 1"), None, [b"A: 1", b"x-API-key: sk", b"B: 1"]),
        ((b"Authorization: x", b"A: 1"), b"api-key", [b"A: 1", b"Api-Key: sk"]),
    ],
)
def test_endpoint_key_replaces_a_client_credential(
    lines: tuple[bytes, ...], auth_header: bytes | None, expected: list[bytes]
) -> None:
    """Where the client had one, else at the end; never two."""
    before, _ = planned(*lines, to=endpoint(api_key=b"sk", auth_header=auth_header))
    assert before[2:] == expected


def test_websocket_head_keeps_connection_and_upgrade() -> None:
    """Connection as `Upgrade` alone, Upgrade as it came."""
    before, _ = planned(b"Connection: keep-alive, Upgrade, X-Hop", b"X-Hop: 1", b"UPGRADE: websocket")
    assert before[2:] == [b"Connection: Upgrade", b"UPGRADE: websocket"]
