"""The screen: what it replaces, where it ends a text, what it holds back, and that pieces change nothing."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.aio.cooperative import run_at_once
from gateway.plugin.stream_redactor import ALIKE, PIECE_CHARS, PLAIN, Letters, Pattern, Screen, screen_text


def rule(name: str, pattern: str, width: int) -> Pattern:
    return Pattern(name, re.compile(pattern), width)


def through(text: str, act: Callable[[str, str], str | None], letters: Letters = PLAIN) -> tuple[str, str | None]:
    return run_at_once(screen_text(text, RULES, act, letters))


RULES = rule("ab", "ab{1,3}", 5), rule("bc", "bbc", 4), rule("word", r"\bcat\b", 4)


def test_matches_are_replaced_from_the_left() -> None:
    """Where two overlap, the one that begins first counts."""
    assert through("abbc bbc xcat cat.", lambda name, text: f"<{name} {text}>") == (
        "<ab abb>c <bc bbc> xcat <word cat>.",
        None,
    )


def test_ending_rule_cuts_the_text_before_its_match() -> None:
    screen = Screen(RULES, lambda _name, _text: None)
    assert screen.feed("one ") + screen.feed("two ab three") == "one two "
    assert (screen.ended, screen.feed("more"), screen.finish()) == ("ab", "", "")


def test_lookalike_and_invisible_characters_are_normalised() -> None:
    """With an invisible character behind a match, which is a part of it."""
    assert through("Ａ a\u0301\u200bb\u200b!", lambda name, _: f"<{name}>")[0] == "Ａ <ab>!"
    assert "Ａé１٣\u00ad".translate(PLAIN) == "Ae13"
    assert "Жoе\u3000Ä".translate(ALIKE) == "жoe a"
    assert "4\u2011\u2013\u22125 k\u3164\u2800\u1160".translate(PLAIN) == "4---5 k"
    assert "\ufdfa".translate(ALIKE) == "\ufdfa", "a letter of three bytes does not become eighteen"
    assert len(Letters(alike=False)) == 0


def test_whitespace_run_matches_one_blank_in_alike_mode() -> None:
    rules = (rule("r", "a b", 4),)
    assert run_at_once(screen_text("xa \n\t b", rules, lambda _name, text: repr(text), ALIKE))[0] == "x" + repr(
        "a \n\t b"
    )


PIECES = st.lists(st.text("abc \u200bａ\u0301.", max_size=6), max_size=8)


@given(PIECES, st.booleans())
def test_redaction_is_independent_of_chunking(pieces: Sequence[str], alike: bool) -> None:
    letters = ALIKE if alike else PLAIN
    screen = Screen(RULES, lambda name, _: f"<{name}>", letters)
    told = "".join(map(screen.feed, pieces)) + screen.finish()
    assert told == through("".join(pieces), lambda name, _: f"<{name}>", letters)[0]


@given(st.text("abc ａ", max_size=8), st.integers(-6, 2))
def test_long_text_is_redacted_across_piece_boundaries(text: str, place: int) -> None:
    """It goes through in pieces, and nothing at a seam is missed."""
    whole = " " * (PIECE_CHARS + place) + text
    screen = Screen(RULES, lambda name, _: f"<{name}>")
    assert through(whole, lambda name, _: f"<{name}>")[0] == screen.feed(whole) + screen.finish()


@given(st.text("abcx ", max_size=40))
def test_no_more_is_held_back_than_the_widest_match(text: str) -> None:
    screen, n_sent = Screen(RULES, lambda _name, found: found), 0
    for begin, end in pairwise(range(len(text) + 1)):
        n_sent += len(screen.feed(text[begin:end]))
        assert end - n_sent <= 5


def test_stream_screen_without_rules_holds_nothing_back() -> None:
    assert Screen((), lambda _name, found: found).feed("abc") == "abc"
