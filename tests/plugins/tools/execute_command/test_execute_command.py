"""The tool `execute_command` as the agent loop calls it; tests/confine has what confines the commands."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gateways import until
from hypothesis import example, given
from hypothesis import strategies as st
from measuring import Effort
from pydantic import ValidationError

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import ToolCall, ToolResult
from gateway.plugins.tools.execute_command import PLUGIN, Config, ExecuteCommand, choose_way_to_run
from gateway.sandbox.launch_messages import Level
from gateway.sandbox.programs import find_shell
from tests.sandbox.machine import CONFINED, READ_ONLY_LEVELS, in_child, survivors

EXCHANGE = Exchange(id="1", body={}, caller=Caller("a", "a", frozenset()), chain="assistant")


def call(command: Any, *, harmless: bool = False) -> ToolCall:
    return ToolCall(id="c1", tool="execute_command", arguments={"command": command}, harmless=harmless)


async def ask(tool: ExecuteCommand, command: Any, *, harmless: bool = False) -> ToolResult:
    return await tool.call(call(command, harmless=harmless), EXCHANGE)


async def refusal(tool: ExecuteCommand, command: Any) -> str | None:
    return await tool.refusal(call(command), EXCHANGE)


def built(cwd: Path, **settings: Any) -> ExecuteCommand:
    # Nothing of the host is used. `none` runs on every machine.
    config = Config(**{"sandbox": "none", **settings, "cwd": str(cwd)})
    return PLUGIN.build(config, None)  # type: ignore[arg-type]


async def test_command_tool_spec_has_one_required_argument(tmp_path: Path) -> None:
    """One tool with one argument."""
    (spec,) = await built(tmp_path, requires_approval=True, untrusted=True, timeout="90s").list_tools()
    assert (spec.name, spec.category) == ("execute_command", "system")
    assert spec.parameters["required"] == ["command"]
    assert (spec.requires_approval, spec.untrusted) == (True, True)
    assert "90 seconds" in spec.description


async def test_result_contains_exit_code_stdout_and_stderr(tmp_path: Path) -> None:
    """Exit code, output, errors; an exit code of its own is no failure of the tool."""
    tool = built(tmp_path)
    assert await ask(tool, "echo hi") == ToolResult("exit code 0\nstdout:\nhi\n")
    assert await ask(tool, "echo hi; echo no >&2; exit 3") == ToolResult("exit code 3\nstdout:\nhi\n\nstderr:\nno\n")
    assert await ask(tool, "true") == ToolResult("exit code 0\n(no output)")


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("ls", ("ls",)),
        ("  ls\t-l  ", ("ls", "-l")),
        ("grep -n 'a b' x.txt", ("grep", "-n", "a b", "x.txt")),
        ("""echo "it's" 'a"b' x'y'"z" ''""", ("echo", "it's", 'a"b', "xyz", "")),
        ("head -n 5 a,b+c@d:e_f/g", ("head", "-n", "5", "a,b+c@d:e_f/g")),
        ("ls a\\ b # names", ("ls", "a b")),
        ("ls é 'a\nb'", ("ls", "é", "a\nb")),
    ],
)
def test_a_plain_command_runs_without_a_shell(command: str, argv: tuple[str, ...]) -> None:
    """Words and closed quotes."""
    assert choose_way_to_run(command).argv == argv


@pytest.mark.parametrize(
    "command",
    [
        "ls; id",
        "ls && id",
        "ls | sort",
        "ls > f",
        "ls < f",
        "ls *",
        "ls ?",
        "ls [a]",
        "ls ~",
        "ls $HOME",
        'ls "$HOME"',
        "ls `id`",
        "ls $(id)",
        'ls "`id`"',
        "ls\nid",
        "FOO=1 id",
        "ls {a,b}",
        "! ls",
        "ls 'a",
        'ls "a',
        "ls & id",
        "(ls)",
        "cd sub",
        "export X",
        "./ls",
        "/bin/ls",
        "no-such-program",
        "'' x",
        "ls \x0b-l",
    ],
)
def test_command_with_shell_syntax_goes_to_the_shell_unchanged(command: str) -> None:
    """T14: exactly the text that was judged."""
    assert choose_way_to_run(command).argv == (*(find_shell() or ()), "-c", command)


@given(st.text(alphabet="ls '\"\\$-a;", max_size=30).map("printf %s_ ".__add__))
@example("ls " + "'" * 5001)
@example("ls " + "a" * 50_000 + ";")
def test_command_splitting_is_quick_and_never_raises(command: str) -> None:
    """For any text, from the second on: the first one looks for the shell."""
    choose_way_to_run("printf %s_")
    effort = Effort()
    assert choose_way_to_run(command).argv
    assert effort.cpu_s < 0.5


async def test_plain_command_splits_words_as_the_shell_does(tmp_path: Path) -> None:
    """A plain command and the same text given to the shell print the same."""
    tool = built(tmp_path)
    for words in ("a 'b c' \"d e\"", "x'y'\"z\" ''", "-n 1 'a\"b' \"c'd\""):
        plain = await ask(tool, f"printf %s_ {words}".replace("%", "'%'"))
        through_shell = await ask(tool, f": ; printf %s_ {words}")
        assert plain == through_shell


async def test_missing_program_is_reported_with_exit_code_127(tmp_path: Path) -> None:
    """In words."""
    answer = await ask(built(tmp_path), "no-such-program --help")
    assert answer.ok is False
    assert answer.content.startswith("exit code 127 (command not found)\nstderr:\n")


async def test_killed_command_is_reported_with_its_signal(tmp_path: Path) -> None:
    """With the signal."""
    answer = await ask(built(tmp_path), "kill -9 $$")
    assert answer == ToolResult("exit code 137 (killed by SIGKILL)\n(no output)", ok=False)


async def test_lost_launcher_is_reported_as_an_unknown_outcome(tmp_path: Path) -> None:
    """Memory may run out for the launcher, too. What was printed is told."""
    answer = await ask(built(tmp_path), "echo begun | tee ran; kill -9 $PPID")
    assert (tmp_path / "ran").read_text() == "begun\n"
    assert answer.content == (
        "It is not known how far the command ran: the launcher gave no answer. Look at what it did before you repeat "
        "it.\nstdout:\nbegun\n"
    )
    assert answer.ok is False


async def test_an_endless_command_is_stopped(tmp_path: Path) -> None:
    """With what it printed until then, and all that it started."""
    answer = await ask(built(tmp_path, timeout="300ms"), "echo begun; sleep 61")
    assert answer == ToolResult("stopped: it ran longer than 0.3 seconds\nstdout:\nbegun\n", ok=False)
    assert survivors(tmp_path) == []


async def test_command_that_floods_its_output_is_stopped(tmp_path: Path) -> None:
    """Its beginning and its end are kept."""
    answer = await ask(built(tmp_path, max_output_bytes=1024), "yes")
    assert answer.ok is False
    assert answer.content.startswith("stopped: it printed more than 64 MiB\nstdout:\ny\n")
    assert "bytes omitted" in answer.content and len(answer.content) < 2000


async def test_long_output_is_cut_in_the_middle(tmp_path: Path) -> None:
    """With the count of what is missing."""
    answer = await ask(built(tmp_path, max_output_bytes=1024), "echo first; head -c 100000 /dev/zero; echo last")
    assert answer.ok is True
    assert "first" in answer.content and "last" in answer.content
    assert "[... 99243 bytes omitted ...]" in answer.content


async def test_python_modules_are_loaded_from_the_system_not_the_cwd(tmp_path: Path) -> None:
    """Behind a pipe, in a list and under each name; every Python gets the option that keeps it so."""
    (tmp_path / "json").mkdir()
    for name in ("json/__init__.py", "json/tool.py"):
        (tmp_path / name).write_text("print('a module of the work folder')")
    (tmp_path / "x.json").write_text('{"a":1}')
    tool = built(tmp_path)
    for command in ("python3 -m json.tool --compact x.json", "cat x.json | python3 -m json.tool --compact | head -n 9"):
        assert await ask(tool, command) == ToolResult('exit code 0\nstdout:\n{"a":1}\n')
    await ask(tool, "mkdir bin; printf '#!/bin/sh\\necho $*' >bin/python3; chmod +x bin/python3")
    text = choose_way_to_run("python3 -m json.tool x.json").argv[-1]
    assert await ask(tool, f"PATH=$PWD/bin; {text}") == ToolResult("exit code 0\nstdout:\n-I -m json.tool x.json\n")


async def test_command_reads_empty_standard_input(tmp_path: Path) -> None:
    """Who reads it finds its end at once."""
    assert await ask(built(tmp_path), "cat") == ToolResult("exit code 0\n(no output)")


async def test_cancelling_ends_the_command(tmp_path: Path) -> None:
    """A client that is gone leaves no process behind."""
    running = asyncio.create_task(ask(built(tmp_path), "echo x >begun; setsid sleep 61 & sleep 62"))
    await until(lambda: (tmp_path / "begun").exists())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert survivors(tmp_path) == []


@pytest.mark.parametrize(
    "command", [None, 1, {"x": 1}, [], "", " \n", "ls\0", "\ud800", "x" * 200_000], ids=lambda value: repr(value)[:10]
)
async def test_wrong_arguments_return_a_failed_result_and_run_nothing(command: Any, tmp_path: Path) -> None:
    """T25: as results, never as exceptions."""
    tool = built(tmp_path)
    answer = await ask(tool, command)
    assert answer.ok is False
    assert answer.content.startswith("The command was not run: 'command' ")
    assert await refusal(tool, command) == answer.content


async def test_auto_sandbox_picks_and_reports_the_strongest_available(tmp_path: Path) -> None:
    """For the health of the gateway; a machine that has none runs nothing."""
    tool = built(tmp_path, sandbox="auto")
    assert tool.sandbox is None
    answer = await ask(tool, "echo ran")
    assert tool.sandbox == (CONFINED[0] if CONFINED else None)
    assert ("ran" in answer.content) is answer.ok is bool(CONFINED)


async def test_missing_sandbox_refuses_to_run_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T21: with the next step; nothing weaker runs instead."""
    monkeypatch.setenv("PATH", str(tmp_path))
    tool = built(tmp_path, sandbox="bubblewrap")
    answer = await ask(tool, "echo x >ran")
    assert answer == ToolResult(
        "The command was not run: this machine cannot confine it (bubblewrap: the program bwrap is not installed). "
        "The operator can install bubblewrap, or set execute_command.sandbox.",
        ok=False,
    )
    assert await refusal(tool, "echo x >ran") == answer.content
    assert tool.sandbox is None
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("sandbox", ["auto", "bubblewrap", "landlock", "none"])
async def test_call_judged_harmless_cannot_write_in_any_sandbox(sandbox: str, tmp_path: Path) -> None:
    """Whatever confines the others, and if nothing does: the verdict on it may be wrong."""
    tool = built(tmp_path, sandbox=sandbox)
    assert (await tool.examine(call("echo x >ran", harmless=True), EXCHANGE) is None) is bool(READ_ONLY_LEVELS)
    for command in ("echo x >ran", "busybox find . -exec ls {} x + -exec touch ran ;", "mkdir ran"):
        answer = await ask(tool, command, harmless=True)
        assert list(tmp_path.iterdir()) == [], (command, answer)
    assert tool.read_only_sandbox == (READ_ONLY_LEVELS[0] if READ_ONLY_LEVELS else None)


