"""Keys, end to end: who may pass, what goes on, and that no secret is found anywhere it does not belong."""

import asyncio
import hashlib
import json
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from functional.through import ask, client_of, error_of, get, post, through
from gateways import config, exchange, fetch, key, until

from gateway.server.app import ADMIN
from gateway.testing.ports import free_port
from gateway.testing.raw_connection import Peer, connect
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_event, build_head, serve
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

OURS, THEIRS = "gw-canary-OURS-6a1f", "sk-canary-THEIRS-9b2e"

WITH_KEY = {"upstream": {"api_key": THEIRS}, "keys": [key(OURS)]}
WITHOUT_KEY = {"keys": [key(OURS)]}

SPELLINGS = [
    pytest.param(b"X-Gateway-Key: %b", id="own-header"),
    pytest.param(b"x-gateway-key:%b", id="own-header-lower-case"),
    pytest.param(b"Authorization: Bearer %b", id="bearer"),
    pytest.param(b"AUTHORIZATION: bearer  %b ", id="bearer-spelt-otherwise"),
    pytest.param(b"x-api-key: %b", id="x-api-key"),
    pytest.param(b"X-API-KEY:\t%b", id="x-api-key-upper-case"),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_gateway_key_is_accepted_in_every_spelling_and_not_forwarded(spelling: bytes) -> None:
    """The upstream sees its own key where the client put ours, and not a trace of ours."""
    async with through(**WITH_KEY) as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", spelling % OURS.encode()))).status == 200
        (request,) = upstream.requests
    assert OURS.encode() not in request.raw
    in_x_api_key = spelling.lower().startswith(b"x-api-key")
    expected = (b"x-api-key", THEIRS.encode()) if in_x_api_key else (b"authorization", b"Bearer " + THEIRS.encode())
    carried = [(name.lower(), value) for name, value in request.headers if THEIRS.encode() in value]
    assert carried == [expected]
    assert not request.list_values(b"x-gateway-key")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"X-Other: 1", id="none"),
        pytest.param(b"Authorization: Bearer", id="no-token"),
        pytest.param(b"Authorization: Basic %b" % OURS.encode(), id="basic"),
        pytest.param(b"Authorization: %b" % OURS.encode(), id="no-scheme"),
        pytest.param(b"X-Gateway-Key:", id="empty"),
        pytest.param(b"api-key: %b" % OURS.encode(), id="other-header"),
        pytest.param(b"Cookie: X-Gateway-Key=%b" % OURS.encode(), id="cookie"),
        pytest.param(b"Proxy-Authorization: Bearer %b" % OURS.encode(), id="proxy-authorization"),
    ],
)
async def test_missing_key_is_refused_before_the_upstream(line: bytes) -> None:
    """401 that says where the key belongs, and nothing at the upstream."""
    async with through(**WITH_KEY) as (gateway, upstream):
        response = await ask(gateway, get(b"/v1/x?key=" + OURS.encode(), line))
        assert response.status == 401 and error_of(response)["code"] == "missing_api_key"
        assert response.list_values(b"www-authenticate") == [b"Bearer"]
        assert not upstream.connections


@pytest.mark.parametrize(
    "wrong",
    [
        OURS.encode()[:-1],
        OURS.encode() + b"x",
        OURS.upper().encode(),
        hashlib.sha256(OURS.encode()).hexdigest().encode(),
        b"\xff\xfe\xe9",
        "ключ-鍵".encode(),
        b"x" * 20_000,
        b"*",
        b"null",
        OURS.encode() + b" " + OURS.encode(),
    ],
    ids=["prefix", "longer", "other-case", "its-hash", "latin", "utf-8", "huge", "star", "null", "twice"],
)
@pytest.mark.parametrize("spelling", [b"X-Gateway-Key: %b", b"Authorization: Bearer %b", b"x-api-key: %b"])
async def test_wrong_key_is_refused_without_being_repeated(spelling: bytes, wrong: bytes) -> None:
    """401 whatever it looks like, nothing at the upstream, and the key is not repeated."""
    async with through(**WITH_KEY) as (gateway, upstream):
        response = await ask(gateway, get(b"/v1/x", spelling % wrong))
        assert response.status == 401 and error_of(response)["code"] == "invalid_api_key"
        assert not upstream.connections
        assert len(wrong) < 5 or wrong not in response.raw


