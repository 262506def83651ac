"""Passthrough with traces, byte for byte: what upstreams and clients get is what they get without them."""

from collections.abc import Sequence
from typing import Any

import pytest
from collector import TRACEPARENT, Collector
from functional.several import BODY, CHAT
from functional.through import HOSTS, NO_WORKFLOWS, PATIENT, client_of, get, post, post_chunked

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import CONTINUE, build_answer, build_head
from gateway.testing.upstream import FakeUpstream

FIELDS = b"TraceParent:  " + TRACEPARENT.encode(), b"tracestate: congo=t61", b"X-Odd:\tvalue "
CLOSE = b"Connection: close"
SOCKET = b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + b"A" * 22
FRAME = b"\x81\x85\x00\x00\x00\x00hello"
EXPECTING = post(BODY, b"/v1/expect", *FIELDS, b"Expect: 100-continue", CLOSE)
RETRY = {"retry": {"tries": 2, "on": ["503", "reset"]}}

#: By what happens: rules of the upstream, settings, and what a client sends. The second part waits for an answer.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[bytes, bytes]]] = {
    "one try": ({}, {}, (post(BODY, CHAT, *FIELDS, CLOSE), b"")),
    "a broken traceparent": ({}, {}, (get(b"/v1/x", b"traceparent: 00-no", b"tracestate: ,,", CLOSE), b"")),
    "another endpoint after a status": (RETRY, {}, (post(BODY, b"/v1/busy/chat/completions", *FIELDS, CLOSE), b"")),
    "another endpoint after a reset": (RETRY, {}, (get(b"/v1/gone", *FIELDS, CLOSE), b"")),
    "a hedge": ({"hedge": "20ms", "retry": {"tries": 2}}, {}, (get(b"/v1/silent", *FIELDS, CLOSE), b"")),
    "by model": ({}, {"passthrough": {"by_model": True}}, (post(BODY, CHAT, *FIELDS, CLOSE), b"")),
    "HTTP/1.0": ({}, {}, (get(b"/v1/x", *FIELDS, version=b"1.0"), b"")),
    "HEAD": ({}, {}, (get(b"/v1/x", *FIELDS, CLOSE, method=b"HEAD"), b"")),
    "an upgrade": ({}, {}, (get(b"/v1/socket", *FIELDS, *SOCKET), FRAME)),
    "interim answers": ({}, {}, (get(b"/v1/early", *FIELDS, CLOSE), b"")),
    "100 Continue": ({}, {}, (EXPECTING[: -len(BODY)], BODY)),
    "a chunked upload": (
        {},
        {},
        (post_chunked(b"3;a=b\r\nabc\r\n0\r\nX-Trailer: t\r\n\r\n", CHAT, *FIELDS, CLOSE), b""),
    ),
    "a cut answer": ({}, {}, (get(b"/v1/cut", *FIELDS, CLOSE), b"")),
    "a cut stream": ({}, {}, (post(BODY, b"/v1/cut/stream", *FIELDS, CLOSE), b"")),
}


async def first(peer: Peer) -> None:
    """An endpoint that fails where its path says so."""
    request_head = await peer.read_head()
    if b" /v1/expect" in request_head:
        await peer.send(CONTINUE)
    request = await peer.finish_request(request_head)
    if b"/busy" in request.target:
        await peer.send(build_answer(503, b"busy"))
    elif b"/silent" in request.target:
        await peer.wait_end()
    elif b"/socket" in request.target:
        await peer.send(build_head(101, [("Connection", "Upgrade"), ("Upgrade", "websocket")]))
        await peer.send(await peer.read_exactly(len(FRAME)))
    elif b"/early" in request.target:
        await peer.send(build_head(103, [("Link", "</a>")]) + build_answer(200, b"fine"))
    elif b"/cut/stream" in request.target:
        await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + b"9\r\nabc")
    elif b"/cut" in request.target:
        await peer.send(build_head(200, [("Content-Length", "9")]) + b"abc")
    elif b"/gone" not in request.target:
        fine = build_answer(200, b"fine", [("X-Odd", " v ")])
        await peer.send(fine[: -len(b"fine")] if request.method == b"HEAD" else fine)


async def second(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(build_answer(200, b"from the second"))


async def passed(
    endpoints: Sequence[FakeUpstream], rules: dict[str, Any], settings: dict[str, Any], parts: tuple[bytes, bytes]
) -> tuple[bytes, list[list[bytes]]]:
    """All bytes that the client got, and those of each connection that each endpoint got."""
    before = [len(one.connections) for one in endpoints]
    entries = [{"url": one.base_url, "name": name} for one, name in zip(endpoints, "ab", strict=True)]
    upstream = {"name": "up", "endpoints": entries, "timeouts": PATIENT, "models": ["*"], **rules}
    config = {"upstreams": [upstream], "allowed_hosts": HOSTS, "workflows": NO_WORKFLOWS, **settings}
    async with LocalGateway(config) as gateway, client_of(gateway) as client:
        asked, later = parts
        await client.send(asked)
        got = b""
        if later:
            got = await client.read_head()
            await client.send(later)
        got += await client.read_rest()
    for one in endpoints:
        await one.wait_open(0)
    seen = zip(endpoints, before, strict=True)
    return got, [[bytes(peer.received) for peer in one.connections[start:]] for one, start in seen]


def split(raw: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines of a request about traces, and all others."""
    lines = raw.split(b"\r\n")
    traces = [line for line in lines if line.lower().startswith(b"trace")]
    return traces, [line for line in lines if line not in traces]


@pytest.mark.parametrize("case", CASES)
async def test_tracing_changes_only_the_trace_context_headers(case: str) -> None:
    async with Collector() as collector, FakeUpstream(first) as a, FakeUpstream(second) as b:
        rules, settings, parts = CASES[case]
        tracing = {"endpoint": collector.url}
        client, upstreams = await passed((a, b), rules, settings, parts)
        assert client and upstreams[0] and bool(upstreams[1]) == (case in ("a hedge",) or rules == RETRY)
        assert await passed((a, b), rules, {**settings, "tracing": tracing}, parts) == (client, upstreams)

        tracing["passthrough"] = True
        client_then, upstreams_then = await passed((a, b), rules, {**settings, "tracing": tracing}, parts)
        assert client_then == client
        known = {one.id for one in await collector.until(where=lambda spans: len(spans) >= 4) if one.kind == "client"}
        for before, after in zip(upstreams, upstreams_then, strict=True):
            for plain, traced in zip(before, after, strict=True):
                (parent, *state), others = split(traced)
                assert others == split(plain)[1]
                assert parent.startswith(b"traceparent: 00-") and parent.split(b"-")[2].decode() in known
                assert state == ([] if b"00-no" in plain else [b"tracestate: congo=t61"])
