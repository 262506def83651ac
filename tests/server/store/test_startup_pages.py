"""The pages of a worker that waits for its store, and what becomes of their socket."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.server.store import startup_pages
from gateway.server.store.startup_pages import MOST_HEAD, StartupPages
from gateway.testing.raw_connection import connect


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[StartupPages, socket.socket]]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        pages = StartupPages(sock)
        await pages.open()
        yield pages, sock
        await pages.close()


async def ask(sock: socket.socket, line: str, *, body: str = "") -> tuple[list[str], bytes]:
    """Return the lines of the head, and the body."""
    async with connect(*sock.getsockname()) as client:
        await client.send(f"{line}\r\nHost: h\r\n\r\n{body}".encode())
        head, _, payload = (await client.read_rest()).partition(b"\r\n\r\n")
        return head.decode().split("\r\n"), payload


@pytest.mark.parametrize(
    ("line", "status", "body"),
    [
        ("GET /health/live HTTP/1.1", "200 OK", {"status": "ok"}),
        ("GET /health/ready HTTP/1.1", "503 Service Unavailable", {"status": "starting"}),
        ("GET /health/ready?x=1 HTTP/1.0", "503 Service Unavailable", {"status": "starting"}),
        ("HEAD /health/live HTTP/1.1", "200 OK", None),
    ],
)
async def test_health_pages_answer_while_the_store_is_waited_for(line: str, status: str, body: object) -> None:
    async with opened() as (_, sock):
        (first, *fields), payload = await ask(sock, line)
        assert first == f"HTTP/1.1 {status}" and "Connection: close" in fields
        assert (json.loads(payload) if payload else None) == body


@pytest.mark.parametrize("line", ["POST /v1/chat/completions HTTP/1.1", "GET / HTTP/1.1", "\x16\x03 HTTP/1.1"])
async def test_other_requests_may_come_again(line: str) -> None:
    async with opened() as (_, sock):
        (first, *fields), payload = await ask(sock, line, body="{}")
        assert first == "HTTP/1.1 503 Service Unavailable" and "Retry-After: 1" in fields
        assert json.loads(payload)["error"]["code"] == "gateway_starting"


async def test_head_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In size, and in time."""
    monkeypatch.setattr(startup_pages, "HEAD_S", 0.05)
    async with opened() as (_, sock), connect(*sock.getsockname()) as large, connect(*sock.getsockname()) as slow:
        await large.send(b"GET /" + b"x" * MOST_HEAD)
        await slow.send(b"GET /")
        for client in (large, slow):
            await client.wait_end()
            assert client.received == b""


async def test_connections_end_with_the_pages_and_the_socket_stays() -> None:
    """What connects from then on waits for the server that comes."""
    async with opened() as (pages, sock):
        async with connect(*sock.getsockname()) as waiting:
            await ask(sock, "GET /health/live HTTP/1.1")
            await pages.close()
            await waiting.wait_end()
        async with connect(*sock.getsockname()):
            sock.setblocking(False)
            sock.accept()[0].close()


async def test_pages_without_a_socket_do_nothing() -> None:
    pages = StartupPages(None)
    await pages.open()
    await pages.close()
