"""The meaning of a message does not depend on its author."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.message_identity import (
    extract_approval_ids,
    extract_call_ids,
    is_random,
    normalize_arguments,
    parse_meaning,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_argument_spelling_does_not_change_their_meaning(value: dict[str, object]) -> None:
    """Order of keys, white space and escapes make no difference."""
    backwards = dict(reversed(value.items()))
    spellings = {
        json.dumps(value),
        json.dumps(value, ensure_ascii=False, indent=1),
        json.dumps(backwards, separators=(",", ":")),
        json.dumps(json.dumps(value)),
    }
    assert len({normalize_arguments(spelled) for spelled in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 1}', '{"n": 1.0}'),
        ('{"n": 100}', '{"n": 1e2}'),
        ('{"n": -0.0}', '{"n": 0}'),
        ('{"n": 12345678901234567890}', '{"n": 12345678901234567000}'),
        ("", "{}"),
        ("null", "{}"),
        (None, " { } "),
        ({"a": [1, "é"]}, '{"a":[1.0,"\\u00e9"]}'),
        ('{"a": "\\/"}', '{"a": "/"}'),
    ],
)
def test_equivalent_argument_spellings_have_the_same_meaning(one: object, other: object) -> None:
    """Also those of JavaScript, which has one kind of number."""
    assert normalize_arguments(one) == normalize_arguments(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 1}', '{"n": "1"}'),
        ('{"n": 1}', '{"n": true}'),
        ('{"a": "b c"}', '{"a": "bc"}'),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": 1}', "{}"),
        ('{"a": null}', "{}"),
        ("{not json", "{}"),
    ],
)
def test_different_arguments_have_different_meanings(one: str, other: str) -> None:
    """A value, a type, an order, a key."""
    assert normalize_arguments(one) != normalize_arguments(other)


@pytest.mark.parametrize(
    "arguments", ["{not json", "[" * 100_000, '{"a": "\\ud800"}', '{"n": 1e999}', '{"n": NaN}', 7, [1], "9" * 5000]
)
def test_unparsable_arguments_are_compared_as_text(arguments: object) -> None:
    """No text is too odd."""
    assert normalize_arguments(arguments) == normalize_arguments(arguments)
    assert parse_meaning(
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    ).calls


@pytest.mark.parametrize(
    ("call_id", "expected"),
    [
        ("call_0123456789abcdef01234567", True),
        ("call_Ab3dEf6hIj9lMn2pQr5tUv8x", True),
        ("chatcmpl-tool-0123456789abcdef0123456789abcdef", True),
        ("550e8400-e29b-41d4-a716-446655440000", True),
        ("toolu_01A09q90qw90lq917835lq9", True),
        ("call_1", False),
        ("call_abcd1234", False),
        ("functions.get_current_weather:0", False),
        ("getCurrentWeatherForecast0", False),
        ("", False),
        ("x1y2" * 100, False),
    ],
)
def test_random_call_ids_are_recognized(call_id: str, expected: bool) -> None:
    """One that a model counts up, or makes of a name, is another conversation's, too."""
    assert is_random(call_id) is expected


def test_reasoning_removal_takes_linear_time() -> None:
    """Whatever a model repeats: a megabyte that begins nothing but thoughts is read once."""
    text = "<think>" * 150_000
    assert parse_meaning({"role": "assistant", "content": text}).text == text.encode()
    ended = parse_meaning({"role": "assistant", "content": "<think>a</think>b" * 50_000})
    assert ended.text == b"b" * 50_000


ID, ASK = "call_0a1b2c3d4e5f6a7b8c9d0e1f", "ap_" + "a2" * 13


def test_call_and_approval_ids_are_extracted_from_text() -> None:
    """Each approval once; an id of another form, or within another word, is none."""
    text = f"{ID} call_1 `approve {ASK} word` {ASK} m{ASK} {ASK}2 ap_1"
    assert (extract_call_ids(text), extract_approval_ids(text)) == ([ID], (ASK,))
    meant = parse_meaning({"role": "assistant", "content": text})
    assert (meant.ids, meant.asks) == ((ID,), (ASK,))
    said = parse_meaning({"role": "user", "content": text})
    assert (said.ids, said.asks) == ((), ())
