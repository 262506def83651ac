"""The typed decoder says of an answer what the general one says, or leaves it to that."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage.shapes import AZURE, CHAT, COMPLETION, MESSAGE, RESPONSE, text

from gateway.lanes.passthrough.usual import read_usual
from gateway.usage.answers import of_whole
from gateway.usage.tokens import MOST

NUMBERS = st.one_of(
    st.integers(0, 1000),
    st.sampled_from((-1, -0.0, 12.0, 12.5, 1e3, MOST - 1, MOST, 1 << 63, 1 << 64, 1 << 200, True, None, "7", [], {})),
)
NAMES = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
    *("prompt_cache_hit_tokens", "cached_tokens", "reasoning_tokens", "input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "usage", "model", "choices", "\u00fcsage"),
)
VALUES = st.recursive(
    NUMBERS | st.sampled_from(("bench", "", "x" * 300, "a\nb", "\u6a21\u578b", '"usage":{"prompt_tokens":1}')),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=6),
    max_leaves=12,
)
OBJECTS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=8)
USAGES = st.lists(st.tuples(st.sampled_from(NAMES[:12]), NUMBERS | OBJECTS), max_size=8)
ANSWERS = st.lists(st.tuples(st.sampled_from(("usage", "model", "choices")), USAGES | VALUES), max_size=5)


def written(value: object) -> str:
    """JSON in which an object, a list of pairs here, may have a key more than once."""
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return "{" + ",".join(f"{json.dumps(key)}:{written(inner)}" for key, inner in value) + "}"
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def agrees(body: bytes) -> bool:
    """Whether the typed decoder reads it, and then as the general one."""
    usual = read_usual(body)
    if usual is None:
        return False
    assert of_whole(body) == (*usual, False), body
    return True


@given(ANSWERS)
def test_it_agrees_with_the_general_reader(answer: list[tuple[str, object]]) -> None:
    """On keys that come twice, numbers of all kinds, other names and other types."""
    agrees(written(answer).encode())


@given(st.integers(0, len(text(CHAT))), st.binary(max_size=3), st.integers(0, 3))
def test_it_agrees_on_answers_that_are_damaged(at: int, by: bytes, gone: int) -> None:
    """Also by bytes that are no UTF-8, in texts that it leaves out."""
    whole = text(CHAT)
    agrees(whole[:at] + by + whole[at + gone :])


@pytest.mark.parametrize("answer", [CHAT, AZURE, COMPLETION])
def test_it_reads_what_most_upstreams_write(answer: Mapping[str, object]) -> None:
    assert agrees(text(answer))


@pytest.mark.parametrize(
    "body",
    [
        text(RESPONSE),
        text(MESSAGE),
        b"\xef\xbb\xbf" + text(CHAT),
        text(CHAT).replace(b"Hello!", b"Hello\xff"),
        text(CHAT).replace(b"Hello!", b"\\ud800"),
        text({"usage": {"prompt_tokens": 1, "completion_tokens": -1}}),
        text({"usage": {"prompt_tokens": 12.0}}),
        text({"usage": {"prompt_tokens": MOST}}),
        text({"model": 7, "usage": {"prompt_tokens": 1}}),
        text({"model": "m"}),
        b'{"usage":{"prompt_tokens":1},"usage":null}',
        b"[1]",
        b"",
    ],
)
def test_it_leaves_the_others_to_the_general_reader(body: bytes) -> None:
    assert read_usual(body) is None


def test_texts_of_the_world_are_read() -> None:
    assert agrees(text({**CHAT, "model": "\u6a21\u578b", "user": "J\u00fcrgen"}))
    assert agrees('{"model":"\u6a21\u578b","usage":{"prompt_tokens":3}}'.encode())


def test_what_is_nested_deeply_is_read_or_left_alone() -> None:
    """By how deep this Python lets its libraries go; deeper is an answer for the general reader, and no error."""
    body = b'{"usage":{"prompt_tokens":1},"x":%b}' % (b"[" * 2000 + b"]" * 2000)
    assert read_usual(body) in (None, ((1, 0, 0, 0, 0), ""))
