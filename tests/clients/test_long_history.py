"""A conversation of 200 turns reaches the model whole and in order, in both lanes."""

import json
from collections.abc import Iterator

import pytest

from tests.clients.ask import Ask, Client
from tests.clients.lane import Lane
from tests.clients.libraries import Libraries
from tests.clients.provider import Seen
from tests.clients.test_context import clients
from tests.clients.test_every_client import HELLO, PROGRAMS, every_client_but

pytestmark = pytest.mark.clients

TURNS = 200
HISTORY = [f"{role} {number}" for number in range(TURNS) for role in ("user", "assistant")]


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    with Libraries() as libraries:
        yield libraries


@pytest.mark.cell("long history")
@every_client_but(*PROGRAMS)
def test_it_passes_through(client: Client, gateway: str, seen: list[Seen]) -> None:
    """To a model of its own API."""
    assert client(Ask(root=gateway, prompt="Say hello", history=TURNS)).text == HELLO
    assert said_in(seen) == [*HISTORY, "Say hello"]


@clients(but=PROGRAMS)
def test_it_is_the_context(client: Client, lane: Lane, seen: list[Seen]) -> None:
    """Behind what the gateway says first."""
    assert client(Ask(root=lane.root, prompt="Say hello", history=TURNS)).text == HELLO
    assert said_in(seen)[-len(HISTORY) - 1 :] == [*HISTORY, "Say hello"]


def said_in(seen: list[Seen]) -> list[str]:
    """Return the texts of the one request that reached the model."""
    (request,) = seen
    body = json.loads(request.body)
    return [_text(item["content"]) for item in body.get("messages") or body["input"]]


def _text(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
