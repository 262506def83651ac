"""A conversation of 200 turns reaches the model whole and in order, in both lanes."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.clients.ask import Ask, Client, turns
from tests.clients.lane import Lane
from tests.clients.libraries import Libraries
from tests.clients.provider import Provider, Seen
from tests.clients.talking import AGENTS, talk
from tests.clients.test_context import clients
from tests.clients.test_every_client import HELLO, PROGRAMS, every_client_but
from tests.clients.worker import Worker

pytestmark = pytest.mark.clients

TURNS = 200
HISTORY = [message["content"] for message in turns(TURNS)]


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    with Libraries() as libraries:
        yield libraries


@pytest.mark.cell("long history")
@every_client_but(*PROGRAMS)
def test_long_history_passes_through_to_the_model(client: Client, gateway: str, seen: list[Seen]) -> None:
    """To a model of its own API."""
    assert client(Ask(root=gateway, prompt="Say hello", history=TURNS)).text == HELLO
    assert said_in(seen) == [*HISTORY, "Say hello"]


@clients(but=PROGRAMS)
def test_long_history_reaches_the_model_in_the_context_lane(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """Behind what the gateway says first."""
    assert client(Ask(root=lane.root, prompt="Say hello", history=TURNS)).text == HELLO
    assert said_in(seen)[-len(HISTORY) - 1 :] == [*HISTORY, "Say hello"]


@pytest.mark.cell("long history", prefix="talk ")
@pytest.mark.parametrize("name", AGENTS)
def test_long_agent_history_reaches_the_model(
    name: str, stream: bool, lane: Lane, seen: list[Seen], workers: Callable[[str], Worker]
) -> None:
    """State of an agent of a library."""
    with talk(name, lane.root, stream=stream, history=turns(TURNS), worker=workers) as client:
        assert client.say("Say hello") == HELLO
    assert said_in(seen)[-len(HISTORY) - 1 :] == [*HISTORY, "Say hello"]


@pytest.mark.cell("long history", row="llm")
def test_long_llm_session_reaches_the_model(
    lane: Lane, provider: Provider, seen: list[Seen], workers: Callable[[str], Worker]
) -> None:
    """In one session, as many turns as a person has patience for."""
    with talk("llm", lane.root, stream=True, worker=workers) as client:
        said = [text for number in range(TURNS) for text in (f"user {number}", client.say(f"user {number}"))]
        provider.seen.clear()
        assert client.say("Say hello") == HELLO
    assert said_in(seen)[-len(said) - 1 :] == [*said, "Say hello"]


def said_in(seen: list[Seen]) -> list[str]:
    """Return the texts of the one request that reached the model."""
    (request,) = seen
    body = json.loads(request.body)
    return [_text(item["content"]) for item in body.get("messages") or body["input"]]


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
