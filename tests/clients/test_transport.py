"""What clients send besides JSON: other methods, binary, multipart, WebSocket; and what they are called to stop."""

import hashlib
import io
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest
from yarl import URL

from gateway.demo.script import GREETING
from tests.clients.conftest import GATEWAY_KEY
from tests.clients.provider import PROVIDER_KEY, Seen

pytestmark = pytest.mark.clients

BEARER = {"Authorization": f"Bearer {PROVIDER_KEY}"}
X_API_KEY = {"x-api-key": PROVIDER_KEY}
MEBIBYTE = 1024 * 1024


async def test_head_request_of_the_root_returns_200(gateway: str) -> None:
    """Claude Code asks it first."""
    async with aiohttp.ClientSession() as client, client.head(gateway) as answer:
        assert answer.status == 200 and await answer.read() == b""


async def test_head_request_of_a_provider_route_is_forwarded(gateway: str, seen: list[Seen]) -> None:
    """Passed on like any other method, and the connection serves the next request."""
    async with aiohttp.ClientSession(headers=BEARER) as client:
        async with client.head(f"{gateway}/v1/models") as answer:
            assert answer.status == 200 and int(answer.headers["Content-Length"]) > 0
        async with client.get(f"{gateway}/v1/models") as answer:
            assert (await answer.json())["object"] == "list"
    assert [request.method for request in seen] == ["HEAD", "GET"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"])
async def test_method_and_query_are_forwarded_unchanged(method: str, gateway: str, seen: list[Seen]) -> None:
    """As they are."""
    target = "/v1/echo?beta=true&empty=&again=1&again=2&coded=%2F+%E4%BD%A0"
    url = URL(gateway + target, encoded=True)
    async with aiohttp.ClientSession(headers=BEARER) as client, client.request(method, url) as answer:
        assert answer.status == 200
    assert [(request.method, request.target) for request in seen] == [(method, target)]


@pytest.mark.parametrize("chunked", [False, True])
async def test_binary_body_is_forwarded_both_ways(chunked: bool, gateway: str) -> None:
    """With its type, whatever the framing."""
    data = os.urandom(3 * MEBIBYTE)

    async def stream() -> AsyncIterator[bytes]:
        yield data

    headers = {**BEARER, "Content-Type": "audio/wav"}
    body = stream() if chunked else io.BytesIO(data)
    async with aiohttp.ClientSession() as client, client.post(f"{gateway}/v1/echo", data=body, headers=headers) as echo:
        assert echo.content_type == "audio/wav" and await echo.read() == data


async def test_multipart_arrives_whole(gateway: str) -> None:
    """Fields and file, with their names."""
    data = os.urandom(MEBIBYTE)
    form = aiohttp.FormData({"purpose": "fine-tune"})
    form.add_field("file", data, filename="träning.jsonl", content_type="application/jsonl")
    async with (
        aiohttp.ClientSession(headers=X_API_KEY) as client,
        client.post(f"{gateway}/v1/files", data=form) as answer,
    ):
        file = await answer.json()
    assert (file["purpose"], file["bytes"]) == ("fine-tune", MEBIBYTE)
    assert file["sha256"] == hashlib.sha256(data).hexdigest()


async def test_websocket_messages_and_closing_code_are_forwarded(gateway: str, seen: list[Seen]) -> None:
    """Text, binary, a megabyte, ping and the closing code; the subprotocol is agreed with the provider."""
    async with (
        aiohttp.ClientSession(headers=BEARER) as client,
        client.ws_connect(f"{gateway}/v1/ws?session=1", protocols=["echo"], max_msg_size=0) as socket,
    ):
        assert socket.protocol == "echo"
        await socket.send_str("two lanes")
        assert await socket.receive_str() == "two lanes"
        await socket.ping()
        for data in (b"\x00\xff", os.urandom(MEBIBYTE)):
            await socket.send_bytes(data)
            assert await socket.receive_bytes() == data
        await socket.send_str("close")
        closing = await socket.receive()
        assert (closing.type, closing.data, closing.extra) == (aiohttp.WSMsgType.CLOSE, 4001, "as you wish")
    assert seen[0].target == "/v1/ws?session=1"


@pytest.mark.parametrize("keys", [False, True])
async def test_realtime_session_is_forwarded(keys: bool, gateway: str, keyed_gateway: str) -> None:
    """A session over WebSocket: configured, asked, answered in pieces; whosever key the client has."""
    root, key = (keyed_gateway, GATEWAY_KEY) if keys else (gateway, PROVIDER_KEY)
    headers = {"Authorization": f"Bearer {key}", "OpenAI-Beta": "realtime=v1"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.ws_connect(f"{root}/v1/realtime?model=demo", protocols=["realtime"]) as socket,
    ):
        assert (await socket.receive_json())["type"] == "session.created"
        await socket.send_json({"type": "session.update", "session": {"instructions": "Be brief."}})
        assert (await socket.receive_json())["session"]["instructions"] == "Be brief."
        content = [{"type": "input_text", "text": "Say hello"}]
        item = {"type": "message", "role": "user", "content": content}
        await socket.send_json({"type": "conversation.item.create", "item": item})
        assert (await socket.receive_json())["type"] == "conversation.item.created"
        await socket.send_json({"type": "response.create"})
        events = [await socket.receive_json()]
        while events[-1]["type"] != "response.done":
            events.append(await socket.receive_json())
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) > 5 and "".join(deltas) == f'{GREETING} You said: "Say hello"'


async def test_refused_websocket_returns_its_status(gateway: str, keyed_gateway: str) -> None:
    """The provider's refusal and the gateway's own, each with its status."""
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer wrong"}) as client:
        for root in (gateway, keyed_gateway):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(f"{root}/v1/realtime")
            assert refused.value.status == 401


async def test_gateway_survives_a_client_that_stops_reading(gateway: str) -> None:
    """Leaves a gateway that goes on serving."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "drip 5 long 10000"}], "stream": True}
    async with aiohttp.ClientSession(headers=BEARER) as client:
        for _ in range(3):
            async with client.post(f"{gateway}/v1/chat/completions", json=body) as answer:
                assert (await answer.content.readline()).startswith(b"data: ")
                answer.close()
        async with client.get(f"{gateway}/v1/models") as answer:
            assert answer.status == 200
