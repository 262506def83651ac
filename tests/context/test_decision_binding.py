"""A decision in a chat is on the call that its person was shown there, or is none."""

from collections.abc import AsyncIterator

import pytest

from gateway.context.decision_binding import is_for_shown_call, list_last_questions
from gateway.contracts.caller import Caller
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.check_word import generate_approval_id
from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.endorsements import get_check_word
from gateway.contracts.storage.journal import Approval
from gateway.contracts.storage.store import Json
from gateway.plugins.stores.sqlite import SqliteStore
from tests.plugins.stores.records import approval, parked

ANN = Caller("ann", "acme", frozenset(("context", "approve")))
ONE = approval(generate_approval_id())
TWO = approval(generate_approval_id(), step=2)
THEIRS = approval(generate_approval_id(), step=3, caller="eve")


def line(of: Approval) -> str:
    return f"approve {of.id} {get_check_word(of)}"


def assistant(content: object) -> Json:
    return {"role": "assistant", "content": content}


def test_last_questions_are_those_of_the_last_answer() -> None:
    """Messages of the user and of programs may follow it, and nothing else."""
    asks, said = assistant(line(ONE)), {"role": "user", "content": "approve"}
    system = {"role": "system", "content": "Agents: none."}
    assert list_last_questions([said, asks, said]) == list_last_questions([said, asks, said, system]) == (ONE.id,)
    assert list_last_questions([said, asks]) == list_last_questions([asks, {"role": "tool", "content": "x"}]) == ()


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(":memory:")
    await opened.open()
    yield opened
    await opened.close()


async def shown(store: SqliteStore, *answers: Json, word: str = "", conversation: str | None = None) -> bool:
    """Whether an approval of ONE counts behind these answers."""
    reply = ChatDecision(True, (ONE.id,), words=((ONE.id, word.lower()),) if word else ())
    messages = [{"role": "user", "content": "Hi"}, *answers, {"role": "user", "content": "approve"}]
    exchange = Exchange(id="run_2", body={"messages": messages}, caller=ANN, chain="main", conversation=conversation)
    return await is_for_shown_call(ONE, reply, exchange, store=store)


async def test_check_word_of_the_call_binds_the_decision(store: SqliteStore) -> None:
    """Whatever the request holds besides."""
    assert await shown(store, word=get_check_word(ONE))
    assert await shown(store, assistant("Hello"), word=get_check_word(ONE))


async def test_wrong_check_word_does_not_bind_the_decision(store: SqliteStore) -> None:
    """Nor does the history help then, nor a right word beside a wrong one."""
    assert not await shown(store, assistant(line(ONE)), word=get_check_word(TWO))
    reply = ChatDecision(True, (ONE.id,), words=((ONE.id, get_check_word(ONE)), (ONE.id, get_check_word(TWO))))
    exchange = Exchange(id="run_2", body={"messages": [assistant(line(ONE))]}, caller=ANN, chain="main")
    assert not await is_for_shown_call(ONE, reply, exchange, store=store)


@pytest.mark.parametrize(
    "content",
    [line(ONE), f"`{ONE.id}` {get_check_word(ONE)}", [{"type": "text", "text": line(ONE)}], line(ONE).lower()],
    ids=["line", "code", "parts", "lower case"],
)
async def test_approval_id_alone_binds_to_the_only_call_shown(store: SqliteStore, content: object) -> None:
    """By the last answer, with its word, which only the gateway can write."""
    assert await shown(store, assistant("Hello"), assistant(content))


@pytest.mark.parametrize(
    "answers",
    [
        ["Hello"],
        [f"approve {ONE.id}"],
        [f"approve {ONE.id} BCDFGH"],
        [line(ONE), line(TWO)],
        [line(TWO), line(ONE)],
        [f"{line(ONE)}\n{line(TWO)}"],
        [line(ONE), "This call waits for your approval: ls"],
        [line(ONE), f"approve {ONE.id}"],
        [None],
        [[None, {"text": 3}]],
    ],
)
async def test_approval_id_alone_is_insufficient_when_ambiguous(store: SqliteStore, answers: list[object]) -> None:
    """Two calls, a call that another answer stands behind, one that only a model wrote of."""
    assert not await shown(store, *map(assistant, answers))


async def test_decision_without_history_binds_to_the_only_pending_call(store: SqliteStore) -> None:
    """Of this caller, in this conversation."""
    await store.write(parked(approval_id=ONE.id, conversation="c1"))
    await store.write(parked("run_2", approval_id=THEIRS.id, caller="eve"))
    assert await shown(store) and await shown(store, conversation="c1")
    assert not await shown(store, conversation="c2")
    await store.write(parked("run_3", approval_id=TWO.id))
    assert not await shown(store)