@pytest.mark.parametrize(
    "copy", [b"X_Gateway_Key: %b", b"x-gateway_key: %b", b"Api-Key: %b", b"X-Forwarded-Authorization: Bearer %b"]
)
async def test_copies_of_the_gateway_key_are_not_forwarded(copy: bytes) -> None:
    """Under the name that CGI-like servers read as ours, or under another one; nor does a field of ours so spelled."""
    async with through(**WITH_KEY) as (gateway, upstream):
        lines = (b"X-Gateway-Key: " + OURS.encode(), copy % OURS.encode(), b"X_Context_Mode: context", b"X_Other: kept")
        assert (await ask(gateway, get(b"/v1/x", *lines))).status == 200
        (request,) = upstream.requests
        assert OURS.encode() not in request.raw_head and b"X_Context" not in request.raw_head
        assert b"X_Other: kept\r\n" in request.raw_head


async def test_first_of_several_credentials_decides() -> None:
    """A wrong key is not helped by a right one further down; a header sent twice is refused."""
    right, wrong = b"Authorization: Bearer " + OURS.encode(), b"X-Gateway-Key: wrong"
    async with through(**WITH_KEY) as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", right, wrong))).status == 401
        twice = await ask(gateway, get(b"/v1/x", right, right))
        assert twice.status == 400 and error_of(twice)["param"] == "authorization"
        assert not upstream.connections


async def test_client_credential_goes_to_an_upstream_without_a_key() -> None:
    """Then ours may be in any header, and goes no further; the client's credential beside it goes on as it came."""
    async with through(**WITHOUT_KEY) as (gateway, upstream):
        theirs = [b"Authorization: Bearer " + THEIRS.encode(), b"x-api-key: " + THEIRS.encode()]
        assert (await ask(gateway, get(b"/v1/x", *theirs))).status == 401
        assert (await ask(gateway, get(b"/v1/x", b"Authorization: Bearer " + OURS.encode()))).status == 200
        response = await ask(gateway, get(b"/v1/x", b"X-Gateway-Key: " + OURS.encode(), *theirs))
        assert response.status == 200
        _, request = upstream.requests
    assert not any(OURS.encode() in each.raw for each in upstream.requests)
    assert all(line + b"\r\n" in request.raw_head for line in theirs)


async def test_a_key_without_the_scope_is_refused() -> None:
    """403 that names the scope; with it, 200."""
    keys = [key("context-only", "context", "approve", "admin"), key("both", "passthrough", "context")]
    async with through(upstream={"api_key": THEIRS}, keys=keys) as (gateway, upstream):
        response = await ask(gateway, get(b"/v1/x", b"X-Gateway-Key: context-only"))
        assert response.status == 403 and error_of(response)["code"] == "scope_missing"
        assert "'passthrough'" in error_of(response)["message"] and not upstream.connections
        assert (await ask(gateway, get(b"/v1/x", b"X-Gateway-Key: both"))).status == 200


