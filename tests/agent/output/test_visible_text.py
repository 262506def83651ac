"""The shown and the held parts of an answer."""

from gateway.agent.output.example_detection import SENTENCE_CHARS
from gateway.agent.output.visible_text import LINE_CHARS, SPACE_CHARS, VisibleText


def test_held_text_is_shown_with_the_next_text() -> None:
    """The opening of a block that no call follows."""
    view = VisibleText()
    view.show("A ")
    view.hold_call_text("```json\n")
    assert view.flush() == "A "
    view.show(" \n")
    assert view.flush() == ""
    view.show("x")
    assert view.flush() == "```json\n \nx"
    assert view.text == "A ```json\n \nx"


def test_held_white_space_is_limited() -> None:
    """An upstream cannot make it hold more."""
    view = VisibleText()
    view.after_call = True
    view.show(" " * SPACE_CHARS)
    assert view.flush() == ""
    view.show(" ")
    assert view.flush() == " " * (SPACE_CHARS + 1)


def test_visible_text_keeps_a_bounded_line_and_tail() -> None:
    """A bounded part of each, whatever the pieces."""
    view = VisibleText()
    for _ in range(1000):
        view.show("ab\ncd")
        view.flush()
    assert view.line == "cd"
    assert view.get_shown_tail() == ("ab\ncd" * 1000)[-SENTENCE_CHARS:]
    view.show("x" * 100)
    assert view.line == ("cd" + "x" * 100)[:LINE_CHARS]
