"""Fields of a message that stream in pieces: what may be shown of them, and what they are as a whole."""

from typing import Any

import pytest

from gateway.dialects.extra_message_fields import FieldAccumulator, MessageFields, TooDeepError, remove_approval_ids
from gateway.dialects.id_scrubbing import INSTEAD

ID = "ap_abcdefghijklmnopqrstuvwxyz"


def gathered(*pieces: tuple[str, object]) -> dict[str, Any]:
    whole = FieldAccumulator()
    for name, value in pieces:
        whole.add(name, value)
    return whole.get_whole()


def test_message_field_pieces_are_joined() -> None:
    """Texts are continued, but not those that each piece repeats; nothing is nothing; anything else is replaced."""
    first = {"id": "a", "type": "t", "data": "AA", "n": 1, "deep": {"text": "x"}}
    second = {"id": "a", "type": "t", "data": "BB", "n": 2, "deep": {"text": "y"}, "none": None}
    assert gathered(("f", first), ("f", second), ("f", None)) == {
        "f": {"id": "a", "type": "t", "data": "AABB", "n": 2, "deep": {"text": "xy"}, "none": None}
    }


def test_entries_of_a_list_are_continued_by_their_index_and_type() -> None:
    """Those without an index, or with a strange one, are whole."""
    entries = [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}, {"text": "c"}, "d", {"index": [1]}]
    more = [{"index": 0, "text": "A"}, {"index": 0, "type": "t", "text": "T"}, {"text": "c"}, {"index": 1, "type": {}}]
    assert gathered(("f", entries), ("f", more)) == {
        "f": [
            {"index": 0, "text": "aA"},
            *entries[1:],
            {"index": 0, "type": "t", "text": "T"},
            {"text": "c"},
            {"index": 1, "type": {}},
        ]
    }


@pytest.mark.parametrize("cut", range(1, len(ID)))
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: {"text": t}, lambda t: [{"index": 3, "type": "x", "text": t}]])
def test_split_approval_id_is_removed_from_message_fields(cut: int, wrap: Any) -> None:
    """And the text around it stays."""
    beside = MessageFields()
    shown = [beside.feed("f", wrap(piece)) for piece in (f"see {ID[:cut]}", ID[cut:])]
    assert gathered(*(("f", one) for one in shown), *beside.end_round().items()) == {
        "f": gathered(("f", wrap(f"see ap_{INSTEAD}")))["f"]
    }


def test_held_back_field_text_is_released_at_the_end() -> None:
    """A text may end with what an id begins with."""
    beside = MessageFields()
    for name, value in (("a", "the map_"), ("b", {"transcript": "map_"}), ("c", [{"index": 0, "text": "map_"}])):
        assert "_" not in str(beside.feed(name, value))
    assert beside.end_round() == {"a": "_", "b": {"transcript": "_"}, "c": [{"index": 0, "text": "_"}]}
    assert beside.end_round() == {}


def test_signatures_are_passed_on_unchanged() -> None:
    """Changed, they would be worth nothing."""
    signed = {"index": 0, "data": ID, "signature": ID, "deep": [{"thought_signature": ID}]}
    assert MessageFields().feed("f", [signed]) == [signed]


def test_indexes_of_a_later_round_continue_per_field() -> None:
    """By field."""
    beside = MessageFields()
    for expected in (0, 2, 4):
        assert beside.feed("f", [{"index": 1}]) == [{"index": expected + 1}]
        assert beside.feed("f", [{"index": 0}]) == [{"index": expected}]
        beside.end_round()
    assert beside.feed("g", [{"index": 0}]) == [{"index": 0}]


@pytest.mark.parametrize("deepen", [lambda v: [v], lambda v: {"a": v}])
def test_deeply_nested_message_field_is_refused(deepen: Any) -> None:
    """It could not be written again, and costs no stack."""
    value: object = "x"
    for _ in range(2000):
        value = deepen(value)
    for work in (remove_approval_ids, lambda v: MessageFields().feed("f", v), lambda v: FieldAccumulator().add("f", v)):
        with pytest.raises(TooDeepError):
            work(value)
