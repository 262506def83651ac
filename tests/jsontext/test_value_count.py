"""How many values a JSON text holds."""

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext.value_count import (
    PIECE_BYTES,
    VALUES_LIMIT,
    Outline,
    ValueCounter,
    count_values,
    holds_more,
    iter_outline,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,:{}[]"\\\\\n你'),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4)
        | st.dictionaries(st.text(alphabet='b,{"\\\\'), inner, min_size=1, max_size=4)
    ),
    max_leaves=30,
)


def values(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + sum(map(values, value.values() if isinstance(value, dict) else value))
    return 1


@given(value=JSON, cuts=st.lists(st.integers(0, 500), max_size=10), indent=st.sampled_from([None, 2]))
def test_each_value_is_counted(value: Any, cuts: Sequence[int], indent: int | None) -> None:
    """However the text is cut; what stands in strings is nothing."""
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    counter = ValueCounter()
    for start, end in pairwise(edges):
        counter.feed(text[start:end])
    assert counter.count == values(value)


@pytest.mark.parametrize("inside", ["1", '{"a": [2]}', '"x"', "[]"])
def test_holds_more_is_true_only_above_the_limit(inside: str) -> None:
    """The limit itself is allowed."""
    text = f"[{','.join([inside] * 1000)}]".encode()
    counter = ValueCounter()
    counter.feed(text)
    assert not holds_more(text, counter.count) and holds_more(text, counter.count - 1)


def test_commas_in_strings_do_not_count_as_values() -> None:
    """A long table in a string is one value, with any escapes."""
    for text in ("1,2,3\n" * 300_000, '{"a": [1, 2]}, ' * 100_000, "\\" * 500_000, '\\"' * 300_000 + ",{[" * 100_000):
        assert not holds_more(json.dumps([text, "b"]).encode(), 10)


def test_value_count_accepts_invalid_json_without_failing() -> None:
    """It never fails: the parser says what is wrong."""
    for content in (b"", b"\\", b'"' * 100_001, b"\xff" * 100_000, b'"\\'):
        assert holds_more(content, VALUES_LIMIT) is False


@pytest.mark.parametrize("pattern", ["1,", '"a":1,', '"",', "[", "\\", '\\"', "a,b,", '"'])
def test_value_count_time_is_linear(pattern: str) -> None:
    """Twice as much of anything takes about twice as long."""

    def seconds(length: int) -> float:
        content = (pattern * (length // len(pattern))).encode()
        begun = time.process_time()
        holds_more(content, 10**9)
        return time.process_time() - begun

    # More than once, and 30 ms on top: a busy machine does not decide.
    assert any(seconds(4_000_000) <= 3 * seconds(2_000_000) + 0.03 for _ in range(3))


@given(JSON)
def test_parsed_value_and_its_text_have_equal_value_counts(value: Any) -> None:
    """And no further than asked."""
    counter = ValueCounter()
    counter.feed(json.dumps(value).encode())
    assert count_values(value, most=1000) == counter.count
    assert count_values(value, most=2) == min(counter.count, 3)


@given(st.lists(st.text('{}[]",:\\n 1', max_size=20)))
def test_outline_contains_only_text_outside_of_strings(strings: list[str]) -> None:
    """Wherever it is cut, so that no step takes longer than a piece."""
    content = json.dumps({"a": strings}).encode()
    expected = b'{"": [' + b", ".join([b'""'] * len(strings)) + b"]}"
    for size in (1, 2, 3, 7):
        outline = Outline()
        assert b"".join(outline.feed(content[at : at + size]) for at in range(0, len(content), size)) == expected
    assert b"".join(iter_outline(content)) == expected
    assert len(list(iter_outline(b'"' + b"x" * 10 * PIECE_BYTES))) == 11
