"""Answers that wait to be read: their sums are those of answers that are read one by one, and nobody sees them wait."""

import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.web_protocol import RequestHandler
from functional.several import CHAT as PATH
from functional.through import HOSTS, ask, client_of, get, through
from functional.through import post as post_to
from gateways import exchange, key
from lanes.assembled import assembled, endpoint, keyring, read, router
from limits.limiting import Workers, caller
from usage.shapes import CHAT, chat_stream, text

from gateway.auth.keyring import KeyRing
from gateway.contracts.allowance import Allowance
from gateway.contracts.errors import GatewayError
from gateway.features.usage.observer_batch import MOST, SUMMED, WAIT_S, UsageBatch
from gateway.lanes.auth_failures import WrongKeys
from gateway.lanes.client import Client
from gateway.lanes.listener import Listener
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.plan import Plan
from gateway.lanes.router import Router
from gateway.limits.limiter import Limiter
from gateway.telemetry.metrics import Metrics
from gateway.testing.clock import ManualClock
from gateway.testing.local_gateway import LocalGateway
from gateway.testing.messages import Request
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, serve
from gateway.testing.upstream import FakeUpstream
from gateway.usage.tokens import RequestUsage, TokenCounts

COUNT = 60
KINDS = ("usual",) * 8 + ("malformed", "silent", "wrong", "list", "long", "gzip", "error", "stream", "5xx")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nContent-Length: 2"


class Sums:
    """A ledger of sums: what is recorded of whom, in whatever pieces."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[object, ...]] = Counter()
        self.calls: list[RequestUsage] = []

    def __call__(self, usage: RequestUsage, *facts: object) -> None:
        *who, _times = facts
        self.calls.append(usage)
        of = (*who, usage.rejected, usage.cut, usage.estimated, usage.asked)
        self.counted[*of, "requests"] += usage.requests
        for name, count in zip(TokenCounts._fields, usage.tokens, strict=True):
            self.counted[*of, name] += count


def said_to(number: int) -> bytes:
    """The answer to request `number`, the same each time: mostly the usual one."""
    dice = random.Random(number)
    model = dice.choice(("a", "b", "", 7))
    asked, answered = dice.randrange(1000), dice.randrange(1000)
    usage: dict[str, Any] = {**CHAT["usage"], "prompt_tokens": asked, "completion_tokens": answered}  # type: ignore[dict-item]
    whole = text({**CHAT, "model": model, "usage": usage})
    kind = dice.choice(KINDS)
    fields = [("Content-Type", "application/json")]
    body = {
        "malformed": whole[:-1],
        "silent": text({"model": model, "choices": ["words of a model"]}),
        "wrong": text({"model": model, "usage": {"prompt_tokens": -5}}),
        "list": b"[%b]" % whole,
        "long": text({**CHAT, "model": model, "x": "x" * 9000, "usage": usage}),
        "gzip": gzip.compress(whole, mtime=0),
        "stream": chat_stream("a", "b", usage=usage),
    }.get(kind, whole)
    if kind == "gzip":
        fields.append(("Content-Encoding", "gzip"))
    return build_answer({"error": 429, "5xx": 503}.get(kind, 200), body, fields)


def numbered(request: Request) -> bytes:
    return said_to(int(json.loads(request.payload)["n"]))


@pytest.mark.parametrize("seed", range(5))
async def test_batched_usage_sums_equal_individually_read_sums(seed: int) -> None:
    """Of usual answers, and of those that say nothing, say it wrongly, are compressed, long, streamed or an error."""
    numbers = range(seed * COUNT, (seed + 1) * COUNT)
    sums = []
    for at_once in (True, False):
        heard = Sums()
        keys = keyring("ann", "bob")
        async with assembled(serve(numbered), keys=keys, recorded=heard, api_key=b"k") as lane, lane.client() as client:
            for number in numbers:
                body = b'{"n":%d}' % number
                who = random.Random(number).choice((b"ann", b"bob"))
                line = b"Authorization: Bearer %b\r\nContent-Length: %d" % (who, len(body))
                await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\n%b\r\n\r\n%b" % (line, body))
                await client.read_response()
                if at_once:
                    lane.usage_batch.read()
        sums.append(heard.counted)
    assert sums[0] == sums[1]
    assert sum(count for of, count in sums[0].items() if of[-1] == "requests") == COUNT


async def test_truncated_answer_is_recorded_as_cut() -> None:
    """The upstream breaks off within it."""
    heard = Sums()
    whole = build_answer(200, text(CHAT))

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(whole[:-9])

    async with assembled(script, recorded=heard) as lane, lane.client() as client:
        await client.send(ASK + b"\r\n\r\n{}")
        await client.read_rest()
    assert [(usage.requests, usage.cut) for usage in heard.calls] == [(1, True)]


class HandLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of the test."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._hand = clock

    def time(self) -> float:
        return self._hand()

    def turn(self) -> None:
        """Run what is due."""
        self.call_soon(self.stop)
        self.run_forever()


class Ending:
    """Transactions that end with a usual answer, on a loop whose time is the test's."""

    def __init__(self, *, limiter: Limiter | None = None, keys: KeyRing | None = None, more: bytes = b"") -> None:
        self.clock = ManualClock(1000.0)
        self.loop = HandLoop(self.clock)
        self.heard = Sums()
        self.limiter = limiter
        self.batch = UsageBatch()
        self.router: Router = router(
            endpoint(), recorded=self.heard, usage_batch=self.batch, limiter=limiter, keys=keys
        )
        self.listener = Listener(
            loop=self.loop,
            router=self.router,
            metrics=Metrics(),
            new_handler=cast("Callable[[], RequestHandler]", None),
            wrong_keys=WrongKeys(clock=self.clock),
        )
        raw = ASK + more
        planned = self.router.route(read(raw + b"\r\n\r\n"), raw)
        assert planned is not None
        self.plan: Plan = planned[0]

    def end(self, usage: dict[str, int]) -> None:
        body = text({"model": "m", "usage": usage})
        client = cast("Client", SimpleNamespace(listener=self.listener))
        plan = self.plan
        record = AccessRecord(plan.head, plan.policy, plan.target, client, perf_counter())
        assert plan.observers is not None
        observers = [make(record) for make in plan.observers.makers]
        if self.limiter is not None:
            record.reservation = self.limiter.reserve_places(
                self.limiter.list_caller_rules(plan.target.identity.caller), 0
            )
        record.status, record.sent_at, record.sent_bytes = 200, 1.0, len(body)
        record.beginning = HEAD % len(body) + body
        record.came, record.forwarded = 1.0, perf_counter()
        waits, *_ = [observer.on_closed("ok", None) for observer in observers]
        assert waits


