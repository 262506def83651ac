"""Programs that a person types into, each in a home of its own: their answers, their tools, their conversations."""

import json
import re
import shlex
import subprocess
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from gateway.testing.ports import free_port
from tests.clients.person import read_until
from tests.clients.snippets import Snippet, ended, environment, run

Json = dict[str, Any]
Say = Callable[[str], str]

#: What the tool of a program does: one command of a shell.
MADE: Final = "made.txt"
TEXT: Final = "two lanes\n"
_COMMAND: Final = f"echo two lanes > {MADE}"
_SHAPE: Final = {
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "required": ["id"],
    "additionalProperties": False,
}


class Program(ABC):
    """A program in this home, whose model is at `root` (without `/v1`)."""

    #: The name of its tool for commands, and the arguments for the one of these tests.
    shell: ClassVar[tuple[str, str]]
    #: The words for a model that fills an object of a shape; None: it takes no shape.
    shaping: ClassVar[str | None] = None
    #: Whether its command goes on with the last conversation.
    keeps: ClassVar[bool] = True
    #: Whether `talking` is a process, which goes on by itself; else the conversation is a file.
    goes_on_itself: ClassVar[bool] = True

    def __init__(self, root: str, home: Path, *, api_key: str = "unused") -> None:
        self.root, self.home, self.api_key = root, home, api_key
        self.configure()

    @abstractmethod
    def configure(self) -> None: ...

    @property
    def env(self) -> Mapping[str, str]:
        return {}

    @abstractmethod
    def say(self, text: str, *, goes_on: bool = False) -> str:
        """Return its answer, in a new conversation or in the last one; a failure is an AssertionError of its words."""

    def shaped(self, text: str) -> Json:
        """Return the object of the shape `{"id": int}` that it makes of the answer."""
        raise NotImplementedError

    def talking(self) -> AbstractContextManager[Say]:
        """Return a context: one conversation of many turns, as `say(text)`."""
        raise NotImplementedError

    def type(self, code: str) -> str:
        """Return what a command line prints."""
        return run(Snippet(type(self).__name__, None, "sh", code, ""), home=self.home, address="", env=self.env)

    @contextmanager
    def started(self, *command: str) -> Iterator["subprocess.Popen[str]"]:
        """Run a program whose input and output are lines, until the end of the context."""
        with ExitStack() as stack:
            stack.enter_context(ended(self.home))
            log = stack.enter_context((self.home / "session.log").open("w"))
            yield stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=self.home,
                    env={**environment(self.home), **self.env},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    bufsize=1,
                )
            )


def _write(program: "subprocess.Popen[str]", message: Json) -> None:
    assert program.stdin is not None
    program.stdin.write(json.dumps(message) + "\n")


def _events(program: "subprocess.Popen[str]") -> Iterator[Json]:
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith("{"):
            yield json.loads(line)


class _StreamsJson(Program):
    """Claude Code and Qwen Code: one command line, one protocol of events."""

    command: ClassVar[str]

    def say(self, text: str, *, goes_on: bool = False) -> str:
        return self.type(f"{self.command} {'-c' if goes_on else ''} -p {shlex.quote(text)}")

    def shaped(self, text: str) -> Json:
        shape = shlex.quote(json.dumps(_SHAPE))
        found: Json = json.loads(self.type(f"{self.command} --json-schema {shape} -p {shlex.quote(text)}"))
        return found

    @contextmanager
    def talking(self) -> Iterator[Say]:
        options = "--input-format stream-json --output-format stream-json"
        with self.started(*shlex.split(f"{self.command} {options} {self.talks}")) as program:

            def say(text: str) -> str:
                _write(program, {"type": "user", "message": {"role": "user", "content": text}})
                return next(str(event["result"]) for event in _events(program) if event["type"] == "result")

            yield say
            assert program.stdin is not None
            program.stdin.close()

    talks: ClassVar[str] = ""


class QwenCode(_StreamsJson):
    """At `/context/v1`."""

    command = "qwen -y"
    shell = ("run_shell_command", json.dumps({"command": _COMMAND, "is_background": False}))
    shaping = 'native structured_output {"id": 7}'

    def configure(self) -> None:
        pass

    @property
    def env(self) -> Mapping[str, str]:
        named = {"OPENAI_BASE_URL": f"{self.root}/v1", "OPENAI_API_KEY": self.api_key, "OPENAI_MODEL": "demo"}
        return {**named, "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"}


