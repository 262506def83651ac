"""A gateway with one scripted upstream behind it, both in this process, and the words to talk to it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from gateway.aio.clock import SystemClock
from gateway.lanes.listener import Listener
from gateway.server.app import DATA
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import KEEP_BYTES, Peer, PendingConnection, Response, connect
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream, Script

Json = dict[str, Any]

#: Names under which tests ask: without keys no others are answered.
HOSTS = ["h", "gw", "a", "g", "u", "gx", "x", "e", "demo", "gw.example", "up.example", "other"]
#: The `timeouts` of an upstream that is there: a machine that stands still is no upstream that does.
PATIENT = {"connect": "1m"}
#: An upstream whose answers can be told from others'.
FINE = serve(build_answer(200, b"fine"))

#: A folder without any: those of the checkout would be read at every start.
NO_WORKFLOWS = {"folder": str(Path(__file__).parent)}

#: What the gateway may change in a request and in an answer (the HTTP contract, "Passthrough, exactly").
HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"))
REQUEST_MAY_DIFFER = HOP | {b"host"}


@asynccontextmanager
async def through(
    *scripts: Script,
    upstream: Mapping[str, object] | None = None,
    tls: ssl.SSLContext | None = None,
    rcvbuf: int | None = None,
    keep_bytes: int = KEEP_BYTES,
    host: str = "127.0.0.1",
    clock: SystemClock | None = None,
    **settings: object,
) -> AsyncIterator[tuple[LocalGateway, FakeUpstream]]:
    """`upstream` is added to its entry in the configuration, `settings` to the configuration itself."""
    async with FakeUpstream(*scripts, ssl=tls, rcvbuf=rcvbuf, keep_bytes=keep_bytes, host=host) as fake:
        entry = {"name": "up", "base_url": fake.base_url, "timeouts": PATIENT, **(upstream or {})}
        limits = {"head_timeout": "1m", **cast("Json", settings.pop("limits", {}))}
        config = {
            "upstreams": [entry],
            "allowed_hosts": HOSTS,
            "limits": limits,
            "workflows": NO_WORKFLOWS,
            **settings,
        }
        async with LocalGateway(config, clock=clock) as gateway:
            yield gateway, fake


def client_of(gateway: LocalGateway, **options: Any) -> PendingConnection:
    return connect(gateway.host, gateway.port, **options)


def listener_of(gateway: LocalGateway) -> Listener:
    """What its client connections share: for looking at what is left open or held."""
    return gateway.gateway._listeners[DATA]


def sweeps(listener: Listener) -> float:
    """How often it has looked at its deadlines."""
    return sum(listener.metrics.loop_lag.read_values()[:-1])


def get(target: bytes = b"/v1/x", *lines: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """A request without a body; `lines` are header lines without their CRLF."""
    return b"\r\n".join([b"%b %b HTTP/%b" % (method, target, version), b"Host: gw.example", *lines, b"", b""])


def post(body: bytes, target: bytes = b"/v1/x", *lines: bytes, method: bytes = b"POST") -> bytes:
    return get(target, *lines, b"Content-Length: %d" % len(body), method=method) + body


def post_chunked(raw_body: bytes, target: bytes = b"/v1/x", *lines: bytes, method: bytes = b"POST") -> bytes:
    """`raw_body` has its chunk framing."""
    return get(target, *lines, b"Transfer-Encoding: chunked", method=method) + raw_body


async def ask(gateway: LocalGateway, request: bytes, *, timeout_s: float = 120.0) -> Response:
    """The answer to one request on a connection of its own."""
    async with client_of(gateway) as client:
        await client.send(request)
        return await client.read_response(method=request.split(b" ", 1)[0].decode("latin-1"), timeout_s=timeout_s)


async def breathe(turns: int = 5) -> None:
    """Lets the gateway read what was sent: it lives on this loop, which polls its sockets once a turn."""
    for _ in range(turns):
        await asyncio.sleep(0)


@asynccontextmanager
async def meanwhile(doing: Coroutine[object, object, object]) -> AsyncIterator[None]:
    """Lets `doing` go on beside the block; with the block it ends."""
    task = asyncio.create_task(doing)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def in_pieces(peer: Peer, *pieces: bytes) -> None:
    """Sends each piece so that it arrives alone."""
    for piece in pieces:
        await peer.send(piece)
        await breathe()


def error_of(response: Response) -> Json:
    """The error that the gateway answered with, after a check of its form."""
    body = json.loads(response.payload)
    assert body.keys() == {"error"} and body["error"].keys() == {"message", "type", "param", "code"}
    (request_id,) = response.list_values(b"x-request-id")
    assert request_id.decode() in body["error"]["message"]
    assert response.list_values(b"content-type") == [b"application/json"]
    assert not response.list_values(b"server")
    error: Json = body["error"]
    return error


async def refusal(gateway: LocalGateway, data: bytes, *, timeout_s: float = 120.0) -> Response:
    """The one error answer that `data` gets; the connection must end with it, cleanly, and say so."""
    async with client_of(gateway) as client:
        await client.send(data)
        raw = await client.read_rest(timeout_s=timeout_s)
    head, end, body = raw.partition(b"\r\n\r\n")
    response = Response(head + end, body)
    error_of(response)
    assert response.list_values(b"content-length") == [b"%d" % len(body)]
    assert response.list_values(b"connection") == [b"close"]
    assert response.status >= 400
    return response


async def refused(data: bytes) -> Response:
    """The answer to `data`, which no upstream may see."""
    async with through() as (gateway, upstream):
        response = await refusal(gateway, data)
        await breathe()
        assert not upstream.connections
    assert b"smuggled" not in response.raw
    return response


def says(*raw: bytes, holds: bool = True) -> Script:
    """Answers one request with `raw`, each part in a segment of its own, and then waits for the other side to leave."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await in_pieces(peer, *raw)
        if holds:
            await peer.wait_end()

    return script
