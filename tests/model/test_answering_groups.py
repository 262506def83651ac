"""The endpoints of an upstream, and its fallbacks, as a model call uses them, over real sockets.

The rules themselves are in tests/upstream: here is what a call of a model makes of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import orjson
import pytest

from gateway.contracts.caller import Caller, KeyBounds
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Execution, Reply
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_event, build_event_stream_answer, serve
from gateway.testing.scripts import build_chunk as framed
from gateway.testing.upstream import Script
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.budget import ALWAYS
from gateway.upstream.group import GroupRules, RetryRules
from gateway.upstream.queue import QueueRules
from tests.agent.models import HELLO, SECRET, STREAM, Models, exchange, models
from tests.agent.models import says as sends
from tests.exchanges import changed
from tests.scripted_replies import told

FINE = serve(HELLO)
BUSY = serve(build_answer(503, b"{}"))
LIMITED = serve(build_answer(429, b"{}", [("Retry-After", "7")]))
NEVER = serve(build_answer(501, b"{}"))
CUT = sends(STREAM)
RETRIES = GroupRules(retry=RetryRules())


def is_idle(answering: Models) -> bool:
    """Whether every place was given back."""
    return not any(member.inflight for group in answering.groups for member in group.members)


async def refused(answering: Models, **facts: object) -> GatewayError:
    with pytest.raises(GatewayError) as failed:
        await answering.ask(changed(exchange(), **facts))
    assert is_idle(answering)
    return failed.value


@pytest.mark.parametrize(
    ("scripts", "requests", "reason"),
    [
        ((BUSY, FINE), [1, 1], "503"),
        ((LIMITED, FINE), [1, 1], "429"),
        ((CUT, FINE), [1, 1], "reset"),
        ((sends(b""), FINE), [1, 1], "reset"),
        ((BUSY, CUT, FINE), [1, 1, 1], "503"),
    ],
)
async def test_other_endpoint_answers_in_place_of_a_failing_one(
    scripts: tuple[Script, ...], requests: list[int], reason: str
) -> None:
    """Before the first chunk. It is asked for the same model; the reason is counted."""
    async with models(each=scripts, endpoints=True, rules=RETRIES) as answering:
        reply = await answering.core(exchange())
        assert (await told(reply))[:2] == ["Hel", "lo"]
        await reply.release()
        assert reply.by is not None and (reply.by.upstream, reply.by.endpoint) == ("up0", f"e{len(scripts) - 1}")
        assert answering.asked == requests and is_idle(answering)
        assert answering.groups[0].tally.retries[reason] >= 1


@pytest.mark.parametrize(
    ("first", "rules"),
    [
        (BUSY, GroupRules()),
        (NEVER, RETRIES),
        (BUSY, GroupRules(retry=RetryRules(part=0.0))),
        (BUSY, GroupRules(retry=RetryRules(tries=1))),
        (BUSY, GroupRules(retry=RetryRules(on=frozenset(("connect",))))),
        (serve(build_answer(503, b"{}", [("x-should-retry", "false")])), RETRIES),
        (sends(STREAM + framed(b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n')), RETRIES),
    ],
)
async def test_call_is_not_retried_without_a_reason(first: Script, rules: GroupRules) -> None:
    """No rule, another failure, tries or budget used up, the upstream says so, a first chunk is out."""
    async with models(each=(first, FINE), endpoints=True, rules=rules) as answering:
        await refused(answering)
        assert answering.asked == [1, 0]


async def test_silent_and_unreachable_endpoints_are_retried_at_the_next_one() -> None:
    """The next one answers; the silent one gets its whole `timeouts.first_byte`."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end(timeout_s=None)

    async with models(each=(silent, FINE, FINE), endpoints=True, rules=RETRIES, first_byte_s=1.0) as answering:
        await answering.upstreams[1].__aexit__(None, None, None)
        await answering.ask()
        assert dict(answering.groups[0].tally.retries) == {"timeout": 1, "connect": 1}
        assert answering.asked == [1, 0, 1] and is_idle(answering)
        assert answering.outcomes() == {"timeout": 1, "connect": 1, "ok": 1}


