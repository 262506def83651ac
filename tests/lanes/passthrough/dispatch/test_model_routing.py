"""The model of a body chooses the upstream, and nothing of the request is changed."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from functional.several import CHAT, several
from functional.through import (
    HOSTS,
    NO_WORKFLOWS,
    PATIENT,
    ask,
    breathe,
    client_of,
    error_of,
    get,
    listener_of,
    post,
    post_chunked,
)

from gateway.contracts.model_names import MODEL_CHARS
from gateway.lanes.passthrough.dispatch.model_scanner import LIMIT_BYTES
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, serve
from gateway.testing.upstream import FakeUpstream


@asynccontextmanager
async def two(**settings: object) -> AsyncIterator[tuple[LocalGateway, FakeUpstream, FakeUpstream]]:
    """Upstream `one` serves all models but those of `two`, and `own` has a path of its own."""
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(FakeUpstream(serve(build_answer(200, b)))) for b in (b"one", b"two")
        ]
        upstreams = [
            {"name": "one", "base_url": one.base_url, "timeouts": PATIENT},
            {"name": "two", "base_url": f"{other.base_url}/api/v1", "models": ["llama*"], "timeouts": PATIENT},
            {"name": "own", "base_url": one.base_url, "models": ["mine"], "paths": ["/own/v1"], "timeouts": PATIENT},
        ]
        config = {"upstreams": upstreams, "passthrough": {"by_model": True}, "allowed_hosts": HOSTS}
        gateway = LocalGateway({**config, "workflows": NO_WORKFLOWS, **settings})
        yield await stack.enter_async_context(gateway), one, other


def body(model: object, **before: object) -> bytes:
    return json.dumps({**before, "model": model, "after": [1, 2]}).encode()


@pytest.mark.parametrize(
    ("request_", "who"),
    [
        (post(body("llama3"), CHAT), b"two"),
        (post(body("gpt-5"), CHAT), b"one"),
        (post(body("mine"), CHAT), b"one"),
        (post(body("llama3" + "x" * MODEL_CHARS), CHAT), b"one"),
        (post(body("llama" * 100_000), CHAT), b"one"),
        (post(body(5), CHAT), b"one"),
        (post(b"no json", CHAT), b"one"),
        (post(b"", CHAT), b"one"),
        (get(b"/v1/models"), b"one"),
        (post(body("llama3"), b"/own/v1/chat/completions"), b"one"),
        (post(body("llama3", messages=["x" * 300_000]), CHAT), b"two"),
        (post(body("llama3", messages=["x" * LIMIT_BYTES]), CHAT), b"one"),
        (post_chunked(build_chunk(body("llama3")[:9]) + build_chunk(body("llama3")[9:]) + b"0\r\n\r\n", CHAT), b"two"),
    ],
)
async def test_body_model_selects_the_upstream_with_bytes_unchanged(request_: bytes, who: bytes) -> None:
    """Upstreams with paths of their own are not chosen by it, and keep their requests. What is too long is no name."""
    async with two() as (gateway, one, other):
        assert (await ask(gateway, request_)).payload == who
        (seen,) = one.requests + other.requests
        assert seen.raw_body == request_[request_.index(b"\r\n\r\n") + 4 :]
        if who == b"two":
            assert seen.target == b"/api/v1/chat/completions"


@pytest.mark.parametrize("whole", [True, False])
async def test_request_waits_for_the_share_of_its_model(whole: bool) -> None:
    """Where gateways share the limits of models: the first request of each finds nothing here."""
    limits = {"shared": True, "models": {"llama*": {"requests_per_minute": 2}, "gpt*": {"requests_per_minute": 2}}}
    async with two(limits=limits) as (gateway, one, other), client_of(gateway) as client:
        for model, statuses in (("llama3", [200, 200, 429]), ("gpt-5", [200, 200, 429])):
            for status in statuses:
                request = post(body(model), CHAT)
                await client.send(request if whole else request[:-20])
                if not whole:
                    await breathe(5)
                    await client.send(request[-20:])
                assert (await client.read_response()).status == status
        assert len(one.requests) == len(other.requests) == 2
        assert {request.payload for request in one.requests} == {body("gpt-5")}


async def test_requests_with_equal_heads_are_routed_by_their_models() -> None:
    """The plan of a head is one; its model is looked for each time, also in a body that comes in pieces."""
    async with two() as (gateway, one, other), client_of(gateway) as client:
        for model in ("llama3", "gpt-50", "llama4", "gpt-51"):
            request = post(body(model, x="y" * 1000), CHAT)
            for piece in (request[:150], request[150:700], request[700:]):
                await client.send(piece)
                await breathe(5)
            assert (await client.read_response()).payload == (b"two" if model.startswith("llama") else b"one")
        assert (len(one.requests), len(other.requests)) == (2, 2)
        for model in [f"{name}-{number}" for number in range(9) for name in ("llama", "gpt")]:
            await client.send(post(body(model), CHAT))
            assert (await client.read_response()).payload == (b"two" if model.startswith("llama") else b"one")


async def test_request_is_forwarded_as_soon_as_its_model_is_known() -> None:
    """The rest of the body follows as it comes."""
    async with two() as (gateway, _, other), client_of(gateway) as client:
        whole = b'{"model": "llama3", "messages": "' + b"x" * 100_000 + b'"}'
        await client.send(post(whole, CHAT)[:400])
        await other.wait_connections(1)
        await client.send(post(whole, CHAT)[400:])
        assert (await client.read_response()).payload == b"two"
        assert other.requests[0].raw_body == whole


async def test_expect_100_client_gets_continue_before_routing() -> None:
    """The choice depends on its body."""
    async with two() as (gateway, _, other), client_of(gateway) as client:
        request = post(body("llama3"), CHAT, b"Expect: 100-continue")
        end = request.index(b"\r\n\r\n") + 4
        await client.send(request[:end])
        assert (await client.read_head()).startswith(b"HTTP/1.1 100 ")
        await client.send(request[end:])
        assert (await client.read_response()).payload == b"two"
        assert len(other.requests) == 1


async def test_expect_100_client_gets_continue_only_once() -> None:
    """By the gateway; the upstream's own invitation is for the gateway, and its failure leads to another try."""

    async def invites(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.reset()

    by_model = {"passthrough": {"by_model": True}}
    async with (
        several(invites, serve(build_answer(200, b"fine")), settings=by_model) as up,
        client_of(up.gateway) as client,
    ):
        request = post(body("llama3"), CHAT, b"Expect: 100-continue")
        end = request.index(b"\r\n\r\n") + 4
        await client.send(request[:end])
        assert (await client.read_head()).startswith(b"HTTP/1.1 100 ")
        await client.send(request[end:])
        response = await client.read_response()
        assert (response.payload, response.informational) == (b"fine", ())


async def test_silent_client_after_continue_returns_408() -> None:
    """After `limits.body_idle`, as anywhere else."""
    async with two(limits={"body_idle": "1m"}) as (gateway, one, other), client_of(gateway) as client:
        request = post(body("llama3"), CHAT, b"Expect: 100-continue")
        await client.send(request[: request.index(b"\r\n\r\n") + 4])
        await client.read_head()
        listener = listener_of(gateway)
        for later_s in (0.0, 61.0):
            for connection in list(listener.connections):
                connection.sweep(listener.clock() + later_s)
        assert (await client.read_response()).status == 408
        assert not one.connections and not other.connections


async def test_pipelined_requests_keep_their_order() -> None:
    """Also behind one whose model was looked for."""
    async with two() as (gateway, _, _), client_of(gateway) as client:
        await client.send(b"".join(post(body(model), CHAT) for model in ("llama3", "gpt-5") * 20))
        seen = [(await client.read_response()).payload for _ in range(40)]
        assert seen == [b"two", b"one"] * 20


async def test_key_is_refused_for_a_disallowed_upstream_of_the_model() -> None:
    """By the upstream that the model leads to, not by the one of the path."""
    keys = [
        {
            "name": "k",
            "sha256": hashlib.sha256(b"key").hexdigest(),
            "scopes": ["passthrough"],
            "upstreams": ["two"],
        }
    ]
    async with two(keys=keys) as (gateway, one, _):
        header = b"X-Gateway-Key: key"
        assert (await ask(gateway, post(body("llama3"), CHAT, header))).payload == b"two"
        refused = await ask(gateway, post(body("gpt-5"), CHAT, header))
        assert refused.status == 403 and error_of(refused)["code"] == "upstream_not_allowed"
        assert not one.connections


async def test_disconnect_before_the_model_is_known_contacts_no_upstream() -> None:
    """No upstream was asked."""
    async with two() as (gateway, one, other):
        async with client_of(gateway) as client:
            await client.send(post(body("llama3"), CHAT)[:-20])
            await breathe(10)
        await asyncio.sleep(0)
        assert not one.connections and not other.connections


async def test_upstream_without_rules_is_called_despite_its_retry_after() -> None:
    """As without the choice: each client gets the upstream's own answer, and none is kept away for another's."""
    busy = build_answer(503, b"busy", [("Retry-After", "7")])
    async with FakeUpstream(serve(busy)) as one:
        upstreams = [{"name": "one", "base_url": one.base_url, "api_key": "sk-up", "timeouts": PATIENT}]
        config = {"upstreams": upstreams, "passthrough": {"by_model": True}, "allowed_hosts": HOSTS}
        async with LocalGateway({**config, "workflows": NO_WORKFLOWS}) as gateway:
            answers = [await ask(gateway, post(body("gpt-5"), CHAT)) for _ in range(3)]
        assert [(one.status, one.payload) for one in answers] == [(503, b"busy")] * 3
        assert len(one.requests) == 3
