"""Limits in passthrough: what is refused never goes upstream, and nothing of what is relayed is changed."""

import asyncio
import json
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from functional.several import CHAT, several
from functional.through import FINE, ask, client_of, error_of, get, post, through
from gateways import exchange, key, samples, scrape, until, until_read
from lanes.assembled import endpoint, keyring, read, router
from limits.limiting import Workers, caller

from gateway.aio.clock import SystemClock
from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.lanes.client import Client
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.plan import Plan
from gateway.limits import shared_memory
from gateway.limits.counter_registry import UNUSED_S
from gateway.testing.clock import ManualClock
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, serve
from gateway.testing.upstream import FakeUpstream
from tests.lanes.passthrough.observers.limited import BODY, KEY, OURS, keys

MINUTE = {"tokens_per_minute": 60_000}


class Later(SystemClock, ManualClock):
    """The system's clock, and the seconds that a test adds."""

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self()

    def time(self) -> float:
        return SystemClock.time() + self()


class Still(SystemClock, ManualClock):
    """A clock that stands still but for the seconds that a test adds."""

    def monotonic(self) -> float:
        return 5000.0 + self()


async def test_request_over_the_limit_returns_429_without_reaching_the_upstream() -> None:
    """It names whose limit that is, and how long to wait; relayed answers have no field of ours."""
    clock = Later()
    limited = through(FINE, keys=keys(requests_per_minute=2), clock=clock)
    async with limited as (gateway, upstream), client_of(gateway) as client:
        relayed = [await exchange(client, get(b"/v1/x", OURS)) for _ in range(2)]
        clock.advance(20.0)
        refused = await exchange(client, get(b"/v1/x", OURS))
        again = await exchange(client, get(b"/v1/x", OURS))  # the connection goes on
        clock.advance(60.25)
        later = await exchange(client, get(b"/v1/x", OURS))
    assert [one.status for one in relayed] == [200, 200]
    assert not any(b"x-ratelimit" in one.raw.lower() for one in relayed)
    assert (refused.status, again.status, later.status) == (429, 429, 200)
    error = error_of(refused)
    assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert error["message"].startswith("The key 'ci' has reached its limit of 2 requests per minute: try again in ")
    assert 0 < int(refused.list_values(b"retry-after")[0]) <= 41
    assert 0 < int(refused.list_values(b"retry-after-ms")[0]) <= 41_000
    assert refused.list_values(b"x-ratelimit-limit-requests") == [b"2"]
    assert refused.list_values(b"x-ratelimit-remaining-requests") == [b"0"]
    assert refused.list_values(b"x-ratelimit-reset-requests")[0].endswith(b"s")
    assert len(upstream.requests) == 3


async def test_concurrency_limit_is_released_after_any_end() -> None:
    """Whole, by a client that leaves, by an upstream that resets."""

    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        if request.target.endswith(b"/whole"):
            await peer.send(build_answer(200, b"fine"))
        elif request.target.endswith(b"/reset"):
            peer.reset()
        else:
            await peer.wait_end(timeout_s=None)

    async with through(script, script, script, script, keys=keys(concurrent=1)) as (gateway, upstream):
        for target, status in ((b"/v1/whole", 200), (b"/v1/reset", 502)):
            async with client_of(gateway) as client:
                assert (await exchange(client, post(BODY, target, OURS))).status == status
        async with client_of(gateway) as stays:
            await stays.send(get(b"/v1/hold", OURS))
            await until(lambda: len(upstream.requests) == 3)
            async with client_of(gateway) as other:
                refused = await exchange(other, get(b"/v1/whole", OURS))
                assert (refused.status, refused.list_values(b"retry-after")) == (429, [b"1"])
                assert "under way" in error_of(refused)["message"]
        async with client_of(gateway) as client:
            await until_read(lambda: exchange(client, get(b"/v1/whole", OURS)), lambda response: response.status == 200)


