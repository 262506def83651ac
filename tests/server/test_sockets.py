"""Listening sockets: shared by workers, refused to strangers, joined by a successor without losing a request."""

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import Iterator

import pytest
from gateways import Stopwatch, config, exchange, until

from gateway.server.sockets import (
    ListenError,
    ListeningSockets,
    choose_reachable_host,
    listen,
    steer_to_successor,
    stop_steering,
)
from gateway.testing.raw_connection import Peer, connect
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess


@contextlib.contextmanager
def listening(
    *, host: str = "127.0.0.1", port: int = 0, workers: int = 1, join: bool = False
) -> Iterator[ListeningSockets]:
    found = listen(host, port, workers=workers, join=join)
    try:
        yield found
    finally:
        for sock in found.sockets:
            sock.close()


def test_each_worker_has_a_socket_on_the_same_port() -> None:
    """Chosen by the system if it is 0."""
    with listening(workers=3) as address:
        assert {sock.getsockname() for sock in address.sockets} == {("127.0.0.1", address.port)}
        assert address.port and address.url == f"http://127.0.0.1:{address.port}"


def test_a_port_in_use_is_refused() -> None:
    """Also if it is another gateway's, which would let us in; the text says what can be done."""
    with listening() as address:
        address.sockets[0].listen()
        with pytest.raises(
            ListenError, match=f"127.0.0.1:{address.port}: Address already in use.*--reuse-port"
        ) as found:
            listen("127.0.0.1", address.port, workers=1, join=False)
        assert "\n" not in str(found.value)


def test_successor_gateway_may_join_the_port() -> None:
    """If both say so."""
    with listening() as old:
        old.sockets[0].listen()
        with listening(port=old.port, workers=2, join=True) as new:
            assert new.port == old.port


