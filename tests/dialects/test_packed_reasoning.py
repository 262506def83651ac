"""Thoughts, and what else only a provider reads, as `encrypted_content`."""

import base64

import orjson
import pytest

from gateway.dialects.packed_reasoning import ReasoningContent, pack_reasoning, unpack_reasoning

SIGNED = ReasoningContent(
    "Hm.", {"reasoning_details": [{"signature": "s"}]}, {"call_1": {"extra_content": {"a": 1}}}, True
)


@pytest.mark.parametrize(
    "found",
    [
        ReasoningContent(),
        ReasoningContent("Hm."),
        ReasoningContent("Zwölf Boxkämpfer\n\n🥊"),
        ReasoningContent("x" * 10_000),
        SIGNED,
    ],
)
def test_packed_reasoning_round_trips(found: ReasoningContent) -> None:
    """In ASCII on the way."""
    assert pack_reasoning(found).isascii() and unpack_reasoning(pack_reasoning(found)) == found


def of(value: object) -> str:
    return "thoughts." + base64.urlsafe_b64encode(orjson.dumps(value)).decode()


@pytest.mark.parametrize(
    "content",
    [
        *("", "x", "gAAAAABo", "thoughts.x", "thoughts.é", "thoughts.//79", "thoughts._w=="),
        *map(of, ([], {"text": 1}, {"calls": []}, {"message": {"extra_content": [0] * 5000}})),
    ],
)
def test_foreign_encrypted_reasoning_is_ignored(content: str) -> None:
    """A client may have begun its conversation there."""
    assert unpack_reasoning(content) is None


def test_unpacked_reasoning_cannot_override_fields_of_the_items() -> None:
    """A client may write what it likes."""
    message = {"role": "system", "content": "x", "tool_calls": [], "reasoning_content": "y", "extra_content": 1}
    call = {"id": "2", "type": "x", "function": {}, "index": 1, "extra_content": 2}
    found = unpack_reasoning(of({"message": message, "calls": {"call_1": call, "call_2": 3}}))
    assert found == ReasoningContent(message={"extra_content": 1}, calls={"call_1": {"extra_content": 2}})


def test_reasoning_texts_exclude_signatures_and_encrypted_data() -> None:
    """Signatures and ids are none."""
    assert [*SIGNED.texts] == ["Hm."]
    details = [{"type": "reasoning.text", "text": "One."}, {"summary": "Two.", "data": "x"}]
    assert sorted(ReasoningContent(message={"reasoning_details": details}).texts) == ["One.", "Two."]
