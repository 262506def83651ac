"""Thoughts of a model as one text, with the fields that only its provider reads, such as signatures.

Clients keep it and send it back: in the Responses API as `encrypted_content`, in Messages as the `data` of a
`redacted_thinking` block. It is an encoding and no seal: a client may send any thoughts as text.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import OF_CALLS, OPAQUE, PROVIDER_FIELDS
from gateway.jsontext import strict_json

_PREFIX: Final = "thoughts."
#: No item holds more values.
_VALUES: Final = 4096


@dataclass(frozen=True, slots=True)
class ReasoningContent:
    """The content of one packed text: `text` are the thoughts.

    `message` are fields of the message of its answer, and `calls` fields of its calls, by their ids. `goes_on`: the
    message has begun before it.
    """

    text: str = ""
    message: Json = field(default_factory=dict)
    calls: Mapping[str, Json] = field(default_factory=dict)
    goes_on: bool = False

    @property
    def texts(self) -> Iterator[str]:
        """Yield each text in it that a model may read."""
        if self.text:
            yield self.text
        left: list[object] = [self.message, *self.calls.values()]
        while left:
            match left.pop():
                case str(text):
                    yield text
                case dict() as fields:
                    left += [value for name, value in fields.items() if name not in OPAQUE]
                case list() as entries:
                    left += entries


def pack_reasoning(found: ReasoningContent) -> str:
    """Return thoughts and fields as one text."""
    fields = {"text": found.text, "message": found.message, "calls": found.calls, "goes_on": found.goes_on}
    written = orjson.dumps({name: value for name, value in fields.items() if value})
    return _PREFIX + base64.urlsafe_b64encode(written).decode()


def unpack_reasoning(content: str) -> ReasoningContent | None:
    """Return the thoughts and fields in a packed text. None: this gateway did not make it."""
    if not content.startswith(_PREFIX):
        return None
    try:
        written = base64.b64decode(content.removeprefix(_PREFIX).encode(), altchars=b"-_", validate=True)
        fields = strict_json.read(written, most_values=_VALUES)
    except (binascii.Error, UnicodeError, strict_json.StrictJsonError):
        return None
    if not isinstance(fields, dict):
        return None
    text, message, calls = fields.get("text", ""), fields.get("message", {}), fields.get("calls", {})
    if not (isinstance(text, str) and isinstance(message, dict) and isinstance(calls, dict)):
        return None
    return ReasoningContent(
        text,
        {name: value for name, value in message.items() if name in PROVIDER_FIELDS},
        {call_id: select_call_fields(call) for call_id, call in calls.items() if isinstance(call, dict)},
        fields.get("goes_on") is True,
    )


def select_call_fields(call: Mapping[str, object]) -> Json:
    """Return the fields of a call that only its provider reads."""
    return {name: value for name, value in call.items() if name not in OF_CALLS}
