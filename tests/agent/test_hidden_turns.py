"""Hidden turns on a real store: put back where they were, for whoever they belong to, and nowhere else."""

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from gateway.agent.hidden_turns import HiddenTurns
from gateway.agent.progress import Progress
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.store import HiddenTurn, Json, StoreError
from gateway.dialects.usage import Usage
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.testing.clock import ManualClock
from tests.plugins.stores.records import run as stored
from tests.plugins.stores.records import step

from .doubles import Clock

CLOCK = Clock(ManualClock())
ANN = Caller("ann", "acme", frozenset(("context",)))
ASKED: Json = {"role": "user", "content": "Hi"}
RUN = Exchange(id="run_1", body={"messages": [ASKED]}, caller=ANN, chain="main")
DONE: Json = {"role": "assistant", "content": "Done."}
MAY: Json = {"role": "assistant", "content": "May I?"}
APPROVE: Json = {"role": "user", "content": "approve ap_1"}
AND: Json = {"role": "user", "content": "And?"}
FIRST: list[Json] = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "x"}]
SECOND: list[Json] = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "y"}]
CALL: Json = {"index": 0, "id": "call_0123456789abcdef01234567", "type": "function"}
CALL["function"] = {"name": "look", "arguments": '{"at":1}'}


class Watched(SqliteStore):
    """A store that notes what it was asked for; `broken`: it can do nothing."""

    broken = False
    looked = 0

    async def put_hidden(
        self, turn: HiddenTurn, *, key: str, own_keys: Sequence[str], tenant: str, now_s: float
    ) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        await super().put_hidden(turn, key=key, own_keys=own_keys, tenant=tenant, now_s=now_s)

    async def hidden(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn]:
        self.looked += 1
        if self.broken:
            raise StoreError("the disk is gone")
        return await super().hidden(keys, tenant=tenant)


def turns(store: SqliteStore, run: Exchange, said: str = "", *, tainted: bool = False) -> HiddenTurns:
    """Those of a run that has said this."""
    progress = Progress(Usage(), said=[said], read_tainted=tainted)
    return HiddenTurns(run, progress, store=store, clock=CLOCK)


async def conversation(store: SqliteStore, *messages: Json, whose: Exchange = RUN) -> list[Json]:
    """Return the conversation that a model gets for these messages."""
    return await turns(store, replace(whose, body={"messages": list(messages)})).conversation()


def going_on(*messages: Json) -> Exchange:
    """The run in a request that brings these messages."""
    return replace(RUN, resume=Resume(stored("run_1"), messages))


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    made = Watched(":memory:")
    await made.open()
    await turns(made, RUN, "Done.").store(FIRST, ())
    yield made
    await made.close()


async def test_what_was_hidden_stands_in_front_of_its_answer(store: Watched) -> None:
    """Once for each answer that is known, in whatever conversation goes on from there."""
    whole = await conversation(store, ASKED, DONE, AND)
    assert whole == [ASKED, *FIRST, DONE, AND] and store.looked == 1
    system: Json = {"role": "system", "content": "Be terse."}
    assert await conversation(store, system, ASKED, DONE, AND) == [system, *whole]
    again: Json = {"role": "assistant", "content": "Unknown."}
    assert await conversation(store, ASKED, DONE, AND, again) == [*whole, again]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Ho"}, DONE],
        [ASKED, {**DONE, "content": "Done!"}],
        [ASKED, ASKED, DONE],
        [DONE],
        [ASKED, {**DONE, "tool_calls": [CALL]}],
    ],
)
async def test_another_conversation_has_nothing_hidden(store: Watched, messages: list[Json]) -> None:
    """One that was edited is another one."""
    assert await conversation(store, *messages) == messages


async def test_a_conversation_is_its_callers(store: Watched) -> None:
    """Another key or tenant that sends the same words, ids or name gets nothing of it."""
    named = replace(RUN, id="run_2", conversation="talk")
    await turns(store, named).store(SECOND, (CALL,))
    called: Json = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert await conversation(store, AND, ASKED, called, whose=named) == [AND, ASKED, *SECOND, called]
    for caller in (replace(ANN, name="bob"), replace(ANN, tenant="other")):
        assert await conversation(store, ASKED, DONE, whose=replace(RUN, caller=caller)) == [ASKED, DONE]
        assert await conversation(store, ASKED, called, whose=replace(named, caller=caller)) == [ASKED, called]


async def test_a_conversation_without_answers_asks_nobody(store: Watched) -> None:
    """The first request of each."""
    assert await turns(store, RUN).conversation() is RUN.body["messages"] and store.looked == 0


async def test_a_store_that_fails_costs_only_what_was_hidden(store: Watched) -> None:
    """The turn is over, and the next one goes on without."""
    store.broken = True
    assert await conversation(store, ASKED, DONE) == [ASKED, DONE]
    other: Json = {**DONE, "content": "Other."}
    await turns(store, RUN, "Other.").store(FIRST, ())
    store.broken = False
    assert await conversation(store, ASKED, other) == [ASKED, other]


async def test_what_came_before_a_clients_own_call_is_known_by_its_id(store: Watched) -> None:
    """Also where the client writes the call and what came before it in other words; twice the same means nobody's."""
    await turns(store, replace(RUN, id="run_2")).store(SECOND, (CALL,))
    function = {"name": "look", "arguments": '{"at": 1.0, "depth": null}'}
    called: Json = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "function": function}]}
    summary: Json = {"role": "user", "content": "Summary: hi."}
    assert await conversation(store, summary, called) == [summary, *SECOND, called]
    elsewhere = replace(RUN, id="run_3", body={"messages": [AND]})
    await turns(store, elsewhere).store(FIRST, (CALL,))
    assert await conversation(store, summary, called) == [summary, called]
    called["tool_calls"] = [CALL]
    assert await conversation(store, AND, called) == [AND, *FIRST, called]


