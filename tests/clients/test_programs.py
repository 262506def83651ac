"""Programs in a home of their own, through the gateway: what a person reads there, and what their model gets."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import GATEWAY_KEY
from tests.clients.driving import MADE, PROGRAMS, TEXT, Program
from tests.clients.lane import Lane
from tests.clients.mixed import DONE as BOTH_DONE
from tests.clients.mixed import MixedModel
from tests.clients.person import DONE, REJECTED, asking, ended, insertion, line, pending
from tests.clients.provider import Provider, Seen
from tests.clients.test_every_client import HELLO
from tests.clients.test_long_history import TURNS

pytestmark = [pytest.mark.clients, pytest.mark.clients_all]

#: Its edits are text, so it has no tools.
WITHOUT_TOOLS = ("aider",)

by_every_program = pytest.mark.parametrize("row", PROGRAMS)


def by_programs_but(*rows: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [row for row in PROGRAMS if row not in rows])


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("programs"), upstreams=provider.keyed) as lane:
        yield lane


@pytest.fixture
def program(row: str, lane: Lane, tmp_path: Path) -> Program:
    return PROGRAMS[row](lane.root, tmp_path)


@pytest.mark.cell("turn", "stream")
@by_every_program
def test_program_streams_its_answer(program: Program, seen: list[Seen]) -> None:
    """Of a model that it asks for a stream."""
    assert program.say("Say hello").startswith(HELLO.removesuffix('"'))
    assert all(json.loads(request.body)["stream"] for request in _questions(seen))


@pytest.mark.cell("own tool")
@by_programs_but(*WITHOUT_TOOLS)
def test_program_runs_its_own_tool(program: Program) -> None:
    """Where the program is, and its result reaches the model."""
    name, arguments = program.shell
    assert "Demo model: round 1 of tool calls is done." in program.say(f"native {name} {arguments}")
    assert (program.home / MADE).read_text() == TEXT


@pytest.mark.cell("mixed")
@by_programs_but(*WITHOUT_TOOLS)
def test_program_and_gateway_tools_run_once_in_one_turn(row: str, client_id: str, tmp_path: Path) -> None:
    """Each runs once, in the turn that calls both and in the next one."""
    with MixedModel(theirs=PROGRAMS[row].shell) as model, asking(model, tmp_path, approvals={"mode": "turn"}) as lane:
        program = PROGRAMS[row](lane.root, tmp_path)
        assert program.say(f"Note {client_id} at no risk, and make a file.") == BOTH_DONE
        assert lane.count(client_id) == 1 and (program.home / MADE).read_text() == TEXT
        if program.keeps:
            assert program.say("And again?", goes_on=True) == BOTH_DONE and lane.count(client_id) == 1


@pytest.mark.cell("approval")
@by_every_program
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_next_message_decides_a_pending_call(program: Program, decision: str, lane: Lane, client_id: str) -> None:
    """The question is the answer of one turn, and a person copies its line into the next."""
    asked = program.say(insertion(client_id))
    reply = line(pending(lane, client_id), decision)
    assert reply in asked
    if decision == "reject":
        reply = f"{reply}: Not today"
    assert program.say(reply, goes_on=True) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


@pytest.mark.cell("structured output")
@pytest.mark.parametrize("row", [row for row, made in PROGRAMS.items() if made.shaping])
def test_program_returns_a_structured_object(program: Program) -> None:
    """By a tool of its own, whose arguments are the object."""
    assert program.shaping is not None
    assert program.shaped(program.shaping) == {"id": 7}


@pytest.mark.cell("error")
@by_every_program
def test_program_shows_the_gateway_error_for_a_wrong_key(row: str, keyed_gateway: str, tmp_path: Path) -> None:
    """With the gateway's words; the same program answers with the right one."""
    root = f"{keyed_gateway}/context"
    with pytest.raises(AssertionError, match=r"gateway\s+key\s+is\s+not\s+valid"):
        PROGRAMS[row](root, tmp_path, api_key="wrong").say("Say hello")
    assert PROGRAMS[row](root, tmp_path, api_key=GATEWAY_KEY).say("Say hello").startswith("Hello!")


@pytest.mark.cell("long history")
@pytest.mark.parametrize("row", [row for row, made in PROGRAMS.items() if made.keeps])
def test_a_long_history_reaches_the_model(program: Program, provider: Provider) -> None:
    """Whole and in order, from the conversation that the program keeps."""
    with program.talking() as say:
        for number in range(TURNS):
            assert f"Say hello {number}" in say(f"Say hello {number}")
        provider.seen.clear()
        said = say(f"Say hello {TURNS}") if program.goes_on_itself else None
    if said is None:
        program.say(f"Say hello {TURNS}", goes_on=True)
    request = max(_questions(provider.seen), key=lambda request: len(request.body))
    told = json.loads(request.body)["messages"]
    assert numbers(told, "user") == [*range(TURNS + 1)] and numbers(told, "assistant") == [*range(TURNS)]


def _questions(seen: list[Seen]) -> list[Seen]:
    return [request for request in seen if request.body]


def numbers(messages: list[dict[str, Any]], role: str) -> list[int]:
    """Return the numbers of the turns that this role speaks of."""
    texts = [json.dumps(message["content"]) for message in messages if message["role"] == role]
    return [int(number) for text in texts for number in re.findall(r"Say hello (\d+)", text)]
