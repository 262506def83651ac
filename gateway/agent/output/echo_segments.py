"""The answer of one turn as its client gets it: the texts that may come back, each by itself.

A dialect that shows an answer as items begins a new one where thoughts follow a text, or a call follows either. So the
texts between two such places are recognised by themselves, besides the answer as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.contracts.exchange import Chunk, Emit, Pause
from gateway.contracts.storage.store import Json
from gateway.dialects.extra_message_fields import FieldAccumulator

_Kind = Literal["said", "thought"]
#: Events that clients get as items.
_ITEMS: Final = ("tool.", "tools.", "approval.")


@dataclass(slots=True)
class _Piece:
    """A text that is one item. `tainted`: its model had read untrusted text."""

    kind: _Kind
    tainted: bool
    texts: list[str] = field(default_factory=list)


class EchoSegments:
    """The texts of one turn. `tainted`: the model that writes now has read untrusted text."""

    __slots__ = ("_at", "_beside", "_is_taken", "_n_taken", "_open", "_pieces", "_strange", "tainted")

    def __init__(self) -> None:
        self.tainted = False
        self._pieces: list[_Piece] = []
        self._beside: list[tuple[str, object]] = []
        self._strange: set[str] = set()  # fields of which a tainted model wrote a part
        self._open: _Piece | None = None  # the last piece, while it goes on
        self._is_taken = False
        self._n_taken = 0
        self._at = (0, 0, 0, False)

    def wrap_emit(self, emit: Emit) -> Emit:
        """Return a function that adds each chunk and emits it."""

        def emit_and_keep(chunk: Chunk) -> Pause | None:
            if isinstance(chunk, str):  # as nearly all are
                piece = self._open
                if piece is not None and piece.kind == "said" and piece.tainted == self.tainted:  # it goes on
                    piece.texts.append(chunk)
                else:
                    self._add_text("said", chunk)
            else:
                self.add(chunk)
            return emit(chunk)

        return emit_and_keep

    def begin_call(self, *, again: bool = False) -> None:
        """Start a call of the model. `again`: instead of the last one, of which the client gets nothing."""
        if again:
            self._discard_last_call()
        n_texts = len(self._pieces[-1].texts) if self._pieces else 0
        self._at = len(self._pieces), n_texts, len(self._beside), self._open is not None

    def _discard_last_call(self) -> None:
        """Remove the segments of the last model call, which the client does not get."""
        n_pieces, n_texts, n_beside, is_open = self._at
        del self._pieces[n_pieces:]
        if n_pieces:
            del self._pieces[-1].texts[n_texts:]
        del self._beside[n_beside:]
        self._open = self._pieces[-1] if is_open else None
        self._is_taken = False

    def add(self, chunk: Chunk) -> None:
        """Add a chunk that the client gets."""
        if isinstance(chunk, str):
            self._add_text("said", chunk)
            return
        self._is_taken = False
        event = chunk.get("context")
        if isinstance(event, dict) and str(event.get("type", "")).startswith(_ITEMS):
            self._open = None
        for choice in chunk.get("choices") or ():
            for name, value in (choice.get("delta") or {}).items():
                self._add_field(name, value, beside=choice["delta"])

    def _add_field(self, name: str, value: object, *, beside: Json) -> None:
        """Add a field of a chunk: text and reasoning as segments, other values to the whole answer."""
        if name == "content" and isinstance(value, str):
            self._add_text("said", value)
            return
        if name in ("content", "tool_calls", "function_call"):  # images, and calls, which the driver has whole
            self._open = None
            return
        if isinstance(value, str):
            if name == "refusal":
                self._add_text("said", value)
            elif name == "reasoning_content" or (name == "reasoning" and not beside.get("reasoning_content")):
                self._add_text("thought", value)
        if value is not None and name != "role":
            self._beside.append((name, value))
            if self.tainted:
                self._strange.add(name)

    def _add_text(self, kind: _Kind, text: str) -> None:
        """Append text to the open segment, or begin a segment of this kind."""
        piece = self._open
        if piece is None or piece.kind != kind:
            piece = self._open = _Piece(kind, self.tainted)
            self._pieces.append(piece)
            self._is_taken = False
        piece.tainted = self.tainted
        piece.texts.append(text)

    @property
    def answer_text(self) -> str:
        """Return the whole text of the answer so far, without thoughts."""
        return "".join(text for piece in self._pieces if piece.kind == "said" for text in piece.texts)

    def take_ended_texts(self) -> list[Json]:
        """Return the tainted texts that have ended, and were not taken yet, each as a message."""
        ended = len(self._pieces) - (self._open is not None)
        taken, self._n_taken = self._pieces[self._n_taken : ended], max(self._n_taken, ended)
        return [{"content": "".join(piece.texts)} for piece in taken if piece.tainted]

    def take_remaining_texts(self, said: Sequence[str], tool_calls: Sequence[Json]) -> list[Json]:
        """Return the remaining tainted segments and the whole answer as messages; [] the second time."""
        if self._is_taken:
            return []
        self._is_taken, self._open = True, None
        whole = FieldAccumulator()
        for name, value in self._beside:
            if name in self._strange:
                whole.add(name, value)
        return [*self.take_ended_texts(), {**whole.get_whole(), "content": "".join(said), "tool_calls": tool_calls}]
