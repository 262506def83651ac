"""Fields that only a provider reads, gathered from the pieces of an answer."""

from gateway.dialects.opaque_fields import OpaqueFields
from gateway.dialects.packed_reasoning import ReasoningContent


def test_opaque_fields_are_joined_and_taken_once() -> None:
    """The message has its own, and each call by its id, which only its first piece may have."""
    fields = OpaqueFields()
    fields.add("reasoning_details", [{"index": 0, "text": "H"}])
    fields.add("reasoning_details", [{"index": 0, "text": "m."}])
    fields.add_call({"index": 0, "id": "1", "function": {"name": "f"}})
    fields.add_call({"index": 1, "id": "2", "function": {"name": "g"}, "extra_content": {"a": 1}})
    fields.add_call({"index": 0, "function": {"arguments": "{}"}, "extra_content": {"b": 2}})
    details = {"reasoning_details": [{"index": 0, "text": "Hm."}]}
    calls = {"2": {"extra_content": {"a": 1}}, "1": {"extra_content": {"b": 2}}}
    assert fields.take(goes_on=True) == ReasoningContent(message=details, calls=calls, goes_on=True)
    assert fields.take() is None


def test_malformed_call_pieces_are_ignored() -> None:
    """An upstream may send anything."""
    fields = OpaqueFields()
    fields.add_call({"index": [], "id": [], "function": 7})
    assert fields.take() is None