class ClaudeCode(_StreamsJson):
    """Claude Code, which speaks Messages."""

    command = "claude --model demo --allowedTools=Bash"
    talks = "-p --verbose"
    shell = ("Bash", json.dumps({"command": _COMMAND}))
    shaping = 'native StructuredOutput {"id": 7}'

    def configure(self) -> None:
        pass

    @property
    def env(self) -> Mapping[str, str]:
        return {"ANTHROPIC_BASE_URL": self.root, "ANTHROPIC_AUTH_TOKEN": self.api_key}


class Cline(Program):
    """Its command begins a conversation each time: `--id` goes on with one in a terminal only."""

    keeps = False
    shell = ("run_commands", json.dumps({"commands": [_COMMAND]}))

    def configure(self) -> None:
        self.type(f"cline auth openai -b {self.root}/v1 -k {self.api_key} -m demo")

    def say(self, text: str, *, goes_on: bool = False) -> str:
        printed = self.type(f"cline -P openai --json {shlex.quote(text)}")
        return str(json.loads(printed.splitlines()[-1])["text"])


class Continue(Program):
    """At `/context/v1`; `cn serve` holds a conversation of many turns."""

    shell = ("Bash", json.dumps({"command": _COMMAND}))

    def configure(self) -> None:
        model = {"name": "demo", "provider": "openai", "model": "demo", "apiBase": f"{self.root}/v1"}
        more = {"apiKey": self.api_key, "roles": ["chat"], "capabilities": ["tool_use"]}
        config = {"name": "tests", "version": "1.0.0", "schema": "v1", "models": [{**model, **more}]}
        self._config = self.home / "config.yaml"
        self._config.write_text(json.dumps(config))

    def say(self, text: str, *, goes_on: bool = False) -> str:
        resumed = "--resume" if goes_on else ""
        return self.type(f"cn --config {self._config} --auto {resumed} -p {shlex.quote(text)}")

    @contextmanager
    def talking(self) -> Iterator[Say]:
        port = free_port()
        with self.started("cn", "serve", "--config", str(self._config), "--port", str(port)) as program:
            assert program.stdout is not None
            next(line for line in program.stdout if "POST" in line)
            address = f"http://127.0.0.1:{port}"

            def say(text: str) -> str:
                before = len(_fetched(f"{address}/state")["session"]["history"])
                _fetched(f"{address}/message", {"message": text})
                state = read_until(
                    lambda: _fetched(f"{address}/state"),
                    lambda told: not told["isProcessing"] and len(told["session"]["history"]) > before + 1,
                )
                return str(state["session"]["history"][-1]["message"]["content"])

            yield say
            _fetched(f"{address}/exit", {})


def _fetched(url: str, message: Json | None = None) -> Json:
    data = None if message is None else json.dumps(message).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        found: Json = json.load(response)
    return found


class Aider(Program):
    """In its mode for questions; its conversation is a file of Markdown that it reads again."""

    goes_on_itself = False
    shell = ("", "")

    def configure(self) -> None:
        self._history = self.home / ".aider.chat.history.md"

    @property
    def env(self) -> Mapping[str, str]:
        return {"OPENAI_API_BASE": f"{self.root}/v1", "OPENAI_API_KEY": self.api_key}

    def say(self, text: str, *, goes_on: bool = False) -> str:
        quiet = "--no-git --no-pretty --no-check-update --no-show-release-notes --no-show-model-warnings --yes-always"
        restored = "--restore-chat-history --max-chat-history-tokens 100000" if goes_on else ""
        message = f"--message {shlex.quote(text)}"
        printed = self.type(f"aider --model openai/demo --chat-mode ask {quiet} {restored} {message}")
        told = re.search(r"Repo-map: .*?\n\n(.*?)(?:\nTokens: .*)?\Z", printed, re.DOTALL)
        assert told is not None and "litellm." not in told[1], printed
        return told[1].strip()

    @contextmanager
    def talking(self) -> Iterator[Say]:
        def say(text: str) -> str:
            with self._history.open("a") as file:
                file.write(f"\n#### {text}\n\nHello: {text}\n")
            return f"Hello: {text}"

        yield say


#: By the row of the page.
PROGRAMS: Final[Mapping[str, type[Program]]] = {
    "Claude Code": ClaudeCode,
    "Cline": Cline,
    "Continue": Continue,
    "aider": Aider,
    "Qwen Code": QwenCode,
}
