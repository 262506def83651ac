"""Servers over streamable HTTP: what they get, and what becomes of each failure."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from gateway.mcp.calls import AnsweredError, LostError
from gateway.mcp.connection import open_connection
from gateway.mcp.server_facts import OAuth, ServerEndpoint
from gateway.mcp.transport.http import HttpTransport
from tests.mcp.mcp_host import Clock
from tests.mcp.transport.web_stands import stands_at
from tests.mcp.webserver import serving

KINDS = pytest.mark.parametrize("options", [{}, {"json_response": True}, {"stateless_http": True}], ids=str)


@KINDS
async def test_http_server_of_the_newer_era_is_served(options: dict[str, bool]) -> None:
    """Its tools are listed and called; it gets the headers that are configured for it."""
    async with serving(**options) as site, site.stands(headers={"X-Api-Key": "secret"}) as stand:
        await stand.running()
        assert (stand.session.get_condition().protocol, stand.session.get_condition().transport) == (
            "2026-07-28",
            "http",
        )
        assert list(stand.session.definitions.tools) == ["echo", "work", "grow"]
        assert await stand.said("echo", text="hello") == "hello"
        assert {head["x-api-key"] for head in site.heads} == {"secret"}
        assert {head["accept-encoding"] for head in site.heads} == {"identity"}


@pytest.mark.parametrize("options", [{}, {"json_response": True}], ids=str)
async def test_http_server_of_the_older_era_gets_its_own_session(options: dict[str, bool]) -> None:
    """With a session of its own, which is ended."""
    async with serving(**options) as site:
        transport = HttpTransport(ServerEndpoint(url=site.url), lost=lambda _: None, clock=Clock())
        async with open_connection(transport, probe_s=None) as link:
            answer = await link.call("echo", {"text": "hello"}, progressed=lambda _: None)
            assert answer["content"][0]["text"] == "hello" and link.protocol == "2025-11-25"
        sessions = {head.get("mcp-session-id") for head in site.heads}
        assert len(sessions) == 2 and None in sessions


@KINDS
async def test_hundred_concurrent_http_calls_get_their_own_answers(options: dict[str, bool]) -> None:
    """None is lost, and none has another one's answer."""
    async with serving(**options) as site, site.stands() as stand:
        await stand.running()
        texts = [str(number) for number in range(100)]
        assert await asyncio.gather(*(stand.said("echo", text=text) for text in texts)) == texts


async def test_progress_extends_the_timeout_over_http() -> None:
    """Over HTTP as well; and a tool that tells nothing ends in time."""
    async with serving() as site, site.stands(timeout=0.5, max_timeout=3) as stand:
        await stand.running()
        assert await stand.said("work", steps=20) == "done"
        assert "did not answer within 3 s" in await stand.said("work", steps=1000)


async def test_list_changed_subscription_reloads_the_tools() -> None:
    """By a subscription, as the newer era wants it."""
    async with serving() as site, site.stands() as stand:
        await stand.running()
        async with asyncio.timeout(120):
            while "grown" not in stand.session.definitions.tools:
                await stand.said("grow")  # the first one may come before the subscription does


async def test_server_crash_fails_the_call_and_the_server_is_reconnected() -> None:
    """The call fails before its time is over; the end is noticed without a call, and so is the new beginning."""
    async with serving() as site, site.stands() as stand:
        await stand.running()
        call = asyncio.create_task(stand.said("work", steps=1000))
        await stand.said("echo", text="after it")
        await site.down()
        assert "ended while it ran the tool 'work'" in await call
        await stand.changes.until(lambda: not stand.session.is_running)
        assert stand.session.get_condition().error == "it does not accept connections"
        await site.up()
        await stand.running()
        assert await stand.said("echo", text="hello") == "hello"


async def test_server_unavailable_at_startup_is_connected_later() -> None:
    """It is told what is wrong, not where the protocol's library stumbled; it is used once it is there."""
    async with serving() as site:
        await site.down()
        async with site.stands() as stand:
            await stand.changes.until(lambda: stand.session.get_condition().state == "error")
            assert stand.session.get_condition().error == "it does not accept connections"
            await site.up()
            await stand.running()
            assert await stand.said("echo", text="hello") == "hello"


