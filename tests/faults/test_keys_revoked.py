"""K5: a key is revoked while it is in use: in all workers, and in other gateways on the same store."""

import asyncio
import json
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from faults.test_keys import streaming_until
from functional.through import client_of, get, post
from functional.tunnels import HANDSHAKE, SWITCHING, echo
from gateways import all_workers, config, exchange, key, until, until_read

from gateway.auth.beats import STILL_S
from gateway.testing.raw_connection import connect
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_event, serve
from gateway.testing.upstream import FakeUpstream
from tests.auth.keyring import EVERYTHING, ROOT, keyring
from tests.support.gateway_process import GatewayProcess

OK = serve(build_answer(200, b"ok"))


async def statuses(gateway: GatewayProcess, text: str, *, connections: int = 8) -> set[int]:
    """The statuses of a request on as many new connections, which the kernel spreads over the workers."""

    async def one() -> int:
        async with connect(gateway.host, gateway.port) as client:
            return (await exchange(client, get(b"/v1/x", b"X-Gateway-Key: " + text.encode()))).status

    return set(await asyncio.gather(*(one() for _ in range(connections))))


async def ask(gateway: GatewayProcess, method: str, path: str, body: object = None) -> object:
    headers = {"X-Gateway-Key": ROOT}
    async with (
        aiohttp.ClientSession(gateway.base_url, headers=headers) as session,
        session.request(method, path, json=body) as response,
    ):
        text = await response.text()
        return json.loads(text) if text else {}


async def test_created_and_revoked_keys_reach_all_workers_and_gateways(tmp_path: Path) -> None:
    """Made by one worker, it opens all of them; revoked by one, it opens none. Nobody reloads."""
    root = {**key(ROOT, *EVERYTHING), "name": "root"}
    facts = {"keys": [root], "runtime_keys": {"enabled": True}, "store": f"sqlite:///{tmp_path}/gateway.db"}
    async with (
        FakeUpstream(OK) as upstream,
        GatewayProcess(config(upstream.base_url, workers=2, **facts)) as first,
        GatewayProcess(config(upstream.base_url, **facts)) as second,
    ):
        await all_workers(first)
        made = await ask(first, "POST", "/context/keys", {"name": "ci", "scopes": ["passthrough"]})
        assert isinstance(made, dict)
        for gateway in (first, second):
            await until_read(lambda g=gateway: statuses(g, made["key"]), lambda found: found == {200})  # type: ignore[misc]
        await ask(second, "DELETE", f"/context/keys/{made['id']}")
        assert await statuses(second, made["key"]) == {401}
        await until_read(lambda: statuses(first, made["key"]), lambda found: found == {401})


async def test_stalled_process_refuses_keys_revoked_meanwhile(tmp_path: Path) -> None:
    """Requests that waited in its connections while the key was revoked elsewhere are refused."""
    root = {**key(ROOT, *EVERYTHING), "name": "root"}
    facts = {"keys": [root], "runtime_keys": {"enabled": True}, "store": f"sqlite:///{tmp_path}/gateway.db"}
    async with (
        FakeUpstream(OK) as upstream,
        GatewayProcess(config(upstream.base_url, **facts)) as first,
        GatewayProcess(config(upstream.base_url, **facts)) as second,
        AsyncExitStack() as stack,
    ):
        made = await ask(first, "POST", "/context/keys", {"name": "ci", "scopes": ["passthrough"]})
        assert isinstance(made, dict)
        request = get(b"/v1/x", b"X-Gateway-Key: " + made["key"].encode())
        clients = [await stack.enter_async_context(connect(first.host, first.port)) for _ in range(8)]
        for client in clients:
            assert (await exchange(client, request)).status == 200
        os.kill(first.pid, signal.SIGSTOP)
        try:
            stopped_s = time.monotonic()
            await ask(second, "DELETE", f"/context/keys/{made['id']}")
            for client in clients:
                await client.send(request)
            await until(lambda: time.monotonic() > stopped_s + STILL_S + 0.5)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        answers = [await client.read_response() for client in clients]
        assert {answer.status for answer in answers} <= {401, 503}
        assert await statuses(first, ROOT) == {200}
        assert len(upstream.requests) == 8 + 8


async def test_key_revocation_keeps_open_answers_and_closes_tunnels() -> None:
    """The stream comes whole; the next request on its connection is refused, though its plan was remembered."""
    finish = asyncio.Event()

    async with (
        keyring() as ring,
        FakeUpstream(streaming_until(finish)) as streaming,
        FakeUpstream(echo) as echoing,
    ):
        upstreams = [
            {"name": "up", "base_url": streaming.base_url},
            {"name": "echo", "base_url": echoing.base_url, "paths": ["/v1/realtime"]},
        ]
        await ring.gateway.reload({**ring.config, "upstreams": upstreams})
        made = await ring.made("ci", "passthrough")
        mine = b"X-Gateway-Key: " + made["key"].encode()
        async with client_of(ring.gateway) as client, client_of(ring.gateway) as tunnel:
            for _ in range(2):
                assert (await exchange(client, get(b"/v1/x", mine))).status == 200
            await tunnel.send(HANDSHAKE.replace(b"\r\n\r\n", b"\r\n" + mine + b"\r\n\r\n"))
            assert await tunnel.read_head() == SWITCHING
            await client.send(get(b"/v1/stream", mine))
            await client.read_until(build_event("1"))
            await ring.ask("DELETE", f"/context/keys/{made['id']}")
            await tunnel.wait_end()
            finish.set()
            await client.read_until(LAST_CHUNK)
            assert (await exchange(client, get(b"/v1/x", mine))).status == 401


async def test_responses_websocket_refuses_messages_of_a_revoked_key() -> None:
    """Its key is looked at for each."""
    async with keyring(upstreams=[]) as ring:
        made = await ring.made("ci", "context")
        headers = {"X-Gateway-Key": made["key"]}
        async with ring.session.ws_connect("/context/v1/responses", headers=headers) as socket:
            await ring.ask("DELETE", f"/context/keys/{made['id']}")
            await socket.send_json({"type": "response.create", "model": "demo", "input": "hello"})
            error = await socket.receive_json()
            assert (error["status"], error["error"]["code"]) == (401, "invalid_api_key")


async def test_a_revoked_key_reaches_no_model() -> None:
    """In the context lane, whose requests are planned by nobody."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    async with keyring() as ring:
        made = await ring.made("ci", "context")
        await ring.ask("DELETE", f"/context/keys/{made['id']}")
        message = post(body, b"/context/v1/chat/completions", b"X-Gateway-Key: " + made["key"].encode())
        async with client_of(ring.gateway) as client:
            assert (await exchange(client, message)).status == 401
        assert not ring.upstream.requests


async def test_revoked_key_is_refused_with_a_cached_request_head() -> None:
    """The context lane remembers heads, and asks for their keys each time. A length of another body changes nothing."""
    async with keyring(upstreams=[]) as ring:
        made = await ring.made("ci", "context")
        message, other = (
            post(
                json.dumps({"model": "demo", "messages": [{"role": "user", "content": text}]}).encode(),
                b"/context/v1/chat/completions",
                b"X-Gateway-Key: " + made["key"].encode(),
            )
            for text in ("hello", "hello there")
        )
        async with client_of(ring.gateway) as client:
            assert [(await exchange(client, each)).status for each in (message, message, other)] == [200, 200, 200]
        await ring.ask("DELETE", f"/context/keys/{made['id']}")
        for each in (message, other):
            async with client_of(ring.gateway) as client:
                assert (await exchange(client, each)).status == 401
