"""Hidden turns on a real store: put back where they were, for whoever they belong to, and nowhere else."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from gateway.contracts import Caller, Exchange, Json
from gateway.pipeline.hidden import keep, prefix_of, remembered, retold
from gateway.pipeline.resume import Progress
from gateway.pipeline.usage import Usage
from gateway.store import HiddenTurn, StoreError
from gateway.testing.clock import ManualClock
from plugins.stores.sqlite import SqliteStore

from .doubles import Clock

CLOCK = Clock(ManualClock())
ANN = Caller("ann", "acme", frozenset(("context",)))
ASKED: Json = {"role": "user", "content": "Hi"}
RUN = Exchange(id="run_1", body={"messages": [ASKED]}, caller=ANN, chain="main")
DONE: Json = {"role": "assistant", "content": "Done."}
TURNS: list[Json] = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "x"}]


def progress(said: str = "Done.", *, prefix: str | None = None) -> Progress:
    return Progress(Usage(), said=[said], prefix=prefix)


class Watched(SqliteStore):
    """A store that notes what it was asked for; `broken`: it can do nothing."""

    broken = False
    looked = 0

    async def put_hidden(
        self, prefix: str, messages: Sequence[Json], *, tenant: str, now_s: float, tainted: bool
    ) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        await super().put_hidden(prefix, messages, tenant=tenant, now_s=now_s, tainted=tainted)

    async def hidden(self, prefixes: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn]:
        self.looked += 1
        if self.broken:
            raise StoreError("the disk is gone")
        return await super().hidden(prefixes, tenant=tenant)


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    made = Watched(":memory:")
    await made.open()
    await keep(TURNS, (), progress=progress(), run=RUN, store=made, clock=CLOCK)
    yield made
    await made.close()


async def test_what_was_hidden_stands_in_front_of_its_answer(store: Watched) -> None:
    """Once for each answer that is known, in whatever conversation goes on from there."""
    later: list[Json] = [ASKED, DONE, {"role": "user", "content": "And?"}]
    whole = (await remembered(later, caller=ANN, store=store)).messages
    assert whole == [ASKED, *TURNS, DONE, later[2]] and store.looked == 1
    with_system: list[Json] = [{"role": "system", "content": "Be terse."}, *later]
    assert (await remembered(with_system, caller=ANN, store=store)).messages == [with_system[0], *whole]
    again = [*later, {"role": "assistant", "content": "Unknown."}]
    assert (await remembered(again, caller=ANN, store=store)).messages == [*whole, again[3]]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Ho"}, DONE],
        [ASKED, {**DONE, "content": "Done!"}],
        [ASKED, ASKED, DONE],
        [DONE],
        [
            ASKED,
            {**DONE, "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        ],
    ],
)
async def test_another_conversation_has_nothing_hidden(store: Watched, messages: list[Json]) -> None:
    """One that was edited is another one."""
    assert (await remembered(messages, caller=ANN, store=store)).messages == messages


async def test_a_conversation_is_its_callers(store: Watched) -> None:
    """Another key or tenant that sends the same words gets nothing of it."""
    for caller in (replace(ANN, name="bob"), replace(ANN, tenant="other")):
        assert (await remembered([ASKED, DONE], caller=caller, store=store)).messages == [ASKED, DONE]


async def test_a_conversation_without_answers_asks_nobody(store: Watched) -> None:
    """The first request of each."""
    messages = [ASKED]
    assert (await remembered(messages, caller=ANN, store=store)).messages is messages and store.looked == 0


async def test_a_store_that_fails_costs_only_what_was_hidden(store: Watched) -> None:
    """The turn is over, and the next one goes on without."""
    store.broken = True
    assert (await remembered([ASKED, DONE], caller=ANN, store=store)).messages == [ASKED, DONE]
    await keep(TURNS, (), progress=progress("Other."), run=RUN, store=store, clock=CLOCK)
    store.broken = False
    later = [ASKED, {**DONE, "content": "Other."}]
    assert (await remembered(later, caller=ANN, store=store)).messages == later


async def test_what_a_turn_led_to_after_its_end_is_hidden_too(store: Watched) -> None:
    """The client saw the question of an approval; what came of it stands behind that, also where no model was asked."""
    asked = progress("May I?")
    ended = progress("It is done.", prefix=prefix_of((), progress=asked, run=RUN))
    await keep((), (), progress=ended, run=RUN, store=store, clock=CLOCK)
    may: Json = {**DONE, "content": "May I?"}
    told = {"role": "assistant", "content": "It is done."}
    assert (await remembered([ASKED, may], caller=ANN, store=store)).messages == [ASKED, told, may]


async def test_only_a_turn_that_had_not_ended_is_told_again() -> None:
    """A request that brings messages of its own begins a turn of its own."""
    assert retold(progress("So far."), RUN) == "So far."
    ended = progress("So far.", prefix="p")
    assert (retold(ended, RUN), ended.said, ended.prefix) == ("", [], "p")
