"""Ids and numbers of calls: each names one call of its answer, whatever the model server gave."""

from typing import Any

from gateway.agent.output.call_ids import CallIds, generate_call_id
from gateway.dialects.message_identity import is_random


def piece(index: object, name: str = "", call_id: object = "") -> dict[str, Any]:
    return {"index": index, "function": {"name": name, "arguments": "{"}, **({"id": call_id} if call_id else {})}


def test_generated_call_id_is_random() -> None:
    """No second call has it, so what is hidden in front of the call can be found by it."""
    assert is_random(generate_call_id()) and generate_call_id() != generate_call_id()


def test_unique_call_ids_are_kept() -> None:
    """Also where each piece repeats them, and in pieces that no call begins with."""
    pieces = [piece(0, "f", "1"), piece(0, "", "1"), piece(0), piece(1, "g", "2"), piece(7), "no piece"]
    assert CallIds().assign_ids(pieces) == pieces


def test_second_call_with_the_same_id_gets_a_new_id() -> None:
    """In each of its pieces that has an id, also where all calls have the same index."""
    ids = CallIds()
    (first, second, again) = ids.assign_ids([piece(0, "f", "1"), piece(1, "f", "1"), piece(1, "f", "1")])
    assert first["id"] == "1" and second["id"] == again["id"] != "1"
    (third, fourth) = ids.assign_ids([piece(1, "f", "2"), piece(1, "f", "1")])
    assert third["id"] == "2" and len({"1", "2", second["id"], fourth["id"]}) == 4


def test_call_without_an_id_gets_a_random_id() -> None:
    """Once: an id that comes too late is not told."""
    (first, late) = CallIds().assign_ids([piece(0, "f"), piece(0, "", "1")])
    assert is_random(first["id"]) and late["id"] == first["id"]


def test_calls_sharing_an_index_are_renumbered() -> None:
    """Their further pieces follow them. So are calls without an index, and those that begin at 1."""
    pieces = [piece(0, "f", "1"), piece(0, "", "1"), piece(0, "g", "2"), piece(0), piece(0, "", "2")]
    assert [one["index"] for one in CallIds().assign_ids(pieces)] == [0, 0, 1, 1, 1]
    unnumbered = [piece(None, "f", "1"), piece(None, "", "1"), piece(None, "g", "2"), piece(None), piece(None, "h")]
    assert [one["index"] for one in CallIds().assign_ids(unnumbered)] == [0, 0, 1, 1, 2]
    assert [one["index"] for one in CallIds().assign_ids([piece(1, "f", "1"), piece(1), piece(2, "g", "2")])] == [
        0,
        0,
        1,
    ]


def test_invalid_call_pieces_are_left_unchanged() -> None:
    """An upstream may send anything."""
    pieces = [piece("0", "f", "1"), piece(0, "f", 7), {"index": 0, "id": "1", "function": "f"}]
    assert CallIds().assign_ids(pieces) == pieces
