"""Connections to servers over HTTP: which are used again, and which answers are none."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from gateway.mcp.transport.guarded_network import GuardedNetwork, HeadError, encode_request_head
from tests.certificates import self_signed

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
#: Ends the connection, in place of an answer.
END = b""
#: Announces an answer, which does not come.
LATER = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass
class Server:
    """A server that gives the next of its answers to each request, whatever that is."""

    answers: list[bytes]
    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    asked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))  # by each request
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0")
                self.requests.append(head + await reader.readexactly(size))
                self.asked.release()
                answer = self.answers.pop(0)
                if answer == END:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()
        self.ended.set()


@asynccontextmanager
async def serving(*answers: bytes, **options: object) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    """Run a server and a client of it, which has the gateway's network."""
    found = Server([*answers, *[HELLO] * 3])
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    scheme = "https" if options else "http"
    found.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp?a=b"
    web = GuardedNetwork(private_networks=False, max_bytes=10 << 20)
    try:
        async with httpx2.AsyncClient(transport=web, trust_env=False, timeout=5) as client:
            yield found, client
    finally:
        server.close()
        await asyncio.gather(*(writer.wait_closed() for writer in found.writers), return_exceptions=True)


async def texts(server: Server, client: httpx2.AsyncClient, count: int) -> list[str]:
    return [(await client.post(server.url, content=f"text {number}")).text for number in range(count)]


@pytest.mark.parametrize(
    "answer",
    [
        HELLO,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + HELLO,
    ],
)
async def test_connection_is_reused_after_a_complete_answer(answer: bytes) -> None:
    """Its answer was whole, and nothing came behind it."""
    async with serving(answer) as (server, client):
        assert await texts(server, client, 3) == ["hello"] * 3
    assert server.connections == 1
    assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [b"text 0", b"text 1", b"text 2"]
    assert server.requests[0].startswith(b"POST /mcp?a=b HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        HELLO + HELLO.replace(b"hello", b"stray"),
        HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        HELLO.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=1\r\n\r\n"),
        HELLO.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
async def test_connection_with_surplus_bytes_is_not_reused(answer: bytes) -> None:
    """What came too much is nobody's answer."""
    async with serving(answer) as (server, client):
        assert await texts(server, client, 2) == ["hello"] * 2
    assert server.connections == 2


@pytest.mark.parametrize(("answer", "connections"), [(HELLO, 1), (HELLO.replace(b"5", b"10"), 2)])
async def test_unread_response_body_never_reaches_the_next_request(answer: bytes, connections: int) -> None:
    """It is not taken for the next one, nor is the rest of one that is not whole yet."""
    async with serving(answer.replace(b"hello", b"stray")) as (server, client):
        async with client.stream("POST", server.url, content="x"):
            pass
        assert await texts(server, client, 1) == ["hello"]
    assert server.connections == connections


async def test_number_of_idle_connections_is_bounded() -> None:
    """So many are kept, and no more."""
    async with serving(*[HELLO] * 60) as (server, client):
        for _ in range(2):
            answers = await asyncio.gather(*(client.post(server.url, content="x") for _ in range(25)))
            assert [answer.text for answer in answers] == ["hello"] * 25
    assert server.connections == 30


async def test_closed_client_fails_its_pending_requests() -> None:
    """Whoever waits for an answer is told, and no cut answer looks whole, even if it ends with its connection."""
    async with (
        serving(b"HTTP/1.1 200 OK\r\n\r\nhel", LATER) as (server, client),
        client.stream("POST", server.url, content="x") as response,
    ):
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"hel"
        rest, waiting = (asyncio.ensure_future(one) for one in (anext(pieces), client.post(server.url)))
        for _ in range(2):
            await server.asked.acquire()
        await client.aclose()
        with pytest.raises(httpx2.StreamError, match=r"^Connection closed: the answer broke off$"):
            await rest
        with pytest.raises(httpx2.ReadError, match="the server gave no answer"):
            await waiting


async def test_connection_is_reused_after_an_answer_without_body() -> None:
    """Its connection is used again, although nobody reads what is not there."""
    async with serving(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n") as (server, client):
        async with client.stream("POST", server.url, content="x") as response:
            assert response.status_code == 202
        assert await texts(server, client, 1) == ["hello"]
    assert server.connections == 1


async def test_idle_connection_closed_by_its_server_is_replaced() -> None:
    """It is seen before the next request."""
    async with serving() as (server, client):
        server.answers = [HELLO]
        assert await texts(server, client, 1) == ["hello"]
        await server.ended.wait()
        server.answers = [HELLO]
        assert await texts(server, client, 1) == ["hello"]
    assert server.connections == 2


async def test_request_is_not_resent_after_a_lost_connection() -> None:
    """A connection that ends in place of an answer may have brought it: the server is not asked again."""
    async with serving(HELLO, END) as (server, client):
        assert await texts(server, client, 1) == ["hello"]
        with pytest.raises(httpx2.ReadError, match=r"^Connection closed: the server gave no answer$"):
            await client.post(server.url, content="x")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    ],
)
async def test_ambiguous_http_answer_is_refused(answer: bytes) -> None:
    """It is none."""
    async with serving(answer) as (server, client):
        with pytest.raises(httpx2.ReadError, match="the server gave no answer"):
            await client.post(server.url)


