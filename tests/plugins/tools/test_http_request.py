"""The tool that asks web servers: real servers on loopback, and everything that must never be connected to."""

import asyncio
import contextlib
import gzip
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import ValidationError
from pytest_aiohttp import AiohttpServer

from gateway.caller import Caller
from gateway.contracts import Exchange, ToolCall, ToolResult
from gateway.testing.tls import Certificates
from plugins.tools.http_request import PLUGIN, Config, HttpRequest

EXCHANGE = Exchange(id="x", body={}, caller=Caller("ann", "acme", frozenset()), chain="assistant")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def asking(tool: HttpRequest) -> AsyncIterator[Callable[..., Awaitable[ToolResult]]]:
    async def ask(url: str, **arguments: Any) -> ToolResult:
        return await tool.call(ToolCall(id="c", tool="http_request", arguments={"url": url, **arguments}), EXCHANGE)

    try:
        yield ask
    finally:
        await tool.close()
        await tool.close()


async def ask(url: str, *, config: Config | None = None, **arguments: Any) -> ToolResult:
    async with asking(HttpRequest(config or Config(private_networks=True))) as asked:
        return await asked(url, **arguments)


class Site:
    """A server that answers with `answer` and remembers what it was asked."""

    def __init__(self, server: AiohttpServer) -> None:
        self._server = server
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    async def serve(self, answer: Answer) -> str:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.requests.append((request.method, request.path_qs, dict(request.headers), await request.read()))
            return await answer(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        return str((await self._server(app)).make_url("/")).rstrip("/")

    async def says(self, **response: Any) -> str:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(**response)

        return await self.serve(answer)


@pytest.fixture
def site(aiohttp_server: AiohttpServer) -> Site:
    return Site(aiohttp_server)


@contextlib.asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that speaks bytes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


# What it does.


async def test_the_tool_is_described_with_its_limits() -> None:
    """Untrusted by default, in category web; the operator's hosts are told to the model."""
    tool = PLUGIN.build(Config(hosts=("a.example",), requires_approval=True), None)  # type: ignore[arg-type]
    (spec,) = await tool.list_tools()
    assert (spec.name, spec.category, spec.untrusted, spec.requires_approval) == ("http_request", "web", True, True)
    assert "a.example" in spec.description
    assert set(spec.parameters["properties"]) == {"url", "method", "headers", "body"}
    (spec,) = await HttpRequest(Config(untrusted=False)).list_tools()
    assert (spec.untrusted, spec.requires_approval) == (False, False)


async def test_a_page_is_told_with_status_headers_and_body(site: Site) -> None:
    """Status line, the headers that matter, a blank line, the body as text."""
    url = await site.says(text="grüß dich", headers={"ETag": '"1"', "X-Other": "no"})
    result = await ask(url + "/a?b=c")
    assert result == ToolResult('HTTP 200 OK\ncontent-type: text/plain; charset=utf-8\netag: "1"\n\ngrüß dich')
    ((method, path, headers, body),) = site.requests
    assert (method, path, body, headers["User-Agent"]) == ("GET", "/a?b=c", b"", "twolane")


async def test_method_headers_and_body_go_out_as_they_were_asked_for(site: Site) -> None:
    """A POST with its content type and body."""
    url = await site.says(status=201, text="made")
    result = await ask(url, method="POST", headers={"Content-Type": "application/json", "X-A": "1"}, body='{"a": "é"}')
    assert result.ok and result.content.startswith("HTTP 201 Created\n")
    ((method, _, headers, body),) = site.requests
    assert (method, headers["Content-Type"], headers["X-A"]) == ("POST", "application/json", "1")
    assert body == '{"a": "é"}'.encode()


async def test_an_error_of_the_server_is_a_failure_with_its_text(site: Site) -> None:
    """The model reads what the server said."""
    result = await ask(await site.says(status=404, text="no such page"))
    assert not result.ok and "HTTP 404 Not Found" in result.content and "no such page" in result.content


async def test_a_picture_is_described_and_not_dumped(site: Site) -> None:
    """Type and size, no bytes."""
    result = await ask(await site.says(body=b"\x89PNG" + bytes(996), content_type="image/png"))
    assert result == ToolResult("HTTP 200 OK\ncontent-type: image/png\n\n[1000 bytes that are not text: not shown]")


async def test_headers_that_are_no_text_do_not_break_the_result() -> None:
    """Bytes of another charset come out as replacement characters; the result can always be encoded."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 \xff\xfe\r\nETag: \xe9\xff\r\nContent-Length: 2\r\n\r\nok")

    async with raw(answer) as url:
        result = await ask(url)
    assert result.ok and result.content.encode() and "etag: �" in result.content


async def test_no_cookie_is_kept(site: Site) -> None:
    """What one answer sets, the next request does not send."""
    url = await site.says(text="", headers={"Set-Cookie": "a=b; Path=/"})
    async with asking(HttpRequest(Config(private_networks=True))) as asked:
        await asked(url)
        await asked(url)
    assert len(site.requests) == 2 and "Cookie" not in site.requests[1][2]


async def test_no_proxy_of_the_environment_is_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would connect to whatever it is told, past every check."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await ask(await site.says(text="direct"))).ok


# Where it never connects to.


class Names(AbstractResolver):
    """Answers each look-up with the next of its lists of addresses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.answers.pop(0)
        ]

    async def close(self) -> None:
        return


