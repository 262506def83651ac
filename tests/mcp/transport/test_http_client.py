"""The requests to a server: where they go, and with what headers."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.mcp.server_facts import OAuth
from tests.mcp.transport.web_stands import Elsewhere, stands_at


async def test_a_redirect_within_the_origin_is_followed_once(aiohttp_server: AiohttpServer) -> None:
    """As of a slash at the end; what comes later goes there at once, calls included."""
    server = Elsewhere()
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.running()
        assert [await stand.said("echo") for _ in range(2)] == ["hi", "hi"]
    assert [path for path, _ in server.seen].count("/mcp") == 1
    assert [method for path, method in server.seen if path == "/mcp/"].count("tools/call") == 2


async def test_a_call_that_is_redirected_is_not_sent_again(aiohttp_server: AiohttpServer) -> None:
    """It may have run. It ends alone: the connection goes on."""
    server = Elsewhere(calls=True)
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.running()
        for sent in (1, 2):
            assert "it redirects the call, which is not sent again" in await stand.said("echo")
            assert [method for _, method in server.seen].count("tools/call") == sent
        assert stand.session.get_condition().state == "running"


async def test_redirect_loop_is_refused(aiohttp_server: AiohttpServer) -> None:
    """Nor is one that leads to itself."""
    server = Elsewhere(to="/mcp")
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        assert "it redirects again and again" in (stand.session.get_condition().error or "")


async def test_configured_headers_do_not_replace_protocol_headers() -> None:
    """Nor does what stands in the address, which HTTP has a header for."""
    seen: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    headers = {
        "accept": "x/y",
        "MCP-Session-Id": "forged",
        "content-length": "7",
        "X-Api-Key": "k",
        "User-Agent": "ours",
    }
    async with server, stands_at(f"http://me:a%20b@127.0.0.1:{port}/a/mcp?q=1", headers=headers) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
    first, *fields = seen[0].decode().removesuffix("\r\n\r\n").split("\r\n")
    found = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    assert first == "POST /a/mcp?q=1 HTTP/1.1" and len(found) == len(fields)
    assert int(found.pop("content-length")) > 7
    assert found == {
        "host": f"127.0.0.1:{port}",
        "user-agent": "ours",
        "accept-encoding": "identity",
        "authorization": "Basic bWU6YSBi",
        "x-api-key": "k",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "server/discover",
    }


async def test_redirect_error_names_the_target_without_secrets(aiohttp_server: AiohttpServer) -> None:
    """They may stand in its name, and in its query."""
    server = Elsewhere(to="http://me:canary@127.0.0.2/mcp?token=canary#canary")
    async with stands_at(await server.site(aiohttp_server)) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        error = stand.session.get_condition().error or ""
    assert "it redirects to http://127.0.0.2/mcp, which is not followed" in error and "canary" not in error


class Tiring(Elsewhere):
    """A server, and the issuer of its tokens. It refuses the token of the first call, and tells `refused` so."""

    def __init__(self, *, refused: Callable[[], None]) -> None:
        super().__init__()
        self.issued: list[str] = []
        self._refused = refused

    async def answer(self, request: web.Request) -> web.StreamResponse:
        answer = await super().answer(request)
        if self.seen[-1][1] == "tools/call" and request.headers["Authorization"] == "Bearer t1":
            self._refused()
            return web.Response(status=401)
        return answer

    async def site(self, aiohttp_server: AiohttpServer) -> str:
        app = web.Application()
        app.router.add_route("*", "/mcp/", self.answer)
        app.router.add_get("/.well-known/oauth-authorization-server", self._metadata)
        app.router.add_post("/token", self._token)
        return str((await aiohttp_server(app)).make_url("/mcp/"))

    async def _metadata(self, request: web.Request) -> web.Response:
        origin = f"http://{request.host}"
        return web.json_response({"issuer": origin, "token_endpoint": f"{origin}/token"})

    async def _token(self, _request: web.Request) -> web.Response:
        self.issued.append(f"t{len(self.issued) + 1}")
        return web.json_response({"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": 3600})


@pytest.mark.parametrize("changes", [False, True])
async def test_call_that_waited_for_a_token_rechecks_its_clearance(
    aiohttp_server: AiohttpServer, *, changes: bool
) -> None:
    """The rules may have changed while the issuer made another token."""
    clears = [True]
    server = Tiring(refused=lambda: clears.__setitem__(0, not changes))
    url = await server.site(aiohttp_server)
    oauth = OAuth(issuer=url.removesuffix("/mcp/"), client_id="gateway", client_secret="s")
    async with stands_at(url, oauth=oauth) as stand:
        await stand.running()
        result = await stand.session.call("echo", {}, stands=lambda: clears[0])
        assert stand.session.get_condition().state == "running"
    sent = [method for _, method in server.seen].count("tools/call")
    assert server.issued == ["t1", "t2"]
    if changes:
        assert (result.ok, sent) == (False, 1)
        assert result.content.startswith("Not run: it waited for the service 'web', and the tool 'echo' or the policy")
    else:
        assert (result.ok, result.content, sent) == (True, "hi", 2)


async def test_session_cookies_are_sent_back(aiohttp_server: AiohttpServer) -> None:
    """By them a balancer finds the process that has the session. Those of other paths are not sent, nor too many."""
    seen: list[dict[str, str]] = []

    class Sticky(Elsewhere):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            seen.append(dict(request.cookies))
            response = await super().answer(request)
            if len(seen) == 1:
                response.set_cookie("process", "7", path="/")
                response.set_cookie("other", "1", path="/elsewhere")
            if len(seen) == 5:
                response.set_cookie("large", "x" * 20_000)
            return response

    async with stands_at((await Sticky().site(aiohttp_server)) + "/") as stand:
        await stand.running()
        for _ in range(5):
            assert await stand.said("echo") == "hi"
    assert seen[0] == {} and seen[1:5] == [{"process": "7"}] * 4
    assert all("large" not in cookies for cookies in seen)
