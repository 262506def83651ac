"""The commands of `gateway` as they are declared: a usage that is wrong, and an example that each command takes."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.cli.commands import WrongUsage, add_group, add_printing, iterate_leaf_commands, list_subcommands
from gateway.cli.main import _build_parser

COMMANDS = {" ".join(path): command for path, command in iterate_leaf_commands(_build_parser())}


def test_wrong_usage_prints_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, behind the lines that were printed already."""

    def lines(args: argparse.Namespace) -> Iterator[str]:
        yield f"first {args.word}"
        raise WrongUsage("--a and --b go together")

    parser = argparse.ArgumentParser(prog="gateway")
    group = add_group(parser.add_subparsers(), "things", "list things")
    add_printing(group, "list", lines, "list them", example="gateway things list one").add_argument("word")
    args = parser.parse_args(["things", "list", "one"])
    with pytest.raises(SystemExit) as ended:
        args.command(args)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "first one\n")
    assert err.startswith("usage: gateway things list") and "--a and --b go together" in err


def test_cli_import_loads_no_http_library() -> None:
    """Its import is half of what such a command costs."""
    code = "import sys, gateway.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "jinja2", "mcp", "sqlite3"} & set(loaded)


@pytest.mark.parametrize("name", list_subcommands(_build_parser()))
def test_single_command_parser_has_the_same_help(name: str) -> None:
    """The parser made for its name has no other command, and the same help."""
    alone = {" ".join(path): command.format_help() for path, command in iterate_leaf_commands(_build_parser(name))}
    assert alone == {path: command.format_help() for path, command in COMMANDS.items() if path.split()[0] == name}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_ends_with_an_example_that_parses(command: str) -> None:
    """Without what the shell makes of it."""
    example = COMMANDS[command].format_help().partition("\nexample:\n  ")[2].rstrip()
    words = shlex.split(example)
    until = next((words.index(mark) for mark in ("<", ">", "|") if mark in words), len(words))
    assert words[0] == "gateway" and " ".join(words[1:]).startswith(command)
    chosen = _build_parser().parse_args(words[1:until])
    assert chosen.command is not None