@pytest.mark.parametrize(
    ("most", "admitted"),
    [
        (b'"max_tokens": 4900', 12),
        (b'"max_completion_tokens":4900', 12),
        (b'"stop": [], "max_output_tokens" : 4900', 12),
        (b'"max_tokens": 900000', 4),
        (b'"max_tokens": "many"', 60),
        (b'"user": ", \\"max_tokens\\": 4900}"', 60),
    ],
)
async def test_first_burst_reserves_tokens_by_the_requested_maximum(most: bytes, admitted: int) -> None:
    """No request has told yet what it used. A text that looks like the field is none."""
    await admits(admitted, post(b'{"model": "m", ' + most + b"}", CHAT, OURS), keys=keys(tokens_per_minute=60_000))


@pytest.mark.parametrize(
    "settings",
    [
        {"limits": {"models": {"m": MINUTE}}, "passthrough": {"by_model": True}},
        {"upstream": {"limits": MINUTE, "models": ["m"]}, "passthrough": {"by_model": True}},
        {"upstream": {"limits": MINUTE, "hedge": "1m"}},
    ],
    ids=["model", "upstream by model", "upstream"],
)
async def test_first_burst_follows_limits_of_the_chosen_model_or_upstream(settings: dict[str, Any]) -> None:
    """Of the rules of what was chosen."""
    await admits(12, post(b'{"model": "m", "max_tokens": 4900}', CHAT, OURS), keys=[key(KEY)], **settings)


