"""The uses of git that only read; tests/plugins/tools/execute_command/test_harmless_git.py runs them."""

import pytest

from gateway.plugin.shell.git import prints_contents, read_git
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandUse
from gateway.plugin.shell.parser import parse


def read(text: str) -> CommandUse:
    return read_git(parse(f"git {text}").steps[0].words[1:])


def test_git_reader_returns_subcommand_as_first_option() -> None:
    """With its own options, values and operands behind."""
    use = read("-C sub --no-pager log -n 3 --format=%h HEAD~1 -- a.txt")
    assert {"log", "-n", "--format"} <= use.options
    assert [(option, word.text) for option, word in use.values] == [("-C", "sub"), ("-n", "3"), ("--format", "%h")]
    assert [word.text for word in use.operands] == ["HEAD~1", "a.txt"]


def test_prints_contents_recognises_git_commands_that_show_contents() -> None:
    """Names and facts are not contents."""
    assert all(prints_contents(read(text)) for text in ("log -p", "show HEAD:a", "diff", "blame a", "grep a"))
    assert not any(prints_contents(read(text)) for text in ("status", "ls-files", "branch -a", "rev-parse HEAD"))


@pytest.mark.parametrize(
    "text", ["", "log --format x", "log -n -p", "branch x", "log *", 'log "$HOME"', "-C $HOME log"]
)
def test_git_command_with_version_dependent_reading_is_rejected(text: str) -> None:
    """A value that is an option, a word that expands, an operand where only options list."""
    with pytest.raises(Objection):
        read(text)
