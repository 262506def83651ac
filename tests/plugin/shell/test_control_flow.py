"""`for` and `if` are taken from in front of commands, and nothing else is."""

import pytest

from gateway.plugin.shell.control_flow import Constructs
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.words import Word


def words(text: str) -> list[Word]:
    return [Word(word, len(word), len(word)) for word in text.split()]


def test_control_flow_words_are_stripped_leaving_the_commands() -> None:
    """Step by step, with the loop's variable."""
    constructs = Constructs()
    steps = ["for f in a b", "do if x y", "then", "z", "else w", "fi", "done", "v"]
    left = [[word.text for word in constructs.read_command(words(step))] for step in steps]
    assert left == [[], ["x", "y"], [], ["z"], ["w"], [], [], ["v"]]
    constructs.end()
    assert constructs.variables == {"f"}


def test_quoted_reserved_word_is_parsed_as_a_command() -> None:
    """As in every shell."""
    quoted = [Word("if", 2, 2, bare=False), *words("x")]
    assert Constructs().read_command(quoted) == quoted


@pytest.mark.parametrize("step", ["do x", "done", "else", "fi", "then x", "for IFS in a", "for f", "for 1 in a"])
def test_misplaced_reserved_words_raise_objection(step: str) -> None:
    """Reserved words out of place, and loops over variables of the shell."""
    with pytest.raises(Objection):
        Constructs().read_command(words(step))