async def admits(number: int, ask_for: bytes, **settings: Any) -> None:
    """Assert that so many of such requests are admitted at once, and the next one is not."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async with through(*[silent] * number, **settings) as (gateway, upstream), AsyncExitStack() as ends:
        for _ in range(number):
            client = await ends.enter_async_context(client_of(gateway))
            await client.send(ask_for)
        await upstream.wait_requests(number)
        async with client_of(gateway) as client:
            assert (await exchange(client, ask_for)).status == 429


async def test_open_tunnel_counts_as_a_concurrent_request() -> None:
    """Other than a request, whose account is closed with 101."""

    async def switches(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(101, [("Connection", "upgrade"), ("Upgrade", "websocket")]))
        await peer.wait_end(timeout_s=None)

    handshake = (
        OURS,
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        b"Sec-WebSocket-Version: 13",
    )
    async with through(switches, FINE, FINE, keys=keys(concurrent=1)) as (gateway, _):
        async with client_of(gateway) as tunnel:
            await tunnel.send(get(b"/v1/realtime", *handshake))
            await tunnel.read_until(b"\r\n\r\n")
            async with client_of(gateway) as client:
                assert (await exchange(client, get(b"/v1/x", OURS))).status == 429
        async with client_of(gateway) as client:
            await until_read(lambda: exchange(client, get(b"/v1/x", OURS)), lambda response: response.status == 200)


async def test_pipelined_requests_over_the_limit_are_each_refused() -> None:
    """Thousands on one connection end no stack, and each gets its answer."""
    async with through(FINE, keys=keys(requests_per_minute=1)) as (gateway, upstream), client_of(gateway) as client:
        count = 3000
        await client.send(post(BODY, CHAT, OURS) * count)
        statuses = [(await client.read_response()).status for _ in range(count)]
        assert statuses == [200, *[429] * (count - 1)]
        assert len(upstream.requests) == 1


async def test_refused_upload_is_drained_or_closes_its_connection() -> None:
    """The client gets the answer, though it is still sending."""
    async with through(FINE, keys=keys(requests_per_minute=1)) as (gateway, upstream):
        async with client_of(gateway) as client:
            assert (await exchange(client, get(b"/v1/x", OURS))).status == 200
            await client.send(get(b"/v1/x", OURS, b"Content-Length: 100000", method=b"POST") + b"x" * 1000)
            refused = await client.read_response()
            assert (refused.status, refused.list_values(b"connection")) == (429, [b"close"])
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("upstream_limit", [True, False])
async def test_upstream_and_tenant_limits_apply_across_keys(*, upstream_limit: bool) -> None:
    """Over all of their keys."""
    limits = {"requests_per_minute": 1}
    two = [{**key(text), "tenant": "team"} for text in (KEY, "sk-other")]
    more: dict[str, object] = {"limits": {"tenants": {"team": limits}}} if not upstream_limit else {}
    upstream = {"limits": limits} if upstream_limit else None
    async with through(FINE, upstream=upstream, keys=two, **more) as (gateway, _), client_of(gateway) as client:
        assert (await exchange(client, get(b"/v1/x", OURS))).status == 200
        refused = await exchange(client, get(b"/v1/x", b"X-Gateway-Key: sk-other"))
        assert refused.status == 429
        whose = "The upstream 'up'" if upstream_limit else "The tenant 'team'"
        assert error_of(refused)["message"].startswith(whose)


async def test_reload_keeps_limit_counts_and_admits_the_increase() -> None:
    """A limit that grows lets in the difference."""
    async with FakeUpstream(FINE) as upstream:
        up = {"name": "up", "base_url": upstream.base_url}
        content = {"upstreams": [up], "allowed_hosts": ["gw.example"], "metrics": {"public": True}}
        async with LocalGateway({**content, "keys": keys(requests_per_minute=1)}) as gateway:
            async with client_of(gateway) as client:
                statuses = [(await exchange(client, get(b"/v1/x", OURS))).status for _ in range(2)]
                await gateway.reload({**content, "keys": keys(requests_per_minute=2)})
                statuses += [(await exchange(client, get(b"/v1/x", OURS))).status for _ in range(2)]
            samples = await scrape(gateway)
    assert statuses == [200, 429, 200, 429]
    assert samples['gateway_limit_refused_total{limit="requests_per_minute",scope="key"}'] == 2


async def test_rate_limit_headers_are_exposed_to_allowed_origins() -> None:
    open_to = through(FINE, keys=keys(requests_per_minute=1), cors=["https://chat.example"])
    async with open_to as (gateway, _), client_of(gateway) as client:
        for status in (200, 429):
            response = await exchange(client, get(b"/v1/x", OURS, b"Origin: https://chat.example"))
            assert response.status == status
        (exposed,) = response.list_values(b"access-control-expose-headers")
        assert {b"retry-after-ms", b"x-ratelimit-reset-requests"} <= set(exposed.split(b", "))


async def test_model_limits_apply_where_the_body_chooses_the_upstream() -> None:
    """A refused request gives back what it had taken of its key; another model goes on."""
    settings = {
        "passthrough": {"by_model": True},
        "limits": {"models": {"m": {"requests_per_minute": 1}}},
        "keys": keys(concurrent=1, tokens_per_minute=10_000),
    }
    limited = through(FINE, upstream={"models": ["m", "other"]}, **settings)
    async with limited as (gateway, upstream), client_of(gateway) as client:
        first, refused, other = [
            await exchange(client, post(b'{"model": "%b", "messages": []}' % model, CHAT, OURS))
            for model in (b"m", b"m", b"other")
        ]
        assert (first.status, refused.status, other.status) == (200, 429, 200)
        assert error_of(refused)["message"].startswith("The model 'm' has reached its limit of 1 requests per minute")
        assert len(upstream.requests) == 2


RENTED = serve(build_answer(200, b"rented"))
DOWN = serve(build_answer(503, b"down", [("x-note", "mine")]))
ASKED = post(BODY, CHAT, OURS)


def fallbacks(*upstreams: FakeUpstream, **limits: object) -> dict[str, object]:
    """The rules of an upstream with these fallbacks, the first of which has limits, and what there is besides."""
    names = [f"rented-{n}" for n in range(len(upstreams))]
    more = [{"name": name, "base_url": one.base_url} for name, one in zip(names, upstreams, strict=True)]
    more[0] |= {"limits": limits}
    return {"fallback": names, "more": more, "breaker": {"failures": 0}}


@pytest.mark.parametrize("by_model", [False, True])
async def test_fallback_request_counts_towards_the_fallback_limits(*, by_model: bool) -> None:
    """One without room is passed over; where all are, the client gets the answer that the upstream gave."""
    settings: dict[str, object] = {"passthrough": {"by_model": by_model}, "keys": keys(requests_per_minute=100)}
    async with FakeUpstream(RENTED) as first, FakeUpstream(serve(build_answer(200, b"last"))) as second:
        rules = fallbacks(first, second, requests_per_minute=2)
        async with several(DOWN, settings=settings, **rules) as up:  # type: ignore[arg-type]
            answers = [(await ask(up.gateway, ASKED)).payload for _ in range(3)]
        assert answers == [b"rented", b"rented", b"last"]
    async with FakeUpstream(RENTED) as first:
        rules = fallbacks(first, requests_per_minute=1) | {"limits": {"requests_per_minute": 2}}
        async with several(DOWN, settings=settings, **rules) as up:  # type: ignore[arg-type]
            answers = [(await ask(up.gateway, ASKED)).payload for _ in range(2)]
            assert answers == [b"rented", b"down"]
            assert up.counts == [1 + 3]  # which is tried again, and counts as one request of its upstream


@pytest.mark.parametrize("by_model", [False, True])
async def test_upstream_over_its_limit_is_replaced_by_its_fallback(*, by_model: bool) -> None:
    """If that has none either, the client hears of the first, and its key has spent nothing."""
    settings: dict[str, object] = {"passthrough": {"by_model": by_model}, "keys": keys(requests_per_minute=4)}
    async with FakeUpstream(RENTED) as rented:
        rules = fallbacks(rented, requests_per_minute=1) | {"limits": {"requests_per_minute": 2}}
        async with several(FINE, settings=settings, **rules) as up:  # type: ignore[arg-type]
            answers = [await ask(up.gateway, ASKED) for _ in range(9)]
            assert [one.status for one in answers] == [200] * 3 + [429] * 6
            assert [one.payload for one in answers[:3]] == [b"fine", b"fine", b"rented"]
            assert error_of(answers[-1])["message"].startswith("The upstream 'up' has reached its limit of 2 requests")


async def test_concurrency_reservation_moves_to_the_fallback() -> None:
    """A request that a fallback answers takes a place there, and none at the upstream that it was for."""
    release = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await release.wait()
        await peer.send(build_answer(200, b"slow"))

    async def fails_once(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_answer(503, b"down"))
        while await peer.read_request():
            await peer.send(build_answer(200, b"fine"))

    async with FakeUpstream(slow, FINE) as rented:
        rules = fallbacks(rented, concurrent=1) | {"limits": {"concurrent": 1}}
        async with several(fails_once, **rules) as up:  # type: ignore[arg-type]
            first = asyncio.create_task(ask(up.gateway, post(BODY, CHAT)))
            await until(lambda: rented.requests)
            assert (await ask(up.gateway, post(BODY, CHAT))).payload == b"fine"
            release.set()
            assert (await first).payload == b"slow"


@pytest.mark.parametrize("by_model", [False, True])
async def test_token_reservations_are_corrected_on_any_endpoint(*, by_model: bool) -> None:
    """Tokens of a key, where there is a choice of endpoints: 50 tokens each, not the 7 that are reserved at first."""
    said = serve(build_answer(200, b'{"model": "m", "usage": {"prompt_tokens": 30, "completion_tokens": 20}}'))
    settings: dict[str, object] = {"passthrough": {"by_model": by_model}, "keys": keys(tokens_per_minute=500)}
    async with several(said, said, settings=settings) as up:
        statuses = [(await ask(up.gateway, ASKED)).status for _ in range(11)]
    assert statuses == [*[200] * 10, 429]


LINES = b"POST /v1/chat/completions", b"GET /v1/models"


class Beginning:
    """Transactions of a key with limits, in one of so many workers. Those that began are in `open`.

    One was before, and used 20 tokens.
    """

    def __init__(self, places: int, **limits: int) -> None:
        self.workers = Workers(places, tenants={"sk-a": Allowance(**limits)})
        self.limiter = self.workers.limiters[0]
        self.rules = self.limiter.list_caller_rules(caller("sk-a", "sk-a"))
        facts: dict[str, Any] = {"recorded": lambda *_: None, "limiter": self.limiter, "keys": keyring("sk-a")}
        self._router = router(endpoint(), **facts)
        self._plans = {line: self._planned(line) for line in LINES}
        self.open: list[AccessRecord] = []
        self.begin(LINES[0], 8)
        self.end(1, 20)

    def _planned(self, line: bytes) -> Plan:
        raw = line + b" HTTP/1.1\r\nHost: gw\r\nX-Gateway-Key: sk-a"
        raw += b"\r\nContent-Length: 9" if line.startswith(b"POST") else b""
        planned = self._router.route(read(raw + b"\r\n\r\n"), raw)
        assert planned is not None
        return planned[0]

    def begin(self, line: bytes, length: int) -> str:
        """Begin a request; return why it is refused, or nothing."""
        plan = self._plans[line]
        record = AccessRecord(plan.head, plan.policy, plan.target, cast("Client", None), 0.0)
        try:
            assert plan.observers is not None
            for make in plan.observers.makers:
                make(record).on_request(length, b"", False)
        except GatewayError as error:
            return error.message
        self.open.append(record)
        return ""

    def end(self, count: int, used: int) -> None:
        for record in self.open[:count]:
            assert record.reservation is not None
            record.reservation.close(tokens=used)
        del self.open[:count]

    def seen(self) -> list[tuple[str, float]]:
        return [(one.limit, one.used) for one in self.limiter.list_usage(self.rules)]


@pytest.mark.parametrize("seed", range(40))
def test_single_worker_limiter_admits_the_same_as_shared_limiter(seed: int) -> None:
    """With others each request looks. Requests whose tokens count and others, of all sizes, in any order."""
    dice = random.Random(seed)
    limits = {"tokens_per_minute": 200_000, "requests_per_minute": 9000, "concurrent": dice.choice((300, 10**6))}
    alone, beside = Beginning(1, **limits), Beginning(2, **limits)
    for _ in range(20):
        what, count = dice.choice(("begin", "begin", "end", "wait", "look")), dice.choice((1, 3, 70, 200))
        if what == "begin":
            line, length = dice.choice(LINES), dice.choice((0, 8, 40, 83, 400, 4000))
            for _ in range(count):
                assert alone.begin(line, length) == beside.begin(line, length)
        elif what == "end":
            used = dice.choice((0, 5, 20, 100, 900))
            for one in (alone, beside):
                one.end(count, used)
        elif what == "wait":
            passed_s = dice.choice((0.1, 0.3, 4.0, 59.7, 60.3))
            for one in (alone, beside):
                one.workers.clock.advance(passed_s)
        else:  # which gives back what is ahead
            assert alone.seen() == beside.seen()
    assert alone.seen() == beside.seen()


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize(
    "limits", [{"tokens_per_minute": 10**9}, {"tokens_per_minute": 10**9, "concurrent": 10**6}, {}]
)
async def test_limits_count_all_of_many_concurrent_requests(*, limits: dict[str, int], usage: bool) -> None:
    """Requests of several sizes, some of which fail, and one that is still under way when the limits are read."""
    dice, clock, release = random.Random(7), Still(), asyncio.Event()
    bodies = [b'{"n": %d, "x": "%b"}' % (n, b"x" * dice.choice((4, 60, 99, 150, 3000))) for n in range(600)]

    async def script(peer: Peer) -> None:
        while True:
            number = int(json.loads((await peer.read_request()).payload)["n"])
            if number == len(bodies) - 1:
                await release.wait()
            fails = {7: 404, 8: 503}.get(number % 9)
            said = {"model": "m", "usage": {"prompt_tokens": 20, "completion_tokens": number % 50}}
            await peer.send(build_answer(fails or 200, json.dumps({} if fails else said).encode()))

    async def used() -> dict[str, int]:
        told = json.loads((await ask(gateway, get(b"/context/limits", OURS))).payload)
        return {one["limit"]: one["used"] for one in told["data"]}

    (mine,) = keys(requests_per_minute=10**6, **limits)
    settings: dict[str, Any] = {"keys": [{**mine, "scopes": ["passthrough", "context", "metrics"]}]}
    settings["usage"] = {"enabled": usage}
    async with through(script, script, clock=clock, **settings) as (gateway, upstream):
        async with client_of(gateway) as client:
            seen = Counter([(await exchange(client, post(body, CHAT, OURS))).status for body in bodies[:-1]])
            await client.send(post(bodies[-1], CHAT, OURS))
            await until(lambda: len(upstream.requests) == len(bodies))
            under_way = (await used()).get("concurrent")
            release.set()
            seen[(await client.read_response()).status] += 1
        tokens = sum(20 + n % 50 for n in range(len(bodies)) if n % 9 not in (7, 8))
        assert await used() == {
            "requests_per_minute": 600,
            **{name: {"tokens_per_minute": tokens, "concurrent": 0}[name] for name in limits},
        }
        assert under_way == (1 if "concurrent" in limits else None)
        counted = samples((await ask(gateway, get(b"/metrics", OURS))).payload)
        clock.advance(60.25)
        assert set((await used()).values()) == {0}
    assert seen == Counter({7: 404, 8: 503}.get(n % 9, 200) for n in range(len(bodies)))
    for code, count in seen.items():
        labels = f'code="{code}",method="POST",mode="passthrough",route="/v1/"'
        assert counted[f"gateway_http_requests_total{{{labels}}}"] == count


async def test_large_request_does_not_keep_out_small_requests() -> None:
    """One is under way all the time, and each further one gets in."""
    release, clock = asyncio.Event(), Later()
    small = build_answer(200, b'{"model": "m", "usage": {"prompt_tokens": 8, "completion_tokens": 2}}')
    large = build_answer(200, b'{"model": "m", "usage": {"prompt_tokens": 100000}}')

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request()
            number = len(upstream.requests)
            if number == 2:
                await release.wait()
            await peer.send(large if number == 1 else small)

    async with through(script, keys=keys(tokens_per_minute=10_000), clock=clock) as (gateway, upstream):
        assert (await ask(gateway, ASKED)).status == 200
        clock.advance(61.0)
        first = asyncio.create_task(ask(gateway, ASKED))
        await until(lambda: len(upstream.requests) == 2)
        assert [(await ask(gateway, ASKED)).status for _ in range(12)] == [200] * 12
        release.set()
        assert (await first).status == 200


async def test_batch_requests_reserve_no_tokens() -> None:
    """The provider runs them later, and says so itself."""
    counted = serve(build_answer(200, b'{"model": "m", "usage": {"prompt_tokens": 30, "completion_tokens": 20}}'))
    limits = keys(requests_per_minute=3, tokens_per_minute=50)
    async with through(counted, keys=limits) as (gateway, _), client_of(gateway) as client:
        assert (await exchange(client, ASKED)).status == 200
        assert (await exchange(client, ASKED)).status == 429
        batch = post(b'{"input_file_id": "file-1"}', b"/v1/batches", OURS)
        assert [(await exchange(client, batch)).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("method", [b"post", b"Post", b"pOST", b"PUT", b"PATCH", b"QUERY", b"GET", b"get", b"DELETE"])
async def test_token_limit_applies_to_any_method_spelling(method: bytes) -> None:
    """Some servers read it in any letter case, and some not at all where there is a body."""
    said = build_answer(200, b'{"usage": {"prompt_tokens": 900, "completion_tokens": 100}}')
    async with through(serve(said), keys=keys(tokens_per_minute=1000)) as (gateway, _):
        asked = post(BODY, CHAT, OURS, method=method)
        assert [(await ask(gateway, asked)).status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("method", [b"GET", b"get", b"DELETE"])
async def test_nongenerating_requests_reserve_no_tokens(method: bytes) -> None:
    """It repeats an answer that was counted."""
    said = build_answer(200, b'{"usage": {"prompt_tokens": 900, "completion_tokens": 100}}')
    async with through(serve(said), keys=keys(tokens_per_minute=1000)) as (gateway, _):
        statuses = [(await ask(gateway, get(CHAT, OURS, method=method))).status for _ in range(2)]
    assert statuses == [200, 200]


async def test_large_request_blocks_no_requests_after_its_minute() -> None:
    """However far above the limit it was: what those after it reserve by it is no reason to refuse them."""
    sizes, clock = iter([100_000, *[700] * 13, 9_000, *[10] * 3]), Later()

    counts = serve(lambda _: build_answer(200, b'{"model": "m", "usage": {"prompt_tokens": %d}}' % next(sizes)))
    limits = keys(tokens_per_minute=10_000)
    async with through(counts, keys=limits, clock=clock) as (gateway, _), client_of(gateway) as client:
        assert (await exchange(client, ASKED)).status == 200
        assert (await exchange(client, ASKED)).status == 429
        clock.advance(61.0)
        assert [(await exchange(client, ASKED)).status for _ in range(15)] == [200] * 14 + [429]
        clock.advance(61.0)
        assert [(await exchange(client, ASKED)).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/chat/completions/",
        b"/v1/chat%2Fcompletions",
        b"/v1/%63hat/Completion%73?x=/",
        b"/v1/chat/completions;v=1",
        b"/v1/responses%20",
        b"/v1/x//responses",
        b"/v1/chat/completions/q\\r/..",
    ],
)
async def test_token_limit_applies_to_any_path_spelling(path: bytes) -> None:
    """An upstream may read it as that of a model."""
    said = build_answer(200, b'{"usage": {"prompt_tokens": 900, "completion_tokens": 100}}')
    async with through(serve(said), keys=keys(tokens_per_minute=1000)) as (gateway, _):
        statuses = [(await ask(gateway, post(BODY, path, OURS))).status for _ in range(2)]
    assert statuses == [200, 429]


async def test_unused_key_counters_are_reclaimed_for_other_keys(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then a request that cannot be counted is refused, and the log says whose it is."""
    monkeypatch.setattr(shared_memory, "COUNTERS", 1)
    clock = Later()
    two = [{**key(f"sk-{name}"), "name": name, "limits": {"requests_per_minute": 1}} for name in ("old", "new")]

    def of(name: bytes) -> bytes:
        return get(b"/v1/x", b"X-Gateway-Key: sk-" + name)

    async with through(FINE, keys=two, clock=clock) as (gateway, upstream):
        assert (await ask(gateway, of(b"old"))).status == 200
        full = await ask(gateway, of(b"new"))
        assert (full.status, error_of(full)["code"]) == (503, "overloaded")
        assert "requests of the key 'new', and perhaps of others, are refused" in caplog.text
        clock.advance(UNUSED_S + 1)
        assert [(await ask(gateway, of(b"new"))).status for _ in range(2)] == [200, 429]
        assert (await ask(gateway, of(b"old"))).status == 503
        clock.advance(UNUSED_S + 1)
        assert (await ask(gateway, of(b"old"))).status == 200
    assert len(upstream.requests) == 3
