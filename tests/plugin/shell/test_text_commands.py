"""The longer list's commands for texts: none of the core, none open that has an option with an effect."""

from gateway.plugin.shell.options import split_options
from gateway.plugin.shell.text_commands import TEXT_COMMANDS


def test_text_commands_are_not_in_the_core_list() -> None:
    """The requirement's own list stands elsewhere."""
    assert not any(listed.core for listed in TEXT_COMMANDS.values())


def test_text_commands_with_dangerous_options_accept_no_leading_glob() -> None:
    """sort -o, uniq IN OUT, rg --pre and their like stay closed."""
    opened = {name for name, listed in TEXT_COMMANDS.items() if listed.open}
    assert opened == split_options("cut nl tac rev paste comm join fold fmt expand unexpand")


def test_uniq_has_one_operand() -> None:
    """The second one would be overwritten."""
    assert TEXT_COMMANDS["uniq"].operands == 1
