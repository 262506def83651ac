"""The fields of a model's answer that only its provider reads, gathered until a part of the answer can hold them.

A provider may refuse the turn after a call without them: the signature of a thought, for example, stands beside a call
(`tool_calls[].extra_content`) or beside the text (`reasoning_details`). Responses and Messages have no such fields, so
the thought in front of a call contains them, packed (gateway/dialects/packed_reasoning.py).
"""

from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator
from gateway.dialects.packed_reasoning import ReasoningContent, select_call_fields


class OpaqueFields:
    """The fields that no part of the answer holds yet."""

    __slots__ = ("_calls", "_ids", "_message")

    def __init__(self) -> None:
        self._message: FieldAccumulator | None = None
        self._calls: dict[str, FieldAccumulator] = {}
        self._ids: dict[int | None, str] = {}  # of calls, by the index under which their pieces come

    def add(self, name: str, value: object) -> None:
        """Add a piece of a field of the message."""
        self._message = self._message or FieldAccumulator()
        self._message.add(name, value)

    def add_call(self, piece: Json) -> None:
        """Add the fields of a piece of a call."""
        index = number if isinstance(number := piece.get("index"), int) else None
        if (call_id := piece.get("id")) and isinstance(call_id, str):
            self._ids[index] = call_id
        if fields := select_call_fields(piece):
            of_call = self._calls.setdefault(self._ids.get(index, ""), FieldAccumulator())
            for name, value in fields.items():
                of_call.add(name, value)

    def take(self, *, goes_on: bool = False) -> ReasoningContent | None:
        """Return the fields and forget them, or None if there are none. `goes_on`: their message has begun."""
        if self._message is None and not self._calls:
            return None
        message = {} if self._message is None else self._message.get_whole()
        calls = {call_id: fields.get_whole() for call_id, fields in self._calls.items()}
        self._message, self._calls = None, {}
        return ReasoningContent(message=message, calls=calls, goes_on=goes_on)
