"""Answers to questions in the older era: the request that brings one counts, not the one that called."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from gateways import until_read

from gateway.contracts.storage.store import Json
from tests.mcp_server.auth.issuer import AUDIENCE, Issuer
from tests.mcp_server.serving import World, keys, world

YES: Json = {"action": "accept", "content": {"decision": "approve"}}
FULL, USE = {"scope": "mcp:use mcp:decide"}, {"scope": "mcp:use"}


class Session:
    """A session of the older era whose requests have tokens of their choice."""

    def __init__(self, made: World, http: aiohttp.ClientSession) -> None:
        self.made = made
        self.http = http
        self.id = ""
        self.responses: list[aiohttp.ClientResponse] = []

    async def open(self, token: str) -> None:
        capabilities = {"elicitation": {"form": {}}}
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "1"},
        }
        opened = await self.post(token, {"id": 0, "method": "initialize", "params": params})
        self.id = opened.headers["Mcp-Session-Id"]
        await self.post(token, {"method": "notifications/initialized"})

    async def post(self, token: str, message: Json) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        if self.id:
            headers["Mcp-Session-Id"] = self.id
        body = orjson.dumps({"jsonrpc": "2.0", **message}).replace(b'"NaN"', b"NaN")
        headers["Content-Type"] = "application/json"
        response = await self.http.post(self.made.url, data=body, headers=headers)
        self.responses.append(response)
        return response

    async def call(self, token: str) -> aiohttp.ClientResponse:
        call = {"name": "here__echo", "arguments": {"text": "hi"}}
        return await self.post(token, {"id": 1, "method": "tools/call", "params": call})

    async def answer(self, token: str, asked: Json, result: Json) -> None:
        answered = await self.post(token, {"id": asked["id"], "result": result})
        assert answered.status in (202, 400)


async def message(response: aiohttp.ClientResponse, *, of: str) -> Json:
    """The next message on a stream with this member."""
    async for line in response.content:
        if line.startswith(b"data:") and of in (found := orjson.loads(line[5:])):
            return dict(found)
    raise AssertionError("the stream has ended")


@asynccontextmanager
async def session(issuer: Issuer, **config: Any) -> AsyncIterator[Session]:
    scopes = {"mcp:use": ["tools"], "mcp:decide": ["tools", "approve"]}
    oauth = {
        "issuer": issuer.url,
        "jwks_url": issuer.jwks_url,
        "audience": AUDIENCE,
        "scopes": scopes,
        "tenant": "team",
    }
    config = {"keys": keys(anna=["approve"]), "public_url": "https://gateway.example.com", **config}
    async with world({"wait": "1s", "oauth": oauth}, **config) as made, aiohttp.ClientSession() as http:
        one = Session(made, http)
        yield one
        for response in one.responses:
            response.close()


async def text_of(response: aiohttp.ClientResponse) -> str:
    found = await message(response, of="result")
    return str(found["result"]["content"][0]["text"])


@pytest.mark.parametrize("further", [{}, {"_meta": {"twolane/answer": "x"}}, {"_meta": 1}])
async def test_elicitation_response_without_the_decide_scope_decides_nothing(issuer: Issuer, further: Json) -> None:
    """The same caller, another token, without the scope; whatever it says of itself."""
    async with session(issuer) as one:
        full, use = issuer.token(**FULL), issuer.token(**USE)
        await one.open(full)
        calling = await one.call(full)
        asked = await message(calling, of="method")
        await one.answer(use, asked, {**YES, **further})
        assert "has NOT run" in await text_of(calling)
        assert len(await one.made.approvals(key="anna")) == 1


async def test_elicitation_response_uses_the_scope_of_its_own_token(issuer: Issuer) -> None:
    """The fresh token of the answer counts."""
    async with session(issuer) as one:
        ending, fresh = issuer.token(**FULL, exp=int(time.time()) - 26), issuer.token(**FULL)
        await one.open(fresh)
        calling = await one.call(ending)
        asked = await message(calling, of="method")

        async def status() -> int:
            return (await one.post(ending, {"method": "notifications/initialized"})).status

        await until_read(status, lambda status: status == 401)
        await one.answer(fresh, asked, YES)
        assert await text_of(calling) == "hi"


async def test_invalid_json_elicitation_response_decides_nothing(issuer: Issuer) -> None:
    """The next one does."""
    async with session(issuer) as one:
        full = issuer.token(**FULL)
        await one.open(full)
        calling = await one.call(full)
        asked = await message(calling, of="method")
        refused = await one.post(full, {"id": asked["id"], "result": {**YES, "x": "NaN"}})
        assert (refused.status, (await refused.json())["error"]["code"]) == (400, -32700)
        assert len(await one.made.approvals(key="anna")) == 1
        await one.answer(full, asked, YES)
        assert await text_of(calling) == "hi"


@pytest.mark.parametrize("result", [{"action": "no such"}, {"action": "accept", "content": 1}])
async def test_malformed_elicitation_result_decides_nothing(issuer: Issuer, result: Json) -> None:
    """The call goes on to wait."""
    async with session(issuer) as one:
        full = issuer.token(**FULL)
        await one.open(full)
        calling = await one.call(full)
        await one.answer(full, await message(calling, of="method"), result)
        assert "has NOT run" in await text_of(calling)
