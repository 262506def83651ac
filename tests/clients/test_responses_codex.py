"""Codex CLI on the base URL of the context lane: its own shell and tools of the gateway in one session."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.lane import Lane
from tests.clients.mixed import DONE as BOTH_DONE
from tests.clients.mixed import MixedModel
from tests.clients.person import (
    DONE,
    HOLD,
    REJECTED,
    asked_about,
    asking,
    behind_question,
    ended,
    insertion,
    line,
    pending,
    person,
)
from tests.clients.provider import Provider
from tests.clients.snippets import Snippet, run
from tests.clients.test_every_client import HELLO

pytestmark = [pytest.mark.clients, pytest.mark.clients_all]

MADE = "made.txt"
SHELL = json.dumps({"cmd": f"echo two lanes > {MADE}"})

by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with asking(provider, tmp_path_factory.mktemp("codex"), upstreams=provider.keyed) as lane:
        yield lane


@pytest.fixture(scope="module")
def mixed_lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """Its model wants a tool of the gateway's, then the shell of Codex."""
    with MixedModel(theirs=("exec_command", SHELL)) as model, asking(model, tmp_path_factory.mktemp("mixed")) as lane:
        yield lane


class Codex:
    """Sessions of one user; the last one goes on."""

    def __init__(
        self, lane: Lane, home: Path, *, websocket: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        self._home = home
        provider = {
            "name": "Twolane",
            "base_url": f"{lane.root}/v1",
            "wire_api": "responses",
            "supports_websockets": websocket,
        }
        lines = [f"model_providers.twolane.{name} = {json.dumps(value)}" for name, value in provider.items()]
        for name, value in (headers or {}).items():
            lines.append(f"model_providers.twolane.http_headers.{name} = {json.dumps(value)}")
        settings = ['model = "demo"', 'model_provider = "twolane"', 'approval_policy = "never"']
        (home / ".codex").mkdir()
        (home / ".codex/config.toml").write_text("\n".join([*settings, *lines]), encoding="utf-8")

    def say(self, text: str, *, goes_on: bool = False) -> list[Any]:
        """The items of the turn, as the program tells them."""
        resume = "resume --last" if goes_on else ""
        options = "--skip-git-repo-check --json --dangerously-bypass-approvals-and-sandbox"
        code = f"codex exec {options} {resume} {shlex.quote(text)}"
        printed = run(Snippet("codex", None, "sh", code, ""), home=self._home, address="")
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert events[-1]["type"] == "turn.completed" and "Falling back from WebSockets" not in printed, printed
        return [event["item"] for event in events if event["type"] == "item.completed"]


@pytest.fixture
def codex(lane: Lane, tmp_path: Path) -> Codex:
    return Codex(lane, tmp_path)


def message(items: list[Any]) -> str:
    [text] = [item["text"] for item in items if item["type"] == "agent_message"]
    return str(text)


def commands(items: list[Any]) -> list[int]:
    """The exit codes of the commands that ran."""
    return [item["exit_code"] for item in items if item["type"] == "command_execution"]


@pytest.mark.cell("turn", "stream", row="Codex")
def test_it_gets_the_text(codex: Codex) -> None:
    """Letter for letter."""
    assert message(codex.say("Say hello")) == HELLO


@pytest.mark.cell("own tool", row="Codex")
@pytest.mark.parametrize("websocket", [False, True], ids=["http", "websocket"])
def test_its_own_tool_and_the_gateways_in_a_session(
    websocket: bool, lane: Lane, client_id: str, tmp_path: Path
) -> None:
    """Turn by turn: the shell of Codex runs where it is, the gateway's tool at the gateway, unseen."""
    codex = Codex(lane, tmp_path, websocket=websocket)
    items = codex.say(f"native exec_command {SHELL}")
    assert commands(items) == [0] and (tmp_path / MADE).read_text() == "two lanes\n"
    items = codex.say(lane.insertion(client_id), goes_on=True)
    assert message(items) == DONE and commands(items) == [] and lane.count(client_id) == 1
    assert message(codex.say("Say hello", goes_on=True)) == HELLO and lane.count(client_id) == 1


@pytest.mark.cell("mixed", row="Codex")
def test_both_in_one_turn(mixed_lane: Lane, client_id: str, tmp_path: Path) -> None:
    """The gateway's tool runs once, however often Codex sends the turn with what its shell did."""
    codex = Codex(mixed_lane, tmp_path)
    items = codex.say(f"Note {client_id} at no risk, and make a file.")
    assert message(items) == BOTH_DONE and commands(items) == [0] and mixed_lane.count(client_id) == 1
    assert (tmp_path / MADE).read_text() == "two lanes\n"
    assert message(codex.say("And again?", goes_on=True)) == BOTH_DONE and mixed_lane.count(client_id) == 1


@pytest.mark.cell("approval", row="Codex")
@by_both_decisions
def test_the_next_message_decides(codex: Codex, lane: Lane, client_id: str, decision: str) -> None:
    """The question is the answer of one turn, and the decision the message of the next."""
    asked = message(codex.say(insertion(client_id)))
    reply = line(pending(lane, client_id), decision)
    if decision == "reject":
        reply = f"{reply}: Not today"
    else:
        assert f"\n{reply}\n" in asked
    assert message(codex.say(reply, goes_on=True)) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


@by_both_decisions
def test_a_held_turn_goes_on(lane: Lane, client_id: str, decision: str, tmp_path: Path) -> None:
    """With a header in its configuration it waits until somebody has decided."""
    codex = Codex(lane, tmp_path, headers=HOLD)
    with person(lane, client_id, decision):
        text = message(codex.say(insertion(client_id)))
    assert behind_question(text) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


def test_a_question_beside_its_own_tool(mixed_lane: Lane, client_id: str, tmp_path: Path) -> None:
    """Asked once; what comes behind the decision is the rest of the turn, with its shell."""
    codex = Codex(mixed_lane, tmp_path)
    codex.say(f"Note {client_id}, and make a file.")
    items = codex.say(line(pending(mixed_lane, client_id)), goes_on=True)
    assert message(items) == BOTH_DONE and commands(items) == [0] and len(asked_about(mixed_lane, client_id)) == 1
    ended(mixed_lane, client_id, "approve")
