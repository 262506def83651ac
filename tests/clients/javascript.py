"""The JavaScript clients: one Node process that answers question after question (node/clients.mjs)."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.clients.ask import Ask, Client, Failure, Outcome

Json = dict[str, Any]

FOLDER: Final = Path(__file__).with_name("node")
JAVASCRIPT: Final[Sequence[str]] = (
    "openai",
    "openai .stream()",
    "openai responses",
    "anthropic",
    "langchain",
    "ai-sdk",
)


class Node:
    """`with Node() as node`; `node.client(name)` is one of `JAVASCRIPT`."""

    def __enter__(self) -> Self:
        command = ["node", "--unhandled-rejections=strict", "clients.mjs"]
        self._process = subprocess.Popen(command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=10)

    def client(self, name: str) -> Client:
        def client(ask: Ask) -> Outcome:
            answer = self._exchange({"client": name, "ask": asdict(ask)})
            failure = Failure(**answer["failure"]) if answer["failure"] else None
            return Outcome(tuple(answer["pieces"]), tuple(answer["times_s"]), failure)

        return client

    def call(self, method: str, argument: Json | None = None, *, root: str) -> Json:
        """What the method of the OpenAI client (`embeddings.create`) answers."""
        ask = Ask(root=root, prompt="")
        return self._exchange({"method": method, "argument": argument, "ask": asdict(ask)})

    def _exchange(self, question: Json) -> Json:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: Json = json.loads(self._process.stdout.readline())
        return answer
