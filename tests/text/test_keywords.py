"""The words by which memories are found."""

import pytest

from gateway.text.keywords import extract_keywords


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My Cats, the glass!", {"cat", "glass"}),
        ("我喜欢茶", {"我喜", "喜欢", "欢茶"}),
        ("茶 ＴＥＡ", {"茶", "tea"}),
        ("the of 的", set()),
        ("用python写", {"用", "python", "写"}),
        ("a\ud800b \x00", {"b"}),
    ],
)
def test_keywords_are_extracted_without_stop_words(text: str, found: set[str]) -> None:
    """Words, and pairs of characters of CJK, without what says nothing."""
    assert extract_keywords(text) == found
