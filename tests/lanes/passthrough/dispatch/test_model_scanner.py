"""The top-level `model` of a JSON body is found as the body arrives, however it is split."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.lanes.passthrough.dispatch.model_scanner import (
    LIMIT_BYTES,
    LIMIT_TOKENS,
    SHORT_BYTES,
    ModelField,
    find_model,
)


def found(body: bytes, size: int | None = None) -> str | None:
    field = ModelField()
    step = size or len(body) or 1
    for at in range(0, len(body), step):
        field.feed(body[at : at + step])
    return field.model


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model": "gpt-5"}', "gpt-5"),
        (b' \r\n{ "messages":[{"role":"user","content":"\\"model\\": \\"x\\""}] ,"model":"m" }', "m"),
        (b'{"a": {"model": "inner"}, "b": [1, {"model": "x"}], "model": "outer"}', "outer"),
        (b'{"n": -1.5e3, "t": true, "z": null, "model": "m"}', "m"),
        (b'{"mod\\u0065l": "m\\u00e9"}', "mé"),
        (b'{"s": "}{][,:\\\\", "model": "m"}', "m"),
        (b'{"model": "first", "model": "second"}', "first"),
        (b'{"Model": "no", "model ": "no"}', None),
        (b'{"model": 5, "x": "y"}', None),
        (b'{"model": null}', None),
        (b'{"model": {"model": "m"}}', None),
        (b'["model", "m"]', None),
        (b"model=m", None),
        (b"", None),
        (b"{}", None),
        (b'{"model" "m"}', None),
        (b'{"a": "b" "model": "m"}', None),
        (b'{"model": "bad \\x"}', None),
        (b'{"model": "cut', None),
        (b'\xef\xbb\xbf{"model": "m"}', None),
    ],
)
def test_scanner_finds_only_the_top_level_model(body: bytes, model: str | None) -> None:
    """Not one in a text or in a nested value; and the same in pieces of any size."""
    assert {found(body, size) for size in (None, 1, 2, 3, 7)} == {model}
    assert find_model(body) == model


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(
    before=st.dictionaries(st.text(max_size=8).filter(lambda key: key != "model"), _VALUES, max_size=4),
    model=st.text(),
    ascii_only=st.booleans(),
    size=st.integers(1, 40),
)
def test_scanner_agrees_with_a_json_parser(before: dict[str, object], model: str, ascii_only: bool, size: int) -> None:
    """Behind any other values."""
    text = json.dumps({**before, "model": model, "after": 1}, ensure_ascii=ascii_only)
    assert found(text.encode("utf-8", "surrogatepass"), size) == model
    assert found(json.dumps(before).encode(), size) is None


@given(st.binary(max_size=200), st.integers(1, 20))
def test_scanner_reads_any_bytes_without_error(body: bytes, size: int) -> None:
    """A body that is no JSON has no model."""
    found(b'{"' + body, size)
    found(body, size)


_NAMES = st.sampled_from(
    ['"model"', '"mod\\u0065l"', '"\\u006Dodel"', '"\\"model\\""', '"a"', '""', '"é"', '"\\ud800"']
)
_LEAVES = _NAMES | st.sampled_from(["1", "-1.5e3", "1e999", "null", "NaN", "[]", "{}", '"m', "x", "\ufeff", "\v"])
_ANY = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda of: f"[{','.join(of)}]")
        | st.lists(st.tuples(_NAMES, inner), max_size=3).map(lambda of: f"{{{','.join(f'{k}:{v}' for k, v in of)}}}")
    ),
    max_leaves=6,
)
_MARKS = st.sampled_from([*'{}[]:,"\\ \n', ""])


@given(
    members=st.lists(
        st.tuples(_NAMES, _MARKS, st.just(":"), _ANY, st.sampled_from([",", ", ", "", " \f,"])), max_size=5
    ),
    edges=st.tuples(st.sampled_from(["{", " {", "\ufeff{", "[", ""]), st.sampled_from(["}", "} ", "", "}}", "]"])),
)
@example(members=[('"model"', "", ":", '"m"', ",")], edges=("{", "}"))
def test_scanner_result_is_equal_for_whole_and_split_bodies(
    members: list[tuple[str, ...]], edges: tuple[str, str]
) -> None:
    """Also where keys come twice, are written with escapes, and in what is no JSON at all."""
    body = (edges[0] + "".join(map("".join, members)) + edges[1]).encode()
    assert find_model(body) == found(body, 7)


@given(members=st.lists(st.tuples(_NAMES, _ANY), max_size=5))
@example(members=[('"mod\\u0065l"', '"first"'), ('"model"', '"second"')])
@example(members=[('"model"', '"first"'), ('"model"', '"second"')])
def test_scanner_result_is_equal_for_whole_and_split_objects(members: list[tuple[str, str]]) -> None:
    """Where commas and colons are where they belong."""
    body = f"{{{','.join(f'{key}: {value}' for key, value in members)}}}".encode()
    assert find_model(body) == found(body, 7)


def test_scanner_bound_does_not_cut_short_bodies() -> None:
    """So the bound of the strings and brackets cuts none that is parsed."""
    body = b'{"":[],' + b'"":1,' * ((SHORT_BYTES - 30) // 5) + b'"model":"m"}'
    assert len(body) <= SHORT_BYTES and find_model(body) == found(body) == "m"


def test_scanner_lookahead_is_bounded() -> None:
    """By bytes, and by the strings and brackets in them; nothing is kept after it."""
    field = ModelField()
    field.feed(b'{"x": "' + b"y" * LIMIT_BYTES + b'", "model": "m"}')
    assert field.done and field.model is None and not field._data
    field = ModelField()
    field.feed(b'{"x": ' + b"[" * (2 * LIMIT_TOKENS))
    assert field.done
    field = ModelField()
    field.feed(b'{"x": "' + b"y" * (LIMIT_BYTES // 2) + b'", "model": "m"}')
    assert field.model == "m"
