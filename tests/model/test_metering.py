"""Tokens of model calls: what the model says, or an estimate; also of answers that break off."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import AnsweredBy, Chunk, Emit, Exchange, Handler, Pause, Reply
from gateway.errors import GatewayError
from gateway.model.answering import By
from gateway.model.metering import metered
from gateway.telemetry.counters import ContextCounters
from gateway.usage.tokens import Tokens, Usage
from tests.agent.doubles import samples

ASKED = [{"role": "user", "content": "x" * 25}]  # 53 bytes as JSON: 14 tokens
EXCHANGE = Exchange(id="run_1", body={"messages": ASKED}, caller=Caller("ci", "acme", frozenset()), chain="c")


def answers(
    chunks: Sequence[Chunk], *, by: AnsweredBy | None = None, fails: bool = False, refused: bool = False
) -> Handler:
    """A model that answers with these chunks, and then breaks off if it `fails`; or that does not answer."""

    async def stream(emit: Emit) -> None:
        for chunk in chunks:
            emit(chunk)
        if fails:
            raise ConnectionError

    async def release() -> None:
        pass

    async def core(_: Exchange) -> Reply:
        if refused:
            raise GatewayError("upstream_error", "no")
        return Reply(stream, release, by=by)

    return core


async def spent(chunks: Sequence[Chunk], *, fails: bool = False) -> tuple[dict[str, float], list[Chunk]]:
    """What is counted by type for an answer of these chunks, and what is handed on of it."""
    counters, told = ContextCounters(), list[Chunk]()

    def emit(chunk: Chunk) -> Pause | None:
        told.append(chunk)
        return None

    reply = await metered(answers(chunks, fails=fails), counters)(EXCHANGE)
    try:
        await reply.stream(emit)
    except ConnectionError:
        assert fails
    counted = samples(counters)
    assert all(name == "gateway_tokens_total" and labels[0] == "ci" for name, labels in counted)
    return {labels[1]: value for (_, labels), value in counted.items()}, told


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 11, "completion_tokens": 7}, {"prompt": 11, "completion": 7}),
        ({"prompt_tokens": 11, "completion_tokens": 0}, {"prompt": 11}),
        ({"prompt_tokens": "11", "completion_tokens": -1}, {}),
        ({"prompt_tokens": 1.5, "completion_tokens": 10**300}, {}),
        ({}, {}),
    ],
)
async def test_the_last_word_of_the_model_counts(usage: object, counted: dict[str, float]) -> None:
    """However wild it is; the answer goes on as it came."""
    chunks: list[Chunk] = ["Hi", {"choices": [], "usage": {"prompt_tokens": 1}}, {"choices": [], "usage": usage}]
    assert await spent(chunks) == (counted, chunks)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_model_does_not_say_is_estimated(fails: bool) -> None:
    """Also of an answer that broke off: what came was paid for."""
    assert (await spent(["Hello ", "there"], fails=fails))[0] == {"prompt": 14, "completion": 3}


async def test_an_answer_that_never_began_costs_nothing() -> None:
    """Nobody knows whether the model read anything."""
    assert (await spent([], fails=True))[0] == {}


WHO = ("ci", "acme", "m-1", "openai", "context")
TOLD: Chunk = {"model": "m-1", "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}


async def recorded_of(
    chunks: Sequence[Chunk], *, by: AnsweredBy | None = None, fails: bool = False, refused: bool = False
) -> list[tuple[object, ...]]:
    """What the ledger hears of one call."""
    heard: list[tuple[object, ...]] = []
    core = answers(chunks, by=by, fails=fails, refused=refused)
    with suppress(ConnectionError, GatewayError):
        reply = await metered(core, ContextCounters(), lambda *facts: heard.append(facts))(EXCHANGE)
        await reply.stream(lambda _: None)
    return heard


async def test_the_ledger_hears_of_each_call_once() -> None:
    """Who answered, with the model that the answer names, or the one that was asked."""
    by = By("openai", "a", "m-asked")
    assert await recorded_of(["Hi", TOLD], by=by) == [(Usage(Tokens(11, 0, 0, 7)), *WHO)]
    asked = await recorded_of([{"choices": [], "usage": {"prompt_tokens": 1}}], by=by)
    assert asked == [(Usage(Tokens(1)), "ci", "acme", "m-asked", "openai", "context")]
    assert await recorded_of(["Hello ", "there"]) == [
        (Usage(Tokens(14, 0, 0, 3), estimated=True), "ci", "acme", "", "", "context")
    ]


async def test_the_ledger_hears_of_calls_that_fail() -> None:
    """One that broke off is cut, and one that nobody answered is rejected."""
    ((usage, *_),) = await recorded_of(["Hello ", "there"], fails=True)
    assert usage == Usage(Tokens(14, 0, 0, 3), cut=True, estimated=True)
    ((usage, *_),) = await recorded_of(["Hi", TOLD], fails=True)
    assert usage == Usage(Tokens(11, 0, 0, 7), cut=True)
    assert await recorded_of([], refused=True) == [(Usage(rejected=True), "ci", "acme", "", "", "context")]
