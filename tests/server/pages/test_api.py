"""The pages of the context lane: each is there once, none of them answers a stranger, and all end with the gateway."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
from gateways import key
from own_pages import own_pages

from gateway.api.ops_pages import OPEN, Route
from gateway.testing.local_gateway import LocalGateway

KEYS = [key("guest", "passthrough"), key("user", "context"), key("boss", "context", "approve", "admin")]
#: Makes the plain paths of chat completions and responses ours.
OURS = {"X-Context-Mode": "context"}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@asynccontextmanager
async def gateway() -> AsyncIterator[tuple[Sequence[Route], aiohttp.ClientSession]]:
    """The routes of a gateway with keys, but for those that everybody may ask, and who asks it."""
    config = {"keys": KEYS, "upstreams": [], "store": "sqlite:///:memory:"}
    async with LocalGateway(config) as made, aiohttp.ClientSession(made.base_url) as session:
        yield [route for route in await own_pages(made) if route[1] not in OPEN], session


async def test_route_is_registered_only_once() -> None:
    """aiohttp would let the first of two routes win, and never say so."""
    async with gateway() as (routes, _):
        counted = Counter((method, path) for method, path, _ in routes)
        assert {route for route, count in counted.items() if count > 1} == set()
        paths = {path for _, path in counted}
        for path in (
            "/context/chat/completions",
            "/context/explain",
            "/context/approvals/{id}",
            "/context/runs/{id}",
            "/context/audit",
            "/context/audit/verification",
            "/context/tools",
            "/context/status",
            "/context/upstreams",
            "/context/ws",
            "/context/v1/responses",
            "/context/v1/responses/compact",
            "/v1/responses/{id}/input_items",
            "/responses/{id}/cancel",
            "/context/conversations/{id}/items/{item}",
            "/mcp/services",
            "/v1/system-prompts/{id}/enhanced",
            "/workflows",
            "/workflows/categories",
            "/workflows/{name}/runs",
        ):
            assert path in paths, path


async def test_fixed_paths_precede_parameterized_paths() -> None:
    """`/workflows/categories` is no workflow; whichever stands first gets the request."""
    async with gateway() as (routes, _):
        seen: list[tuple[str, str]] = []
        for method, path, _ in routes:
            for earlier_method, earlier in seen:
                pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(earlier))
                assert earlier_method != method or not re.fullmatch(pattern, path), f"{earlier} hides {path}"
            seen.append((method, path))


@pytest.mark.parametrize(
    ("caller", "status", "code"),
    [("", 401, "missing_api_key"), ("nobody", 401, "invalid_api_key"), ("guest", 403, "scope_missing")],
)
async def test_every_page_refuses_unauthorized_callers(caller: str, status: int, code: str) -> None:
    """Without a key, with a wrong one, with one that may not; whatever is asked."""
    # Without the version, single models are the upstream's.
    headers = {**OURS, "anthropic-version": "2023-06-01", **({"X-Gateway-Key": caller} if caller else {})}
    async with gateway() as (routes, session):
        for method, path, _ in routes:
            place = re.sub(r"\{\w+\}", "x", path)
            async with session.request(method, place, headers=headers, json=ASKED) as response:
                content = await response.read()
                assert response.status == status, (method, path, content)
                told = {} if method == "HEAD" else json.loads(content)["error"]
                # Messages have no field for it.
                assert method == "HEAD" or told.get("code") == code or f"({code}; " in told["message"], (method, path)


async def test_context_scope_does_not_grant_access_to_admin_pages() -> None:
    """A key for chats neither decides, nor changes prompts, nor sees services or the audit log."""
    async with gateway() as (_, session):
        for method, path, body in (
            ("POST", "/context/approvals/ap_x", {"decision": "approve"}),
            ("PUT", "/v1/system-prompts/x", {"text": "x"}),
            ("GET", "/context/audit", None),
            ("GET", "/mcp/services", None),
        ):
            told = {}
            for caller in ("user", "boss"):
                headers = {"X-Gateway-Key": caller}
                async with session.request(method, path, headers=headers, json=body) as response:
                    told[caller] = response.status
            assert told["user"] in (403, 404) and told["boss"] in (200, 201, 404), (path, told)
            assert path.endswith("ap_x") or told["user"] == 403


async def test_open_streams_and_websockets_end_with_the_gateway() -> None:
    """Streams and WebSockets of events, of responses; each is closed once more without harm."""
    async with LocalGateway({"upstreams": []}) as made, aiohttp.ClientSession(made.base_url) as session:
        sockets = [await session.ws_connect(path) for path in ("/context/ws", "/context/v1/responses")]
        body = {"model": "demo", "input": "slow 200", "background": True, "stream": True}
        stream = await session.post("/context/v1/responses", json=body)
        assert b"response.created" in await stream.content.readline()
        await asyncio.wait_for(made.gateway.drain(), 120)
        assert [(await socket.receive()).data for socket in sockets] == [1001, 1001]
        assert b"[DONE]" not in await stream.read()
        await made.gateway.drain()
