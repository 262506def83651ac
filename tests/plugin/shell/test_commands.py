"""The list of commands holds what only reads or computes, and nothing that is known to do more."""

import pytest

from gateway.plugin.shell.commands import COMMANDS
from gateway.plugin.shell.options import split_options


def test_core_commands_match_the_required_list() -> None:
    """ls, cat, pwd, echo, grep and their like; everything else is of the longer list."""
    core = {name for name, listed in COMMANDS.items() if listed.core}
    assert core == split_options("ls cat pwd echo grep egrep fgrep head tail wc find which type whoami id date uptime")


@pytest.mark.parametrize(
    "name",
    sorted(
        split_options(
            "sh tee dd less more man sudo nice nohup timeout watch time eval exec source alias export set read history"
            " php ssh curl nc vi ed rm mv cp ln touch chmod kill mount docker kubectl yarn pnpm java for if do then"
        )
    ),
)
def test_commands_that_execute_or_write_are_not_listed(name: str) -> None:
    """Not under any options."""
    assert name not in COMMANDS


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("sort", "oT"),
        ("date", "sf"),
        ("file", "CfzZmp"),
        ("tree", "oR"),
        ("rg", "z"),
        ("diff", "l"),
        ("hostname", "Fb"),
        ("jq", "fL"),
        ("iconv", "o"),
        ("hexdump", "f"),
    ],
)
def test_dangerous_short_options_are_not_listed(name: str, letters: str) -> None:
    """The letters that write, run, set, or read names from a file."""
    listed = COMMANDS[name]
    assert not set(letters) & set(listed.short + listed.valued + listed.attached)


def test_no_long_option_of_any_command_writes_or_runs() -> None:
    """By name, whatever the command."""
    dangerous = {
        "output",
        "compress-program",
        "temporary-directory",
        "files0-from",
        "pre",
        "set",
        "paginate",
        "in-place",
    }
    # df --output chooses columns.
    found = {
        (name, option) for name, listed in COMMANDS.items() for option in (listed.long | listed.long_valued) & dangerous
    }
    assert found == {("df", "output")}


@pytest.mark.parametrize("name", ["python3", "node", "npm", "go", "cargo", "gcc", "make", "bash", "pip"])
def test_interpreters_accept_only_whole_lines_without_options(name: str) -> None:
    """Only a whole line of words, such as `--version`."""
    assert COMMANDS[name].grammar == "line"


def test_commands_with_harmful_options_are_not_open_to_globs() -> None:
    """An open command takes any glob: none of these has an option that writes or runs."""
    closed = {name for name, listed in COMMANDS.items() if listed.grammar in ("options", "jq") and not listed.open}
    assert closed >= {"sort", "uniq", "rg", "tree", "file", "date", "xxd", "diff", "hostname", "jq", "iconv", "column"}