async def test_what_a_stranger_wrote_taints_whoever_reads_it(store: Watched) -> None:
    """The run that gets it in front of its model, and no other."""
    other: Json = {**DONE, "content": "Other."}
    await turns(store, RUN, "Other.", tainted=True).store(SECOND, ())
    for answer, expected in ((other, True), (DONE, False)):
        progress = Progress(Usage())
        run = replace(RUN, body={"messages": [ASKED, answer]})
        await HiddenTurns(run, progress, store=store, clock=CLOCK).conversation()
        assert progress.tainted is expected


async def test_what_a_turn_led_to_after_its_end_stands_in_the_place_of_its_question(store: Watched) -> None:
    """No two answers follow each other; what came before the question stands in front of it, as soon as it is asked."""
    run = turns(store, RUN, "May I?")
    await run.park(FIRST)
    assert await conversation(store, ASKED, MAY, AND) == [ASKED, *FIRST, MAY, AND]
    run._progress.said = ["It is done."]
    await run.store([*FIRST, *SECOND], ())
    told: Json = {"role": "assistant", "content": "It is done."}
    assert await conversation(store, ASKED, MAY, AND) == [ASKED, *FIRST, *SECOND, told, AND]
    # Whoever repeats the request gets the answer itself.
    assert await conversation(store, ASKED, told, AND) == [ASKED, *FIRST, *SECOND, told, AND]


async def test_a_workflow_that_goes_on_by_itself_is_known_by_what_it_said(store: Watched) -> None:
    """No model was asked, so nothing else was hidden."""
    run = turns(store, RUN, "May I?")
    await run.park([])
    run._progress.said = ["It is done."]
    await run.store([], ())
    told: Json = {"role": "assistant", "content": "It is done."}
    assert await conversation(store, ASKED, MAY, AND) == [ASKED, told, AND]


@pytest.mark.parametrize("with_history", [True, False])
async def test_what_is_decided_in_the_conversation_stands_once(store: Watched, with_history: bool) -> None:
    """What came before the question stays in front of it, unless the client sends no history."""
    asked = turns(store, RUN, "May I?")
    await asked.park(FIRST)
    history = [ASKED, MAY] if with_history else []
    run = turns(store, going_on(*history, APPROVE), "May I?")
    run._progress.question, run._progress.kept = asked._progress.question, asked._progress.kept
    assert run.retold() == ""
    run._progress.said = ["Done."]
    await run.store([*FIRST, *SECOND], ())
    expected = [ASKED, *FIRST, MAY, APPROVE, *SECOND] if with_history else [APPROVE, *FIRST, *SECOND]
    assert await conversation(store, *history, APPROVE, DONE, AND) == [*expected, DONE, AND]


async def test_only_a_turn_that_had_not_ended_is_told_again(store: Watched) -> None:
    """A request that brings messages of its own begins a turn of its own."""
    run = turns(store, RUN, "So far.")
    assert run.retold() == "So far."
    await run.park([])
    assert run.retold() == "" and run._progress.said == []


class Noting(dict[str, object]):
    """A message that notes which threads ask it for its calls, which only its meaning needs."""

    threads: set[int]

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        if key == "tool_calls":
            self.threads.add(threading.get_ident())
        return super().get(key, default)


@pytest.mark.parametrize(
    ("content", "is_here"),
    [
        ("x" * 1000, True),
        ("x" * (1 << 20), False),
        ([{"type": "text", "text": "x" * (1 << 20)}], False),
        ([{"type": "text", "text": "x"}] * 10_000, False),
        (None, True),
    ],
)
async def test_the_keys_of_long_messages_leave_the_event_loop_to_others(
    store: Watched, content: object, *, is_here: bool
) -> None:
    """Few but long ones, too: a megabyte takes five milliseconds."""
    message = Noting(role="assistant", content=content)
    message.threads = set()
    assert await conversation(store, ASKED, message) == [ASKED, message]
    assert message.threads == {threading.get_ident()} if is_here else threading.get_ident() not in message.threads


async def test_calls_that_are_shown_are_marked_by_their_ids(store: Watched) -> None:
    """Nothing else of their run is stored; of a long answer the first call stands for those that are not looked up."""
    shown = replace(RUN, id="run_2", shows_calls=True)
    steps = [replace(step(number), call_id=f"call_{number:02}0123456789abcdef0123") for number in range(20)]
    hidden = turns(store, shown, tainted=True)
    await hidden.park(FIRST, steps=steps)
    await hidden.store(FIRST, [CALL])
    await hidden.mark_calls([3, 17], steps)

    async def is_tainted(*call_ids: str) -> bool:
        calls = [{**CALL, "id": call_id} for call_id in call_ids]
        messages = [{"role": "assistant", "content": None, "tool_calls": calls}, AND]
        progress = Progress(Usage())
        asked = replace(RUN, id="run_3", body={"messages": messages})
        assert await HiddenTurns(asked, progress, store=store, clock=CLOCK).conversation() == messages
        return progress.read_tainted

    assert [await is_tainted(steps[number].call_id) for number in (0, 3, 4, 17)] == [True, True, False, True]
    assert await is_tainted(CALL["id"]), "the client's own call of the same answer"
