"""Thoughts as `reasoning_details`, and back: byte for byte, in their order, or not at all."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.thoughts import ENCRYPTED, PROVIDER_TOOL, TEXT, build_entry, extract_blocks

THINKING: Json = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def entry(
    kind: str = TEXT, index: int = 0, answer: str = "a", place: tuple[int, int] = (0, 0), **fields: object
) -> Json:
    return build_entry(kind, fields, index=index, answer_id=answer, place=place)


def test_thoughts_come_back_as_blocks_in_the_order_of_their_answer() -> None:
    search: Json = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    details = [
        entry(ENCRYPTED, 3, data="eHg=", place=(7, 2)),
        entry(TEXT, 0, text="Hm.", signature="c2ln"),
        entry(PROVIDER_TOOL, 1, block=search),
    ]
    assert [tuple(one) for one in extract_blocks(details, set())] == [
        (THINKING, 0, 0),
        (search, 0, 0),
        ({"type": "redacted_thinking", "data": "eHg="}, 7, 2),
    ]


def test_thought_that_is_not_shown_keeps_its_signature() -> None:
    (placed,) = extract_blocks([entry(signature="c2ln")], set())
    assert placed.block == {"type": "thinking", "thinking": "", "signature": "c2ln"}


@pytest.mark.parametrize(
    "details",
    [
        None,
        "Hm.",
        [7],
        [entry(text="Hm.")],
        [entry(text="Hm.", signature="")],
        [entry(ENCRYPTED)],
        [entry(PROVIDER_TOOL)],
        [entry("reasoning.summary", summary="x")],
        [{**entry(text="Hm.", signature="s"), "format": "openai-responses-v1"}],
        [{"type": "reasoning.encrypted", "data": "x", "format": "google-gemini-v1"}],
        [{"type": "reasoning.text", "text": "x", "signature": "s"}],
    ],
)
def test_thoughts_of_others_and_without_proof_are_not_sent(details: object) -> None:
    assert list(extract_blocks(details, set())) == []


def test_thoughts_of_hidden_rounds_are_sent_once_and_only_those_of_the_last_answer_beside_a_text() -> None:
    """A client's message has the thoughts of all rounds, and those of the first stand in front of their calls."""
    known: set[str] = set()
    first, second = entry(text="Hm.", signature="c2ln"), entry(text="So.", signature="bzI=", index=1, answer="b")
    assert [one.block for one in extract_blocks([first], known)] == [THINKING]
    for found in (extract_blocks([first, second], known), extract_blocks([first, second], set())):
        assert [one.block["signature"] for one in found] == ["bzI="]