#: Where a machine has something to confine read-only commands with.
confined = pytest.mark.parametrize("level", READ_ONLY_LEVELS[:1])


@confined
async def test_approved_command_still_writes_beside_a_harmless_call(level: Level, tmp_path: Path) -> None:
    """One that was approved, or that the model itself called low; beside one that was judged harmless."""
    tool = built(tmp_path, sandbox="auto")
    assert (await ask(tool, "ls", harmless=True)).ok
    assert (await ask(tool, "echo x >ran")).ok
    assert (tool.read_only_sandbox, (tmp_path / "ran").read_text()) == (level, "x\n")


@confined
async def test_a_denied_write_is_explained_to_the_model(level: Level, tmp_path: Path) -> None:
    """Where the command failed because of it, and nowhere else."""
    tool = built(tmp_path)
    note = "It ran read-only and without a network, because it was judged harmless."
    assert note in (await ask(tool, "mkdir new", harmless=True)).content
    for command, harmless in (("grep x nothing", True), ("ls", True), ("mkdir nothing/new", False)):
        assert note not in (await ask(tool, command, harmless=harmless)).content
    assert tool.read_only_sandbox == level


UNCONFINED = """
import asyncio
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import ToolCall
from gateway.plugins.tools.execute_command import PLUGIN, Config
from gateway.sandbox import seccomp
exchange = Exchange(id="1", body={{}}, caller=Caller("a", "a", frozenset()), chain="assistant")
tool = PLUGIN.build(Config(cwd={folder!r}, sandbox="none"), None)
def call(harmless):
    return ToolCall(id="c1", tool="execute_command", arguments={{"command": "echo ran"}}, harmless=harmless)
refused = seccomp.RefusedSyscall
seccomp.install([refused("unshare", 272, 97), refused("landlock_create_ruleset", 444, 444)])
async def main():
    doubt = await tool.examine(call(True), exchange)
    print(doubt.decision, doubt.rule, doubt.reason)
    print(await tool.obstacle())
    for harmless in (True, False):
        print((await tool.call(call(harmless), exchange)).content)
asyncio.run(main())
"""


