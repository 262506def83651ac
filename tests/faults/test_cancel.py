"""A client that leaves takes its upstream connection with it, at once, whatever was going on."""

import asyncio
import contextlib
import fcntl
import gc
import os
import socket
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from functional.through import client_of, get, listener_of, post, through
from gateways import Usage, scrape, until, until_sample
from measuring import LoopTime
from unanswered_ports import silent_port

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import PEER_LEFT, Peer
from gateway.testing.scripts import build_chunk, build_event, build_head

#: The promise, and what comes to it where a paused client must be looked for, every 0.05 s (`make soak` prints it).
CANCEL_S, NOTICED_S = 0.1, 0.15

UPLOAD_BYTES = 50_000_000
FLOOD = b"x" * UPLOAD_BYTES
STREAM_HEAD = build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
WEBSOCKET = get(b"/v1/realtime", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: x")
SWITCHED = build_head(101, [("Upgrade", "websocket"), ("Connection", "Upgrade")])


async def close(client: Peer) -> None:
    client.close()


async def reset(client: Peer) -> None:
    client.reset()


LEAVING = {"close": close, "reset": reset, "fin": Peer.half_close}


class Phase:
    """A request brought to a certain point; `ended` is set when the upstream sees its connection end."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.ended = asyncio.Event()

    async def watch(self, peer: Peer) -> None:
        self.reached.set()
        with contextlib.suppress(*PEER_LEFT):
            await peer.wait_end(timeout_s=None)
        self.ended.set()


async def uploading_length(phase: Phase, peer: Peer) -> None:
    await peer.read_until(b"first part")
    await phase.watch(peer)


async def waiting(phase: Phase, peer: Peer) -> None:
    await peer.read_request()
    await phase.watch(peer)


async def streaming(phase: Phase, peer: Peer) -> None:
    await peer.read_request()
    await peer.send(STREAM_HEAD + build_chunk(build_event("1")))
    await phase.watch(peer)


async def half_a_head(phase: Phase, peer: Peer) -> None:
    await peer.read_request()
    await peer.send(STREAM_HEAD[:-2])
    await phase.watch(peer)


async def after_an_interim_answer(phase: Phase, peer: Peer) -> None:
    await peer.read_request()
    await peer.send(build_head(103, [("Link", "</x>")]))
    await phase.watch(peer)


async def tunnelling(phase: Phase, peer: Peer) -> None:
    await peer.read_head()
    await peer.send(SWITCHED + b"welcome")
    await phase.watch(peer)


PHASES = {
    "uploading": (post(b"first part" + b"x" * 1000)[:-1000], uploading_length, b""),
    "uploading-chunked": (
        get(b"/v1/x", b"Transfer-Encoding: chunked", method=b"POST") + build_chunk(b"first part"),
        uploading_length,
        b"",
    ),
    "waiting-for-the-head": (post(b"{}"), waiting, b""),
    "within-the-head": (post(b"{}"), half_a_head, b""),
    "after-an-interim-answer": (post(b"{}"), after_an_interim_answer, b"\r\n\r\n"),
    "streaming": (post(b"{}"), streaming, build_event("1")),
    "tunnelling": (WEBSOCKET, tunnelling, b"welcome"),
}


@pytest.mark.parametrize("leaving", LEAVING)
@pytest.mark.parametrize("name", PHASES)
async def test_client_disconnect_closes_the_upstream_connection(name: str, leaving: str) -> None:
    """Within 100 ms, in each phase of a request, by FIN or by RST, also by a FIN in one direction only."""
    sent, play, awaited = PHASES[name]
    phase = Phase()
    async with through(lambda peer: play(phase, peer)) as (gateway, upstream), client_of(gateway) as client:
        await client.send(sent)
        await asyncio.wait_for(phase.reached.wait(), 120)
        if awaited:
            await client.read_until(awaited)
        left = LoopTime()
        await LEAVING[leaving](client)
        await asyncio.wait_for(phase.ended.wait(), 120)
        left.within(CANCEL_S)
        await upstream.wait_open(0)
        await nothing_is_left(gateway)


async def nothing_is_left(gateway: LocalGateway) -> None:
    """No connection to the upstream is busy, no client but the one that asks is counted, none under way but its own."""
    counts = await scrape(gateway)
    assert counts['gateway_upstream_pool_connections{state="busy",upstream="up"}'] == 0
    assert counts["gateway_client_connections"] == 1
    assert counts['gateway_inflight_requests{mode="passthrough"}'] == 0
    assert counts['gateway_inflight_requests{mode="tunnel"}'] == 0


async def send_until_held_back(gateway: LocalGateway, client: Peer, *, leaving: str) -> None:
    """Sends until the gateway stops reading, and for `reset` until the kernel takes no more either.

    A FIN behind a full receive window does not even reach this machine's other end: no gateway could notice that one.
    """
    looks = 0
    while looks < 3:
        if not looks:
            await client.send(FLOOD[:32768])
        await asyncio.sleep(0.002)  # the kernel does not announce that nobody reads
        looks = looks + 1 if unread(gateway.port) else 0
        assert client.n_sent < UPLOAD_BYTES, "the client is held back"
    if leaving == "reset":
        with pytest.raises(TimeoutError):
            await client.send(FLOOD, timeout_s=0.15)
        assert client.n_sent < UPLOAD_BYTES, "the client is held back"


async def read_only_when_told(peer: Peer, told: asyncio.Event) -> None:
    """Reads a head, then nothing until it is told to; what is left of the connection then ends it."""
    await peer.read_head()
    await told.wait()
    with contextlib.suppress(*PEER_LEFT):
        await peer.wait_end(timeout_s=None)


@pytest.mark.parametrize("leaving", LEAVING)
async def test_disconnect_is_noticed_while_upstream_does_not_read_upload(leaving: str) -> None:
    """The client is paused meanwhile, so its leaving arrives as no event: it is looked for."""
    told = asyncio.Event()
    async with (
        through(lambda peer: read_only_when_told(peer, told), rcvbuf=4096) as (gateway, upstream),
        client_of(gateway) as client,
    ):
        await client.send(post(FLOOD)[:-UPLOAD_BYTES])
        await send_until_held_back(gateway, client, leaving=leaving)
        left = LoopTime()
        await LEAVING[leaving](client)
        await busy_connections(gateway, 0)
        left.within(NOTICED_S)
        told.set()
        await upstream.wait_open(0)
        assert upstream.connections[0].n_received < UPLOAD_BYTES
        await nothing_is_left(gateway)


@pytest.mark.parametrize("leaving", LEAVING)
async def test_disconnect_is_noticed_while_client_does_not_read_stream(leaving: str) -> None:
    """The upstream is held back meanwhile, and let go when the client leaves."""
    blocked, ended = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Length", str(UPLOAD_BYTES))]))
        with contextlib.suppress(TimeoutError):
            await peer.send(FLOOD, timeout_s=0.15)
        blocked.set()
        with contextlib.suppress(*PEER_LEFT):
            await peer.wait_end(timeout_s=None)
        ended.set()

    async with through(script) as (gateway, upstream), client_of(gateway, rcvbuf=4096) as client:
        await client.send(get())
        await client.read_head()
        await asyncio.wait_for(blocked.wait(), 120)
        assert upstream.connections[0].n_sent < UPLOAD_BYTES, "the upstream is held back"
        left = LoopTime()
        await LEAVING[leaving](client)
        await asyncio.wait_for(ended.wait(), 120)
        left.within(NOTICED_S)
        await nothing_is_left(gateway)


async def test_disconnect_is_noticed_while_upstream_does_not_read_tunnel() -> None:
    """What is unsent does not keep the connection open. (A FIN alone is a half-close here, and no departure.)"""
    told = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCHED)
        await told.wait()
        with contextlib.suppress(*PEER_LEFT):
            await peer.wait_end(timeout_s=None)

    async with through(script, rcvbuf=4096) as (gateway, upstream), client_of(gateway) as client:
        await client.send(WEBSOCKET)
        await client.read_head()
        await send_until_held_back(gateway, client, leaving="reset")
        left = LoopTime()
        await LEAVING["reset"](client)
        await busy_connections(gateway, 0)
        left.within(NOTICED_S)
        told.set()
        await upstream.wait_open(0)
        await nothing_is_left(gateway)


@pytest.mark.parametrize("leaving", ["close", "reset"])
async def test_disconnect_is_noticed_while_client_does_not_read_tunnel(leaving: str) -> None:
    """The upstream is held back, and let go when the client leaves."""
    blocked, ended = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(SWITCHED)
        with contextlib.suppress(TimeoutError):
            await peer.send(FLOOD, timeout_s=0.15)
        blocked.set()
        with contextlib.suppress(*PEER_LEFT):
            await peer.wait_end(timeout_s=None)
        ended.set()

    async with through(script) as (gateway, _), client_of(gateway, rcvbuf=4096) as client:
        await client.send(WEBSOCKET)
        await client.read_head()
        await asyncio.wait_for(blocked.wait(), 120)
        left = LoopTime()
        await LEAVING[leaving](client)
        await asyncio.wait_for(ended.wait(), 120)
        left.within(NOTICED_S)
        await nothing_is_left(gateway)


@pytest.mark.parametrize("leaving", LEAVING)
@pytest.mark.parametrize("uploading", [False, True])
async def test_client_disconnect_cancels_a_pending_upstream_connect(leaving: str, *, uploading: bool) -> None:
    """The attempt is given up, also while the client is paused because its body waits for it."""
    with silent_port() as port:
        upstream = {"base_url": f"http://127.0.0.1:{port}", "timeouts": {"connect": 30}}
        async with through(upstream=upstream) as (gateway, _), client_of(gateway) as client:
            await until(lambda: listener_of(gateway).connections)
            gc.collect()  # gateways of other tests have files open until they are collected
            before = Usage(os.getpid()).open_files
            await client.send(post(FLOOD)[:-UPLOAD_BYTES])
            if uploading:
                await send_until_held_back(gateway, client, leaving=leaving)
            connecting = before + 1
            await until(lambda: Usage(os.getpid()).open_files == connecting)
            left = LoopTime()
            await LEAVING[leaving](client)
            # The socket of the attempt, and the gateway's side of the client's connection.
            expected = connecting - 2 if leaving == "fin" else connecting - 3
            await until(lambda: Usage(os.getpid()).open_files == expected)
            left.within(NOTICED_S)
            await nothing_is_left(gateway)


def unread(port: int) -> bool:
    """Whether the gateway's side of a connection to `port` holds bytes in the kernel that nobody has read."""
    return any(sock.getsockname()[1] == port and _readable_bytes(sock) for sock in connected_sockets())


def connected_sockets() -> Iterator[socket.socket]:
    """Copies of the connected TCP sockets of this process, which is the gateway's too."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as sock:
                    if sock.family == socket.AF_INET and sock.getpeername():
                        yield sock


def _readable_bytes(sock: socket.socket) -> int:
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


async def busy_connections(gateway: LocalGateway, number: int) -> None:
    """Returns as soon as this many upstream connections are busy."""
    await until_sample(gateway, 'gateway_upstream_pool_connections{state="busy",upstream="up"}', number)


@pytest.mark.parametrize("leaving", LEAVING)
async def test_disconnect_of_a_pipelining_client_is_noticed(leaving: str) -> None:
    """What comes behind a request under way is held, within bounds; leaving is noticed all the same."""
    phase = Phase()
    async with through(lambda peer: waiting(phase, peer)) as (gateway, upstream), client_of(gateway) as client:
        await client.send(get())
        await asyncio.wait_for(phase.reached.wait(), 120)
        await send_until_held_back(gateway, client, leaving=leaving)
        left = LoopTime()
        await LEAVING[leaving](client)
        await asyncio.wait_for(phase.ended.wait(), 120)
        left.within(NOTICED_S)
        await nothing_is_left(gateway)
        assert len(upstream.requests) == 1


async def test_half_a_request_never_reaches_the_upstream() -> None:
    """A client that leaves within the head leaves nothing behind."""
    async with through() as (gateway, upstream):
        for end in range(1, len(get()) - 1, 5):
            async with client_of(gateway) as client:
                await client.send(get()[:end])
        await until_alone(gateway)
        assert not upstream.connections


async def until_alone(gateway: LocalGateway) -> None:
    await until_sample(gateway, "gateway_client_connections", 1)


async def test_client_disconnect_is_counted_once_as_499() -> None:
    """As a disconnect, as status 499 and as a cancelled upstream request, once."""
    phase = Phase()
    async with through(lambda peer: waiting(phase, peer)) as (gateway, upstream):
        async with client_of(gateway) as client:
            await client.send(post(b"{}"))
            await asyncio.wait_for(phase.reached.wait(), 120)
        await upstream.wait_open(0)
        counts = await scrape(gateway)
    assert counts["gateway_client_disconnects_total"] == 1
    labels = 'code="499",method="POST",mode="passthrough",route="/v1/"'
    assert counts[f"gateway_http_requests_total{{{labels}}}"] == 1
    assert counts['gateway_upstream_requests_total{outcome="cancelled",upstream="up"}'] == 1


async def test_disconnect_after_the_answer_keeps_the_upstream_connection() -> None:
    """The upstream connection stays for the next client."""
    async with through() as (gateway, upstream):
        for _ in range(3):
            async with client_of(gateway) as client:
                await client.send(get())
                await client.read_response()
        assert len(upstream.connections) == 1
        assert (await scrape(gateway))["gateway_client_disconnects_total"] == 0
