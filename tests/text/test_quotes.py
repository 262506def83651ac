"""Quoted parts of a message are told apart from its own words."""

import pytest

from gateway.text.quotes import find_shown_text, list_code_blocks


@pytest.mark.parametrize(
    "text",
    [
        'he said "X" to me',
        "“X”怎么翻译",
        "「X」是什么",
        "『X』是什么",
        "‘X’ means",
        "what does 'X' mean",
        "what does `X` do",
        "look:\n```\nX\n```\nwhy",
        "look:\n~~~ sh\nX",
        "> X\nwhat is that",
    ],
)
def test_quoted_text_is_detected(text: str) -> None:
    """Quotes of both worlds, inline code, blocks and quoted lines."""
    at = text.index("X")
    assert find_shown_text(text.lower()).cover(at, at + 1)


@pytest.mark.parametrize(
    "text", ['"X"', "“X”。", "don't X, it's bad", '5" X 6"', "“X", "it's X", '"' + "-" * 1001 + 'X"', "a > X", "【X】"]
)
def test_unquoted_text_is_not_marked_as_quoted(text: str) -> None:
    """Apostrophes, inches, what never closes, brackets, and a message that is one quotation as a whole."""
    at = text.index("X")
    assert not find_shown_text(text.lower()).cover(at, at + 1)


def test_code_block_ends_at_a_fence_as_long_as_its_first() -> None:
    """A shorter fence inside does not end it; one that is not closed lasts to the end."""
    text = "````\n```\nX\n````\nY\n```\nZ"
    blocks = list_code_blocks(text)
    assert [blocks.cover(text.index(c), text.index(c) + 1) for c in "XYZ"] == [True, False, True]
