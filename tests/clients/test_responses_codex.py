"""Codex CLI on the base URL of the context lane: its own shell and tools of the gateway in one session."""

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from tests.clients.shaping import OBJECT, Found, ShapingModel
from tests.clients.snippets import Snippet, environment, run
from tests.clients.snippets import ended as ended_at
from tests.clients.test_every_client import HELLO
from tests.clients.test_long_history import TURNS
from tests.clients.test_programs import numbers

pytestmark = [pytest.mark.clients, pytest.mark.clients_all]

Json = dict[str, Any]

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
        self, root: str, home: Path, *, websocket: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        self._home = home
        provider = {
            "name": "Twolane",
            "base_url": f"{root}/v1",
            "wire_api": "responses",
            "supports_websockets": websocket,
        }
        lines = [f"model_providers.twolane.{name} = {json.dumps(value)}" for name, value in provider.items()]
        for name, value in (headers or {}).items():
            lines.append(f"model_providers.twolane.http_headers.{name} = {json.dumps(value)}")
        settings = ['model = "demo"', 'model_provider = "twolane"', 'approval_policy = "never"']
        (home / ".codex").mkdir()
        (home / ".codex/config.toml").write_text("\n".join([*settings, *lines]), encoding="utf-8")

    def say(self, text: str, *, goes_on: bool = False, more: str = "") -> list[Any]:
        """The items of the turn, as the program tells them; `more` are further options."""
        resume = "resume --last" if goes_on else ""
        options = f"--skip-git-repo-check --json --dangerously-bypass-approvals-and-sandbox {more}"
        code = f"codex exec {options} {resume} {shlex.quote(text)}"
        printed = run(Snippet("codex", None, "sh", code, ""), home=self._home, address="")
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert events[-1]["type"] == "turn.completed" and "Falling back from WebSockets" not in printed, printed
        return [event["item"] for event in events if event["type"] == "item.completed"]

    @contextmanager
    def talking(self) -> Iterator[Callable[[str], str]]:
        """One conversation of many turns, in the server that its editors start: yields what answers to a text."""
        with (
            ended_at(self._home),
            subprocess.Popen(
                ["codex", "app-server"],
                cwd=self._home,
                env=environment(self._home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            ) as program,
        ):
            assert program.stdin is not None and program.stdout is not None
            stdin, stdout = program.stdin, program.stdout

            def ask(method: str, **params: object) -> Json:
                stdin.write(json.dumps({"id": method, "method": method, "params": params}) + "\n")
                return next(told["result"] for told in map(json.loads, stdout) if told.get("id") == method)

            ask("initialize", clientInfo={"name": "tests", "version": "1"})
            stdin.write(json.dumps({"method": "initialized"}) + "\n")
            thread = ask("thread/start", approvalPolicy="never", sandbox="danger-full-access")["thread"]["id"]

            def say(text: str) -> str:
                ask("turn/start", threadId=thread, input=[{"type": "text", "text": text}])
                said = ""
                for told in map(json.loads, stdout):
                    if told.get("method") == "item/completed" and told["params"]["item"]["type"] == "agentMessage":
                        said = told["params"]["item"]["text"]
                    if told.get("method") == "turn/completed":
                        break
                return said

            yield say
            stdin.close()


@pytest.fixture
def codex(lane: Lane, tmp_path: Path) -> Codex:
    return Codex(lane.root, tmp_path)


def message(items: list[Any]) -> str:
    [text] = [item["text"] for item in items if item["type"] == "agent_message"]
    return str(text)


def commands(items: list[Any]) -> list[int]:
    """The exit codes of the commands that ran."""
    return [item["exit_code"] for item in items if item["type"] == "command_execution"]


@pytest.mark.cell("turn", "stream", row="Codex")
def test_codex_receives_the_models_text(codex: Codex) -> None:
    """Letter for letter."""
    assert message(codex.say("Say hello")) == HELLO


@pytest.mark.cell("own tool", row="Codex")
@pytest.mark.parametrize("websocket", [False, True], ids=["http", "websocket"])
def test_codex_and_gateway_tools_run_in_one_session(
    websocket: bool, lane: Lane, client_id: str, tmp_path: Path
) -> None:
    """Turn by turn: the shell of Codex runs where it is, the gateway's tool at the gateway, unseen."""
    codex = Codex(lane.root, tmp_path, websocket=websocket)
    items = codex.say(f"native exec_command {SHELL}")
    assert commands(items) == [0] and (tmp_path / MADE).read_text() == "two lanes\n"
    items = codex.say(lane.insertion(client_id), goes_on=True)
    assert message(items) == DONE and commands(items) == [] and lane.count(client_id) == 1
    assert message(codex.say("Say hello", goes_on=True)) == HELLO and lane.count(client_id) == 1


@pytest.mark.cell("mixed", row="Codex")
def test_codex_and_gateway_tools_run_once_in_one_turn(mixed_lane: Lane, client_id: str, tmp_path: Path) -> None:
    """The gateway's tool runs once, however often Codex sends the turn with what its shell did."""
    codex = Codex(mixed_lane.root, tmp_path)
    items = codex.say(f"Note {client_id} at no risk, and make a file.")
    assert message(items) == BOTH_DONE and commands(items) == [0] and mixed_lane.count(client_id) == 1
    assert (tmp_path / MADE).read_text() == "two lanes\n"
    assert message(codex.say("And again?", goes_on=True)) == BOTH_DONE and mixed_lane.count(client_id) == 1


@pytest.mark.cell("structured output", row="Codex")
def test_codex_output_schema_shapes_the_answer(client_id: str, tmp_path: Path) -> None:
    """Whose schema is a file; a tool of the gateway's that its request names runs before."""
    shape = tmp_path / "shape.json"
    shape.write_text(json.dumps(Found.model_json_schema()), encoding="utf-8")
    with ShapingModel() as model, asking(model, tmp_path) as lane:
        codex = Codex(lane.root, tmp_path, headers={"X-Context-Tools": "execute_sql"})
        items = codex.say(f"Note {client_id} at no risk, and the id.", more=f"--output-schema {shape}")
        assert json.loads(message(items)) == OBJECT and lane.count(client_id) == 1


@pytest.mark.cell("error", row="Codex")
def test_codex_shows_the_gateway_error_for_a_missing_key(keyed_gateway: str, tmp_path: Path) -> None:
    """With the gateway's words, after the repetitions that it makes of every failure."""
    with pytest.raises(AssertionError, match="No gateway key"):
        Codex(f"{keyed_gateway}/context", tmp_path).say("Say hello")


@pytest.mark.cell("long history", row="Codex")
def test_a_long_history_reaches_the_model(codex: Codex, provider: Provider) -> None:
    """Whole and in order."""
    with codex.talking() as say:
        for number in range(TURNS):
            assert f"Say hello {number}" in say(f"Say hello {number}")
        provider.seen.clear()
        say(f"Say hello {TURNS}")
    told = json.loads(provider.seen[-1].body)["messages"]
    assert numbers(told, "user") == [*range(TURNS + 1)] and numbers(told, "assistant") == [*range(TURNS)]


@pytest.mark.cell("approval", row="Codex")
@by_both_decisions
def test_next_codex_message_decides_a_pending_call(codex: Codex, lane: Lane, client_id: str, decision: str) -> None:
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
def test_held_codex_turn_continues_after_the_decision(
    lane: Lane, client_id: str, decision: str, tmp_path: Path
) -> None:
    """With a header in its configuration it waits until somebody has decided."""
    codex = Codex(lane.root, tmp_path, headers=HOLD)
    with person(lane, client_id, decision):
        text = message(codex.say(insertion(client_id)))
    assert behind_question(text) == (DONE if decision == "approve" else REJECTED)
    ended(lane, client_id, decision)


def test_codex_decision_is_followed_by_its_own_tool(mixed_lane: Lane, client_id: str, tmp_path: Path) -> None:
    """Asked once; what comes behind the decision is the rest of the turn, with its shell."""
    codex = Codex(mixed_lane.root, tmp_path)
    codex.say(f"Note {client_id}, and make a file.")
    items = codex.say(line(pending(mixed_lane, client_id)), goes_on=True)
    assert message(items) == BOTH_DONE and commands(items) == [0] and len(asked_about(mixed_lane, client_id)) == 1
    ended(mixed_lane, client_id, "approve")