class Inside:
    """A server of this machine that must not be reached."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()

    def config(self, host: str) -> Config:
        """Everything but the address is allowed."""
        return Config(hosts=(f"{host}:{self.port}",))


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    listener = Inside()
    server = await asyncio.start_server(listener.connected, "0.0.0.0", 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.2", "127.1", "0.0.0.0", "0", "2130706433", "0x7f000001", "0x7f.1", "017700000001"),
        *("0177.0.0.1", "127.0.0.1.", "１２７.0.0.1", "127。0。0。1", "localhost", "LOCALHOST", "localhost."),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::127.0.0.1]", "[::]"),
    ],
)
async def test_this_machine_is_not_reached_in_any_spelling(inside: Inside, host: str) -> None:
    """Decimal, octal, hexadecimal, short, mapped, full-width, or a name: 0 connections (T8)."""
    result = await ask(f"http://{host}:{inside.port}/", config=inside.config(host))
    assert not result.ok and result.content
    await asyncio.sleep(0)
    assert inside.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://127.0.0.1/",
            "http://localhost/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "https://127.0.0.1/",
        ),
        *("http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://100.100.100.200/"),
        *(
            "http://10.0.0.1/",
            "http://192.168.1.1/",
            "http://[fe80::1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://0.0.0.0/",
        ),
    ],
)
async def test_private_addresses_are_told_as_such(url: str) -> None:
    """Loopback, private, link-local, metadata: the model reads why, not which address a name has."""
    result = await ask(url, config=Config(timeout=5.0))
    assert not result.ok and "not on the public internet" in result.content


async def test_every_address_of_a_name_is_judged(inside: Inside) -> None:
    """A name with a public and a private address: the private one is not tried."""
    tool = HttpRequest(
        Config(hosts=(f"two.example:{inside.port}",), timeout=0.5), resolver=Names(["127.0.0.1", "::ffff:127.0.0.1"])
    )
    async with asking(tool) as asked:
        result = await asked(f"http://two.example:{inside.port}/")
    assert "not on the public internet" in result.content and inside.connections == 0


async def test_a_name_that_changes_its_address_gains_nothing(inside: Inside) -> None:
    """T8: each connection is judged on what it connects to; there is no look-up before it that could differ."""
    names = Names(["10.0.0.1"], ["127.0.0.1"], ["0.0.0.0"])
    async with asking(HttpRequest(inside.config("rebind.example"), resolver=names)) as asked:
        for _ in range(3):
            result = await asked(f"http://rebind.example:{inside.port}/")
            assert "not on the public internet" in result.content
    assert names.answers == [] and inside.connections == 0


@pytest.mark.parametrize(
    "url", ["http://1.1.1.1:22/", "http://example.com:8080/", "https://example.com:80443/", "http://127.0.0.1:6379/"]
)
async def test_other_ports_than_those_of_the_web_are_refused(url: str) -> None:
    """A request can be a command to a server of another kind."""
    result = await ask(url, config=Config())
    assert not result.ok and result.content.startswith("Refused: ")


async def test_only_the_hosts_of_the_operator_are_asked(site: Site) -> None:
    """T13: with a list of hosts all others are refused, also on another port of the same host."""
    url = await site.says(text="in")
    host = url.removeprefix("http://")
    for other in (
        "https://evil.example/?all=I+know",
        "http://127.0.0.1/",
        f"http://127.0.0.1.evil.example:{url[-5:]}/",
    ):
        result = await ask(other, config=Config(hosts=(host,), private_networks=True))
        assert not result.ok and "hosts that the operator allows" in result.content
    assert (await ask(url, config=Config(hosts=(host,), private_networks=True))).ok
    assert len(site.requests) == 1


def test_a_list_of_what_is_no_host_is_refused() -> None:
    """The configuration says how a host is written."""
    with pytest.raises(ValidationError, match=r"such as api\.example\.com"):
        Config(hosts=("http://a.example/x",))


@pytest.mark.parametrize(
    "url", ["http://good@evil/", "http://evil\\@good/", "file:///etc/passwd", "http://h:0/", "http://a b/"]
)
async def test_a_url_in_disguise_is_refused(url: str) -> None:
    """T10: nothing is sent; the text says what is wrong."""
    result = await ask(url)
    assert not result.ok and result.content.startswith("Refused: `url`")


async def test_wrong_arguments_are_a_result() -> None:
    """T25: whatever the arguments are, the model gets a text."""
    async with asking(HttpRequest(Config())) as asked:
        for arguments in ({"url": 1}, {"url": "http://h/", "headers": {"Host": "x"}}, {"url": "http://h/", "body": 1}):
            result = await asked(**arguments)
            assert not result.ok and result.content.startswith("Refused: ")


# Redirects.


async def test_a_redirect_is_followed_and_told(site: Site) -> None:
    """The final address stands in the result."""

    async def answer(request: web.Request) -> web.Response:
        return (
            web.Response(text="there") if request.path == "/b" else web.Response(status=302, headers={"Location": "b"})
        )

    url = await site.serve(answer)
    result = await ask(url + "/a")
    assert result.ok and f"\nurl: {url}/b\n" in result.content and result.content.endswith("\n\nthere")


async def test_redirects_end(site: Site) -> None:
    """Five are followed; a circle is an error."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"/{len(site.requests)}"})

    result = await ask(await site.serve(answer))
    assert not result.ok and "more than 5 redirects" in result.content
    assert len(site.requests) == 6


