"""Folding keeps track of where text came from, phrases are whole words, and nothing takes more than linear time."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort

from gateway.dialects.chat_request import find_last_user_text
from gateway.text.phrases import TEXT_LIMIT, Phrases, Spans, fold, fold_phrase, is_whole

FULL_WIDTH = "ＵＳＥ　ｇｉｔ：！"


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}], "two"),
        ([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}], "one"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "a\nb"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}]}], "b"),
        ([{"role": "system", "content": "one"}], ""),
    ],
)
def test_last_user_message_text_is_returned(messages: object, text: str) -> None:
    """Its text parts, and nothing of other roles or kinds."""
    assert find_last_user_text(messages) == text


@pytest.mark.parametrize(
    "messages", [None, 1, "x", {}, [None], [{"role": "user"}], [{"role": "user", "content": [1, {"type": "text"}]}]]
)
def test_malformed_messages_yield_no_user_text(messages: object) -> None:
    """Whatever JSON the client sends."""
    assert find_last_user_text(messages) == ""


def test_only_the_first_20_000_characters_count() -> None:
    """Of a string, of many parts, and of text that grows when it is folded."""
    long = "x" * (3 * TEXT_LIMIT)
    assert len(find_last_user_text([{"role": "user", "content": long}])) == TEXT_LIMIT
    assert len(find_last_user_text([{"role": "user", "content": [{"type": "text", "text": long}] * 3}])) == TEXT_LIMIT
    assert len(fold("\ufdfa" * TEXT_LIMIT).text) == TEXT_LIMIT


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Use GIT", "use git"),
        (FULL_WIDTH, "use git:!"),
        ("天气。“好”", "天气。“好”"),
        ("Straße", "strasse"),
        ("cafe\u0301", "café"),
        ("ｶﾞ", "ガ"),
        ("wea\u200bther", "weather"),
        ("don’t", "don't"),
        ("‘x’", "‘x’"),
        ("", ""),
    ],
)
def test_text_folding_applies_nfkc_and_casefold(text: str, folded: str) -> None:
    """NFKC and casefold, without what cannot be seen; a typed apostrophe is an apostrophe."""
    assert fold(text).text == folded


@pytest.mark.parametrize(
    ("text", "phrase", "original"),
    [
        ("Straße, Weather", "weather", "Weather"),
        ("ﷺ Ｇｉｔ!", "git", "Ｇｉｔ"),
        ("a\u0301 wea\u200bther", "weather", "wea\u200bther"),
        ("😀天气", "天气", "天气"),
    ],
)
def test_phrase_hit_maps_back_to_the_original_text(text: str, phrase: str, original: str) -> None:
    """Also behind characters that change their number."""
    folded = fold(text)
    (hit,) = Phrases([phrase]).iterate_hits(folded.text)
    assert text[slice(*folded.find_original_span(hit.start, hit.end))] == original


@given(st.text(max_size=200))
def test_folded_positions_lie_inside_the_original_text(text: str) -> None:
    """One origin for each folded character, in order, none outside the text."""
    folded = fold(text)
    assert len(folded.text) <= len(folded.starts) == len(folded.ends)
    assert list(folded.starts) == sorted(folded.starts)
    assert all(0 <= start < end <= len(text) for start, end in zip(folded.starts, folded.ends, strict=True))


@given(st.text(alphabet=st.characters(max_codepoint=0xFFEF, categories=["Lu", "Ll", "Nd", "Zs"]), max_size=100))
def test_letter_folding_matches_the_unicode_standard(text: str) -> None:
    """As NFKC, casefold, NFKC of the whole text."""
    narrow = unicodedata.normalize("NFKC", text)
    assert fold(text).text == unicodedata.normalize("NFKC", narrow.casefold())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what time is it", ["time"]),
        ("sometimes", []),
        ("multitime", []),
        ("time_zone", []),
        ("time2", []),
        ("timé time", ["time"]),
        ("现在time是", ["time"]),
        ("i love c++11", ["c++"]),
        ("abc++", []),
        ("price 5$ (approx.) now", ["5$ (approx.)"]),
        ("今天天气好", ["天气"]),
    ],
)
def test_phrases_are_whole_words(text: str, found: list[str]) -> None:
    """Between characters of CJK there is always a boundary, behind a symbol too; what is found is literal."""
    phrases = Phrases(["time", "C++", "5$ (approx.)", "天气", "", "  "])
    assert [hit.phrase for hit in phrases.iterate_hits(text)] == found


def test_no_phrases_find_nothing() -> None:
    """Also where all are empty or too long to be looked for."""
    assert list(Phrases(["", "x" * 257]).iterate_hits("x" * 500)) == []
    assert fold_phrase("x" * 257) == ""


def test_is_whole_looks_at_both_sides() -> None:
    """Underscores and digits make a word longer, blanks and dots do not."""
    assert is_whole("a git.", 2, 5)
    assert not is_whole("a_git.", 2, 5)
    assert not is_whole("a git1", 2, 5)


def test_spans_cover_only_ranges_within_one_span() -> None:
    """Also when a long one begins before a short one."""
    spans = Spans([(0, 10), (2, 3), (20, 25)])
    assert spans.cover(4, 9) and spans.cover(20, 25)
    assert not spans.cover(9, 11) and not spans.cover(15, 16) and not spans.cover(24, 26)


@pytest.mark.parametrize("piece", ["e\u0301\u0327", "\u0301", "\u200b", "가\u11a8", "é", "用", "\ud800"])
def test_folding_takes_linear_time(piece: str) -> None:
    """20,000 characters of the worst kind take no noticeable time."""
    effort = Effort()
    fold(piece * TEXT_LIMIT)
    assert effort.cpu_s < 0.5
