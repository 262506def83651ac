"""Keys that end, and keys bound to networks, upstreams and models: at every door, and in what is remembered."""

import json

import aiohttp
import pytest
from functional.through import ask, client_of, error_of, get, post, through
from functional.tunnels import HANDSHAKE, SWITCHING, echo
from gateways import exchange, key

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import PATIENCE_S
from gateway.testing.scripts import build_answer, serve
from tests.auth.keyring import Ahead

NAME, OTHER = "gw-bound-5f1d", "gw-free-77c0"
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
ENDS = "2100-01-01T00:00:00Z"
ENDS_S = 4102444800.0
COMPLETION = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    }
).encode()
UPSTREAM = serve(build_answer(200, COMPLETION, [("Content-Type", "application/json")]))
MINE = b"X-Gateway-Key: " + NAME.encode()
#: One request for each door.
DOORS = {
    "passthrough": get(b"/v1/models", MINE),
    "passthrough with a body": post(CHAT, b"/v1/chat/completions", MINE),
    "context": post(CHAT, b"/context/v1/chat/completions", MINE),
    "responses": post(b'{"model": "m", "input": "x"}', b"/context/v1/responses", MINE),
    "models": get(b"/context/v1/models", MINE),
    "approvals": get(b"/context/approvals", MINE),
    "status": get(b"/context/status", MINE),
    "metrics": get(b"/metrics", MINE),
    "events": get(b"/context/ws", MINE, *HANDSHAKE.split(b"\r\n")[2:6]),
}


def bound(**bounds: object) -> list[dict[str, object]]:
    scopes = ("passthrough", "context", "approve", "admin", "metrics", "tools")
    return [{**key(NAME, *scopes), **bounds}, key(OTHER, *scopes)]


@pytest.mark.parametrize("door", DOORS)
async def test_expired_key_is_refused_at_every_endpoint(door: str) -> None:
    """401 that says since when, and before that no error about the key."""
    clock = Ahead(ENDS_S - 1)
    async with through(UPSTREAM, keys=bound(expires=ENDS), clock=clock) as (gateway, _), client_of(gateway) as client:
        if door != "events":
            assert (await exchange(client, DOORS[door])).status == 200
        clock.now_s = ENDS_S
        response = await ask(gateway, DOORS[door])
        assert response.status == 401 and error_of(response)["code"] == "key_expired"
        assert "2100-01-01T00:00:00Z" in error_of(response)["message"]


@pytest.mark.parametrize("door", DOORS)
async def test_key_used_outside_its_networks_is_refused(door: str, caplog: pytest.LogCaptureFixture) -> None:
    """403 that names the address of the connection, whatever a header says."""
    forwarded = (b"X-Forwarded-For: 10.0.0.1", b"X-Real-IP: 10.0.0.1", b"Forwarded: for=10.0.0.1")
    request = DOORS[door].replace(b"\r\n\r\n", b"\r\n" + b"\r\n".join(forwarded) + b"\r\n\r\n", 1)
    async with through(UPSTREAM, keys=bound(networks=["10.0.0.0/8"])) as (gateway, upstream):
        response = await ask(gateway, request)
        assert response.status == 403 and error_of(response)["code"] == "network_not_allowed"
        assert "127.0.0.1" in error_of(response)["message"] and not upstream.connections
        assert "a key was refused outside its networks" in caplog.text


async def test_key_used_within_its_networks_is_accepted() -> None:
    """Again and again: the plan is remembered."""
    async with through(UPSTREAM, keys=bound(networks=["127.0.0.0/8"])) as (gateway, _), client_of(gateway) as client:
        assert [(await exchange(client, get(b"/v1/x", MINE))).status for _ in range(3)] == [200, 200, 200]


async def test_cached_request_plan_ends_when_its_key_expires() -> None:
    """On the same connection with the same head, at the very time; a key without an end is not touched."""
    clock = Ahead(ENDS_S - 1)
    async with through(UPSTREAM, keys=bound(expires=ENDS), clock=clock) as (gateway, upstream):
        async with client_of(gateway) as client:
            assert [(await exchange(client, get(b"/v1/x", MINE))).status for _ in range(2)] == [200, 200]
            clock.now_s = ENDS_S
            assert [(await exchange(client, get(b"/v1/x", MINE))).status for _ in range(2)] == [401, 401]
            assert (await exchange(client, get(b"/v1/x", b"X-Gateway-Key: " + OTHER.encode()))).status == 200
        assert len(upstream.requests) == 3