def test_listen_does_not_join_the_port_of_another_program() -> None:
    """A program without SO_REUSEPORT keeps its port."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(ListenError, match="Address already in use"):
            listen("127.0.0.1", port, workers=1, join=True)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        pytest.param("192.0.2.1", "Cannot assign requested address", id="not-ours"),
        pytest.param("no-such-host.invalid", "", id="unknown"),
    ],
)
def test_unavailable_listen_address_is_reported_with_its_reason(host: str, reason: str) -> None:
    """One line, with the address."""
    with pytest.raises(ListenError, match=f"cannot listen on {host}:1234: {reason}"):
        listen(host, 1234, workers=1, join=False)


def test_failed_listen_closes_its_sockets() -> None:
    """The sockets opened until then are closed (ResourceWarning is an error)."""
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(ListenError):
        listen("127.0.0.1", stranger.getsockname()[1], workers=2, join=True)


def test_ipv6_address_has_brackets_in_its_url() -> None:
    """Its URL has brackets."""
    with listening(host="::1") as address:
        assert address.url == f"http://[::1]:{address.port}"


def test_wildcard_listen_address_is_reachable_by_loopback() -> None:
    """Any other host as it is."""
    assert [choose_reachable_host(host) for host in ("0.0.0.0", "::", "10.0.0.1")] == ["127.0.0.1", "::1", "10.0.0.1"]


def connects(port: int, *sockets: socket.socket, times: int = 40) -> list[int]:
    """How many of `times` connections each of the listening sockets got."""
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(times)]
    counts = []
    for sock in sockets:
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.accept()[0].close()
                count += 1
        counts.append(count)
    for client in clients:
        client.close()
    return counts


def test_connections_are_steered_to_a_successor() -> None:
    """All of them, from the moment on; also with several workers on both sides; and again for its own successor."""
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(listening(workers=2))
        for sock in old.sockets:
            sock.listen()
        for workers in (2, 1, 3):
            new = stack.enter_context(listening(port=old.port, workers=workers, join=True))
            for sock in new.sockets:
                sock.listen()
                stop_steering(sock)
            assert all(connects(old.port, *old.sockets, *new.sockets))
            for sock in old.sockets:
                steer_to_successor(sock, ours=len(old.sockets))
            assert connects(old.port, *old.sockets) == [0] * len(old.sockets)
            assert sum(connects(old.port, *new.sockets)) >= 40
            for sock in old.sockets:
                sock.close()
            old = new


def test_connections_are_not_steered_without_a_successor() -> None:
    """Whoever is told to stop goes on taking connections until its sockets are closed."""
    with listening(workers=2) as alone:
        for sock in alone.sockets:
            sock.listen()
        steer_to_successor(alone.sockets[0], ours=2)
        assert all(connects(alone.port, *alone.sockets))
        stop_steering(alone.sockets[1])
        stop_steering(alone.sockets[1])


def retransmitted(client: Peer) -> int:
    """How many segments the kernel sent again on this connection (`tcpi_total_retrans`): of a new one, its SYN."""
    info = client._stream._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[100:104], sys.byteorder)


class Load:
    """Clients that ask again and again: half of them on one connection for as long as it lasts."""

    CLIENTS, PAUSE_S = 10, 0.05

    def __init__(self, port: int, request: bytes | None) -> None:
        self._request = request
        self.answered = 0
        self.slowest_s = 0.0
        self.syns_lost = 0
        self.failures: list[str] = []
        self._port = port
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._client(keep=bool(n % 2))) for n in range(self.CLIENTS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _client(self, *, keep: bool) -> None:
        client: Peer | None = None
        while not self._stopping.is_set():
            asked = Stopwatch()
            try:
                if client is None:
                    client = await connect("127.0.0.1", self._port)
                    self.syns_lost += retransmitted(client)
                response = await exchange(client, self._request)
                self.answered += 1
                self.slowest_s = max(self.slowest_s, asked.s)
                if response.status != 200:
                    self.failures.append(f"{keep=}: {response.raw!r}")
                if not keep or response.list_values(b"connection") == [b"close"]:
                    client.close()
                    client = None
            except (OSError, EOFError, ValueError) as error:
                self.failures.append(f"{keep=}: {error!r} {asked.s:.3f} s after it was begun")
                if client is not None:
                    client.close()
                client = None
            await asyncio.sleep(self.PAUSE_S)  # the rate of the load, which goes on all the while
        if client is not None:
            client.close()


def chat(*, stream: bool) -> bytes:
    """A request that the demo model answers in the context lane."""
    body = json.dumps({"model": "demo", "stream": stream, "messages": [{"role": "user", "content": "Say hello"}]})
    fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST /context/v1/chat/completions HTTP/1.1\r\n{fields}\r\n\r\n{body}".encode()


async def rolling_restarts(times: int, *, workers: int, request: bytes | None = None) -> Load:
    """Each time a successor joins on the port, and when it serves its predecessor is told to stop."""
    async with FakeUpstream() as upstream, contextlib.AsyncExitStack() as stack:
        upstreams = config(upstream.base_url, workers=workers)
        text, args = upstreams if request is None else f"workers: {workers}\n", ["--reuse-port"]
        serving = await stack.enter_async_context(GatewayProcess(text, args=args))
        async with Load(serving.port, request) as load:
            for _ in range(times):
                successor = GatewayProcess(text, args=args, port=serving.port)
                await stack.enter_async_context(successor)
                await until(lambda successor=successor: "is ready" in successor.read_stdout(), timeout_s=120)
                await serving.stop()
                assert serving.returncode == 0
                serving = successor
        return load


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "message", [None, chat(stream=False), chat(stream=True)], ids=["passthrough", "context", "context stream"]
)
async def test_a_rolling_restart_loses_no_request(message: bytes | None, workers: int) -> None:
    """A successor on the same port, then SIGTERM to the predecessor: none fails or waits for a second SYN."""
    load = await rolling_restarts(2, workers=workers, request=message)
    assert load.failures == [] and load.syns_lost == 0 and load.answered > 50


@pytest.mark.soak
@pytest.mark.parametrize("message", [None, chat(stream=True)], ids=["passthrough", "context stream"])
async def test_twenty_rolling_restarts_lose_no_request(message: bytes | None) -> None:
    """At more than 100 requests a second."""
    load = await rolling_restarts(20, workers=1, request=message)
    print(
        f"\n20 rolling restarts: {load.answered} requests, {len(load.failures)} failed, slowest {load.slowest_s:.3f} s"
    )
    assert load.failures == []
    assert load.slowest_s < 1
