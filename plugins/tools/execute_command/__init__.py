"""The tool `execute_command`: it runs a command in a sandbox and reports its exit status and output.

A plain command, one program with its arguments, runs without a shell. Every other text goes unchanged to the shell for
which texts are judged, in the same sandbox and environment.

A command that runs only because it was judged harmless runs read-only, where it can have no effect, whatever `sandbox`
sets for the others. Where this machine cannot confine it so, it needs approval.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from gateway.plugin import Exchange, Host, Json, Plugin, Reach, ToolCall, ToolResult, ToolSpec, Verdict, place_sha256
from gateway.plugin.settings import Config as Section
from gateway.plugin.settings import Duration, FilePath, ToolConfig, build_count_type, build_size_type
from gateway.plugin.shell.classifier import read_command
from gateway.plugin.shell.git import GIT_FUNCTION
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.parser import parse
from gateway.plugin.shell.programs import PYTHON_FUNCTION, PYTHON_NAMES
from gateway.plugin.templates import Values, fill_object
from gateway.sandbox.confinement import Choice, Sandbox, find_strongest, replace_level
from gateway.sandbox.launch_messages import Level, Order, ProcessLimits
from gateway.sandbox.programs import find_program, find_shell
from gateway.sandbox.run import CommandResult, run

from .environment import ALWAYS, HARMLESS, Settings
from .workflow_command import build_command

_DEFAULT_CWD: Final = Path("work")
#: Linux takes no longer argument (MAX_ARG_STRLEN is 128 KiB).
_COMMAND_BYTES: Final = 100_000
#: A command that prints more than this is ended: no model reads so much, and reading it costs the gateway.
_FLOOD_BYTES: Final = 64 << 20
_NOT_EXECUTABLE, _NOT_FOUND, _SIGNALLED = 126, 127, 128
#: The operator's next step where commands cannot run read-only.
_CURE: Final = "Install bubblewrap, or let the gateway make user namespaces, or switch Landlock on in the kernel"
#: The words of strerror(3) for what a read-only command is denied.
_DENIED: Final = ("Read-only file system", "Permission denied", "Operation not permitted")
_READ_ONLY_NOTE: Final = (
    "It ran read-only and without a network, because it was judged harmless. A call with `risk_level: medium` asks a "
    "person first, and can write."
)


class CommandLimits(Section):
    cpu_s: Annotated[int, build_count_type(1, 86_400)] = Field(
        default=30, description="CPU time of each process, in seconds."
    )
    memory_bytes: Annotated[int, build_size_type(16 << 20, 1 << 40)] = Field(
        default=1 << 30, description="Memory of all processes together."
    )
    file_bytes: Annotated[int, build_size_type(0, 1 << 40)] = Field(
        default=64 << 20, description="Largest file that a command writes."
    )
    processes: Annotated[int, build_count_type(1, 100_000)] = Field(
        default=64, description="Processes at the same time."
    )
    open_files: Annotated[int, build_count_type(16, 1 << 20)] = Field(
        default=256, description="Files that each process has open."
    )


class Config(ToolConfig):
    """Runs commands in a sandbox."""

    cwd: FilePath = Field(
        default=_DEFAULT_CWD,
        validate_default=True,
        description="Folder in which commands run, and the only one they may write; it must exist. A command that runs "
        "without asking, because it was judged harmless, only reads it.",
    )
    timeout: Duration = Field(default=30.0, description="Longest run of a command.")
    sandbox: Sandbox = Field(
        default="auto",
        description="What confines a command that was approved, or that the model calls low in risk; auto: the "
        "strongest that this machine has. A command that was judged harmless runs read-only, whatever this says.",
    )
    readable: tuple[FilePath, ...] = Field(default=(), description="Further files and folders that commands may read.")
    max_output_bytes: Annotated[int, build_size_type(1 << 10, 64 << 20)] = Field(
        default=256 << 10, description="How much of the output is kept."
    )
    limits: CommandLimits = Field(default_factory=CommandLimits, description="What a command may use.")


@dataclass(frozen=True, slots=True)
class Way:
    """The way a command runs: the words to execute, and its environment. No words: no shell can read it."""

    argv: tuple[str, ...]
    settings: Settings


class ExecuteCommand:
    """The source of this tool: it runs each command as a separate process, and leaves none behind."""

    def __init__(self, config: Config, *, cwd: Path) -> None:
        self._config = config
        self._cwd = cwd
        #: By whether the command is read-only.
        self._choices = dict.fromkeys((False, True), Choice(None, "not tried yet"))
        self._choosing = asyncio.Lock()

    @property
    def sandbox(self) -> Level | None:
        """Return the confinement of the commands. None: there is none, so no command runs, or it was not tried yet."""
        return self._choices[False].level

    @property
    def read_only_sandbox(self) -> Level | None:
        """Return the same for commands that run because they were judged harmless."""
        return self._choices[True].level

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (_build_spec(self._config),)

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:  # noqa: ARG002 (as for `call`)
        """Return why the call cannot run: it is not a command, no shell can read it, or nothing confines it."""
        if problem := _find_problem(call.arguments.get("command")):
            return f"The command was not run: {problem}."
        if not choose_way_to_run(call.arguments["command"]).argv:
            return "The command was not run: this machine has none of dash, bash and busybox to read it."
        choice = await self.choose(read_only=call.harmless)
        if choice.level is None:
            cure = "The operator can install bubblewrap, or set execute_command.sandbox"
            return (
                f"The command was not run: this machine cannot confine it ({choice.reason}). "
                f"{_CURE if call.harmless else cure}."
            )
        return None

    async def examine(self, call: ToolCall, exchange: Exchange) -> Verdict | None:  # noqa: ARG002 (as for `call`)
        """Return a doubt if this machine cannot keep a command from having an effect. See `Examiner`."""
        choice = await self.choose(read_only=True)
        if choice.level is not None:
            return None
        reason = f"This machine cannot run a command read-only ({choice.reason}). {_CURE}."
        return Verdict("confirm", "default", "command.unconfined", reason)

    async def obstacle(self) -> str | None:
        """See `CheckedSource`."""
        choice = await self.choose()
        if choice.level is None:
            return (
                f"execute_command runs nothing: this machine cannot confine commands ({choice.reason}). Install "
                "bubblewrap, or set tools.execute_command.sandbox"
            )
        choice = await self.choose(read_only=True)
        if choice.level is None:
            return (
                "execute_command asks for each command that the model does not call low: this machine cannot run one "
                f"read-only ({choice.reason}). {_CURE}"
            )
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        if refusal := await self.refusal(call, exchange):
            return ToolResult(refusal, ok=False)
        level = (await self.choose(read_only=call.harmless)).level
        assert level is not None  # once found it stays
        order = replace_level(
            self._build_order(choose_way_to_run(call.arguments["command"]), read_only=call.harmless), level=level
        )
        kept_bytes = self._config.max_output_bytes
        finished = await run(
            order, stdout_bytes=kept_bytes * 3 // 4, stderr_bytes=kept_bytes // 4, flood_bytes=_FLOOD_BYTES
        )
        return _format_result(finished, order)

    def bind(self, arguments: Json, values: Values) -> Json:
        """Put values into the command as words, or as parts of words. See `Binder`."""
        return fill_object(arguments, values, writers={"command": build_command})

    async def choose(self, *, read_only: bool = False) -> Choice:
        """Choose the confinement once. If the machine had none, try again at the next call."""
        async with self._choosing:
            if self._choices[read_only].level is None:
                with suppress(OSError):
                    self._cwd.mkdir(mode=0o755, exist_ok=True)
                order = self._build_order(Way((), ALWAYS), read_only=read_only)
                self._choices[read_only] = await find_strongest(self._config.sandbox, order)
            return self._choices[read_only]

    async def close(self) -> None:
        """Do nothing: every command ends with its call."""

    def _build_order(self, way: Way, *, read_only: bool) -> Order:
        return Order(
            argv=way.argv,
            settings=way.settings,
            cwd=str(self._cwd),
            level="none",
            read_only=read_only,
            timeout_s=self._config.timeout,
            limits=ProcessLimits(**self._config.limits.model_dump()),
            readable=tuple(os.path.realpath(path) for path in self._config.readable),
        )


def choose_way_to_run(command: str) -> Way:
    """Return the way to run a text, which depends on the text alone. Harmless texts get a restricting environment."""
    try:
        script, _ = read_command(command)
    except Objection:
        return Way(_split_arguments(command, prelude=""), ALWAYS)
    git = any(step.words[0].text == "git" for step in script.steps)
    module = any(step.words[0].text in PYTHON_NAMES and step.words[1].text == "-m" for step in script.steps)
    prelude = (GIT_FUNCTION if git else "") + (PYTHON_FUNCTION if module else "")
    return Way(_split_arguments(command, prelude=prelude), HARMLESS)


def _split_arguments(command: str, *, prelude: str) -> tuple[str, ...]:
    """Return the words of a plain command if its program exists. All other texts go through the shell."""
    with suppress(Objection):
        argv = None if prelude else parse(command).argv
        if argv is not None and find_program(argv[0]) is not None:
            return argv
    interpreter = find_shell()
    return (*interpreter, "-c", prelude + command) if interpreter else ()


def build(config: Config, host: Host) -> ExecuteCommand:  # noqa: ARG001 (the contract's signature)
    cwd = config.cwd.resolve()
    if not cwd.is_dir() and not (config.cwd == _DEFAULT_CWD and not cwd.exists()):
        raise ValueError(f"execute_command.cwd: no folder {str(cwd)!r}: make it with mkdir, or name another")
    if cwd == Path(cwd.root):
        raise ValueError("execute_command.cwd: '/' is the whole machine: name a folder")
    return ExecuteCommand(config, cwd=cwd)


def reaches(config: Config) -> Sequence[Reach]:
    readable = enumerate(config.readable)
    return [
        Reach(key=("cwd",), place=config.cwd, kind="folder", writable=True),
        *(Reach(key=("readable", i), place=place, kind="either", writable=False) for i, place in readable),
    ]


PLUGIN = Plugin(Config, build, assessor="command", reaches=reaches, anywhere={"cwd": str(Path(__file__).parent)})


def _find_problem(command: object) -> str | None:
    if not isinstance(command, str) or not command.strip():
        return "'command' must be a text such as 'ls -l'"
    try:
        size_bytes = len(command.encode())
    except UnicodeEncodeError:
        return "'command' is not valid text"
    if "\0" in command:
        return "'command' contains a NUL character"
    if size_bytes > _COMMAND_BYTES:
        return f"'command' has {size_bytes} bytes, at most {_COMMAND_BYTES} are possible"
    return None


def _build_spec(config: Config) -> ToolSpec:
    return ToolSpec(
        name="execute_command",
        description=(
            "Runs a command of a Unix shell in a folder of its own and returns exit code and output; "
            f"it has no input and at most {config.timeout:g} seconds."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1, "description": "The command line, such as 'ls -l'."}
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        category="system",
        untrusted=config.untrusted,
        requires_approval=config.requires_approval,
        server=place_sha256(config.cwd.absolute(), config.sandbox, *config.readable),
    )


def _format_result(finished: CommandResult, order: Order) -> ToolResult:
    outcome = finished.outcome
    if outcome.end == "unconfined":
        said = " ".join((outcome.detail, finished.stderr[-500:].strip())).strip()
        return ToolResult(f"The command was not run: its sandbox failed ({said}).", ok=False)
    if outcome.end == "lost":
        told = f"It is not known how far the command ran: {outcome.detail}. Look at what it did before you repeat it."
        return ToolResult("\n".join([told, *_format_output(finished)]), ok=False)
    if outcome.end == "not_started":
        return ToolResult(f"The command was not run: {outcome.detail}.", ok=False)
    if outcome.end == "exited":
        first, ok = f"exit code {outcome.code}{_explain_exit_code(outcome.code)}", outcome.code < _NOT_EXECUTABLE
    else:
        first, ok = f"stopped: {_describe_excess(finished, order)}", False
    parts = [first, *_format_output(finished)]
    if order.read_only and first != "exit code 0" and any(words in finished.stderr for words in _DENIED):
        parts.append(_READ_ONLY_NOTE)
    return ToolResult("\n".join(parts if len(parts) > 1 else [first, "(no output)"]), ok=ok)


def _format_output(finished: CommandResult) -> list[str]:
    streams = ("stdout", finished.stdout), ("stderr", finished.stderr)
    return [f"{name}:\n{text}" for name, text in streams if text]


def _explain_exit_code(code: int) -> str:
    if code == _NOT_EXECUTABLE:
        return " (found, but it cannot be run)"
    if code == _NOT_FOUND:
        return " (command not found)"
    if code > _SIGNALLED:
        with suppress(ValueError):
            return f" (killed by {signal.Signals(code - _SIGNALLED).name})"
    return ""


def _describe_excess(finished: CommandResult, order: Order) -> str:
    limits = order.limits
    return {
        "timeout": f"it ran longer than {order.timeout_s:g} seconds",
        "processes": f"it had more than {limits.processes} processes at the same time",
        "memory": f"it used more than {limits.memory_bytes >> 20} MiB of memory",
        "output": f"it printed more than {_FLOOD_BYTES >> 20} MiB",
    }.get(finished.outcome.end, "it was cancelled")
