"""Claude Code, Codex and Cline call tools of the gateway over MCP, and the gate holds what it must.

Each is configured as docs/mcp-server.md says. Its model is the demo model behind the same gateway, which makes the call
that the prompt wants.
"""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.gated import AGENT, LONG, SHORT, serving
from tests.clients.lane import Lane
from tests.clients.person import DONE, asked_about, decide, ended, pending, person
from tests.clients.provider import Provider
from tests.clients.snippets import Snippet, run, save, snippets_of

pytestmark = [pytest.mark.clients, pytest.mark.clients_all]

CHANGED: Final = DONE.partition("The result: ")[2]
REJECTED: Final = "The call of `execute_sql` was rejected, because: `Not today`. Nothing ran."
NOT_RUN: Final = "This call has NOT run"

by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


class Program(ABC):
    """One client program, in a home of its own."""

    #: How its model knows a tool, and how the program calls itself.
    tool = "mcp__twolane__"
    client: str

    def __init__(self, lane: Lane, home: Path) -> None:
        self.lane = lane
        self.base_url = lane.root.removesuffix("/context")
        self._home = home
        self.configure()

    @abstractmethod
    def configure(self) -> None: ...

    @abstractmethod
    def results(self, prompt: str) -> list[str]:
        """The results that the model of the program got for its calls."""

    def result(self, tool: str, **arguments: object) -> str:
        """The result that the model of the program got for this call."""
        [text] = self.results(f"native {self.tool}{tool} {json.dumps(arguments)}")
        return text

    def insert(self, name: str) -> str:
        """The same for a call that needs a person."""
        return self.result("execute_sql", sql=f"INSERT INTO log VALUES ('{name}', 1)")

    def type(self, code: str) -> str:
        env = {"GATEWAY_API_KEY": AGENT, "ANTHROPIC_BASE_URL": self.base_url, "ANTHROPIC_AUTH_TOKEN": AGENT}
        return run(Snippet(type(self).__name__, None, "sh", code, ""), home=self._home, address=self._address, env=env)

    def events(self, code: str) -> list[Any]:
        return [json.loads(line) for line in self.type(code).splitlines() if line.startswith("{")]

    def snippet(self, name: str) -> Snippet:
        [found] = [one for one in snippets_of("docs/mcp-server.md") if one.name == f"mcp-server {name}"]
        return found

    def save(self, name: str) -> Path:
        """The file of the page, as it is there."""
        snippet = self.snippet(name)
        save(snippet, home=self._home, address=self._address)
        return self._home / str(snippet.file)

    @property
    def _address(self) -> str:
        return self.base_url.removeprefix("http://")


class ClaudeCode(Program):
    client = "claude-code"

    def configure(self) -> None:
        self.type(self.snippet("claude-code").code)

    def results(self, prompt: str) -> list[str]:
        options = "-p --model demo --allowedTools mcp__twolane --output-format stream-json --verbose"
        messages = [
            event["message"]
            for event in self.events(f"claude {options} -- {shlex.quote(prompt)}")
            if event["type"] == "user"
        ]
        return [_text(block["content"]) for message in messages for block in message["content"]]


class Codex(Program):
    """On the context lane, where the demo model knows tools by the whole of their names."""

    client = "codex-mcp-client"

    def configure(self) -> None:
        file = self.save("codex")
        provider = {"name": "Twolane", "base_url": f"{self.lane.root}/v1", "env_key": "GATEWAY_API_KEY"}
        lines = [f"model_providers.twolane.{name} = {json.dumps(value)}" for name, value in provider.items()]
        settings = ['model = "demo"', 'model_provider = "twolane"', 'approval_policy = "never"']
        file.write_text("\n".join([*settings, *lines, file.read_text(encoding="utf-8")]), encoding="utf-8")

    def results(self, prompt: str) -> list[str]:
        options = "--skip-git-repo-check --json --dangerously-bypass-approvals-and-sandbox"
        items = [
            event["item"]
            for event in self.events(f"codex exec {options} {shlex.quote(prompt)}")
            if event["type"] == "item.completed"
        ]
        return [_text(item["result"]["content"]) for item in items if item["type"] == "mcp_tool_call"]


class Cline(Program):
    tool = "twolane__"
    client = "@cline/core"

    def configure(self) -> None:
        self.type(self.snippet("cline").code)
        self.type(f'cline auth openai -b {self.base_url}/v1 -k "$GATEWAY_API_KEY" -m demo')

    def results(self, prompt: str) -> list[str]:
        printed = self.events(f"cline -P openai --json {shlex.quote(prompt)}")
        events = [event["event"] for event in printed if event["type"] == "agent_event"]
        ends = [event for event in events if event["type"] == "content_end" and event["contentType"] == "tool"]
        return [_text(end["output"]["content"]) for end in ends]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with serving(provider, tmp_path_factory.mktemp("patient"), wait=LONG, public_url=None) as lane:
        yield lane


@pytest.fixture(scope="module")
def hasty(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A gateway that waits a second for people, and has a console that it can lead to."""
    with serving(provider, tmp_path_factory.mktemp("hasty"), wait=SHORT) as lane:
        yield lane


@pytest.fixture(params=[ClaudeCode, Codex, Cline])
def kind(request: pytest.FixtureRequest) -> type[Program]:
    found: type[Program] = request.param
    return found


@pytest.fixture
def program(kind: type[Program], lane: Lane, tmp_path: Path) -> Program:
    return kind(lane, tmp_path)


def test_mcp_program_calls_a_service_tool(program: Program) -> None:
    """A call that is known to be harmless runs at once."""
    assert program.result("here__echo", text="two lanes") == "two lanes"


@by_both_decisions
def test_held_mcp_call_is_decided_over_rest(program: Program, client_id: str, decision: str) -> None:
    """By somebody else over REST, while the program waits."""
    with person(program.lane, client_id, decision):
        assert program.insert(client_id) == (CHANGED if decision == "approve" else REJECTED)
    ended(program.lane, client_id, decision)
    [approval] = asked_about(program.lane, client_id)
    assert (approval["asked_by"], approval["client"]["name"]) == (AGENT, program.client)


def test_undecided_mcp_call_returns_its_result_in_a_later_session(
    kind: type[Program], hasty: Lane, client_id: str, tmp_path: Path
) -> None:
    """Where nobody decides in time the program is told how to go on; another session of it gets the result, once."""
    program = kind(hasty, tmp_path)
    text = program.insert(client_id)
    assert text.startswith(NOT_RUN) and pending(hasty, client_id)["id"] in text and "same arguments" in text
    decide(hasty, client_id, "approve")
    assert program.insert(client_id) == CHANGED
    ended(hasty, client_id, "approve")