async def test_tries_are_bounded() -> None:
    """However many endpoints there are."""
    async with models(each=(BUSY,) * 5, endpoints=True, rules=RETRIES) as answering:
        assert (await refused(answering)).facts.status == 503
        assert sum(answering.asked) == 3


async def test_limited_endpoint_pauses_for_its_retry_after_time() -> None:
    """The other one answers meanwhile; with no other, the client is told how long."""
    async with models(each=(LIMITED, FINE), endpoints=True, rules=RETRIES, api_key=SECRET) as answering:
        for _ in range(3):
            await answering.ask()
        assert answering.asked == [1, 3]
        answering.clock.advance(7)
        await answering.ask()
        await answering.ask()
        assert answering.asked[0] == 2
    async with models(each=(LIMITED,), endpoints=True, rules=RETRIES, api_key=SECRET) as answering:
        for _ in range(2):
            error = await refused(answering)
            assert (error.code, error.retry_after_s) == ("upstream_limited", 7)
        assert answering.asked == [1]


async def test_rate_limited_upstream_without_rules_receives_the_next_request() -> None:
    """Its next request goes there, as it would in passthrough."""
    async with models(LIMITED, api_key=SECRET) as answering:
        for _ in range(2):
            assert (await refused(answering)).retry_after_s == 7
        assert answering.asked == [2]


async def test_ejected_endpoint_gets_no_requests_until_a_probe_succeeds() -> None:
    """503 with the reason; one probe, and it is back. The places of an alias's next model are other ones."""
    rules = GroupRules(breaker=BreakerRules(failures=2, open_s=10.0))
    answers = [build_answer(503, b"{}"), build_answer(503, b"{}"), HELLO, HELLO]
    aliases = {"fast": [("m", "up0"), ("m", "up1")]}
    async with models(each=(serve(lambda _: answers.pop(0)), FINE), rules=rules, aliases=aliases) as answering:
        for _ in range(2):
            assert (await refused(answering)).code == "upstream_error"
        error = await refused(answering)
        assert error.code == "circuit_open" and error.retry_after_s == 10.0 and "breaker is open" in error.message
        await answering.ask(exchange(model="fast"))
        assert answering.asked == [2, 1]
        answering.clock.advance(10)
        await answering.ask()
        await answering.ask(exchange(model="fast"))
        assert answering.asked == [4, 1] and is_idle(answering)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429])
async def test_endpoint_that_refuses_the_probe_closes_its_breaker(status: int) -> None:
    """A wrong key, or the limit of one account, is no reason to keep all others out."""
    rules = GroupRules(breaker=BreakerRules(failures=1, open_s=10.0), retry=RetryRules(tries=1))
    answers = [build_answer(503, b"{}"), build_answer(status, b"{}", [("Retry-After", "600")]), HELLO]
    async with models(each=(serve(lambda _: answers.pop(0)),), endpoints=True, rules=rules) as answering:
        assert (await refused(answering)).facts.status == 503
        answering.clock.advance(10)
        assert (await refused(answering)).facts.status == status
        assert answering.groups[0].members[0].breaker.get_state(answering.clock()) == "closed"
        await answering.ask()
        assert answering.asked == [3] and is_idle(answering)


