"""The tool that asks web servers: where redirects lead, and answers that are bombs, slow or none at all."""

import asyncio
import gzip
import socket
import zlib
from typing import Any

import pytest
from aiohttp import web
from certificates import Certificates
from pytest_aiohttp import AiohttpServer

from gateway.contracts.tools import ToolResult
from gateway.plugins.tools.http_request import Config, HttpRequest
from tests.plugins.tools.site import Site, ask, asking, raw

# Redirects.


async def test_redirect_is_followed_and_the_final_url_reported(site: Site) -> None:
    """The final address stands in the result."""

    async def answer(request: web.Request) -> web.Response:
        return (
            web.Response(text="there") if request.path == "/b" else web.Response(status=302, headers={"Location": "b"})
        )

    url = await site.serve(answer)
    result = await ask(url + "/a")
    assert result.ok and f"\nurl: {url}/b\n" in result.content and result.content.endswith("\n\nthere")


async def test_redirects_stop_after_five(site: Site) -> None:
    """Five are followed; a circle is an error."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"/{len(site.requests)}"})

    result = await ask(await site.serve(answer))
    assert not result.ok and "more than 5 redirects" in result.content
    assert len(site.requests) == 6


@pytest.mark.parametrize(
    "location", ["http://evil.example/", "http://127.0.0.1:1/", "https://127.0.0.1/", "//localhost/"]
)
async def test_redirect_target_outside_the_host_list_is_refused(site: Site, location: str) -> None:
    """With a list of hosts, it leads nowhere else."""
    url = await site.says(status=302, headers={"Location": location})
    result = await ask(url, config=Config(hosts=(url.removeprefix("http://"),), private_networks=True))
    assert not result.ok and "the redirect to" in result.content


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/", "http://localhost/", "http://[::ffff:7f00:1]/", "http://0/"]
)
async def test_redirect_to_a_private_address_is_not_followed(site: Site, location: str) -> None:
    """From an address that is allowed to one that is not: judged at connect, like any other."""
    url = await site.says(status=302, headers={"Location": location})

    class Outside(HttpRequest):
        """Takes the site's own port for the internet."""

        def _open_socket(self, address: Any) -> socket.socket:
            if url.endswith(f":{address[4][1]}"):
                return socket.socket(family=address[0], type=address[1], proto=address[2])
            return super()._open_socket(address)

    tool = Outside(Config(hosts=(url.removeprefix("http://"), location.split("/")[2])))
    async with asking(tool) as asked:
        result = await asked(url)
    assert not result.ok and ("not on the public internet" in result.content or "its name" in result.content)
    assert len(site.requests) == 1


async def test_post_redirected_to_another_server_is_not_repeated(site: Site) -> None:
    """The redirect itself is the answer: the model can ask for the other server by name."""
    url = await site.says(status=307, headers={"Location": "http://other.example/"})
    result = await ask(url, method="POST", body="x")
    assert "HTTP 307" in result.content and "location: http://other.example/" in result.content
    assert len(site.requests) == 1


async def test_harmless_request_follows_redirects_on_the_same_server_only(site: Site) -> None:
    """The rest would have been judged anew: the redirect is the answer, and says so."""
    other = await site.says(text="other")
    places = {"/slash": "/slash/", "/query?a=1": "/moved?a=1", "/far": f"{other}/x", "/action": "/x?_method=DELETE"}
    places["/path"] = "/x;_method=DELETE"

    async def answer(request: web.Request) -> web.Response:
        place = places.get(request.path_qs)
        return web.Response(text="there") if place is None else web.Response(status=302, headers={"Location": place})

    url = await site.serve(answer)
    for path in ("/slash", "/query?a=1"):
        assert (await ask(url + path, harmless=True)).content.endswith("\n\nthere")
    asked = len(site.requests)
    for path in ("/far", "/action", "/path"):
        result = await ask(url + path, harmless=True)
        assert f"\nlocation: {places[path]}\n" in result.content and "redirect: not followed" in result.content
    assert len(site.requests) == asked + 3
    assert (await ask(url + "/far")).content.endswith("\n\nother")


# Bombs, slowness, lies.


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_body_is_unpacked_only_up_to_max_bytes(site: Site, coding: str) -> None:
    """100 MB in 100 KB: only as much as is wanted is unpacked."""
    pack = gzip.compress if coding == "gzip" else zlib.compress
    bomb = pack(b"a" * 100_000_000, 1)
    url = await site.says(body=bomb, headers={"Content-Encoding": coding}, content_type="text/plain")
    result = await ask(url, config=Config(private_networks=True, max_bytes=10_000))
    assert result.ok and result.content.endswith("a\n[... cut after 10000 bytes]") and len(result.content) < 10_200


async def test_endless_body_is_cut_and_its_connection_closed(site: Site) -> None:
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
        await asyncio.wait_for(gone.wait(), 120)


async def test_a_large_binary_is_not_read_to_its_end(site: Site) -> None:
    """It is described from what was read."""
    url = await site.says(body=bytes(5_000_000), content_type="application/zip")
    assert "[more than 1048576 bytes that are not text: not shown]" in (await ask(url)).content


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
async def test_stalled_response_fails_at_the_timeout_and_closes_the_connection(sent: bytes) -> None:
    """Before the head, in it, in the body: the time of the call covers all of it, and the connection is closed."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await reader.read()
        gone.set()

    async with raw(answer) as url:
        result = await ask(url, config=Config(private_networks=True, timeout=0.1))
        assert result == ToolResult("No complete answer within 0.1 seconds.", ok=False)
        await asyncio.wait_for(gone.wait(), 120)


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
async def test_malformed_http_response_is_a_failed_result(sent: bytes) -> None:
    """Cut short, not HTTP, not what its coding says: a text for the model, never an exception."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)

    async with raw(answer) as url:
        result = await ask(url)
    assert not result.ok and result.content.startswith(("The request to '127.0.0.1' failed: ", "Refused: "))


async def test_unresolvable_name_and_closed_port_are_reported_differently() -> None:
    """The model reads which of the two it was."""
    assert "cannot be resolved" in (await ask("http://nowhere.invalid/")).content
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        result = await ask(f"http://127.0.0.1:{bound.getsockname()[1]}/")
    assert result == ToolResult("The request to '127.0.0.1' failed: it does not accept connections.", ok=False)


async def test_self_signed_certificate_is_refused(certificates: Certificates, aiohttp_server: AiohttpServer) -> None:
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
        await asyncio.wait_for(gone.wait(), 120)
