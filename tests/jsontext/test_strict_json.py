"""Strict JSON: one reading or none."""

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext.strict_json import DEPTH_LIMIT, RepeatedKeyError, StrictJsonError, loads, measure_depth, read
from gateway.jsontext.value_count import VALUES_LIMIT

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates are no text.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('abé{["\\', max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_valid_json_is_parsed_unchanged(value: object) -> None:
    """What is JSON has its value, from bytes as well as from a text, however it is written."""
    assert loads(json.dumps(value)) == value
    for content in (json.dumps(value).encode(), json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()):
        assert read(content) == value and repr(read(content)) == repr(loads(content.decode()))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 1}', "'a' is there twice"),
        ('{"x": {"b": 1, "b": 2}}', "'b' is there twice"),
        ('{"a": 1, "\\u0061": 2}', "'a' is there twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "too large"),
        ("1" * 5000, "too large"),
        ("[18446744073709551616]", "too large"),
        ('"\\ud800"', "not valid Unicode"),
        ('{"\\udfff": 1}', "not valid Unicode"),
        ("[1,]", "character"),
        ("{'a': 1}", "character 2"),
        ("", "character 1"),
        ("{} {}", "Extra data"),
        ("\ufeff{}", "BOM"),
        ("[" * 100_000, "more than 50000 values"),
        ("[" * 40_000, "levels deep"),
        ('{"a":' * 129 + "1" + "}" * 129, "levels deep"),
    ],
)
def test_ambiguous_json_is_refused_with_a_reason(text: str, reason: str) -> None:
    """The reason names what is wrong."""
    with pytest.raises(StrictJsonError, match=reason):
        loads(text)
    with pytest.raises(StrictJsonError, match=reason):
        read(text.encode())


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": [1, {"b": "\\ud800"}], "c": "\\ud800"}', "a[1].b"),
        ('{"a": {"\\ud800": 1}}', "a"),
        ('{"a": [NaN]}', "a[0]"),
        ("[[1e999]]", "[0][0]"),
        ('{"a": -9223372036854775809}', "a"),
        ("NaN", ""),
        ('{"a": NaN', ""),
        ('{"' + "a" * 300 + '": NaN}', "a" * 200),
    ],
)
def test_parse_error_reports_the_path_of_the_invalid_value(text: str, place: str) -> None:
    """As far as it is known, and not at any length."""
    with pytest.raises(StrictJsonError) as failed:
        loads(text)
    assert failed.value.place == place and (not place or str(failed.value).endswith(f"(at {place})"))


@given(VALUES, st.integers(0, 2 * DEPTH_LIMIT))
def test_bytes_and_text_parse_identically(value: object, depth: int) -> None:
    """Also those that a compact serializer wrote, which are read in a quicker way."""
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    content = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    found = []
    for reading in (lambda: loads(content), lambda: read(content.encode())):
        try:
            found.append(repr(reading()))
        except StrictJsonError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_json_at_the_depth_limit_is_accepted() -> None:
    """The limit itself is allowed."""
    assert measure_depth(json.dumps(loads("[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT)).encode()) == DEPTH_LIMIT


def test_braces_in_strings_are_no_nesting() -> None:
    """Only structure counts."""
    assert measure_depth(b'{"a": "[[[{{{", "b\\"[": "\\\\"}') == 1
    assert measure_depth(b'["never closed [[[') == 1


@given(st.text('{}[]",:\\1eNa \n', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other exception, whatever the text."""
    with contextlib.suppress(StrictJsonError):
        loads(text)


def either(reading: Callable[[], object]) -> tuple[object, str]:
    """What a reading returns, and its kind of error."""
    try:
        return repr(reading()), ""
    except StrictJsonError as error:
        return None, type(error).__name__


_SPACES = st.sampled_from(["", " ", "\n "])
_KEYS = st.sampled_from(['"a"', '"\\u0061"', '"a b"', '"\\" "', '"\\\\"', '"é"', '"\\u00e9"', '""'])
_LEAVES = st.one_of(
    _KEYS, st.sampled_from(["1", "1.50", "1e2", "100.0", "1E400", "-0", "18446744073709551616", "NaN", "null"])
)


@given(
    st.recursive(
        _LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
            st.lists(st.tuples(_SPACES, _KEYS, _SPACES, inner), max_size=3).map(
                lambda pairs: "{" + ",".join(f"{a}{key}{b}:{value}" for a, key, b, value in pairs) + "}"
            ),
        ),
        max_leaves=8,
    )
)
def test_fast_and_strict_parsers_agree(text: str) -> None:
    """With repeated keys in any spelling, numbers in odd ones, escapes and space."""
    assert either(lambda: read(text.encode())) == either(lambda: loads(text))


def test_repeated_key_raises_a_separate_error_type() -> None:
    """Whoever judges a text can tell it from what is no JSON at all."""
    with pytest.raises(RepeatedKeyError):
        loads('{"a": {"b": 1, "b": 2}}')
    for text in ('{"a": 1', "NaN", "[" * 1000):
        with pytest.raises(StrictJsonError) as failed:
            loads(text)
        assert not isinstance(failed.value, RepeatedKeyError)


def test_json_with_too_many_values_is_refused() -> None:
    """Up to the limit it is read, and commas in texts are none."""
    most = f"[{','.join(['1'] * (VALUES_LIMIT - 1))}]"
    assert len(loads(most)) == VALUES_LIMIT - 1
    assert loads(json.dumps("," * 2 * VALUES_LIMIT)) == "," * 2 * VALUES_LIMIT
    with pytest.raises(StrictJsonError, match=f"more than {VALUES_LIMIT} values"):
        loads(most[:-1] + ",1]")
    assert len(loads(most[:-1] + ",1]", most_values=VALUES_LIMIT + 1)) == VALUES_LIMIT
