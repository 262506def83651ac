"""Clients that live in a process of their own, which answers question after question, one line of JSON each."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.clients.ask import Ask, Client, Failure, Outcome, Usage

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
NODE: Final = (("node", "--unhandled-rejections=strict", "clients.mjs"), Path(__file__).with_name("node"))
#: The official clients of MCP.
MCP: Final = (("node", "--unhandled-rejections=strict", "mcp.mjs"), NODE[1])
_APART: Final = Path(__file__).with_name("apart")
#: Both want an older openai-python than the others, and not the same; LiteLLM is of `make test-clients-all`.
INSTRUCTOR: Final = ((str(ROOT / ".venv-clients-instructor" / "bin" / "python"), "instructor_client.py"), _APART)
LITELLM: Final = ((str(ROOT / ".venv-clients-all" / "bin" / "python"), "litellm_client.py"), _APART)
JAVASCRIPT: Final[Sequence[str]] = (
    "openai",
    "openai .stream()",
    "openai responses",
    "anthropic",
    "langchain",
    "ai-sdk",
)


def worker_of(language: str) -> "Worker":
    """The one that speaks for the clients of this language, or for the one of this name."""
    command, folder = {"node": NODE, "mcp": MCP, "instructor": INSTRUCTOR, "litellm": LITELLM}[language]
    return Worker(command, folder, env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})


class Worker:
    """`with Worker(command, folder) as worker`; it is told to end by the end of its input."""

    def __init__(self, command: Sequence[str], folder: Path, *, env: Mapping[str, str]) -> None:
        self._command = command
        self._folder = folder
        self._env = env

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=60)

    def client(self, name: str) -> Client:
        def client(ask: Ask) -> Outcome:
            answer = self._exchange({"client": name, "ask": {**asdict(ask), "messages": ask.messages}})
            failure = Failure(**answer["failure"]) if answer["failure"] else None
            usage = Usage(*answer["usage"]) if answer["usage"] else None
            return Outcome(tuple(answer["pieces"]), tuple(answer["times_s"]), failure, usage)

        return client

    def call(self, method: str, argument: Json | str | list[Json | str] | None = None, *, root: str) -> Any:
        """What the method of the OpenAI client (`embeddings.create`) answers, a stream as a list; Node only.

        A list is several arguments. Of a stream that the client accumulates there are its `chunks` and `final`.
        """
        ask = Ask(root=root, prompt="")
        return self._exchange({"method": method, "argument": argument, "ask": asdict(ask)})

    def talk(self, name: str, messages: list[Json], tool: Json, *, root: str, stream: bool) -> Json:
        """Return this client's answer with a tool of its own, and its messages for the next turn; Node and LiteLLM."""
        ask = Ask(root=root, prompt="", stream=stream)
        return self._succeeding({"talk": name, "messages": messages, "tool": tool, "ask": asdict(ask)})

    def shape(self, name: str, ask: Ask) -> Json:
        """The object that this client makes of the answer; Node and LiteLLM."""
        return self._succeeding({"object": name, "ask": {**asdict(ask), "messages": ask.messages}})

    def converse(self, name: str, conversation: str, text: str, options: Json) -> Json:
        """What a client of the Responses API answers in this conversation, which begins with `options`; Node only."""
        question = {"responses": name, "conversation": conversation, "text": text, "options": options}
        return self._succeeding(question)

    def visit(self, visit: Json) -> Json:
        """What an official client of MCP found at a gateway and got for its calls; `mcp` only."""
        told: Json = self._exchange(visit)
        return told

    def _succeeding(self, question: Json) -> Json:
        told = self._exchange(question)
        assert "failure" not in told, told
        return told

    def _exchange(self, question: Json) -> Json:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: Json = json.loads(self._process.stdout.readline())
        return answer
