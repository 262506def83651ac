"""Thoughts as `encrypted_content`."""

import pytest

from gateway.dialects.responses.thoughts import packed, unpacked


@pytest.mark.parametrize("text", ["", "Hm.", "Zwölf Boxkämpfer\n\n🥊", "x" * 10_000])
def test_thoughts_come_back_as_they_went(text: str) -> None:
    """In ASCII on the way."""
    assert packed(text).isascii() and unpacked(packed(text)) == text


@pytest.mark.parametrize("content", ["", "x", "gAAAAABo", "thoughts.x", "thoughts.é", "thoughts.//79", "thoughts._w=="])
def test_what_another_server_made_is_nothing(content: str) -> None:
    """A client may have begun its conversation there."""
    assert unpacked(content) is None
