"""Many who listen to the same events: each is told all of them in order, and they cost little."""

import asyncio
import re
import socket
from contextlib import ExitStack, suppress

from functional.talking import handshake
from gateways import until
from measuring import Effort

from gateway.api.events.subscribers import FRAMES_BYTES
from gateway.contracts.storage.journal import Change
from tests.api.approval_pages import Desktop, opened
from tests.plugins.stores.records import event

from .test_socket import WS, talking

LISTENERS, STEPS = 500, 40


async def listening(desk: Desktop, stack: ExitStack, *, key: bytes = b"boss") -> socket.socket:
    """A client that leaves what comes to the kernel, so that reading is no part of the cost."""
    loop = asyncio.get_running_loop()
    client = stack.enter_context(socket.socket())
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", desk.lane.port))
    await loop.sock_sendall(client, handshake(b"X-Gateway-Key: " + key).replace(b"/context/talk", WS.encode()))
    assert (await loop.sock_recv(client, 65_536)).startswith(b"HTTP/1.1 101 ")
    return client


def received(client: socket.socket) -> list[int]:
    """The numbers of the events that have come."""
    pieces = []
    with suppress(BlockingIOError):
        while piece := client.recv(1 << 20):
            pieces.append(piece)
    return [int(number) for number in re.findall(rb'"seq":(\d+),', b"".join(pieces))]


async def test_five_hundred_subscribers_stay_within_twice_the_send_cost() -> None:
    """At most what it costs to send its events to them, twice; another tenant's cost nothing, and are told nothing."""
    async with opened() as desk:
        with ExitStack() as stack:
            spies = [await listening(desk, stack, key=b"spy") for _ in range(20)]
            alone = await steps(desk)
            clients = [await listening(desk, stack) for _ in range(LISTENERS)]
            await until(lambda: all(one._idle.is_set() for one in desk.office.sockets._audience._outboxes["acme"]))
            among = await steps(desk)
            for client in clients:
                assert received(client) == list(range(3 * STEPS + 1, 6 * STEPS + 1))
            assert {tuple(received(spy)) for spy in spies} == {()}
        bare = sending()
    print(f"\na step: {alone * 1000:.2f} ms without listeners, {among * 1000:.2f} ms with {LISTENERS}")
    print(f"sending three frames to {LISTENERS}: {bare * 1000:.2f} ms")
    assert among - alone <= 2 * bare


async def steps(desk: Desktop) -> float:
    """CPU seconds that this process takes for a step of a run: three events."""
    effort, store = Effort(), desk.office.store
    seen = await store.get_last_event()
    for _ in range(STEPS):
        for _ in range(3):
            await desk.office.happens()
    await until(lambda: desk.office.feed._seen == seen + 3 * STEPS)
    telling = desk.office.sockets._audience._telling
    if telling is not None:
        await asyncio.wait({telling})
    return effort.cpu_s / STEPS


def sending() -> float:
    """CPU seconds that sending the events of one step to everybody takes at least, on loopback."""
    cpu_s = 0.0
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        reader = stack.enter_context(socket.create_connection(server.getsockname()))
        writer = stack.enter_context(server.accept()[0])
        for _ in range(3 * LISTENERS // 100):
            effort = Effort()
            for _ in range(100):
                writer.send(b"x" * 150)
            cpu_s += effort.cpu_s
            reader.recv(1 << 20)
    return cpu_s


async def test_large_and_small_events_keep_their_order() -> None:
    """Also where some of them go through the line of a client, and others do not."""
    sizes = (1, FRAMES_BYTES + 1, 10, 200, 70_000, 1, 1) * 10
    async with opened() as desk, talking(desk) as talk:
        there = await desk.office.store.run("run_1", tenant="acme")
        assert there is not None
        for size in sizes:
            await desk.office.store.write(Change(run=there, events=(event(data=b'"%b"' % (b"x" * size)),)))
            desk.office.feed.nudge()
            await asyncio.sleep(0)
        heard = [await talk.hear() for _ in sizes]
        assert [(one["seq"], len(one["data"])) for one in heard] == list(enumerate(sizes, 1))