def test_usage_batch_records_waiting_answers_as_one_sum() -> None:
    ending = Ending()
    for _ in range(3):
        ending.end({"prompt_tokens": 5, "completion_tokens": 2})
    ending.clock.advance(WAIT_S * 0.9)
    ending.loop.turn()
    assert ending.heard.calls == []
    ending.clock.advance(WAIT_S * 0.2)
    ending.loop.turn()
    assert ending.heard.calls == [RequestUsage(TokenCounts(15, 0, 0, 6), requests=3)]
    ending.end({"prompt_tokens": 1})  # the next ones wait for a moment of their own
    ending.clock.advance(WAIT_S * 1.1)
    ending.loop.turn()
    ending.loop.close()
    assert ending.heard.calls[1:] == [RequestUsage(TokenCounts(1))]


def test_usage_batch_bounds_the_number_of_waiting_answers() -> None:
    """The others are a sum, which is recorded with the last of so many."""
    ending = Ending()
    for number in range(1, SUMMED + MOST):
        ending.end({"prompt_tokens": number})
        assert len(ending.batch.waiting) < MOST
    ending.loop.close()
    assert ending.heard.calls == [RequestUsage(TokenCounts(sum(range(1, SUMMED + 1))), requests=SUMMED)]


def test_usage_batch_records_its_sum_once_after_a_moment() -> None:
    """With what still waits, and once."""
    ending = Ending()
    for _ in range(MOST + 1):
        ending.end({"prompt_tokens": 2})
    assert ending.heard.calls == []
    for _ in range(2):
        ending.clock.advance(WAIT_S * 1.1)
        ending.loop.turn()
    ending.loop.close()
    assert ending.heard.calls == [RequestUsage(TokenCounts(2 * (MOST + 1)), requests=MOST + 1)]


def limited(**limits: int) -> tuple[Ending, Workers]:
    """Transactions of a caller with limits, whose rules have a mean of 10 tokens."""
    workers = Workers(tenants={"sk-a": Allowance(**limits)})
    workers.limiters[0].reserve_places(workers.limiters[0].list_caller_rules(caller("sk-a", "sk-a")), 1).close(
        tokens=10
    )
    batches: list[UsageBatch] = []
    limiter = Limiter(
        workers.limiters[0]._meters,
        clock=workers.clock,
        budgets=workers.budgets,
        counters=workers.counters,
        catch_up=lambda: batches[0].read(),
        tenants={"sk-a": Allowance(**limits)},
    )
    ending = Ending(limiter=limiter, keys=keyring("sk-a"), more=b"\r\nX-Gateway-Key: sk-a")
    batches.append(ending.batch)
    return ending, workers


def used_of(limiter: Limiter) -> dict[str, float]:
    return {one.limit: one.used for one in limiter.list_usage(limiter.list_caller_rules(caller("sk-a", "sk-a")))}


def test_concurrency_is_released_at_once_and_tokens_with_the_batch() -> None:
    """By time, and before anybody looks at them."""
    ending, workers = limited(concurrent=1, tokens_per_minute=1000)
    assert ending.limiter is not None
    for _ in range(3):  # one at a time is admitted
        ending.end({"prompt_tokens": 100})
    by_hand = workers.limiters[0]  # whose reading of the limits reads no answers
    assert used_of(by_hand) == {"concurrent": 0, "tokens_per_minute": 40}
    ending.clock.advance(WAIT_S * 1.1)
    ending.loop.turn()
    assert used_of(by_hand) == {"concurrent": 0, "tokens_per_minute": 310}
    ending.end({"prompt_tokens": 100})
    assert used_of(ending.limiter) == {"concurrent": 0, "tokens_per_minute": 410}
    ending.loop.close()


