"""HTTP to servers: where it connects, and what it takes."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2
import pytest
from host_names import host_names
from unanswered_ports import silent_port

from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT
from gateway.mcp.transport.guarded_network import GuardedNetwork, Resolve, allows


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that reads a head, says this, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@contextmanager
def free_port() -> Iterator[int]:
    """One that nobody listens at, and nobody else takes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def asked(url: str, *, private_networks: bool = False, resolve: Resolve | None = None) -> httpx2.Response:
    web = GuardedNetwork(private_networks=private_networks, max_bytes=1000, resolve=resolve)
    async with httpx2.AsyncClient(transport=web, trust_env=False, timeout=5) as client:
        return await client.get(url)


@pytest.mark.parametrize(
    ("host", "address", "allowed"),
    [
        ("example.com", "93.184.215.14", True),
        ("example.com", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("localhost", "127.0.0.1", True),
        ("LOCALHOST.", "::1", True),
        ("api.localhost", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("[fd12::1]", "fd12::1", True),
        ("example.com", "127.0.0.1", False),
        ("example.com", "::1", False),
        ("example.com", "::ffff:127.0.0.1", False),
        ("example.com", "10.1.2.3", False),
        ("example.com", "192.168.0.1", False),
        ("example.com", "fd12::1", False),
        ("localhost.example.com", "127.0.0.1", False),
        ("notlocalhost", "127.0.0.1", False),
    ],
)
def test_host_name_may_resolve_to_public_addresses_only(host: str, address: str, allowed: bool) -> None:
    """Whoever writes an address, or localhost, means it; a name may be anybody's."""
    assert allows(host, address, private_networks=False) is allowed
    assert allows(host, address, private_networks=True)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0", "::"]
)
@pytest.mark.parametrize("private_networks", [False, True])
def test_cloud_metadata_addresses_are_always_refused(address: str, private_networks: bool) -> None:
    """Neither a switch nor the address itself."""
    assert not allows(address, address, private_networks=private_networks)
    assert not allows("metadata.example", address, private_networks=private_networks)


@pytest.mark.parametrize("private_networks", [False, True])
async def test_resolved_address_decides_about_access(private_networks: bool) -> None:
    """A name is judged by what it leads to when the connection is made."""

    async def resolve(host: str) -> list[str]:
        assert host == "mcp.example.com"
        return ["127.0.0.1"]

    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as url:
        name = f"http://mcp.example.com:{httpx2.URL(url).port}/"
        if private_networks:
            assert (await asked(name, private_networks=True, resolve=resolve)).text == "hi"
            return
        with pytest.raises(httpx2.ConnectError, match="none of the public internet: write private_networks: true"):
            await asked(name, resolve=resolve)


async def test_connection_tries_the_next_resolved_address() -> None:
    """As browsers do; only those that are allowed."""

    async def resolve(host: str) -> list[str]:
        return ["::1", "127.0.0.1"]

    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as url:
        assert (await asked(f"http://localhost:{httpx2.URL(url).port}/", resolve=resolve)).text == "hi"


async def test_connection_failures_are_reported_in_words() -> None:
    """In words, and without the address."""

    async def unknown(host: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(httpx2.ConnectError, match="its name cannot be resolved"):
        await asked("http://mcp.example.com/", resolve=unknown)
    with free_port() as port, pytest.raises(httpx2.ConnectError, match=r"^it does not accept connections$"):
        await asked(f"http://127.0.0.1:{port}/")
    async with answering(b"nonsense") as url:
        with pytest.raises(httpx2.ConnectError, match=r"^its certificate or its TLS is not valid$"):
            await asked(url.replace("http:", "https:"))


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n"])
async def test_missing_answer_is_reported_as_a_closed_connection(answer: bytes) -> None:
    """Nobody knows what the server did."""
    async with answering(answer) as url:
        with pytest.raises(httpx2.ReadError, match=r"^Connection closed: the server gave no answer$"):
            await asked(url)


async def test_truncated_answer_is_a_stream_error() -> None:
    """It is that answer's error only: a StreamError, by which the SDK ends no more than that."""
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi") as url:
        with pytest.raises(httpx2.StreamError, match=r"^Connection closed: the answer broke off$"):
            await asked(url)


async def test_overlong_answer_is_refused() -> None:
    """No more than the limit is kept; event streams have a limit of their own."""
    head, body = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 2000\r\n\r\n", b"x" * 2000
    async with answering(head % b"application/json" + body) as url:
        with pytest.raises(httpx2.StreamError, match="it is longer than 1000 bytes"):
            await asked(url)
    async with answering(head % b"text/event-stream" + body) as url:
        assert len((await asked(url)).content) == 2000


async def test_answer_with_too_many_values_is_refused() -> None:
    """It is not parsed; the events of a stream are counted where they are read."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n"
    async with answering(head % b"application/json" + b"[%b1]" % (b"1," * SERVICE_VALUES_LIMIT)) as url:
        with pytest.raises(httpx2.StreamError, match=r"longer than 1000 bytes|more than \d+ values"):
            await asked(url)
    events = b"data: [%b1]\n\n" % (b"1," * SERVICE_VALUES_LIMIT)
    async with answering(head % b"text/event-stream" + events) as url:
        assert len((await asked(url)).content) == len(events)


async def test_compressed_answer_is_refused() -> None:
    """A kilobyte that becomes a gigabyte is refused as it is."""
    bomb = gzip.compress(b"x" * 100_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    async with answering(head + bomb) as url:
        with pytest.raises(httpx2.ReadError, match="compressed its answer"):
            await asked(url)


async def test_mcp_client_ignores_proxy_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is meant for an MCP server goes there."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as url:
        assert (await asked(url)).text == "hi"


async def test_silent_address_is_skipped() -> None:
    """The next allowed one is tried meanwhile, and one that is not allowed never."""
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") as url:
        port = httpx2.URL(url).port
        assert port is not None
        with (
            silent_port("127.0.0.2", port),
            host_names({"mcp.example": ["127.0.0.2", "127.0.0.1"], "mixed.example": ["127.0.0.1", "0.0.0.1"]}),
        ):
            for name in ("mcp", "mixed"):
                response = await asked(f"http://{name}.example:{port}/", private_networks=True)
                assert response.text == "hello"
            with pytest.raises(httpx2.ConnectError, match="public internet"):
                await asked(f"http://mcp.example:{port}/")


async def test_silent_name_server_blocks_no_other_server() -> None:
    """More ask for its name than the event loop has threads."""
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") as url:
        with host_names({"silent.example": None, "mcp.example": ["127.0.0.1"]}) as names:
            waits = [asyncio.create_task(asked("http://silent.example:1/", private_networks=True)) for _ in range(20)]
            while not names.asked["silent.example"]:
                await asyncio.sleep(0)
            response = await asked(f"http://mcp.example:{httpx2.URL(url).port}/", private_networks=True)
            assert response.text == "hello"
            names.go_on.set()
            ends = await asyncio.gather(*waits, return_exceptions=True)
            assert all(isinstance(end, httpx2.ConnectError) for end in ends)
