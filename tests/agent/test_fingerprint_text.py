"""The texts that an answer is recognised by: the same however its clients write it, and none that is short."""

import json

import pytest

from gateway.agent.fingerprint_text import TELLING_BYTES, extract_fingerprint_texts
from gateway.contracts.storage.store import Json

LONG = "A text that is long enough to be recognised by itself, wherever it stands."
OTHER = "Another text that is long enough to be recognised by itself, if it stands alone."


def call(arguments: object, **fields: object) -> Json:
    return {"tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": arguments}, **fields}]}


ARGUMENTS = json.dumps({"a": LONG, "n": 1, "l": [{"x": True}]})
SAME: dict[str, tuple[Json, Json]] = {
    "white space": ({"content": LONG}, {"content": f"\n{LONG} \u00a0\n"}),
    "parts": ({"content": LONG}, {"content": [{"type": "text", "text": LONG[:9]}, LONG[9:]]}),
    "another field": ({"content": LONG}, {"reasoning_content": LONG}),
    "a signature": ({"x": [{"text": LONG, "signature": "s"}]}, {"content": LONG}),
    "other pieces": ({"x": [{"text": LONG[:40]}, {"text": LONG[40:], "id": "1"}]}, {"content": LONG}),
    "tags": ({"content": f"<think>{LONG}</think>Hi"}, {"reasoning": LONG}),
    "tags without a beginning": ({"content": f"{LONG}</think>Hi"}, {"reasoning": LONG}),
    "text behind tags": ({"content": f"<think>Hm</think>{LONG}"}, {"content": LONG}),
    "a refusal": ({"refusal": LONG}, {"content": [{"type": "refusal", "refusal": LONG}]}),
    "arguments": (
        call(ARGUMENTS),
        call(json.dumps({"l": [{"x": True}], "n": 1.0, "a": LONG}, indent=1), type="function"),
    ),
    "arguments as an object": (call(ARGUMENTS), call(json.loads(ARGUMENTS))),
    "arguments written twice": (call(ARGUMENTS), call(json.dumps(ARGUMENTS))),
    "null and {}": (call(ARGUMENTS), call(json.dumps({**json.loads(ARGUMENTS), "null": None, "env": {}}))),
    "an older call": (call(ARGUMENTS), {"function_call": {"name": "g", "arguments": ARGUMENTS}}),
    "a custom tool": (call(json.dumps({"input": LONG})), {"tool_calls": [{"custom": {"name": "c", "input": LONG}}]}),
    "no JSON": (call(f"{{{LONG}"), call(f"{{ {LONG}")),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_equivalent_texts_share_a_fingerprint(one: Json, other: Json) -> None:
    assert set(extract_fingerprint_texts(one)) & set(extract_fingerprint_texts(other))


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": None, "tool_calls": None, "x": None},
        {"role": "assistant" * 9, "id": LONG, "name": LONG, "tool_call_id": LONG},
        {"x": [{"id": LONG, "type": LONG}], "n": 7, "content": 7, "tool_calls": [7, {"function": 7}]},
        {"content": "x " * (TELLING_BYTES - 1)},
        call(json.dumps({f"a name of a field that is long, {n}": "x" for n in range(9)})),
        call(""),
        call(json.dumps({LONG: {"a": None}, "b": {}})),
    ],
)
def test_short_or_textless_fields_yield_no_fingerprint_text(message: Json) -> None:
    """Names, ids, what is no text, and texts and values that are short."""
    assert extract_fingerprint_texts(message) == []


def test_each_text_is_fingerprinted_once() -> None:
    """The length is that in bytes."""
    message = {"content": LONG, "reasoning_content": OTHER, "reasoning": OTHER, **call(ARGUMENTS)}
    assert len(extract_fingerprint_texts(message)) == 3
    assert len(extract_fingerprint_texts({"content": "\u00e9" * (TELLING_BYTES // 2)})) == 1
    assert not set(extract_fingerprint_texts({"content": LONG})) & set(extract_fingerprint_texts({"content": OTHER}))


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a": "\\ud800' + "x" * 60 + '"}', '{"a": 1e400}' + "x" * 60])
def test_malformed_arguments_are_fingerprinted_as_text(arguments: str) -> None:
    """Too deep, not to be written, or no JSON."""
    assert len(extract_fingerprint_texts(call(arguments))) == 1


def test_deeply_nested_values_are_fingerprinted() -> None:
    """A request may nest as it likes."""
    value: object = LONG
    for _ in range(50_000):
        value = [value]
    assert set(extract_fingerprint_texts({"x": value})) == set(extract_fingerprint_texts({"content": LONG}))
