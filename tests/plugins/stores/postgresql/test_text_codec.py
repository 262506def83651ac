"""Text and JSON for PostgreSQL: everything comes back, in the same order."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.stores.postgresql.text_codec import encode_json, encode_value, escape_text, restore_text

#: Many of the two characters that are written otherwise, and of what stands beside them.
TEXTS = st.text(alphabet=st.one_of(st.sampled_from("\0\x01\x02\x03a"), st.characters(exclude_categories=("Cs",))))


@given(TEXTS)
def test_any_text_is_restored(text: str) -> None:
    """What is stored has no U+0000."""
    assert "\0" not in escape_text(text)
    assert restore_text(escape_text(text)) == text


@given(TEXTS, TEXTS)
def test_stored_texts_have_the_order_of_the_texts(one: str, other: str) -> None:
    """As PostgreSQL compares them with the collation "C": by their bytes."""
    stored = (escape_text(one).encode() < escape_text(other).encode()) - (
        escape_text(one).encode() > escape_text(other).encode()
    )
    assert stored == (one.encode() < other.encode()) - (one.encode() > other.encode())


@given(st.recursive(TEXTS | st.none() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_texts_in_json_are_escaped(value: object) -> None:
    """Also keys; the JSON itself has no escape for U+0000, which PostgreSQL refuses."""
    written = encode_json(value)
    assert "\\u0000" not in written

    def restore(part: object) -> object:
        if isinstance(part, str):
            return restore_text(part)
        if isinstance(part, list):
            return [restore(one) for one in part]
        if isinstance(part, dict):
            return {restore_text(key): restore(one) for key, one in part.items()}
        return part

    assert restore(orjson.loads(written)) == value


def test_bytes_in_json_are_written_as_bytea() -> None:
    assert encode_json({"a": b"\x00\xff"}) == '{"a":"\\\\x00ff"}'


@pytest.mark.parametrize("value", ["\ud800", ["\udfff"], {"a": object()}])
def test_values_without_json_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode_json(value)


def test_parameters_are_escaped() -> None:
    """Texts and lists of texts; everything else is passed on."""
    assert encode_value(["\0", "b"]) == ["\x01\x01", "b"]
    assert [encode_value(value) for value in (None, 1, 1.5, True, b"\0")] == [None, 1, 1.5, True, b"\0"]
