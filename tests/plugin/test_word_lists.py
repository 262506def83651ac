"""Lists of words."""

from gateway.plugin.word_lists import split_words


def test_words_splits_on_any_whitespace() -> None:
    """White space of any kind separates words."""
    assert split_words("""
        a b
        c
    """) == {"a", "b", "c"}
