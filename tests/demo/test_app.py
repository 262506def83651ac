"""The server: its routes, its errors, its start and its end."""

import asyncio
import io

import aiohttp
import orjson
import pytest

from gateway.demo.app import MAX_JSON_BYTES, start_demo

from .talk import user

CHAT = "/v1/chat/completions"


async def test_health_endpoint_returns_200(client: aiohttp.ClientSession) -> None:
    """GET and HEAD /health are 200."""
    async with client.get("/health") as response:
        assert await response.json() == {"status": "ok"}
    async with client.head("/health") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "unknown_route"),
        ("POST", "/v1/nope", 404, "unknown_route"),
        ("PUT", CHAT, 405, "method_not_allowed"),
    ],
)
async def test_unknown_routes_return_openai_errors(
    client: aiohttp.ClientSession, method: str, path: str, status: int, code: str
) -> None:
    """Unknown routes and methods are told in OpenAI's shape, with the path."""
    async with client.request(method, path) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"], error.keys()) == (status, code, {"message", "type", "param", "code"})
    assert repr(path) in error["message"]
    assert response.headers.get("Allow") == ("POST" if status == 405 else None)


@pytest.mark.parametrize(("status", "retry_after"), [(400, None), (429, "1"), (500, None), (503, "1")])
async def test_error_word_returns_the_given_status(
    client: aiohttp.ClientSession, status: int, retry_after: str | None
) -> None:
    """`error CODE` has the status, an error body, and Retry-After where a retry makes sense; streaming too."""
    for stream in (False, True):
        async with client.post(CHAT, json={"messages": [user(f"error {status}")], "stream": stream}) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"]) == (status, "demo_error")
        assert response.headers.get("Retry-After") == retry_after


async def test_invalid_json_body_returns_400(client: aiohttp.ClientSession) -> None:
    """A body that is not JSON is 400 invalid_json."""
    async with client.post(CHAT, data=b'{"messages": [') as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "invalid_json")


async def test_undecodable_body_returns_400(client: aiohttp.ClientSession) -> None:
    """A body that is not encoded as it claims is a 400."""
    async with client.post(CHAT, data=b"{}", headers={"Content-Encoding": "gzip"}) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "unreadable_body")


async def test_oversized_body_returns_413(client: aiohttp.ClientSession) -> None:
    """More than aiohttp's own limit is taken; beyond the limit it is 413."""
    body = orjson.dumps({"messages": [user("x" * 2_000_000)]})
    async with client.post(CHAT, data=io.BytesIO(body)) as response:
        assert (await response.json())["usage"]["prompt_tokens"] == 500_000
    async with client.post(CHAT, data=io.BytesIO(b" " * (MAX_JSON_BYTES + 1))) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (413, "request_too_large")


async def test_long_header_line_is_accepted(client: aiohttp.ClientSession) -> None:
    """Header lines longer than aiohttp's own limit are taken."""
    async with client.get("/health", headers={"X-Long": "x" * 30_000}) as response:
        assert response.status == 200


async def test_closing_a_demo_server_ends_slow_answers() -> None:
    """Each has a port of its own; closing ends even a slow answer, and closing again does nothing."""
    first, second = await start_demo(), await start_demo()
    assert first.base_url != second.base_url
    async with aiohttp.ClientSession(first.base_url) as session:
        waiting = asyncio.create_task(session.post(CHAT, json={"messages": [user("slow 600")]}).__aenter__())
        async with session.get("/health") as response:
            assert response.status == 200
        async with asyncio.timeout(120):
            await first.close()
            await first.close()
        with pytest.raises(aiohttp.ClientError):
            await waiting
    with pytest.raises(OSError, match=r"address|Connect"):
        await start_demo(port=int(second.base_url.rpartition(":")[2]))
    await second.close()


async def test_demo_server_listens_on_ipv6() -> None:
    """An IPv6 address stands in brackets."""
    demo = await start_demo(host="::1")
    try:
        assert demo.base_url.startswith("http://[::1]:")
        async with aiohttp.ClientSession() as session, session.get(f"{demo.base_url}/health") as response:
            assert response.status == 200
    finally:
        await demo.close()
