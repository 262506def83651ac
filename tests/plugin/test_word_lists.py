"""Lists of words."""

from gateway.plugin.word_lists import words


def test_words_of_several_lines() -> None:
    """White space of any kind separates words."""
    assert words("""
        a b
        c
    """) == {"a", "b", "c"}