async def test_gateway_without_keys_passes_the_client_credential_on() -> None:
    """And the client's own credential goes on."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", b"Authorization: Bearer " + THEIRS.encode()))).status == 200
        assert b"Authorization: Bearer " + THEIRS.encode() in upstream.requests[0].raw_head


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(get(b"/v1/x", b"Upgrade: websocket", b"Connection: Upgrade"), id="upgrade"),
        pytest.param(post(b"{}", b"/chat/completions"), id="alias"),
        pytest.param(get(b"/v1/x", method=b"OPTIONS"), id="options"),
        pytest.param(get(b"/v1/../metrics"), id="dots"),
        pytest.param(get(b"/v1//health/live"), id="slashes"),
        pytest.param(get(b"http://localhost/v1/x"), id="absolute-form"),
    ],
)
async def test_passthrough_request_without_a_key_is_refused_in_every_form(message: bytes) -> None:
    """Every form of a passthrough request needs one."""
    async with through(**WITH_KEY) as (gateway, upstream):
        assert (await ask(gateway, message)).status in (400, 401, 404)
        assert not upstream.connections


async def test_each_request_of_a_connection_is_checked() -> None:
    """A key that was sent once does not open for the next request, nor does an equal head with another key."""
    right, wrong = (get(b"/v1/x", b"X-Gateway-Key: " + k) for k in (OURS.encode(), OURS[::-1].encode()))
    async with through(**WITH_KEY) as (gateway, upstream), client_of(gateway) as client:
        statuses = [(await exchange(client, message)).status for message in (right, get(), right, wrong, right, wrong)]
        assert statuses == [200, 401, 200, 401, 200, 401]
        assert len(upstream.requests) == 3


def streaming_until(finish: asyncio.Event) -> Callable[[Peer], Awaitable[None]]:
    """An upstream whose answers come at once, but for `/stream`, whose second event waits."""

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.read_request(timeout_s=None)
            if request.target.endswith(b"/stream"):
                await peer.send(build_head(200, [("Transfer-Encoding", "chunked")]) + build_chunk(build_event("1")))
                await finish.wait()
                await peer.send(build_chunk(build_event("2")) + LAST_CHUNK)
            else:
                await peer.send(build_answer(200, b"ok"))

    return script


async def test_key_removed_by_a_reload_is_refused() -> None:
    """From the reload on, also on a connection that has used it; a stream under way goes on to its end."""
    finish = asyncio.Event()

    other = "another-key"
    async with (
        through(streaming_until(finish), keys=[key(OURS), key(other)]) as (gateway, upstream),
        client_of(gateway) as client,
        client_of(gateway) as streaming,
    ):
        mine, others = (b"X-Gateway-Key: " + k.encode() for k in (OURS, other))
        assert (await exchange(client, get(b"/v1/x", mine))).status == 200
        await streaming.send(get(b"/v1/stream", mine))
        await streaming.read_until(build_event("1"))
        entry = {"name": "up", "base_url": upstream.base_url}
        await gateway.reload({"upstreams": [entry], "keys": [key(other)]})
        assert (await exchange(client, get(b"/v1/x", mine))).status == 401
        assert (await exchange(client, get(b"/v1/x", others))).status == 200
        finish.set()
        await streaming.read_until(LAST_CHUNK)
        assert (await exchange(streaming, get(b"/v1/x", mine))).status == 401


async def test_own_pages_are_served_only_on_the_admin_listener() -> None:
    """With `admin.listen` they are there and nothing else is; only the raw path counts, whatever Host or method say."""
    pages = (b"/metrics", b"/health/live", b"/health/ready")
    async with through(admin={"listen": "127.0.0.1:0"}) as (gateway, upstream), AsyncExitStack() as stack:
        factory = gateway.gateway.get_connection_factory(ADMIN)
        server = await asyncio.get_running_loop().create_server(factory, gateway.host, 0)
        stack.callback(server.close)
        admin = Address(gateway.host, server.sockets[0].getsockname()[1])
        for page in pages:
            assert (await fetch(admin, page)).status == 200
            assert (await fetch(gateway, page)).status == 404
        assert (await fetch(admin, b"/v1/x")).status == 404
        assert not upstream.connections


@dataclass(frozen=True)
class Address:
    """Where something of this process listens."""

    host: str
    port: int


@pytest.mark.parametrize(
    "target",
    [
        b"//metrics",
        b"/%6detrics",
        b"/metrics;x",
        b"/metrics/",
        b"/x/../metrics",
        b"/METRICS",
        b"/metrics%00",
        b"/metrics%3fx",
    ],
)
async def test_misspelled_page_path_returns_404(target: bytes) -> None:
    """404 from here, and nothing at the upstream: nobody decodes or tidies a path."""
    async with through() as (gateway, upstream):
        response = await fetch(gateway, target)
        assert response.status == 404 and b"gateway_" not in response.payload
        overridden = await fetch(gateway, target, b"X-HTTP-Method-Override: GET", b"X-Original-URL: /metrics")
        assert overridden.status == 404
        assert not upstream.connections


@pytest.mark.parametrize("target", [b"/v1/../admin", b"/v1/%2e%2e/admin", b"/v1/a/..%2f..%2fadmin", b"/v1/..\\admin"])
async def test_path_outside_the_passthrough_paths_returns_404(target: bytes) -> None:
    """The operator's key opens what is below `passthrough.paths`, not what a server finds by tidying the path up."""
    async with through(upstream={"api_key": "sk-operator"}) as (gateway, upstream):
        response = await fetch(gateway, target)
        assert (response.status, error_of(response)["code"]) == (404, "unknown_route")
        assert not upstream.connections
        assert (await fetch(gateway, b"/v1/a/../b")).status == 200
        assert [request.target for request in upstream.requests] == [b"/v1/a/../b"]


