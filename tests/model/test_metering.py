"""Tokens of model calls, over real sockets: what the model says, or an estimate; also of answers that break off."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import Any

import orjson
import pytest
from gateways import until

from gateway.contracts.caller import Caller, KeyBounds
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.features.usage.hook import UsageHook
from gateway.telemetry.counters import ContextCounters
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_chunk, build_event, serve
from gateway.testing.upstream import Script
from gateway.upstream.group import GroupRules
from gateway.upstream.queue import QueueRules
from gateway.usage.tokens import RequestUsage, Times, TokenCounts
from tests.agent.doubles import samples
from tests.agent.models import STREAM, Models, exchange, models, stream
from tests.agent.models import chunk as said
from tests.agent.models import says as sends

TOLD: Json = {"model": "m-1", "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
WHOLE = stream(said("Hi"), said(finish="stop"), TOLD)
FINE = serve(WHOLE)
Heard = list[tuple[object, ...]]


class Counted:
    """What the ledger heard of calls, and the counter of tokens by type."""

    def __init__(self) -> None:
        self.heard: Heard = []
        self._counters = ContextCounters()
        self.facts: dict[str, Any] = {
            "counters": self._counters,
            "hooks": [UsageHook(lambda *facts: self.heard.append(facts))],
        }

    @property
    def usage(self) -> list[RequestUsage]:
        return [facts[0] for facts in self.heard if isinstance(facts[0], RequestUsage)]

    @property
    def counters(self) -> dict[str, float]:
        counted = samples(self._counters)
        assert all(name == "gateway_tokens_total" and labels[0] == "c" for name, labels in counted)
        return {labels[1]: value for (_, labels), value in counted.items()}


async def counted(*scripts: Script, asked: Exchange | None = None, times: int = 1) -> tuple[Counted, Models]:
    """What is counted of calls that these scripts answer."""
    found = Counted()
    async with models(*scripts, **found.facts) as answering:
        for _ in range(times):
            with suppress(GatewayError):
                await answering.ask(asked)
    return found, answering


def asked_tokens(answering: Models) -> int:
    return ceil(len(answering.upstreams[0].requests[-1].payload) / 4)


def half(*chunks: Json) -> Script:
    """An answer that breaks off behind these chunks."""
    return sends(STREAM + b"".join(build_chunk(build_event(one)) for one in map(_bytes, chunks)))


def _bytes(one: Json) -> bytes:
    return stream(one, done=False).partition(b"data: ")[2].partition(b"\n\n")[0]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ([{"prompt_tokens": 11, "completion_tokens": 7}], TokenCounts(11, 0, 0, 7)),
        ([{"prompt_tokens": 11, "completion_tokens": 0}], TokenCounts(11)),
        ([{"prompt_tokens": 1}, {"prompt_tokens": 11, "completion_tokens": 7}], TokenCounts(11, 0, 0, 7)),
        ([{"prompt_tokens": 11, "completion_tokens": 7}, {"prompt_tokens": "x"}, {}], TokenCounts(11, 0, 0, 7)),
    ],
)
async def test_last_valid_usage_of_the_model_counts(usage: Sequence[Json], tokens: TokenCounts) -> None:
    """Behind which nothing that can be no tokens counts."""
    words = [{"choices": [], "usage": one} for one in usage]
    found, _ = await counted(serve(stream(said("Hi"), said(finish="stop"), *words)))
    assert found.usage == [RequestUsage(tokens)]
    assert found.counters == {kind: n for kind, n in (("prompt", tokens.input), ("completion", tokens.output)) if n}


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": "11"},
        {"prompt_tokens": 1, "completion_tokens": -1},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    ],
)
async def test_missing_usage_is_estimated(usage: object) -> None:
    found, answering = await counted(serve(stream(said("Hello there"), said(finish="stop", usage=usage))))
    tokens = TokenCounts(asked_tokens(answering), output=3)
    assert found.usage == [RequestUsage(tokens, estimated=True)]
    assert found.counters == {"prompt": tokens.input, "completion": 3}


async def test_broken_off_answer_is_recorded_as_cut() -> None:
    found, answering = await counted(half(said("Hello there")), half(TOLD), sends(STREAM), times=3)
    asked = asked_tokens(answering)
    assert found.usage == [
        RequestUsage(TokenCounts(asked, output=3), cut=True, estimated=True),
        RequestUsage(TokenCounts(11, output=7), cut=True),
        RequestUsage(TokenCounts(asked), cut=True, estimated=True),
    ]


async def test_metering_records_caller_model_and_upstream_of_each_call() -> None:
    """With the model that the answer names, or the one that was asked, as of a refusal."""
    found, _ = await counted(sends(WHOLE), half(said("Hi")), serve(build_answer(400, b"{}")), times=3)
    assert [facts[1:6] for facts in found.heard] == [
        ("c", "t", "m-1", "up0", "context"),
        ("c", "t", "m", "up0", "context"),
        ("c", "t", "m", "up0", "context"),
    ]
    assert found.usage[-1] == RequestUsage(rejected=True)


async def test_call_refused_before_sending_records_its_model() -> None:
    """And its upstream, where the key may not use it; a name that can be none is no name."""
    found = Counted()
    bound = Caller("c", "t", frozenset(("context",)), KeyBounds(models=("other-*",)))
    async with models(FINE, **found.facts) as answering:
        for asked in (exchange(), exchange(model="m" * 201), exchange(model="a\x00b")):
            asked = replace(asked, caller=bound)
            with pytest.raises(GatewayError):
                await answering.ask(asked)
    assert [facts[3:5] for facts in found.heard] == [("m", "up0"), ("", ""), ("", "up0")]
    assert found.usage == [RequestUsage(rejected=True)] * 3


async def test_call_times_are_recorded_for_each_answer() -> None:
    """Its beginning comes before its end; tokens have a time only in a stream that is whole and says them."""
    single = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": TOLD["usage"]}
    whole = sends(build_answer(200, orjson.dumps(single), [("Content-Type", "application/json")]))
    found, _ = await counted(sends(WHOLE), whole, half(TOLD), serve(build_answer(400, b"{}")), times=4)
    *times, refused = [facts[6] for facts in found.heard]
    assert refused is None
    for one in times:
        assert isinstance(one, Times)
        ((came,), (ended,)) = one.first_byte_s, one.duration_s
        assert 0 < came <= ended
    assert [len(one.token_s) for one in times if isinstance(one, Times)] == [1, 0, 0]


async def test_call_without_available_upstream_is_counted_as_rejected_once() -> None:
    found = Counted()
    async with models(FINE, patterns=[["other-*"]], **found.facts) as answering:
        for upstream in answering.upstreams:
            await upstream.__aexit__(None, None, None)  # its port answers nobody
        with pytest.raises(GatewayError):
            await answering.ask(exchange(model="other-1"))
        with pytest.raises(GatewayError):
            await answering.ask()
    assert found.usage == [RequestUsage(rejected=True)] * 2


async def test_retry_without_a_refused_field_counts_as_one_request() -> None:
    refusal = b'{"error": {"message": "Unknown field: stream_options"}}'
    found, answering = await counted(
        serve(lambda asked: build_answer(400, refusal) if b"stream_options" in asked.payload else WHOLE)
    )
    assert len(answering.upstreams[0].requests) == 2
    assert found.usage == [RequestUsage(TokenCounts(11, output=7))]


async def test_abandoned_call_is_counted_once() -> None:
    """While it waits for an answer, and behind that, unread."""
    found, never = Counted(), asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await never.wait()

    async with models(silent, FINE, **found.facts) as answering:
        asking = asyncio.create_task(answering.ask())
        await until(lambda: answering.asked == [1])
        asking.cancel()
        await asyncio.wait({asking})
        reply = await answering.core(exchange())
        await reply.release()
        await reply.release()
        asked = asked_tokens(answering)
        never.set()
    assert [(usage.tokens.input, usage.cut, usage.estimated) for usage in found.usage] == [(asked, True, True)] * 2


async def test_call_abandoned_before_sending_costs_nothing() -> None:
    """Another one has the only place of its endpoint."""
    found, rules = Counted(), GroupRules(queue=QueueRules(size=1, wait_s=60.0))
    async with models(FINE, most=1, rules=rules, **found.facts) as answering:
        first = await answering.core(exchange())
        asking = asyncio.create_task(answering.ask())
        await until(lambda: bool(answering.groups[0].queue))
        asking.cancel()
        await asyncio.wait({asking})
        assert found.usage == [RequestUsage(cut=True)]
        await first.release()


async def test_answer_with_a_failing_reader_is_recorded_as_cut() -> None:
    found = Counted()

    def emit(_: object) -> None:
        raise ConnectionError

    async with models(FINE, **found.facts) as answering:
        reply = await answering.core(exchange())
        with pytest.raises(ConnectionError):
            await reply.stream(emit)
    assert [(usage.cut, usage.estimated) for usage in found.usage] == [(True, True)]
