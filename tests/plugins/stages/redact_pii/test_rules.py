"""What counts as personal data, what only looks like it, and that the pieces of a stream change nothing."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.aio.cooperative import run_at_once
from gateway.plugin.stream_redactor import Screen, screen_text
from gateway.plugins.stages.redact_pii.rules import RULES, WIDTH, select_rules

ALL = select_rules(list(RULES))
DATA = {
    "api_key": [
        "sk-proj-abcdefghijklmnopqrstuv",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1" * 18,
        "npm_" + "b2" * 18,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.",
        "AIza" + "b" * 35,
    ],
    "email": [
        "ann@example.com",
        "a.b+c@mail.example.co.uk",
        "ａｎｎ@example.com",
        "ann@exam\u200bple.com",
        "ann@exam\u3164ple.com",
        "ann%40example.com",
        "ann&#64;example.com",
    ],
    "iban": [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB29 NWBK 6016 1331 9268 19",
        "no9386011117947",
        "DE 89 3704 0044 0532 0130 00",
        "GB29‑NWBK‑6016‑1331‑9268‑19",
    ],
    "national_id": [
        "123-45-6789",
        "AB 12 34 56 C",
        "11010519491231002X",
        "110105 19491231 002X",
        "12345678Z",
        "X1234567L",
        "1 84 12 76 451 089 46",
        "529.982.247-25",
    ],
    "card": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "5500  0000  0000  0004",
        "5500.0000.0000.0004",
        "378282246310005",
        "４" + "１" * 15,
        "5500–0000–0000–0004",
        "5500⠀0000⠀0000⠀0004",
    ],
    "ip": ["192.0.2.17", "2001:db8::8a2e:370:7334", "2001:0db8:85a3:0000:0000:8a2e:0370:7334"],
    "phone": [
        "+1 (415) 555-2671",
        "+4915123456789",
        "(415) 555-2671",
        "415-555-2671",
        "415‑555‑2671",
        "415  555  2671",
        "13800138000",
        "030 123-4567",
        "138 1234 5678",
        "138-1234-5678",
        "(010)88886666",
        "(030) 1234567",
        "(030) 123 456-78",
        "089 / 123 45 67",
        "015123456789",
        "06 12 34 56 78",
    ],
}
NOTHING = [
    "4111 1111 1111 1112",
    "GB29 NWBK 6016 1331 9268 18",
    "000-12-3456",
    "version 1.2.3.4.5",
    "999.1.1.1",
    "12:30:45",
    "std::vector and a::b",
    "you@home",
    "@example.com",
    "in 2024 there were 1234567 of them",
    "sk-short",
    "11010519491231002Y",
]


def redacted(text: str) -> str:
    return run_at_once(screen_text(text, ALL, lambda rule, _data: f"<{rule}>"))[0]


@pytest.mark.parametrize(("rule", "data"), [(rule, one) for rule, listed in DATA.items() for one in listed])
def test_personal_data_is_redacted(rule: str, data: str) -> None:
    """Alone, in a sentence, between Chinese characters and in front of a full stop."""
    assert redacted(data) == f"<{rule}>"
    assert redacted(f"It is {data}, I think.") == f"It is <{rule}>, I think."
    assert redacted(f"请记住{data}。谢谢") == f"请记住<{rule}>。谢谢"
    assert redacted(f"{data}.\n") == f"<{rule}>.\n"


@pytest.mark.parametrize("text", NOTHING)
def test_similar_looking_text_is_not_redacted(text: str) -> None:
    assert redacted(text) == text


def test_password_in_a_url_is_redacted() -> None:
    """With the user before it; host and port say which server is meant."""
    assert redacted("postgres://me:hunter2@db.lan:5432/shop") == "postgres<api_key>@db.lan:5432/shop"
    assert redacted("https://example.com:8080/a@b") == "https://example.com:8080/a@b"


def test_long_token_is_made_unusable() -> None:
    """Its beginning is gone, with what it says of its user."""
    token = f"eyJ{'a' * 40}.{'b' * 400}.{'c' * 43}"
    assert redacted(f"use {token}").startswith("use <api_key>b") and "eyJ" not in redacted(token)


def test_only_the_selected_rules_apply() -> None:
    text = "ann@example.com 192.0.2.17"
    assert (
        run_at_once(screen_text(text, select_rules(["ip"]), lambda rule, _: f"<{rule}>"))[0] == "ann@example.com <ip>"
    )


WORDS = st.sampled_from([*(one for listed in DATA.values() for one in listed), *NOTHING, *" \n.-+(1é请", "a@"])
TEXTS = st.lists(WORDS | st.text("0123456789 -.@:+()aAbBxX\u200b", max_size=8), max_size=12).map("".join)


@given(TEXTS, st.lists(st.integers(0, 200), max_size=8))
@example("GB29 NWBK 6016 1331 9268 19", [*range(28)])
def test_stream_splits_do_not_change_the_redacted_text(text: str, cuts: Sequence[int]) -> None:
    """Any split gives the answer of the whole, and no piece of data is sent before it is known."""
    screen, sent = Screen(ALL, lambda rule, _data: f"<{rule}>"), ""
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for begin, end in pairwise(places):
        sent += screen.feed(text[begin:end])
    assert sent + screen.finish() == redacted(text)


@given(TEXTS)
def test_held_back_stream_text_is_bounded(text: str) -> None:
    """Letters and blanks wait for the end of their word, anything at most for the widest match."""
    screen = Screen(ALL, lambda _rule, data: data)
    n_sent = n_given = 0
    for char in f"{text} An ordinary sentence follows here":
        n_given += len(char)
        n_sent += len(screen.feed(char))
        assert n_given - n_sent <= 2 * WIDTH
    assert n_given - n_sent == len("here")


def test_long_repetitions_are_scanned_in_linear_time() -> None:
    """Also where each character may begin something; the search itself is bounded, so nothing is measured here."""
    for text in ("1 " * 20_000, "a" * 40_000, "a@" * 20_000, "::" * 20_000, "AB12 " * 8_000):
        assert len(re.sub(r"<\w+>", "", redacted(text))) <= len(text)