async def test_tunnel_closes_when_its_key_expires() -> None:
    """It would have no end of its own. One of another key goes on."""
    clock = Ahead(ENDS_S - 1)
    async with (
        through(echo, keys=bound(expires=ENDS), clock=clock) as (gateway, _),
        client_of(gateway) as mine,
        client_of(gateway) as others,
    ):
        for client, text in ((mine, NAME), (others, OTHER)):
            await client.send(HANDSHAKE.replace(b"\r\n\r\n", b"\r\nX-Gateway-Key: %b\r\n\r\n" % text.encode()))
            assert await client.read_head() == SWITCHING
        await mine.send(b"ping")
        assert await mine.read_exactly(4) == b"ping"
        clock.now_s = ENDS_S
        await mine.wait_end()
        await others.send(b"pong")
        assert await others.read_exactly(4) == b"pong"


async def test_event_stream_closes_when_its_key_expires() -> None:
    """At the next event; nothing of it is sent."""
    clock = Ahead(ENDS_S - 1)
    keys = [{**each, "tenant": "acme"} for each in bound(expires=ENDS)]
    config = {"keys": keys, "tools": {"demo_note": {}}, "workflows": {"folder": "workflows"}}
    async with LocalGateway(config, clock=clock) as gateway, aiohttp.ClientSession(gateway.base_url) as session:
        socket = await session.ws_connect("/context/ws", headers={"X-Gateway-Key": NAME})
        clock.now_s = ENDS_S
        others = {"X-Gateway-Key": OTHER, "Prefer": "respond-async"}
        async with session.post("/workflows/first-approval/runs", json={}, headers=others) as response:
            assert response.status == 202, await response.text()
        message = await socket.receive(timeout=PATIENCE_S)
        assert message.type is aiohttp.WSMsgType.CLOSE and message.extra == "key_expired"
        await socket.close()


@pytest.mark.parametrize(
    "request_of",
    [
        post(CHAT, b"/v1/chat/completions", MINE),
        post(CHAT, b"/context/v1/chat/completions", MINE),
        post(b'{"model": "m", "input": "x"}', b"/context/v1/responses", MINE),
        get(b"/context/v1/models", MINE),
        get(b"/v1/models", MINE),
    ],
    ids=["passthrough", "chat", "responses", "models", "models through"],
)
async def test_a_key_reaches_its_upstreams_only(request_of: bytes) -> None:
    """403 that names both; nothing arrives there."""
    spare = {"name": "spare", "base_url": "http://127.0.0.1:9", "paths": ["/v1/spare/"], "models": ["none"]}
    async with through(UPSTREAM) as (gateway, upstream):
        main = {"name": "up", "base_url": upstream.base_url}
        sections: dict[str, object] = {"upstreams": [main, spare], "allowed_hosts": ["gw.example"]}
        await gateway.reload({**sections, "keys": bound(upstreams=["spare"])})
        response = await ask(gateway, request_of)
        error = error_of(response)
        assert response.status == 403 and error["code"] == "upstream_not_allowed"
        assert "'up'" in error["message"] and "'spare'" in error["message"] and not upstream.connections
        await gateway.reload({**sections, "keys": bound(upstreams=["up"])})
        assert (await ask(gateway, request_of)).status == 200


@pytest.mark.parametrize("by_model", [False, True])
async def test_model_bound_key_is_refused_in_passthrough(by_model: bool) -> None:
    """The lane checks no model, whatever chooses the upstream, so it answers 403 and gives the reason."""
    keys = bound(models=["m"])
    async with through(UPSTREAM, keys=keys, passthrough={"by_model": by_model}) as (gateway, upstream):
        for request in (get(b"/v1/models", MINE), post(CHAT, b"/v1/chat/completions", MINE)):
            response = await ask(gateway, request)
            assert response.status == 403 and error_of(response)["code"] == "model_not_allowed"
            assert "passthrough does not check" in error_of(response)["message"]
        assert not upstream.connections