def records(gateway: GatewayProcess) -> list[dict[str, object]]:
    """Its log, one JSON object a line."""
    return [json.loads(line) for line in gateway.read_stderr().splitlines()]


def canary(name: str) -> str:
    """A text that occurs nowhere else, and says whose it is when it is found."""
    return f"{name}-canary-{hashlib.sha256(name.encode()).hexdigest()[:20]}"


#: Every way to bring a secret along; `%b` is a canary.
CARRIERS = {
    b"X-Gateway-Key: %b": "gateway",
    b"Authorization: Bearer %b": "gateway",
    b"authorization: bearer %b": "wrong",
    b"x-api-key: %b": "scopeless",
    b"Authorization: Basic %b": "wrong",
    b"X-Gateway-Key: %b\x01": "wrong",
    b"Host: %b": "wrong",
    b"Cookie: %b": "wrong",
    b"X-Context-Mode: %b": "wrong",
    b"X Bad: %b": "wrong",
}


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_secrets_never_appear_in_logs_metrics_or_answers() -> None:
    """Headers, queries, bodies, failures of every kind, log level debug: no canary in logs, metrics or answers."""
    planted = {name: canary(name) for name in ("gateway", "scopeless", "upstream", "wrong", "query", "body")}
    answers: list[bytes] = []
    async with FakeUpstream(serve(build_answer(401, b"no such key", [("WWW-Authenticate", "Bearer")]))) as upstream:
        entry = {"name": "up", "base_url": upstream.base_url, "api_key": planted["upstream"]}
        dead = {**entry, "name": "dead", "base_url": f"http://127.0.0.1:{free_port()}", "paths": ["/v1/dead/"]}
        settings = {
            "upstreams": [entry, dead],
            "keys": [key(planted["gateway"]), key(planted["scopeless"], "context")],
            "logging": {"level": "debug", "format": "json", "access": True},
        }
        async with GatewayProcess(config(None, **settings)) as gateway:
            for path in (b"/v1/x", b"/v1/dead/x", b"/nowhere"):
                target = path + b"?key=" + planted["query"].encode()
                for carrier, name in CARRIERS.items():
                    message = post(planted["body"].encode(), target, carrier % planted[name].encode())
                    async with connect(gateway.host, gateway.port) as client:
                        answers.append((await exchange(client, message)).raw)
            answers.append((await fetch(gateway, b"/metrics")).raw)
            gateway.folder.joinpath("gateway.yaml").write_text(f"keyz: {planted['upstream']}")
            gateway.signal(signal.SIGHUP)
            await until(lambda: "reload failed" in gateway.read_stderr())
        upstream_saw = b"".join(bytes(peer.received) for peer in upstream.connections)
    log = gateway.read_stderr() + gateway.read_stdout()
    assert sum(record["event"] == "request" for record in records(gateway)) >= 3 * len(CARRIERS)
    for name, text in planted.items():
        assert text not in log, name
        assert not [answer_ for answer_ in answers if text.encode() in answer_], name
    assert planted["gateway"].encode() not in upstream_saw
    assert planted["upstream"].encode() in upstream_saw


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_each_request_is_one_log_record_despite_injection() -> None:
    """Line ends, quotes, colours and JSON in what clients choose stay inside their field."""
    odd = [
        b"/v1/%0a%0dFAKE",
        b'/v1/"},{"event":"forged"}',
        b"/v1/%1b[31mred",
        b"/v1/" + b"a" * 20_000,
        "/v1/ключ".encode(),
        b"/nowhere/'\\",
    ]
    async with (
        FakeUpstream() as upstream,
        GatewayProcess(config(upstream.base_url, logging={"format": "json", "access": True})) as gateway,
    ):
        for target in odd:
            await fetch(gateway, target)
            async with connect(gateway.host, gateway.port) as client:
                await client.send(b"GET " + target + b"\r\nFAKE: x\x1b[0m HTTP/1.1\r\nHost: h\r\n\r\n")
                await client.wait_end()

        def asked() -> list[dict[str, object]]:
            return [r for r in records(gateway) if r["event"] == "request" and r["path"] != "/health/ready"]

        await until(lambda: len(asked()) >= 2 * len(odd))
        requests = asked()
        assert len(requests) == 2 * len(odd)
        assert all(len(json.dumps(record)) < 2000 for record in requests)