@pytest.mark.parametrize("rest", [b"5\r\nhel", b"x\r\nhello\r\n", b"5\r\nhello!!0\r\n\r\n"])
async def test_truncated_chunked_answer_is_refused(rest: bytes) -> None:
    """What came of it is no answer."""
    async with serving(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + rest, END) as (server, client):
        server.answers = server.answers[:1]
        with pytest.raises(httpx2.StreamError, match=r"^Connection closed: the answer broke off$"):
            await client.post(server.url)


async def test_client_timeout_ends_a_silent_request() -> None:
    """The client's own limit holds."""
    async with serving(LATER) as (server, client):
        with pytest.raises(httpx2.ReadError, match="the server gave no answer"):
            await client.post(server.url, timeout=0.05)


async def test_long_answer_is_read_completely() -> None:
    """More comes at once than is held for its reader; every byte arrives."""
    body = bytes(range(256)) * 20_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving(head + body) as (server, client):
        async with client.stream("GET", server.url) as response:
            assert b"".join([piece async for piece in response.aiter_bytes()]) == body
        assert await texts(server, client, 1) == ["hello"]
    assert server.connections == 1


async def test_tls_certificate_and_host_name_are_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a server whose certificate is trusted, for its name."""
    certificates = self_signed(tmp_path, dns_names=("mcp.example",), addresses=("127.0.0.1",))
    with monkeypatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(certificates.ca))
        async with serving(ssl=certificates.server_context()) as (server, client):
            assert await texts(server, client, 2) == ["hello"] * 2
            with pytest.raises(httpx2.ConnectError, match="its certificate or its TLS is not valid"):
                await client.get(server.url.replace("127.0.0.1", "localhost"))
    assert server.connections == 1
    async with serving(ssl=certificates.server_context()) as (server, client):
        with pytest.raises(httpx2.ConnectError, match="its certificate or its TLS is not valid"):
            await client.get(server.url)


@pytest.mark.parametrize("fields", [[(b"a", b"b\r\nc: d")], [(b"a", b"b\nc")], [(b"a b", b"c")], [(b"", b"c")], []])
def test_invalid_http_request_head_is_refused(fields: Sequence[tuple[bytes, bytes]]) -> None:
    """No field becomes two."""
    with pytest.raises(HeadError):
        encode_request_head("GET", b"/", fields)
    with pytest.raises(HeadError):
        encode_request_head("GET", b"/ HTTP/1.1\r\nx: y", [(b"a", b"b")])


async def test_unsendable_request_fails_without_sending_anything() -> None:
    """It is that request's error only; nothing of it is sent."""
    async with serving() as (server, client):
        with pytest.raises(httpx2.ReadError, match="the request has a header that HTTP cannot carry"):
            await client.post(server.url, headers={"Mcp-Param-Place": b"here\r\nX-Other: there"})
        assert await texts(server, client, 1) == ["hello"]
    assert len(server.requests) == 1
