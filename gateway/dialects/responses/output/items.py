"""The items of an output while they are made, and as clients see them."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from gateway.contracts.storage.store import Json
from gateway.dialects.packed_reasoning import ReasoningContent, pack_reasoning
from gateway.dialects.responses.calls import ClientTool, build_call_item
from gateway.dialects.responses.events import encode_delta_head

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class Item(Protocol):
    """An item of an output."""

    @property
    def id(self) -> str:
        """Return the id."""
        ...

    def build_view(self) -> Json:
        """Return the item as it stands."""
        ...


@dataclass(frozen=True, slots=True)
class PartKind:
    """A kind of part that is a text: the names of its events and of their fields."""

    type: str
    added: str
    delta: str
    text_done: str
    done: str
    index: str
    text: str = "text"
    of_part: Json = field(default_factory=dict)
    of_texts: Json = field(default_factory=dict)


TEXT: Final = PartKind(
    "output_text",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "content_index",
    of_part={"logprobs": []},
    of_texts={"logprobs": []},
)
REFUSAL: Final = PartKind(
    "refusal",
    "response.content_part.added",
    "response.refusal.delta",
    "response.refusal.done",
    "response.content_part.done",
    "content_index",
    text="refusal",
)
#: Thoughts are the summary of a reasoning item. Both the Open Responses schemas and the SDKs have these events, and
#: clients show them; for raw thoughts the two disagree (`response.reasoning.delta`, `response.reasoning_text.delta`).
THOUGHT: Final = PartKind(
    "summary_text",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "summary_index",
)


class TextPart:
    """A part that is a text. `place` are the fields by which its events name it."""

    __slots__ = ("_whole", "annotations", "head", "kind", "pieces", "place")

    def __init__(self, kind: PartKind, place: Json) -> None:
        self.kind = kind
        self.place = place
        self.pieces: list[str] = []
        self.annotations: list[Json] = []
        self.head = encode_delta_head(kind.delta, {**place, **kind.of_texts})
        self._whole: str | None = None

    @property
    def text(self) -> str:
        """Return the text so far."""
        return "".join(self.pieces) if self._whole is None else self._whole

    def close(self) -> str:
        """Return the text, which is whole now."""
        self._whole = "".join(self.pieces)
        return self._whole

    def build_view(self) -> Json:
        """Return the part as it stands."""
        view = {"type": self.kind.type, self.kind.text: self.text, **self.kind.of_part}
        return {**view, "annotations": list(self.annotations)} if self.kind is TEXT else view


@dataclass(slots=True)
class Texts:
    """A message, or the thoughts of a model: an item of parts. `packs`: thoughts are shown packed, too.

    `beside` is what the model must see again besides the thoughts, which is shown packed in any case.
    """

    id: str
    index: int
    thinks: bool = False
    packs: bool = False
    status: Status = "in_progress"
    parts: list[TextPart] = field(default_factory=list)
    beside: ReasoningContent | None = None

    def build_part(self, kind: PartKind) -> TextPart:
        """Return a new part."""
        place = {"item_id": self.id, "output_index": self.index, kind.index: len(self.parts)}
        self.parts.append(TextPart(kind, place))
        return self.parts[-1]

    @property
    def said_chars(self) -> int:
        """Return the length of the answer text in it, without refusals and reasoning."""
        return sum(len(part.text) for part in self.parts if part.kind is TEXT)

    def build_view(self) -> Json:
        """Return the item as it stands."""
        parts = [part.build_view() for part in self.parts]
        if self.thinks:
            view: Json = {"id": self.id, "type": "reasoning", "status": self.status, "summary": parts}
            if (self.packs or self.beside is not None) and self.status != "in_progress":
                text = "\n".join(part.text for part in self.parts)
                view["encrypted_content"] = pack_reasoning(replace(self.beside or ReasoningContent(), text=text))
            return view
        return {"id": self.id, "type": "message", "status": self.status, "role": "assistant", "content": parts}


@dataclass(slots=True, kw_only=True)
class ClientCall:
    """A call of a tool of the client's own. `pieces` are its arguments as models write them: JSON.

    `is_told`: the client has got a piece of them.
    """

    id: str
    index: int
    call_id: str
    tool: ClientTool
    status: Status = "in_progress"
    pieces: list[str] = field(default_factory=list)
    is_told: bool = False

    @property
    def streams(self) -> bool:
        """Return whether the item shows the arguments as they are, so that pieces of them can be shown.

        Otherwise they decide what the item is, and it begins once they are whole.
        """
        return self.tool.kind == "function"

    @property
    def arguments(self) -> str:
        """Return the arguments so far."""
        return "".join(self.pieces)

    def build_view(self) -> Json:
        """Return the item as it stands."""
        call = build_call_item(self.tool, call_id=self.call_id, arguments=self.arguments)
        if not self.streams and self.status == "in_progress":  # its text follows
            call |= {name: "" for name in ("arguments", "input") if name in call}
        return {"id": self.id, "status": self.status, **call}


@dataclass(slots=True, kw_only=True)
class GatewayCall:
    """A call of one of the gateway's tools."""

    id: str
    index: int
    label: str
    name: str
    approval_id: str | None
    arguments: str = ""
    status: Status = "in_progress"
    result: str | None = None

    def build_view(self) -> Json:
        """Return the item as it stands."""
        failed = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": self.result}]}
        return {
            "id": self.id,
            "type": "mcp_call",
            "status": self.status,
            "server_label": self.label,
            "name": self.name,
            "arguments": self.arguments,
            "approval_request_id": self.approval_id,
            "output": self.result if self.status == "completed" else None,
            "error": failed if self.status == "failed" else None,
        }


@dataclass(slots=True)
class WholeItem:
    """An item whose fields are known at once."""

    fields: Json

    @property
    def id(self) -> str:
        """Return the id."""
        return str(self.fields["id"])

    def build_view(self) -> Json:
        """Return the item as it stands."""
        return self.fields
