"""The language of a page: a choice, else what the browser prefers, else English."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.language import find_language, parse_accept_language


@pytest.mark.parametrize(
    ("header", "language"),
    [
        *(("", "en"), ("*", "en"), ("de", "en"), ("fr, de;q=0.9", "en"), (";;;,,q=1", "en"), ("zh;q=x", "en")),
        *(("zh", "zh"), ("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("ZH-hant-TW", "zh"), ("de, zh;q=0.1", "zh")),
        *(
            ("en-US,en;q=0.9,zh;q=0.8", "en"),
            ("en;q=0.4, zh;q=0.5", "zh"),
            ("zh;q=0", "en"),
            ("en;q=0,zh;q=0.001", "zh"),
        ),
    ],
)
def test_accept_language_selects_the_console_language(header: str, language: str) -> None:
    assert parse_accept_language(header) == language


@given(st.text())
def test_accept_language_parser_handles_any_header(header: str) -> None:
    assert parse_accept_language(header) in ("en", "zh")


def test_only_languages_of_the_console_can_be_chosen() -> None:
    assert [find_language(text) for text in ("en", "zh", "ZH", "fr", "", None)] == ["en", "zh", None, None, None, None]
