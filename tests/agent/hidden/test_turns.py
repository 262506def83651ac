"""Hidden turns on a real store: put back where they were, for whoever they belong to, and nowhere else."""

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from gateway.agent.hidden.turns import NO_NAME, HiddenTurns
from gateway.agent.progress import RunProgress
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.storage.store import HiddenTurn, Json, StoreError
from gateway.dialects.usage import TurnUsage
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock, samples
from tests.plugins.stores.records import run as stored

CLOCK = Clock(ManualClock())
ANN = Caller("ann", "acme", frozenset(("context",)))
ASKED: Json = {"role": "user", "content": "Hi"}
RUN = Exchange(id="run_1", body={"messages": [ASKED]}, caller=ANN, chain="main", user="ann")
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
    looked = put = 0

    async def put_hidden(self, turn: HiddenTurn, *, keys: Sequence[str], tenant: str, now_s: float) -> None:
        self.put += 1
        if self.broken:
            raise StoreError("the disk is full")
        await super().put_hidden(turn, keys=keys, tenant=tenant, now_s=now_s)

    async def find_hidden_turns(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, HiddenTurn | None]:
        self.looked += 1
        if self.broken:
            raise StoreError("the disk is gone")
        return await super().find_hidden_turns(keys, tenant=tenant)


def turns(store: SqliteStore, run: Exchange, said: str = "", *, tainted: bool = False) -> HiddenTurns:
    """Those of a run that has said this."""
    progress = RunProgress(TurnUsage(), said=[said], read_tainted=tainted)
    return HiddenTurns(run, progress, store=store, clock=CLOCK, counters=ContextCounters())


async def conversation(store: SqliteStore, *messages: Json, whose: Exchange = RUN) -> list[Json]:
    """Return the conversation that a model gets for these messages."""
    return await turns(store, replace(whose, body={"messages": list(messages)})).build_conversation()


def going_on(*messages: Json) -> Exchange:
    """The run in a request that brings these messages."""
    return replace(RUN, execution=replace(RUN.execution, resume=Resume(stored("run_1"), messages)))


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    made = Watched(":memory:")
    await made.open()
    await turns(made, RUN, "Done.").store(FIRST, ())
    yield made
    await made.close()


async def test_hidden_turn_is_restored_before_its_answer(store: Watched) -> None:
    """Once for each answer that is known, in whatever conversation of the user's goes on from there."""
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
async def test_other_conversation_restores_no_hidden_turn(store: Watched, messages: list[Json]) -> None:
    """One that was edited is another one."""
    assert await conversation(store, *messages) == messages


async def test_hidden_turn_is_scoped_to_its_caller(store: Watched) -> None:
    """Another key or tenant that sends the same words, ids or name gets nothing of it."""
    named = replace(RUN, id="run_2", conversation="talk")
    await turns(store, named).store(SECOND, (CALL,))
    called: Json = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert await conversation(store, AND, ASKED, called, whose=named) == [AND, ASKED, *SECOND, called]
    for caller in (replace(ANN, name="bob"), replace(ANN, tenant="other")):
        assert await conversation(store, ASKED, DONE, whose=replace(RUN, caller=caller)) == [ASKED, DONE]
        assert await conversation(store, ASKED, called, whose=replace(named, caller=caller)) == [ASKED, called]


@pytest.mark.parametrize(
    "whose",
    [
        replace(RUN, user="bob"),
        replace(RUN, user=None),
        replace(RUN, conversation="talk"),
        replace(RUN, user="bob", conversation="talk"),
        replace(RUN, user=None, conversation="talk"),
    ],
)
async def test_hidden_turn_is_scoped_to_its_user_and_conversation(store: Watched, whose: Exchange) -> None:
    """Nor does the id of a call that another person was given."""
    await turns(store, replace(RUN, id="run_2", conversation="walk")).store(SECOND, (CALL,))
    called: Json = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    for messages in ([ASKED, DONE, AND], [ASKED, called, AND]):
        assert await conversation(store, *messages, whose=whose) == messages
        assert len(await conversation(store, *messages, whose=replace(RUN, conversation=None))) > len(messages)


