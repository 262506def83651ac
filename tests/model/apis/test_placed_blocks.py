"""The order of an answer whose message keeps thoughts, texts and calls apart."""

from collections.abc import Iterator, Sequence

from gateway.contracts.storage.store import Json
from gateway.model.apis.placed_blocks import (
    build_place,
    extract_placed,
    list_claimed_thoughts,
    order_blocks,
    place_block,
    read_count,
)


def block(name: str) -> Json:
    return {"type": name}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def test_blocks_stand_between_texts_and_calls() -> None:
    placed = [
        place_block(block("a"), {}),
        place_block(block("b"), {"after_text": 3}),
        place_block(block("c"), {"after_text": 6, "after_calls": 1}),
    ]
    ordered = order_blocks([text("Hm.So.")], [block("call_1"), block("call_2")], placed)
    assert ordered == [
        *(block("a"), text("Hm."), block("b"), text("So.")),
        *(block("call_1"), block("c"), block("call_2")),
    ]


def test_answer_without_placed_blocks_has_its_calls_behind_its_texts() -> None:
    assert order_blocks([text("Hm.")], [block("call")], []) == [text("Hm."), block("call")]


def test_place_of_a_client_is_read_with_care() -> None:
    assert build_place(0, 0) == {} and build_place(3, 1) == {"after_text": 3, "after_calls": 1}
    assert [read_count(value) for value in (3, 0, -1, True, "3", None)] == [3, 0, 0, 0, 0, 0]


def test_thoughts_of_answers_with_calls_are_claimed() -> None:
    details = [{"signature": "a"}, {"data": "b", "id": "c"}, {"signature": 7}, "d"]
    messages: list[Json] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "May I?", "reasoning_details": [{"signature": "e"}]},
        {"role": "assistant", "tool_calls": [{}], "reasoning_details": details},
        {"role": "assistant", "tool_calls": [{}], "reasoning_details": "odd"},
    ]
    assert list_claimed_thoughts(messages) == {"a", "b", "c"}


def test_thoughts_of_the_last_answer_are_taken_once_in_their_order() -> None:
    """Not those of another form or answer, of an earlier message, or of another one."""

    def build(entries: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
        return (({"key": entry.get("key")}, entry) for entry in entries)

    entries: list[Json] = [
        {"form": 1, "format": "f", "of": "a", "key": "old"},
        {"format": "f", "of": "b", "index": 2, "key": "two"},
        {"format": "f", "of": "b", "index": 1, "key": "one", "after_text": 3},
        {"format": "f", "of": "b", "index": 3, "key": "known"},
        {"format": "f", "of": "b", "index": 4, "key": "claimed"},
        {"format": "f", "of": "b", "index": 0},
        {"format": "g", "of": "c", "key": "foreign"},
    ]
    known, claimed = {"known"}, frozenset(("claimed",))
    found = extract_placed(
        [*entries, "odd"], build, form="f", answer="of", proofs=("key", "other"), known=known, claimed=claimed
    )
    assert [(one.block["key"], one.after_text) for one in found] == [(None, 0), ("one", 3), ("two", 0)]
    assert known == {"known", "one", "two"}
