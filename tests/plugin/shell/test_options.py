"""Options and operands are read as GNU reads them; what is not in the table is objected to."""

import re

import pytest

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandSpec, CommandUse, build_long_names, read_use, split_options
from gateway.plugin.shell.parser import parse

TOOL = CommandSpec(
    short="ab",
    valued="n",
    attached="I",
    long=build_long_names("all color"),
    long_valued=split_options("width"),
    numeric=True,
)


def use(text: str, listed: CommandSpec = TOOL) -> CommandUse:
    return read_use("tool", parse(f"tool {text}").steps[0].words[1:], listed)


def values(text: str) -> list[tuple[str, str]]:
    return [(option, word.text) for option, word in use(text).values]


def test_options_and_operands_come_in_any_order() -> None:
    """Options count behind operands, too, until `--`; `-` is an operand."""
    read = use("x -ab y --all -5 -- -n --nope")
    assert read.options == {"-a", "-b", "--all"}
    assert [word.text for word in read.operands] == ["x", "y", "-n", "--nope"]
    assert [word.text for word in use("-").operands] == ["-"]


def test_option_values_are_parsed_inline_or_as_next_word() -> None:
    """`-n1`, `-n 1`, `-an1`, `--width=1` and `--width 1` say the same."""
    assert values("-n1") == values("-n 1") == values("-an1") == [("-n", "1")]
    assert values("--width=1") == values("--width 1") == [("--width", "1")]
    assert values("-n -1") == [("-n", "-1")]
    assert values("--color=auto") == [("--color", "auto")]
    assert values("-Iseconds") == []


@pytest.mark.parametrize("text", ["-x", "-ax", "--alll", "--al", "--widt=1", "-n", "--width", "--=x", "-aé"])
def test_unknown_option_raises_objection(text: str) -> None:
    """Unknown letters and names, abbreviations, and values that are missing."""
    with pytest.raises(Objection):
        use(text)


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "[-]x",
        "$USER",
        '"$LANG"',
        "{a,b}",
        "-*",
        "-a*",
        "--*",
        "--al*",
        "-n *",
        "-n*",
        "x$USER",
        '-n"$USER" x',
        "-n$USER",
        "-- $USER",
        "$HOME/x",
        "--color=$USER",
        "a$USER-b",
    ],
)
def test_glob_that_may_expand_to_an_option_raises_objection(text: str) -> None:
    """A glob in front of which nothing is fixed may be any option of a command that is not open."""
    with pytest.raises(Objection):
        use(text)


def test_fixed_prefix_or_double_dash_makes_glob_an_operand() -> None:
    """`./*`, `a*` and `-- *` are operands whatever they match; so is everything for an open command."""
    for text in ("./*", "a*", "-- *", "~/*", 'a"$HOME"', '-- "$HOME"'):
        assert len(use(text).operands) == 1
    assert len(use("* -n *", CommandSpec(valued="n", open=True)).operands) == 1


def test_irregular_command_rejects_options_with_ambiguous_reading() -> None:
    """xxd and tree do not read their words as getopt does: where they may differ from the table, they ask."""
    odd = CommandSpec(odd=True, short="ap", valued="l", long_valued=split_options("sort"), operands=1)
    for text in ("-ap f", "-l 5 f", "-l5 f", "-l -5 f", "-l x f", "--sort x f"):
        assert len(use(text, odd).operands) == 1
    for text in ("-al 5 f", "-lp f", "-l -p f", "--sort -p f", "f -a", "f -l", "-- f -a"):
        with pytest.raises(Objection):
            use(text, odd)


def test_operand_limit_and_pattern_are_enforced() -> None:
    """A limit holds against globs, too; a pattern holds for every operand."""
    one = CommandSpec(operands=1, operand=re.compile("[a-z]+"))
    assert len(use("abc", one).operands) == 1
    for text in ("a b", "a*", "./*", "A", "-- a b"):
        with pytest.raises(Objection):
            use(text, one)
    with pytest.raises(Objection):
        use("-o environ", CommandSpec(valued="o", value=re.compile("[a-d]+")))