async def test_hidden_turn_without_names_is_found_only_by_ids(store: Watched) -> None:
    """A turn without an id is counted as lost, and the store writes nothing of it."""
    unnamed = turns(store, replace(RUN, user=None), "Done.")
    n_put = store.put
    await unnamed.store(SECOND, ())
    await unnamed.store((), (CALL,))
    assert store.put == n_put and samples(unnamed._counters) == {COUNT_UNNAMED: 1.0}
    assert await conversation(store, ASKED, DONE, whose=replace(RUN, user=None)) == [ASKED, DONE]


COUNT_UNNAMED = ("gateway_hidden_turns_total", ("unnamed",))


@pytest.mark.parametrize("second", [SECOND, []])
@pytest.mark.parametrize("name", [None, "talk"])
async def test_repeated_answer_makes_hidden_turns_ambiguous(
    store: Watched, second: list[Json], name: str | None
) -> None:
    """Whether the second turn hid something or not: none of them is put back, and both are told apart by ids."""
    run = replace(RUN, id="run_2", conversation=name)
    again = replace(run, id="run_3")
    other: Json = {**DONE, "content": "Other."}
    await turns(store, run, "Other.").store(FIRST, ())
    assert await conversation(store, ASKED, other, whose=run) == [ASKED, *FIRST, other]
    await turns(store, again, "Other.").store(second, ())
    await turns(store, again, "Other.").store(second, ())
    looking = turns(store, replace(run, body={"messages": [ASKED, other]}))
    assert await looking.build_conversation() == [ASKED, other]
    assert samples(looking._counters) == {("gateway_hidden_turns_total", ("ambiguous",)): 1.0}


async def test_plain_answer_counts_toward_hidden_turn_ambiguity(store: Watched) -> None:
    """Its client has all of it, and the same words of another turn are ambiguous."""
    plain = turns(store, replace(RUN, id="run_2"))
    plain.marks.told.add("Do")
    plain.marks.told.add({"choices": [{"delta": {"content": "ne."}}]})
    await plain.store_plain()
    assert await conversation(store, ASKED, DONE, AND) == [ASKED, DONE, AND]


async def test_hidden_turn_of_a_response_is_found_by_its_id(store: Watched) -> None:
    """In a request without a name, whatever its items say; the answer to a question has none of its own."""
    run = replace(RUN, id="run_2", user=None, delivery=replace(RUN.delivery, answer_id="run_2"))
    await turns(store, run, "Well.").store(SECOND, ())
    named = replace(run, origin=replace(run.origin, answer_ids=("run_2",)))
    assert await conversation(store, AND, DONE, whose=named) == [AND, *SECOND, DONE]
    assert await conversation(store, AND, DONE, whose=replace(named, user="bob")) == [AND, DONE]
    asking = turns(store, replace(run, id="run_3", delivery=replace(run.delivery, answer_id="run_3")), "May I?")
    await asking.park(FIRST)
    asking._progress.said = ["It is done."]
    await asking.store([*FIRST, *SECOND], ())
    told: Json = {"role": "assistant", "content": "It is done."}
    asked = replace(run, origin=replace(run.origin, answer_ids=("run_3",)))
    assert await conversation(store, ASKED, MAY, AND, whose=asked) == [ASKED, *FIRST, *SECOND, told, AND]


async def test_hidden_turn_of_a_question_is_found_by_its_approval(store: Watched) -> None:
    """In a request without a name, too."""
    question: Json = {"role": "assistant", "content": f"May I? `approve ap_{'a2' * 13} word`"}
    run = replace(RUN, id="run_2", user=None)
    await turns(store, run, question["content"]).park(FIRST)
    summary: Json = {"role": "user", "content": "Summary: hi."}
    assert await conversation(store, summary, question, whose=run) == [summary, *FIRST, question]
    assert await conversation(store, summary, question, whose=replace(run, user="bob")) == [summary, question]


async def test_dry_run_explains_restored_hidden_turns(store: Watched) -> None:
    """And what is not, and why."""
    dry = replace(RUN, dry=True, body={"messages": [ASKED, DONE]})
    explained = turns(store, dry)
    await explained.build_conversation()
    assert explained.remarks == ("hidden turns: 1 put back",) and samples(explained._counters) == {}
    unnamed = turns(store, replace(dry, user=None))
    await unnamed.build_conversation()
    assert unnamed.remarks == ("hidden turns: 0 put back", NO_NAME)
    await turns(store, replace(RUN, id="run_2"), "Done.").store((), ())
    ambiguous = turns(store, dry)
    await ambiguous.build_conversation()
    assert "1 answers could be of two turns" in ambiguous.remarks[1]


