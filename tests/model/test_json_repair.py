"""JSON that servers write badly, in streams and in whole answers."""

import pytest

from gateway.model.json_repair import Mender, mend_answer
from gateway.testing.scripts import build_answer, serve
from tests.agent.models import chunk, models, stream

HALVES = b'{"choices": [{"index": 0, "delta": {"content": "%b"}}]}'


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ((rb"a \ud83d", rb"\ude00 b"), "a \U0001f600 b"),
        ((rb"\ud83d", rb"\ude00\ud83d", rb"\ude01"), "\U0001f600\U0001f601"),
        ((rb"a\ud83d", rb"b"), "a\ufffdb"),
        ((rb"a\ude00b", b"c"), "a\ufffdbc"),
        ((rb"a\ud83d",), "a\ufffd"),
        ((b"a\xe2\x82b",), "a\ufffdb"),
    ],
)
async def test_split_surrogate_halves_are_joined_across_chunks(texts: tuple[bytes, ...], whole: str) -> None:
    """A half that stays alone is shown as one that nobody can read."""
    raw = stream(*(HALVES % text for text in texts), chunk(finish="stop"))
    async with models(serve(raw)) as answering:
        told = await answering.ask()
    assert (
        "".join(one if isinstance(one, str) else one["choices"][0]["delta"].get("content") or "" for one in told)
        == whole
    )


async def test_malformed_json_in_an_unstreamed_answer_is_repaired() -> None:
    """Halves of characters, and a number that JSON does not have."""
    said = b'{"choices": [{"index": 0, "logprobs": NaN, "message": {"content": "a\\ud83d"}, "finish_reason": "stop"}]}'
    async with models(serve(build_answer(200, said, [("Content-Type", "application/json")]))) as answering:
        (told,) = await answering.ask()
    assert isinstance(told, dict) and told["choices"][0]["delta"]["content"] == "a\ufffd"


def test_surrogate_halves_of_different_texts_are_not_joined() -> None:
    """Of the text and of the arguments of each call, which have numbers of their own."""
    mender = Mender()
    calls = b'{"choices": [{"delta": {"content": "a\\ud83d", "tool_calls": [{"index": 1, "f": "b\\ud83d"}]}}]}'
    rest = b'{"choices": [{"delta": {"tool_calls": [{"index": 1, "f": "\\ude00"}], "content": "\\ude01"}}]}'
    assert mender.mend_event(calls) == {
        "choices": [{"delta": {"content": "a", "tool_calls": [{"index": 1, "f": "b"}]}}]
    }
    assert mender.halves
    joined = {"content": "\U0001f601", "tool_calls": [{"index": 1, "f": "\U0001f600"}]}
    assert mender.mend_event(rest) == {"choices": [{"delta": joined}]} and not mender.halves


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b"{no}"])
def test_repair_rejects_data_that_is_not_json(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        mend_answer(data)