def test_machine_without_confinement_requires_approval_for_commands(tmp_path: Path) -> None:
    """The operator reads it at the start; what is approved runs as he wants it."""
    doubt, obstacle, refused, *ran = in_child(UNCONFINED.format(folder=str(tmp_path))).splitlines()
    assert doubt.startswith("confirm command.unconfined This machine cannot run a command read-only (namespaces: ")
    assert doubt.endswith("switch Landlock on in the kernel.")
    assert obstacle.startswith("execute_command asks for each command that the model does not call low: this machine ")
    assert refused.startswith("The command was not run: this machine cannot confine it (namespaces: ")
    assert ran == ["exit code 0", "stdout:", "ran"]


@pytest.mark.parametrize("command", ["ls", "rm -rf .", "no-such-program", "echo x >ran"])
async def test_refusal_accepts_any_command_when_a_sandbox_exists(command: str, tmp_path: Path) -> None:
    """Nothing runs to find that out."""
    (tmp_path / "kept").touch()
    assert await refusal(built(tmp_path), command) is None
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


async def test_default_cwd_is_created_by_the_first_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first command runs; any other must be there when the gateway starts."""
    monkeypatch.chdir(tmp_path)
    tool = PLUGIN.build(Config(sandbox="none"), None)  # type: ignore[arg-type]
    assert not (tmp_path / "work").exists()
    assert (await ask(tool, "pwd")).content == f"exit code 0\nstdout:\n{tmp_path / 'work'}\n"
    with pytest.raises(ValueError, match=r"execute_command\.cwd: no folder '.*typo'"):
        built(tmp_path / "typo")
    with pytest.raises(ValueError, match="the whole machine"):
        built(Path("/"))


@pytest.mark.parametrize(("timeout", "seconds"), [(2, 2.0), (0.5, 0.5), ("30s", 30.0), ("2m", 120.0), ("500ms", 0.5)])
def test_timeout_accepts_numbers_and_duration_texts(timeout: float | str, seconds: float) -> None:
    """As everywhere in the configuration."""
    assert Config(timeout=timeout).timeout == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [0, -1, "soon", None, True])
def test_wrong_durations_are_refused(timeout: Any) -> None:
    """When the configuration is read."""
    with pytest.raises(ValidationError):
        Config(timeout=timeout)