async def test_cut_answer_counts_as_a_failure_of_its_endpoint() -> None:
    """Also behind the first chunk; an answer whose client left says nothing."""
    half = sends(STREAM + framed(b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'))
    rules = GroupRules(breaker=BreakerRules(failures=2))
    async with models(each=(half,), endpoints=True, rules=rules) as answering:
        reply = await answering.core(exchange())
        await reply.release()
        await refused(answering)
        assert answering.groups[0].members[0].breaker.get_state(answering.clock()) == "closed"
        await refused(answering)
        assert answering.groups[0].members[0].breaker.get_state(answering.clock()) == "open"


@pytest.mark.parametrize(
    ("error", "requests", "state"),
    [
        ({"message": "bad grammar", "code": 400}, [1, 0, 0], "closed"),
        ({"message": "it failed"}, [1, 1, 1], "closed"),
        ({"message": "bad grammar", "type": "invalid_request_error"}, [1, 0, 0], "closed"),
        ({"message": "busy", "code": "503"}, [1, 1, 1], "open"),
        ({"message": "too many", "status": 429}, [1, 1, 1], "closed"),
    ],
)
async def test_error_event_in_a_stream_is_handled_by_its_status(error: object, requests: list[int], state: str) -> None:
    """Behind a head that says 200. One that may be the request's fault opens no breaker for others."""
    sent = serve(build_event_stream_answer([build_event(orjson.dumps({"error": error}))]))
    rules = GroupRules(breaker=BreakerRules(failures=1), retry=RetryRules(tries=2))
    aliases = {"fast": [("m", "up0"), ("small", "up2")]}
    async with models(each=(sent, sent, FINE), rules=rules, aliases=aliases) as answering:
        first, second, _ = answering.groups
        first.fallbacks = (second,)
        with suppress(GatewayError):
            await answering.ask(exchange(model="fast"))
        assert answering.asked == requests and is_idle(answering)
        assert first.members[0].breaker.get_state(answering.clock()) == state


async def waiting(answering: Models, reply: Callable[[], Awaitable[Reply]]) -> "asyncio.Task[Reply]":
    """A call that stands in the queue."""
    task = asyncio.ensure_future(reply())
    while not answering.groups[0].queue_length:
        await asyncio.sleep(0)
    return task


async def test_call_waits_in_the_queue_for_a_place() -> None:
    """Until the answer of another is over. One whose client leaves leaves the queue; one too many is refused."""

    async def slow(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM)
        await peer.wait_end(timeout_s=None)

    rules = GroupRules(queue=QueueRules(size=1, wait_s=60.0))
    async with models(slow, FINE, most=1, rules=rules) as answering:
        first = await answering.core(exchange())
        left = await waiting(answering, lambda: answering.core(exchange()))
        with pytest.raises(GatewayError) as failed:
            await answering.ask()
        assert failed.value.code == "overloaded" and failed.value.retry_after_s == 1
        left.cancel()
        await asyncio.wait({left})
        assert answering.groups[0].queue_length == 0
        second = await waiting(answering, lambda: answering.core(exchange()))
        await first.release()
        reply = await second
        assert (await told(reply))[:2] == ["Hel", "lo"]
        await reply.release()
        assert is_idle(answering) and sum(answering.asked) == 2


async def test_failed_call_waits_for_another_endpoint() -> None:
    """The one that failed is free, the other is busy."""

    async def slow(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_request(timeout_s=None)
            await go_on.wait()
            await peer.send(HELLO)

    go_on = asyncio.Event()
    rules = GroupRules(retry=RetryRules(), queue=QueueRules(size=1, wait_s=60.0))
    async with models(each=(BUSY, slow), endpoints=True, most=1, rules=rules) as answering:
        first = asyncio.ensure_future(answering.ask())
        await answering.upstreams[1].wait_requests(1)
        second = await waiting(answering, lambda: answering.core(exchange()))
        go_on.set()
        reply = await second
        assert (await told(reply))[:2] == (await first)[:2] == ["Hel", "lo"]
        await reply.release()
        assert answering.asked == [2, 2] and is_idle(answering)


async def test_failed_call_with_a_queue_timeout_reports_both_failures() -> None:
    """The failure is what it ends with."""

    async def slow(peer: Peer) -> None:
        await peer.read_request(timeout_s=None)
        await peer.wait_end(timeout_s=None)

    rules = GroupRules(retry=RetryRules(), queue=QueueRules(size=1, wait_s=0.02))
    async with models(each=(BUSY, slow), endpoints=True, most=1, rules=rules) as answering:
        first = asyncio.ensure_future(answering.ask())
        await answering.upstreams[1].wait_requests(1)
        with pytest.raises(GatewayError) as failed:
            await answering.ask()
        assert failed.value.code == "upstream_error" and "(queue.wait)" in failed.value.message
        first.cancel()
        await asyncio.wait({first})


async def test_a_conversation_stays_at_its_endpoint() -> None:
    """Which has its prompt in its cache. Without a conversation it is the key's, and others' are elsewhere."""
    async with models(each=(FINE,) * 4, endpoints=True, rules=GroupRules(balance="sticky")) as answering:
        used = dict[str, set[str]]()
        for n in range(24):
            for facts in ({"conversation": f"c{n}"}, {"caller": Caller(f"k{n}", "t", frozenset())}):
                for _ in range(2):
                    reply = await answering.core(changed(exchange(), **facts))
                    await told(reply)
                    await reply.release()
                    assert reply.by is not None
                    used.setdefault(str(facts), set()).add(reply.by.endpoint)
        assert all(len(endpoints) == 1 for endpoints in used.values())
        assert set().union(*used.values()) == {"e0", "e1", "e2", "e3"}


async def test_fallback_upstream_answers_for_a_failing_upstream() -> None:
    """Before the next model of an alias. A bound key uses its own upstreams only."""
    aliases = {"fast": [("m", "up0"), ("small", "up2")]}
    async with models(each=(BUSY, FINE, FINE), rules=RETRIES, aliases=aliases) as answering:
        answering.groups[0].fallbacks = (answering.groups[1],)
        credential = b"Authorization: Bearer sk-client\r\n"
        reply = await answering.core(exchange(credential=credential, model="fast"))
        await told(reply)
        await reply.release()
        assert reply.by is not None and (reply.by.upstream, reply.by.model) == ("up1", "m")
        sent = [up.requests[0].list_values(b"authorization") for up in answering.upstreams[:2]]
        assert sent == [[b"Bearer sk-client"]] * 2  # neither has a key, which is the operator's word
        bound = Caller("c", "t", frozenset(), KeyBounds(upstreams=("up0", "up2")))
        reply = await answering.core(replace(exchange(model="fast"), caller=bound))
        await told(reply)
        await reply.release()
        assert reply.by is not None and (reply.by.upstream, reply.by.model) == ("up2", "small")
        assert answering.asked[1] == 1


# A call that a run makes again.


async def test_repeated_call_is_sent_once_per_attempt() -> None:
    """To the next candidate each time: its pauses are the run's, and retries do not multiply."""
    aliases = {"fast": [("m", "up0"), ("small", "up1")]}
    async with models(each=(BUSY, BUSY), rules=RETRIES, aliases=aliases) as answering:
        for again, requests in ((1, [0, 1]), (2, [1, 1]), (3, [1, 2])):
            with pytest.raises(GatewayError):
                await answering.ask(replace(exchange(model="fast"), execution=Execution(again=again)))
            assert answering.asked == requests


async def test_repeated_call_counts_against_the_retry_budget() -> None:
    """Where that is used up, nothing is sent, and the error says so."""
    async with models(each=(BUSY,), endpoints=True, rules=GroupRules(retry=RetryRules(tries=1))) as answering:
        for again in range(ALWAYS):
            assert (await refused(answering, again=again + 1)).code == "upstream_error"
        error = await refused(answering, again=ALWAYS + 1)
        assert error.code == "upstream_unavailable" and "retry.budget" in error.message
        assert answering.asked == [ALWAYS] and answering.groups[0].tally.refused["budget"] == 1


async def test_repeated_call_skips_candidates_that_are_out() -> None:
    """An upstream that is out takes nothing, and the next one is asked: that is one request."""
    rules = GroupRules(breaker=BreakerRules(failures=1))
    aliases = {"fast": [("m", "up0"), ("small", "up1")]}
    async with models(each=(BUSY, FINE), rules=rules, aliases=aliases) as answering:
        await refused(answering)
        chunks: list[Chunk] = await answering.ask(replace(exchange(model="fast"), execution=Execution(again=2)))
        assert chunks[:2] == ["Hel", "lo"] and answering.asked == [1, 1]