async def test_conversation_without_answers_does_not_read_the_store(store: Watched) -> None:
    """The first request of each."""
    assert await turns(store, RUN).build_conversation() is RUN.body["messages"] and store.looked == 0


async def test_failing_store_loses_only_hidden_turns(store: Watched) -> None:
    """The turn is over, and the next one goes on without."""
    store.broken = True
    assert await conversation(store, ASKED, DONE) == [ASKED, DONE]
    other: Json = {**DONE, "content": "Other."}
    await turns(store, RUN, "Other.").store(FIRST, ())
    store.broken = False
    assert await conversation(store, ASKED, other) == [ASKED, other]


async def test_hidden_turn_before_a_client_call_is_found_by_call_id(store: Watched) -> None:
    """Also where the client writes the call and what came before it in other words; twice the same means none's."""
    unnamed = replace(RUN, id="run_2", user=None)
    await turns(store, unnamed).store(SECOND, (CALL,))
    function = {"name": "look", "arguments": '{"at": 1.0, "depth": null}'}
    called: Json = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "function": function}]}
    summary: Json = {"role": "user", "content": "Summary: hi."}
    assert await conversation(store, summary, called, whose=unnamed) == [summary, *SECOND, called]
    elsewhere = replace(unnamed, id="run_3", body={"messages": [AND]})
    await turns(store, elsewhere).store(FIRST, (CALL,))
    assert await conversation(store, summary, called, whose=unnamed) == [summary, called]
    called["tool_calls"] = [CALL]
    assert await conversation(store, AND, called, whose=unnamed) == [AND, called]


async def test_tainted_hidden_turn_taints_only_the_run_that_reads_it(store: Watched) -> None:
    """The run that gets it in front of its model, and no other."""
    other: Json = {**DONE, "content": "Other."}
    await turns(store, replace(RUN, id="run_2"), "Other.", tainted=True).store(SECOND, ())
    for answer, expected in ((other, True), (DONE, False)):
        progress = RunProgress(TurnUsage())
        run = replace(RUN, body={"messages": [ASKED, answer]})
        await HiddenTurns(run, progress, store=store, clock=CLOCK, counters=ContextCounters()).build_conversation()
        assert progress.is_tainted is expected


async def test_hidden_turn_after_a_decision_replaces_its_question(store: Watched) -> None:
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


async def test_resumed_workflow_turn_is_found_by_its_answer(store: Watched) -> None:
    """No model was asked, so nothing else was hidden."""
    run = turns(store, RUN, "May I?")
    await run.park([])
    run._progress.said = ["It is done."]
    await run.store([], ())
    told: Json = {"role": "assistant", "content": "It is done."}
    assert await conversation(store, ASKED, MAY, AND) == [ASKED, told, AND]


@pytest.mark.parametrize("with_history", [True, False])
async def test_hidden_turn_of_a_decision_in_chat_is_restored_once(store: Watched, with_history: bool) -> None:
    """What came before the question stays in front of it, unless the client sends no history."""
    asked = turns(store, RUN, "May I?")
    await asked.park(FIRST)
    history = [ASKED, MAY] if with_history else []
    run = turns(store, going_on(*history, APPROVE), "May I?")
    run._progress.question, run._progress.kept = asked._progress.question, asked._progress.kept
    assert run.find_replay_text() == ""
    run._progress.said = ["Done."]
    await run.store([*FIRST, *SECOND], ())
    expected = [ASKED, *FIRST, MAY, APPROVE, *SECOND] if with_history else [APPROVE, *FIRST, *SECOND]
    assert await conversation(store, *history, APPROVE, DONE, AND) == [*expected, DONE, AND]


async def test_parked_turn_is_not_retold(store: Watched) -> None:
    """A request that brings messages of its own begins a turn of its own."""
    run = turns(store, RUN, "So far.")
    assert run.find_replay_text() == "So far."
    await run.park([])
    assert run.find_replay_text() == "" and run._progress.said == []


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
async def test_keys_of_long_messages_are_computed_in_a_thread(
    store: Watched, content: object, *, is_here: bool
) -> None:
    """Few but long ones, too: a megabyte takes five milliseconds."""
    message = Noting(role="assistant", content=content)
    message.threads = set()
    assert await conversation(store, ASKED, message) == [ASKED, message]
    assert message.threads == {threading.get_ident()} if is_here else threading.get_ident() not in message.threads