@pytest.mark.parametrize(
    "location", ["http://evil.example/", "http://127.0.0.1:1/", "https://127.0.0.1/", "//localhost/"]
)
async def test_a_redirect_is_checked_like_the_first_address(site: Site, location: str) -> None:
    """With a list of hosts, it leads nowhere else."""
    url = await site.says(status=302, headers={"Location": location})
    result = await ask(url, config=Config(hosts=(url.removeprefix("http://"),), private_networks=True))
    assert not result.ok and "the redirect to" in result.content


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/", "http://localhost/", "http://[::ffff:7f00:1]/", "http://0/"]
)
async def test_a_redirect_into_the_network_is_not_followed(site: Site, location: str) -> None:
    """From an address that is allowed to one that is not: judged at connect, like any other."""
    url = await site.says(status=302, headers={"Location": location})

    class Outside(HttpRequest):
        """Takes the site's own port for the internet."""

        def _socket(self, address: Any) -> socket.socket:
            if str(address[4][1]) in url:
                return socket.socket(family=address[0], type=address[1], proto=address[2])
            return super()._socket(address)

    tool = Outside(Config(hosts=(url.removeprefix("http://"), location.split("/")[2])))
    async with asking(tool) as asked:
        result = await asked(url)
    assert not result.ok and ("not on the public internet" in result.content or "its name" in result.content)
    assert len(site.requests) == 1