async def test_session_lost_by_the_server_closes_the_connection() -> None:
    """A server that was restarted knows no session of before: there is a new one."""
    lost: list[str] = []
    async with serving() as site:
        transport = HttpTransport(ServerEndpoint(url=site.url), lost=lost.append, clock=Clock())
        async with open_connection(transport, probe_s=None) as link:
            await site.down()
            await site.up()
            with pytest.raises((AnsweredError, LostError)):
                await link.call("echo", {"text": "x"}, progressed=lambda _: None)
            async with asyncio.timeout(120):
                await link.closed_future
    assert lost and lost[0] in ("the server has ended the session", "it does not accept connections")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def refuses(_: web.Request) -> web.Response:
    return web.Response(status=403, text="no")


async def leads_elsewhere(_: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "http://127.0.0.2/mcp"})


async def is_a_page(_: web.Request) -> web.Response:
    return web.Response(text="<html>", content_type="text/html")


async def is_no_json(_: web.Request) -> web.Response:
    return web.Response(text="{", content_type="application/json")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (refuses, "it answered with HTTP 403"),
        (leads_elsewhere, "it redirects to http://127.0.0.2/mcp, which is not followed"),
        (is_a_page, "its answer has the content type 'text/html"),
        (is_no_json, "it is no JSON with one reading"),
    ],
)
async def test_condition_reports_why_the_url_serves_no_mcp(
    handler: Handler, error: str, aiohttp_server: AiohttpServer
) -> None:
    """Its condition says what it is instead."""
    app = web.Application()
    app.router.add_route("*", "/mcp", handler)
    site = await aiohttp_server(app)
    async with stands_at(str(site.make_url("/mcp"))) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        assert error in (stand.session.get_condition().error or "")


async def test_issuer_token_is_sent_and_renewed_on_401(aiohttp_server: AiohttpServer) -> None:
    """They are sent to the server, and asked for anew when it does not take them any more."""
    issued: list[str] = []
    seen: list[str | None] = []
    app = web.Application()

    async def metadata(request: web.Request) -> web.Response:
        origin = f"http://{request.host}"
        return web.json_response({"issuer": origin, "token_endpoint": f"{origin}/token"})

    async def token(_: web.Request) -> web.Response:
        issued.append(f"token-{len(issued) + 1}")
        return web.json_response({"access_token": issued[-1], "token_type": "Bearer", "expires_in": 3600})

    async def mcp(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=401 if seen[-1] != "Bearer token-2" else 403)

    app.router.add_get("/.well-known/oauth-authorization-server", metadata)
    app.router.add_post("/token", token)
    app.router.add_post("/mcp", mcp)
    site = await aiohttp_server(app)
    oauth = OAuth(issuer=str(site.make_url("")).rstrip("/"), client_id="gateway", client_secret="s")
    async with stands_at(str(site.make_url("/mcp")), oauth=oauth) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        assert stand.session.get_condition().error == "it answered with HTTP 403"
    assert seen[:2] == ["Bearer token-1", "Bearer token-2"] and issued == ["token-1", "token-2"]


async def test_missing_token_prevents_requests_to_the_server(aiohttp_server: AiohttpServer) -> None:
    """Nothing is sent to the server then."""
    asked: list[str] = []
    app = web.Application()

    async def mcp(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=500)

    app.router.add_post("/mcp", mcp)
    site = await aiohttp_server(app)
    oauth = OAuth(issuer=str(site.make_url("")).rstrip("/"), client_id="gateway", client_secret="canary")
    async with stands_at(str(site.make_url("/mcp")), oauth=oauth) as stand:
        await stand.changes.until(lambda: stand.session.get_condition().state == "error")
        error = stand.session.get_condition().error or ""
    assert error.startswith("no token for it: the issuer has no metadata") and "canary" not in error and not asked
