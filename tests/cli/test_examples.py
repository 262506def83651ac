"""Each command of `gateway` shows an example below its help, and each example is one that the command takes."""

import shlex

import pytest

from gateway.cli.examples import EXAMPLES, leaves
from gateway.cli.main import _parser

COMMANDS = {" ".join(path): command for path, command in leaves(_parser())}


def test_every_command_has_an_example() -> None:
    """And no example is left of one that is gone."""
    assert set(COMMANDS) == set(EXAMPLES)


@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_is_taken_by_its_command(command: str) -> None:
    """Without what the shell makes of it, and shown as it stands."""
    words = shlex.split(EXAMPLES[command])
    until = next((words.index(mark) for mark in ("<", ">", "|") if mark in words), len(words))
    assert words[0] == "gateway" and " ".join(words[1:]).startswith(command)
    chosen = _parser().parse_args(words[1:until])
    assert chosen.command is not None
    assert f"example:\n  {EXAMPLES[command]}" in COMMANDS[command].format_help()
