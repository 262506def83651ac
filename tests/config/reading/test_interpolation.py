"""References to variables."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.reading.interpolation import InterpolationError, expand

ENVIRON = {"KEY": "sk-1", "EMPTY": "", "NESTED": "${KEY} $$", "A_1": "x"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${KEY}", "sk-1"),
        ("Bearer ${KEY}!", "Bearer sk-1!"),
        ("${A_1}${KEY}", "xsk-1"),
        ("${EMPTY}", ""),
        ("${NOPE:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${NOPE:-}", ""),
        ("${KEY:-fallback}", "sk-1"),
        ("${NOPE:-a:b/c?d=e f}", "a:b/c?d=e f"),
        ("${KEY:?needed}", "sk-1"),
        ("$$", "$"),
        ("$${KEY}", "${KEY}"),
        ("$$$$", "$$"),
        ("costs $5", "costs $5"),
        ("$KEY", "$KEY"),
        ("end$", "end$"),
    ],
)
def test_references_are_replaced(text: str, expanded: str) -> None:
    """`${VAR}`, `${VAR:-default}`, `${VAR:?message}` and `$$`; a lone dollar sign stands for itself."""
    assert expand(text, environ=ENVIRON) == expanded


def test_expanded_variable_values_are_not_expanded_again() -> None:
    """A value that looks like a reference stays as it is."""
    assert expand("${NESTED}", environ=ENVIRON) == "${KEY} $$"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("${NOPE}", ["variable NOPE is not set: export it, or write ${NOPE:-default}"]),
        ("${NOPE:?tell me why}", ["variable NOPE is not set: tell me why"]),
        ("${EMPTY:?}", ["variable EMPTY is not set"]),
        ("${A}-${B}", ["A", "B"]),
        ("${}", ["not complete"]),
        ("${KEY", ["not complete"]),
        ("${env:KEY}", ["not complete"]),
        ("${KEY-x}", ["not complete"]),
        ("${A:-${KEY}}", ["not complete"]),
        ("${1A}", ["not complete"]),
    ],
)
def test_unresolvable_variable_references_are_all_reported(text: str, messages: list[str]) -> None:
    """One message per reference, with the next step; forms of other programs are not guessed."""
    with pytest.raises(InterpolationError) as caught:
        expand(text, environ=ENVIRON)
    assert len(caught.value.messages) == len(messages)
    for message, expected in zip(caught.value.messages, messages, strict=True):
        assert expected in message


def test_non_utf8_variable_is_refused() -> None:
    """Bytes that are not UTF-8 arrive as lone surrogates and would break whoever prints them."""
    with pytest.raises(InterpolationError, match="KEY is not valid UTF-8"):
        expand("${KEY}", environ={"KEY": "\udcff"})


@given(st.text("${}:-?AKEY_ \n", max_size=40))
def test_expanding_any_text_raises_only_interpolation_errors(text: str) -> None:
    """The only exception is InterpolationError, and doubled dollars always come back single."""
    with contextlib.suppress(InterpolationError):
        expand(text, environ=ENVIRON)
    assert expand(text.replace("$", "$$"), environ={}) == text
