"""The shown and the held parts of an answer."""

from gateway.agent.output.announced import SENTENCE_CHARS
from gateway.agent.output.view import LINE_CHARS, SPACE_CHARS, View


def test_what_is_held_is_shown_with_the_next_text() -> None:
    """The opening of a block that no call follows."""
    view = View()
    view.show("A ")
    view.hold("```json\n")
    assert view.flushed() == "A "
    view.show(" \n")
    assert view.flushed() == ""
    view.show("x")
    assert view.flushed() == "```json\n \nx"
    assert view.text == "A ```json\n \nx"


def test_longer_white_space_is_not_held() -> None:
    """An upstream cannot make it hold more."""
    view = View()
    view.after_call = True
    view.show(" " * SPACE_CHARS)
    assert view.flushed() == ""
    view.show(" ")
    assert view.flushed() == " " * (SPACE_CHARS + 1)


def test_the_beginning_of_a_line_and_the_end_of_the_text() -> None:
    """A bounded part of each, whatever the pieces."""
    view = View()
    for _ in range(1000):
        view.show("ab\ncd")
        view.flushed()
    assert view.line == "cd"
    assert view.before() == ("ab\ncd" * 1000)[-SENTENCE_CHARS:]
    view.show("x" * 100)
    assert view.line == ("cd" + "x" * 100)[:LINE_CHARS]