async def test_a_change_is_not_repeated_at_another_server(site: Site) -> None:
    """The redirect itself is the answer: the model can ask for the other server by name."""
    url = await site.says(status=307, headers={"Location": "http://other.example/"})
    result = await ask(url, method="POST", body="x")
    assert "HTTP 307" in result.content and "location: http://other.example/" in result.content
    assert len(site.requests) == 1


# Bombs, slowness, lies.


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_bomb_is_unpacked_no_further_than_the_cap(site: Site, coding: str) -> None:
    """100 MB in 100 KB: only as much as is wanted is unpacked."""
    pack = gzip.compress if coding == "gzip" else zlib.compress
    bomb = pack(b"a" * 100_000_000, 1)
    url = await site.says(body=bomb, headers={"Content-Encoding": coding}, content_type="text/plain")
    result = await ask(url, config=Config(private_networks=True, max_bytes=10_000))
    assert result.ok and result.content.endswith("a\n[... cut after 10000 bytes]") and len(result.content) < 10_200


async def test_a_body_without_end_is_cut(site: Site) -> None:
    """The connection is closed as soon as there is enough."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        finally:
            gone.set()

    async with raw(answer) as url:
        result = await ask(url)
        assert result.content.endswith(f"[... cut after {1 << 20} bytes]")
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_large_binary_is_not_read_to_its_end(site: Site) -> None:
    """It is described from what was read."""
    url = await site.says(body=bytes(5_000_000), content_type="application/zip")
    assert "[more than 1048576 bytes that are not text: not shown]" in (await ask(url)).content


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
async def test_a_server_that_stalls_is_left_in_time(sent: bytes) -> None:
    """Before the head, in it, in the body: the time of the call covers all of it, and the connection is closed."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await reader.read()
        gone.set()

    async with raw(answer) as url:
        result = await ask(url, config=Config(private_networks=True, timeout=0.1))
        assert result == ToolResult("No complete answer within 0.1 seconds.", ok=False)
        await asyncio.wait_for(gone.wait(), 5)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=range(8),
)
async def test_an_answer_that_is_none_is_a_failure(sent: bytes) -> None:
    """Cut short, not HTTP, not what its coding says: a text for the model, never an exception."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)

    async with raw(answer) as url:
        result = await ask(url)
    assert not result.ok and result.content.startswith(("The request to '127.0.0.1' failed: ", "Refused: "))


async def test_a_name_that_is_none_and_a_port_where_nobody_is() -> None:
    """The model reads which of the two it was."""
    assert "cannot be resolved" in (await ask("http://nowhere.invalid/")).content
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        result = await ask(f"http://127.0.0.1:{bound.getsockname()[1]}/")
    assert result == ToolResult("The request to '127.0.0.1' failed: it does not accept connections.", ok=False)


async def test_a_certificate_that_nobody_signed_is_refused(
    certificates: Certificates, aiohttp_server: AiohttpServer
) -> None:
    """TLS is checked as browsers do."""
    server = await aiohttp_server(web.Application(), ssl=certificates.server_context())
    result = await ask(str(server.make_url("/")))
    assert "certificate or its TLS is not valid" in result.content


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"])
async def test_cancelling_closes_the_connection(sent: bytes) -> None:
    """Before and within the answer; the cancellation goes through."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        asked.set()
        await reader.read()
        gone.set()

    async with raw(answer) as url, asking(HttpRequest(Config(private_networks=True))) as call:
        task = asyncio.ensure_future(call(url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 5)
