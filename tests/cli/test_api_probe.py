"""`gateway check-config --probe` against servers that speak one API, both, or neither."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli.api_probe import describe_apis
from gateway.cli.commands import CommandError
from gateway.config import Settings
from gateway.testing.ports import free_port

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


@asynccontextmanager
async def server(statuses: Mapping[str, int], *, otherwise: int = 404) -> AsyncIterator[str]:
    """A server that answers its paths so, and all others otherwise. The key must come as each API sends it."""

    async def answer(request: web.Request) -> web.Response:
        assert await request.read() == b"{}"
        key = "x-api-key" if request.path == MESSAGES else "authorization"
        assert "sk-own" in request.headers[key]
        assert ("anthropic-version" in request.headers) == (request.path == MESSAGES)
        return web.json_response({}, status=statuses.get(request.path, otherwise))

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as listening:
        yield str(listening.make_url("/v1"))


async def probe(url: str, api: str = "chat") -> list[str]:
    settings = Settings.model_validate(
        {"upstreams": [{"name": "up", "base_url": url, "api": api, "api_key": "sk-own"}]}
    )
    return await asyncio.to_thread(lambda: list(describe_apis(settings)))


@pytest.mark.parametrize(
    ("statuses", "api", "words"),
    [
        ({CHAT: 400}, "chat", "speaks chat (api: chat)"),
        ({CHAT: 422, MESSAGES: 400}, "messages", "speaks chat and messages (api: messages)"),
        ({CHAT: 400, RESPONSES: 400}, "responses", "speaks chat and responses (api: responses)"),
        ({CHAT: 500}, "chat", "speaks chat (api: chat)"),
        ({}, "chat", "it knows neither of the paths"),
        ({CHAT: 405, MESSAGES: 405}, "chat", "it knows neither of the paths"),
    ],
)
async def test_probe_names_the_apis_that_an_endpoint_speaks(statuses: dict[str, int], api: str, words: str) -> None:
    async with server(statuses) as url:
        (line,) = await probe(url, api)
    assert line.startswith("  probe       up 127.0.0.1:") and words in line


async def test_wrong_api_is_an_error_that_says_what_to_write() -> None:
    async with server({MESSAGES: 400}) as url:
        with pytest.raises(CommandError, match="write `api: messages`"):
            await probe(url)


async def test_server_that_answers_all_paths_alike_tells_nothing() -> None:
    async with server({}, otherwise=401) as url:
        (line,) = await probe(url)
    assert "not known, as it answers 401 to every path" in line


async def test_probe_of_a_dead_server_is_no_error_of_the_configuration() -> None:
    (line,) = await probe(f"http://127.0.0.1:{free_port()}/v1", "messages")
    assert "(api: messages)" in line
