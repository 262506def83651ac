"""`gateway selftest`: proves on the user's machine that passthrough is unchanged, against a recording upstream.

Each check is a conversation over real sockets: a raw client, a gateway in this process, a raw upstream that records
every byte. The table states what was compared and what was found.
"""

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer, connect, dechunk, describe_differences
from gateway.testing.scripts import (
    build_answer,
    build_chunk,
    build_event,
    build_event_stream,
    build_event_stream_answer,
    build_head,
)
from gateway.testing.upstream import FakeUpstream, Script

#: What may differ by contract: the upstream's own name, and fields that end at each hop (RFC 9110 section 7.6.1).
MAY_DIFFER = frozenset((b"host", b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"))

_FIELDS = (
    b'Host: gateway.example\r\nX-Mixed-CASE: One\r\nx-low: two\r\nX-Mixed-CASE: three\r\nETag: "x"\r\n'
    b"Authorization: Bearer sk-client\r\nAccept-Encoding: gzip, br, zstd\r\nX-Empty:\r\nX-Bytes: caf\xe9\r\n"
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
)
_JSON = b'{ "model":"m",  "n":1.0, "big":1e5, "n":2, "text":"\\u00e9 \xc3\xa9" }'


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table: `run` returns what was found, "" for as promised."""

    subject: str
    promise: str
    run: Callable[[], Awaitable[str]]


async def run_selftest() -> int:
    """Run every check and print the table; 0 if all hold, else 1."""
    print("Twolane passthrough selftest: raw client -> gateway -> recording upstream, on loopback\n")
    return await report(CHECKS)


async def report(checks: Sequence[Check]) -> int:
    """Run `checks` and print a line for each, and the count; 0 if all hold, else 1."""
    failures = 0
    for check in checks:
        began = time.perf_counter()
        try:
            found = await check.run()
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            found = f"{type(error).__name__}: {error}"
        failures += bool(found)
        verdict = "FAILED" if found else "ok"
        print(f"{verdict:<7} {check.subject:<24} {check.promise}  [{(time.perf_counter() - began) * 1000:.0f} ms]")
        if found:
            print(f"        {found}")
    print(f"\n{len(checks) - failures} of {len(checks)} checks hold.")
    return 1 if failures else 0


async def _exchange_once(request: bytes, response: bytes, *, method: str = "POST") -> tuple[bytes, bytes]:
    """Return (the upstream's record, the client's answer) for one request and one answer."""

    async def run_script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(response)
        await peer.wait_end()

    async with FakeUpstream(run_script) as upstream, _build_gateway(upstream) as gateway:
        async with connect(gateway.host, gateway.port) as client:
            await client.send(request)
            got = await client.read_response(method=method)
        await upstream.wait_requests(1)
        return upstream.requests[0].raw, got.raw


def _build_gateway(upstream: FakeUpstream) -> LocalGateway:
    upstreams = [{"name": "recorder", "base_url": upstream.base_url}]
    return LocalGateway({"upstreams": upstreams, "allowed_hosts": ["g", "gateway.example"]})


@asynccontextmanager
async def _conversation(script: Script) -> AsyncIterator[Peer]:
    """Connect a client to a gateway whose upstream follows `script`."""
    async with (
        FakeUpstream(script) as upstream,
        _build_gateway(upstream) as gateway,
        connect(gateway.host, gateway.port) as client,
    ):
        yield client


async def _compare(request: bytes, response: bytes, *, method: str = "POST") -> str:
    recorded, got = await _exchange_once(request, response, method=method)
    found = describe_differences(request, recorded, may_differ=MAY_DIFFER) + describe_differences(
        response, got, may_differ=MAY_DIFFER
    )
    return "; ".join(found)


async def _check_fields() -> str:
    request = b"POST /v1/chat/completions HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (_FIELDS, len(_JSON), _JSON)
    response = build_answer(
        200, _JSON, [("x-request-id", "req_1"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("ETag", "w")]
    )
    return await _compare(request, response)


async def _check_targets() -> str:
    target = b"/v1//a/../b/%2e%2E/%7E%41;p=1?q=a%20b+c&&x=%zz&e="
    for one in (target, b"/v1/x?", b"/v1/messages?beta=true"):
        if found := await _compare(b"GET %b HTTP/1.1\r\nHost: g\r\n\r\n" % one, build_answer(200, b"ok"), method="GET"):
            return found
    return ""


async def _check_large_body() -> str:
    body = bytes(range(256)) * 4096
    request = (
        b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    recorded, got = await _exchange_once(request, build_answer(200, body))
    sums = {hashlib.sha256(part.partition(b"\r\n\r\n")[2]).hexdigest() for part in (request, recorded, got)}
    return "" if len(sums) == 1 else "the SHA-256 of the body changed"


async def _check_chunks() -> str:
    framed = b"3;name=value\r\nabc\r\n1\r\nd\r\n00a\r\n0123456789\r\n0\r\nX-Trailer: kept\r\n\r\n"
    request = b"POST /v1/x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nTrailer: X-Trailer\r\n\r\n" + framed
    response = build_head(200, [("Transfer-Encoding", "chunked"), ("Trailer", "X-Trailer")]) + framed
    return await _compare(request, response)


async def _check_stream() -> str:
    events = [build_event(b'{"n":%d}' % n) for n in range(100)] + [build_event(b"[DONE]")]
    request = b'POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: 15\r\n\r\n{"stream":true}'
    return await _compare(request, build_event_stream_answer(events))


async def _check_one_event_at_a_time() -> str:
    """Send the second event only after the client has the first."""

    async def run_script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]))
        for n in range(3):
            await peer.send(build_chunk(build_event(b"%d" % n)))
            await peer.read_until(b"ack")
        await peer.wait_end()

    async with _conversation(run_script) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 9\r\n\r\n")
        for n in range(3):
            await client.read_until(b"data: %d\n\n\r\n" % n)
            await client.send(b"ack")
    return ""


async def _check_interim() -> str:
    async def run_script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        await peer.read_exactly(2)
        await peer.send(build_answer(201, b"done"))
        await peer.wait_end()

    async with _conversation(run_script) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        await client.read_until(b"100 Continue\r\n\r\n")
        await client.send(b"hi")
        got = await client.read_response()
    return (
        ""
        if got.status == 201 and b"103 Early Hints" in bytes(client.received)
        else "the interim answers did not arrive"
    )


async def _abort() -> str:
    """Check that an upstream that dies in the middle of a body does not look like an end."""
    bodies = {
        "Content-Length": build_answer(200, b"x" * 100)[:-50],
        "chunked": build_head(200, [("Transfer-Encoding", "chunked")]) + build_event_stream([build_event("1")])[:-5],
        "close-delimited": build_head(200, [("Content-Type", "text/event-stream")]) + b"data: 1\n\n",
    }
    for name, beginning in bodies.items():

        async def run_script(peer: Peer, beginning: bytes = beginning) -> None:
            await peer.read_request()
            await peer.send(beginning)
            peer.reset()

        async with _conversation(run_script) as client:
            await client.send(b"GET /v1/x HTTP/1.1\r\nHost: g\r\n\r\n")
            ended = await client.wait_end()
        if name == "close-delimited" and ended != "reset":
            return "a close-delimited answer that was cut ended cleanly"
        if name == "chunked" and _looks_whole(bytes(client.received)):
            return "a chunked answer that was cut looks whole"
    return ""


async def _check_client_leaves() -> str:
    async with FakeUpstream(_wait_silently) as upstream, _build_gateway(upstream) as gateway:
        client = await connect(gateway.host, gateway.port)
        await client.send(b"GET /v1/x HTTP/1.1\r\nHost: g\r\n\r\n")
        await upstream.wait_requests(1)
        client.close()
        began = time.perf_counter()
        await upstream.wait_open(0)
        took_s = time.perf_counter() - began
    return "" if took_s <= 0.1 else f"the upstream connection lived on for {took_s:.2f} s"


async def _wait_silently(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end()


async def _check_smuggling() -> str:
    """Check that requests with two possible readings are refused and never reach the upstream."""
    smuggled = b"GET /v1/smuggled HTTP/1.1\r\nHost: g\r\n\r\n"
    fields = (
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: +3\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"X: a\r\n b\r\n",
        b"X: a\nTransfer-Encoding: chunked\r\n",
    )
    for one in fields:
        async with FakeUpstream() as upstream, _build_gateway(upstream) as gateway:
            async with connect(gateway.host, gateway.port) as client:
                await client.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\n%b\r\nabc%b" % (one, smuggled))
                got = await client.read_response()
                await client.wait_end()
            if got.status != 400 or upstream.connections:
                return f"{one!r} was answered with {got.status}, {len(upstream.connections)} upstream connections"
    return ""


def _looks_whole(received: bytes) -> bool:
    try:
        dechunk(received.partition(b"\r\n\r\n")[2])
    except ValueError:
        return False
    return True


CHECKS = (
    Check("header fields", "names, case, order, repeats and bytes of values, both ways", _check_fields),
    Check("targets", "path and query byte for byte: dots, escapes, empty query", _check_targets),
    Check("bodies", "SHA-256 of 1 MiB with Content-Encoding, both ways", _check_large_body),
    Check("chunk framing", "chunk sizes, extensions and trailers as they came, both ways", _check_chunks),
    Check("event streams", "101 events, each in its own chunk", _check_stream),
    Check("no buffering", "an event is delivered before the next one is sent", _check_one_event_at_a_time),
    Check("interim answers", "100 Continue and 103 Early Hints arrive when they are sent", _check_interim),
    Check("upstream dies", "a cut answer never looks whole: length, chunked, close-delimited", _abort),
    Check("client leaves", "the upstream connection is closed within 100 ms", _check_client_leaves),
    Check("request smuggling", "ambiguous framing is refused and never forwarded", _check_smuggling),
)
