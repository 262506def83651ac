"""The completion scripts: that of bash does what it says in a real bash, the others are made of the same words."""

import subprocess
from pathlib import Path

import pytest

from gateway.cli.commands import iterate_leaf_commands
from gateway.cli.completion import SHELLS, build_completion
from gateway.cli.main import _build_parser

BASH = build_completion(_build_parser(), "bash")


def completed(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    line = f'COMP_WORDS=(gateway "$@"); COMP_CWORD={len(words)}; _gateway; printf "%s\\n" "${{COMPREPLY[@]}}"'
    shell = ["bash", "--norc", "-c", f"{BASH}\n{line}", "bash", *words]
    return subprocess.run(shell, capture_output=True, text=True, check=True, timeout=60).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["che"], ["check-config"]),
        (["approvals", "re"], ["reject", "revoke"]),
        (["approvals", "list", "--st"], ["--status"]),
        (["approvals", "list", "--status", "app"], ["approved"]),
        (["approvals", "list", "--status", "pending", "--j"], ["--json"]),
        (["approvals", "list", "-c", ""], []),
        (["check-config", "-c", "gateway.yaml", "--conf"], ["--config"]),
        (["assess", "--profile", ""], ["literal", "standard", "hardened"]),
        (["plugin", "new", "sta"], ["stages"]),
        (["completion", ""], ["bash", "zsh", "fish", "--help", "--config"]),
        (["mcp", "list", "list", "--js"], ["--json"]),
        (["nonsense", "--ver"], ["--version"]),
        (["run", "--listen", "check"], []),
    ],
)
def test_bash_completes_commands_options_and_their_values(words: list[str], offered: list[str]) -> None:
    """Commands, options and their values; nothing where a file or some text follows: bash offers files then."""
    assert sorted(completed(*words)) == sorted(offered)


def test_bash_completion_loads_under_strict_settings(tmp_path: Path) -> None:
    """As a completion file is loaded, also by those who have `set -eu` and blanks in their folder's name."""
    file = tmp_path / "a folder" / "gateway"
    file.parent.mkdir()
    file.write_text(BASH)
    told = subprocess.run(
        ["bash", "--norc", "-euc", 'source "$1"; complete -p gateway', "bash", str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout == "complete -o default -F _gateway gateway\n" and told.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_contain_every_command_and_option(shell: str) -> None:
    """By its words, with its options."""
    script = build_completion(_build_parser(), shell)
    for path, command in iterate_leaf_commands(_build_parser()):
        assert all(word in script for word in path)
        for option in (option for action in command._actions for option in action.option_strings):
            assert not option.startswith("--") or option.removeprefix("--") in script
