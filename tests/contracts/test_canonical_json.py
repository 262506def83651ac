"""One text for one value, one hash for one call."""

import hashlib
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.canonical_json import call_sha256, hash_definition, write_canonical

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: object) -> object:
    """The same value with the keys of its objects the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_canonical_text_reads_back_as_the_value(value: object) -> None:
    """It reads back as the same value, is sorted and has no white space of its own."""
    text = write_canonical(value)
    assert orjson.loads(text) == value
    assert text.encode() == orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    assert write_canonical(shuffled(value)) == text


@given(VALUES)
def test_canonical_text_is_the_same_at_any_depth(value: object) -> None:
    """orjson writes 254 levels: whatever is deeper is written alike."""
    deep = value
    for _ in range(300):
        deep = {"a": [deep]}
    assert write_canonical(deep) == '{"a":[' * 300 + write_canonical(value) + "]}" * 300


@pytest.mark.parametrize("text", ["[" * 1024 + "]" * 1024, '{"a":' * 1024 + "{}" + "}" * 1024])
def test_canonical_writes_everything_orjson_reads(text: str) -> None:
    """At its deepest."""
    text = text.replace('{"a":{}}', "{}")
    assert write_canonical(orjson.loads(text)) == text


def test_numbers_that_differ_stay_different() -> None:
    """1 is not 1.0: a tool may tell them apart."""
    assert [write_canonical(value) for value in (1, 1.0, True, "1", -0.0)] == ["1", "1.0", "true", '"1"', "-0.0"]


def test_call_hash_is_stable() -> None:
    """It stays as it is: stored approvals are bound to it."""
    parts = b"14:twolane call 115:execute_command16:" + b'{"command":"ls"}'
    assert call_sha256("execute_command", write_canonical({"command": "ls"})) == hashlib.sha256(parts).hexdigest()


@given(TEXT, TEXT, TEXT, TEXT)
def test_two_calls_never_share_a_hash(tool: str, arguments: str, other_tool: str, other_arguments: str) -> None:
    """Not even where tool and arguments run into each other."""
    same = (tool, arguments) == (other_tool, other_arguments)
    assert (call_sha256(tool, arguments) == call_sha256(other_tool, other_arguments)) == same
    assert (tool == "") == (call_sha256(tool, arguments) == call_sha256("", tool + arguments))


def test_definition_hash_depends_on_every_part() -> None:
    """A change of any part changes the hash; the order of keys does not; no call has the hash of a definition."""
    schema = {"type": "object", "properties": {"a": {}}}
    hashes = {
        hash_definition("t", "d", schema),
        hash_definition("u", "d", schema),
        hash_definition("t", "e", schema),
        hash_definition("t", "d", {"type": "object"}),
        hash_definition("t", "d", schema, server="npx files"),
        hash_definition("td", "", schema),
        call_sha256("t", json.dumps(schema)),
    }
    assert len(hashes) == 7
    assert hash_definition("t", "d", shuffled(schema)) in hashes


def test_server_tool_hash_depends_on_the_command_not_the_definition() -> None:
    """Not the spelling of its definition, which may differ at each start."""
    assert hash_definition("t", "d", {}, server="npx a") == hash_definition("t", "e", {"a": 1}, server="npx a")
    assert hash_definition("t", "d", {}, server="npx a") != hash_definition("t", "d", {}, server="npx b")


def test_text_that_is_not_unicode_has_a_hash() -> None:
    """Lone surrogates raise nothing."""
    assert call_sha256("\ud800", write_canonical({"a": "\ud800"})) != call_sha256(
        "\ud801", write_canonical({"a": "\ud800"})
    )


def test_numbers_of_any_size_are_written() -> None:
    """Other readers than orjson know whole numbers beyond 64 bits."""
    assert write_canonical({"b": -(2**63) - 1, "a": [2**64]}) == '{"a":[18446744073709551616],"b":-9223372036854775809}'
