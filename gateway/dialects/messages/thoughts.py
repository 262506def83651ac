"""Thoughts of models: blocks of Messages, and `reasoning_details` as OpenRouter has them.

A signature or redacted data is its provider's: it goes back byte for byte, at the same place of the answer. What
another provider wants back has no block of its own. It is packed into a `redacted_thinking` block, which clients send
back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import TEXT, Kind, mark_required
from gateway.dialects.packed_reasoning import unpack_reasoning

#: The format of thoughts that Anthropic's models sign.
FORMAT: Final = "anthropic-claude-v1"
#: The types of details of this format that blocks show.
SHOWN: Final = ("reasoning.text", "reasoning.encrypted")
#: The signature of a thought that no provider has signed: clients drop thoughts without one.
UNSIGNED: Final = "unsigned"
THOUGHT_FIELDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "thinking": {"type": TEXT, "thinking": mark_required(TEXT), "signature": TEXT},
    "redacted_thinking": {"type": TEXT, "data": mark_required(TEXT)},
}


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The place of a block among the blocks of its answer, with the text (in characters) and the calls before it."""

    index: int
    after_text: int
    after_calls: int

    def build_fields(self) -> Json:
        """Return the fields by which `reasoning_details` have the place."""
        found: Json = {"format": FORMAT, "index": self.index}
        if self.after_text:
            found["after_text"] = self.after_text
        if self.after_calls:
            found["after_calls"] = self.after_calls
        return found


@dataclass(slots=True)
class Thoughts:
    """The thoughts of one answer in a request, as its blocks are added."""

    _details: list[Json] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _fields: Json = field(default_factory=dict)
    _of_calls: dict[str, Json] = field(default_factory=dict)

    def add(self, block: Json, where: BlockPlace) -> Sequence[str]:
        """Add a checked block. Return the texts of it that a model may read."""
        place = where.build_fields()
        if block["type"] == "thinking":
            text, signature = block["thinking"], block.get("signature")
            if signature and signature != UNSIGNED:
                self._details.append({"type": "reasoning.text", "text": text, "signature": signature, **place})
            elif text:
                self._texts.append(text)
            return (text,) if text else ()
        found = unpack_reasoning(block["data"])
        if found is None:
            self._details.append({"type": "reasoning.encrypted", "data": block["data"], **place})
            return ()
        for name, value in found.message.items():
            known = self._fields.get(name)
            self._fields[name] = [*known, *value] if isinstance(known, list) and isinstance(value, list) else value
        self._of_calls |= found.calls
        return tuple(found.texts)

    def build_fields(self, calls: Sequence[Json]) -> Json:
        """Return the fields of the message of the answer, and add those of its calls to them."""
        for call in calls if self._of_calls else ():
            call |= {name: value for name, value in self._of_calls.get(call["id"], {}).items() if name not in call}
        found = dict(self._fields)
        if self._details:
            known = found.get("reasoning_details")
            found["reasoning_details"] = [*(known if isinstance(known, list) else ()), *self._details]
        if self._texts:
            found["reasoning_content"] = "".join(self._texts)
        return found
