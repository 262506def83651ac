"""Writes long lists of words as the text that they are."""


def words(text: str) -> frozenset[str]:
    """Return the words of `text`, which white space separates."""
    return frozenset(text.split())