def test_unused_batched_reservations_are_released_before_refusing() -> None:
    """A request without room looks at what the ones before it used first."""
    ending, _ = limited(tokens_per_minute=32)
    for _ in range(10):  # of which each reserves 10, and uses 1
        ending.end({"prompt_tokens": 1})
    assert ending.limiter is not None
    assert used_of(ending.limiter) == {"tokens_per_minute": 20}
    ending.loop.close()


def test_tight_token_limit_is_corrected_with_each_batch() -> None:
    """A request may be refused for what the ones before it used."""
    ending, workers = limited(tokens_per_minute=100 * MOST)
    for _ in range(MOST):
        ending.end({"prompt_tokens": 90})
    assert used_of(workers.limiters[0]) == {"tokens_per_minute": 10 + 90 * MOST}
    ending.loop.close()


def test_nearly_exhausted_limit_is_corrected_with_each_request() -> None:
    """A request counts by what it used, and not by what it was thought to use."""
    ending, _ = limited(tokens_per_minute=1600)
    assert ending.limiter is not None
    hold = ending.limiter.reserve_places(ending.limiter.list_caller_rules(caller("sk-a", "sk-a")), 1485)
    ending.end({"prompt_tokens": 200})
    with pytest.raises(GatewayError):
        ending.end({"prompt_tokens": 1})
    hold.close(tokens=0)
    ending.loop.close()


async def test_undecodable_answer_does_not_lose_usage_of_its_batch() -> None:
    """Its model is no UTF-8. It waits with those of another tenant, is read by theirs, and they by its."""

    def named(request: Request) -> bytes:
        model = b"g\xffpt" if b"odd" in request.payload else b"gpt"
        return build_answer(200, b'{"model":"%b","usage":{"prompt_tokens":3}}' % model)

    keys = [{**key(name, "passthrough", "context"), "name": name, "tenant": name} for name in ("sk-a", "sk-b")]
    async with through(serve(named), keys=keys, usage={"enabled": True}) as (gateway, _), client_of(gateway) as client:
        for number in range(3 * MOST):
            who, body = (b"sk-a", b'"odd"') if number % 5 == 0 else (b"sk-b", b"{}")
            assert (await exchange(client, post_to(body, PATH, b"X-Gateway-Key: " + who))).status == 200
        told = await ask(gateway, get(b"/context/usage?by=key", b"X-Gateway-Key: sk-b"))
        (row,) = json.loads(told.payload)["data"]
        assert (row["requests"], row["input"]) == (3 * MOST - 20, 3 * (3 * MOST - 20))


async def test_usage_and_limit_pages_include_all_ended_requests() -> None:
    """Through the API, right after the answer."""
    said = serve(build_answer(200, text({**CHAT, "usage": {"prompt_tokens": 30, "completion_tokens": 20}})))
    keys = [{**key("sk-a", "passthrough", "context"), "name": "a", "limits": {"tokens_per_minute": 1000}}]
    ours = b"X-Gateway-Key: sk-a"
    async with through(said, keys=keys, usage={"enabled": True}) as (gateway, _), client_of(gateway) as client:
        for number in range(1, 6):
            assert (await exchange(client, post_to(b"{}", PATH, ours))).status == 200
            limits = json.loads((await ask(gateway, get(b"/context/limits", ours))).payload)["data"]
            usage = json.loads((await ask(gateway, get(b"/context/usage", ours))).payload)["data"]
            assert [one["used"] for one in limits] == [50 * number]
            sums = [(one["requests"], one["input"], one["output"]) for one in usage]
            assert sums == [(number, 30 * number, 20 * number)]


async def test_batched_requests_count_under_the_route_that_they_took() -> None:
    """Two paths lead to the same path of one upstream, with the same head for it."""
    paths = ["/v1/", "/alt/v1/"]
    async with FakeUpstream(serve(build_answer(200, text(CHAT)))) as fake:
        upstreams = [{"name": "up", "base_url": f"{fake.base_url}/v1", "paths": paths}]
        settings: dict[str, object] = {"upstreams": upstreams, "usage": {"enabled": True}, "allowed_hosts": HOSTS}
        async with LocalGateway(settings) as gateway:
            async with client_of(gateway) as one, client_of(gateway) as other:
                for _ in range(MOST + 10):
                    assert (await exchange(one, post_to(b"{}", b"/v1/chat/completions"))).status == 200
                    assert (await exchange(other, post_to(b"{}", b"/alt/v1/chat/completions"))).status == 200
            page = (await ask(gateway, get(b"/metrics"))).payload.decode()
    lines = [line for line in page.splitlines() if line.startswith("gateway_http_requests_total{")]
    counted = {path: sum(float(line.split()[-1]) for line in lines if f'route="{path}"' in line) for path in paths}
    assert counted == {"/v1/": MOST + 10, "/alt/v1/": MOST + 10}
