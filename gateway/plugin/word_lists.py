"""Writes long lists of words as the text that they are."""


def split_words(text: str) -> frozenset[str]:
    """Return the words of `text`, which white space separates."""
    return frozenset(text.split())
