"""Every client library, as it is, while a person approves or rejects what the model wants."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.ask import Ask, Client
from tests.clients.breaking import breaking
from tests.clients.lane import Lane
from tests.clients.libraries import Libraries
from tests.clients.person import (
    DONE,
    HOLD,
    PATIENCE_S,
    REJECTED,
    TURN,
    asked_about,
    asking,
    behind_question,
    decide,
    ended,
    insertion,
    line,
    pending,
    person,
)
from tests.clients.provider import Provider
from tests.clients.test_context import LLM, RETRYING, clients

pytestmark = pytest.mark.clients

#: What the client bears of silence, and how long a stream is held where that is to end.
TIMEOUT_S, INLINE_WAIT_S = 0.5, 0.3


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    with Libraries() as libraries:
        yield libraries


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("tools")) as lane:
        yield lane


@pytest.fixture(scope="module")
def brief_lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its streams are held for a moment."""
    with asking(provider, tmp_path_factory.mktemp("brief"), inline_wait_s=INLINE_WAIT_S) as lane:
        yield lane


@clients(but=[LLM])
def test_held_stream_continues_after_approval(client: Client, lane: Lane, client_id: str) -> None:
    """Decided by REST meanwhile: the client sees the question, and then the answer."""
    with person(lane, client_id, "approve"):
        text = client(Ask(root=lane.root, prompt=insertion(client_id), stream=True, headers=HOLD)).text
    assert behind_question(text) == DONE
    ended(lane, client_id, "approve")


@clients(but=[LLM])
def test_held_stream_ends_after_rejection(client: Client, lane: Lane, client_id: str) -> None:
    """It ends like any other, with a text that says so behind the question."""
    with person(lane, client_id, "reject"):
        text = client(Ask(root=lane.root, prompt=insertion(client_id), stream=True, headers=HOLD)).text
    assert behind_question(text) == REJECTED
    ended(lane, client_id, "reject")


@clients(but=[LLM])
def test_held_answer_continues_after_approval(client: Client, lane: Lane, client_id: str) -> None:
    """One that is no stream, where the client asks for it."""
    with person(lane, client_id, "approve"):
        text = client(Ask(root=lane.root, prompt=insertion(client_id), headers=HOLD)).text
    assert behind_question(text) == DONE
    ended(lane, client_id, "approve")


@pytest.mark.cell("approve")
@clients(but=[LLM])
def test_next_message_approves_a_pending_call(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """The answer says what would run and what to send; sent twice, it runs once."""
    text = client(Ask(root=lane.root, prompt=insertion(client_id), stream=stream, headers=TURN)).text
    approval = pending(lane, client_id)
    assert approval["arguments"]["sql"] in text and f"\n{line(approval)}\n" in text
    reply = Ask(root=lane.root, prompt=line(approval), stream=stream)
    for _ in range(2):
        assert client(reply).text == DONE
        ended(lane, client_id, "approve")


@pytest.mark.cell("reject")
@clients(but=[LLM])
def test_next_message_rejects_a_pending_call(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """With a reason, which comes back."""
    assert client(Ask(root=lane.root, prompt=insertion(client_id), stream=stream, headers=TURN)).text
    reply = f"{line(pending(lane, client_id), 'reject')}: Not today"
    assert client(Ask(root=lane.root, prompt=reply, stream=stream)).text == REJECTED
    ended(lane, client_id, "reject")


@clients(but=[LLM])
def test_held_stream_becomes_a_turn_after_the_hold_limit(client: Client, brief_lane: Lane, client_id: str) -> None:
    """Its text says what to send."""
    text = client(Ask(root=brief_lane.root, prompt=insertion(client_id), stream=True, headers=HOLD)).text
    approval = pending(brief_lane, client_id)
    assert f"\n{line(approval)}\n" in text
    assert client(Ask(root=brief_lane.root, prompt=line(approval), stream=True)).text == DONE
    ended(brief_lane, client_id, "approve")


@clients(["python openai", "python langchain-openai async", "instructor text"])
def test_keepalives_keep_a_held_stream_open(client: Client, lane: Lane, client_id: str) -> None:
    """For longer than the client bears silence."""
    ask = Ask(root=lane.root, prompt=insertion(client_id), stream=True, timeout_s=TIMEOUT_S, headers=HOLD)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client, ask)
        pending(lane, client_id)
        threading.Event().wait(2 * TIMEOUT_S)
        decide(lane, client_id, "approve")
        assert behind_question(answer.result().text) == DONE
    ended(lane, client_id, "approve")


@clients(RETRYING)
def test_client_retry_does_not_request_a_second_approval(client: Client, lane: Lane, client_id: str) -> None:
    """The connection breaks, and a person decides while nobody is there: the client comes back to what became of it."""
    broken = threading.Event()

    def breaks() -> bool:
        if asked_about(lane, client_id):
            broken.set()
        return broken.is_set()

    with breaking(lane.root, when=breaks) as root, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client, Ask(root=root, prompt=insertion(client_id), headers=HOLD, retries=2))
        assert broken.wait(PATIENCE_S)
        decide(lane, client_id, "approve")
        said = answer.result().text  # with the question that waits, if the client is back before the decision
        assert said == DONE or behind_question(said) == DONE
    ended(lane, client_id, "approve")


@pytest.mark.parametrize("client", ["instructor rows"], indirect=True)
def test_instructor_gets_an_object_from_a_held_answer(client: Client, stream: bool, lane: Lane, client_id: str) -> None:
    """The text of a turn is no object, so it fails; a held answer has one."""
    returning = f'{insertion(client_id)[:-2]} RETURNING name"}}'
    if not stream:
        assert "Rows" in client(Ask(root=lane.root, prompt=returning)).failed.message
        decide(lane, client_id, "reject")
        returning += " Once more."
    with person(lane, client_id, "approve"):
        outcome = client(Ask(root=lane.root, prompt=returning, stream=stream, headers=HOLD))
    assert outcome.text and json.loads(outcome.pieces[-1]) == {"columns": ["name"], "rows": [[client_id]]}
    assert lane.count(client_id) == 1
