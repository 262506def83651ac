"""The tags of thought."""

import pytest

from gateway.agent.output import reasoning_tags


@pytest.mark.parametrize("name", ["think", "thinking", "reasoning", "Think"])
def test_reasoning_tag_closes_only_with_its_own_name(name: str) -> None:
    """In any case of letters."""
    assert reasoning_tags.BEGIN.fullmatch(f"<{name}>") and reasoning_tags.END.fullmatch(f"</{name}>")
    assert reasoning_tags.build_end_pattern(name).fullmatch(
        f"</{name.upper()}>"
    ) and not reasoning_tags.build_end_pattern("x").search(f"</{name}>")


def test_partial_reasoning_end_tag_is_held_back() -> None:
    """So many characters are held back, and no more."""
    for text, length in (("a", 0), ("a<", 1), ("a</", 2), ("a</THINKIN", 9), ("</think>x", 0), ("a < b", 0), ("<<", 1)):
        assert reasoning_tags.get_partial_end_length(text) == length, text
