"""The items of one response as they stream, as deltas of chat completions. Sans-I/O.

Texts are content, and calls are `tool_calls`. Reasoning comes twice: as `reasoning_content`, which clients show, and as
`reasoning_details`, which go back to the model. Items of tools that the provider has run go back to it, too, and are
named in `executed_tools`: their results are untrusted text.
"""

from collections.abc import Iterator
from typing import Final

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.thoughts import (
    ENCRYPTED,
    FORMAT,
    GAP,
    MESSAGE,
    PROVIDER_TOOL,
    SUMMARY,
    TEXT,
    build_entry,
)

#: Fields of an entry with a thought, by its kind.
_FIELDS: Final = {SUMMARY: "summary", TEXT: "text"}


class _OpenItem:
    """An item under way. `place` is the text and the calls in front of it."""

    __slots__ = ("begun", "call", "id", "part", "parts", "place", "shown")

    def __init__(self, item_id: object, place: tuple[int, int]) -> None:
        self.id = item_id
        self.place = place
        self.begun = False  # something of it has come
        self.call = -1  # the number of the call that it is
        self.shown = ""  # the kind of thought that clients are shown of it
        self.part: object = 0  # of its summary, the one under way
        self.parts: list[int] = []  # the lengths of those of its summary


class AnswerItems:
    """The items of one answer. `answer_id` is the answer's id, once its first event has come."""

    __slots__ = ("_calls", "_open", "_text_chars", "answer_id")

    def __init__(self) -> None:
        self.answer_id = ""
        self._text_chars = 0
        self._calls = 0
        self._open: dict[int, _OpenItem] = {}

    @property
    def has_calls(self) -> bool:
        """Return whether the answer calls a tool of the request."""
        return self._calls > 0

    def begin(self, item: Json, index: int) -> Chunk | None:
        """Begin an item. Return the chunk of what it begins with; None: nothing."""
        opened = self._open[index] = _OpenItem(item.get("id"), (self._text_chars, self._calls))
        match item.get("type"):
            case "message":
                return _build_delta(self._build_phase(opened, item, index))
            case "function_call":
                return self._begin_call(opened, item)
        return None

    def add_text(self, text: str, index: int) -> None:
        """Count a piece of text."""
        self._text_chars += len(text)
        if (opened := self._open.get(index)) is not None:
            opened.begun = True

    def add(self, kind: str, event: Json, index: int) -> Chunk | None:
        """Add a piece to an item. Return its chunk; None: it has none."""
        piece = event.get("delta")
        if not isinstance(piece, str) or not piece:
            return None
        match kind:
            case "response.output_text.delta":
                self.add_text(piece, index)
                return piece
            case "response.refusal.delta":
                self._find(index).begun = True
                return _build_delta({"refusal": piece})
            case "response.reasoning_summary_text.delta":
                return _build_delta(self._build_summary(self._find(index), piece, index, event.get("summary_index")))
            case "response.reasoning_text.delta":
                return _build_delta(self._build_thought(self._find(index), TEXT, piece, index))
        opened = self._find(index)
        if opened.call < 0:
            return None  # all of it comes at its end
        opened.begun = True
        return _build_call(opened.call, {"arguments": piece})

    def end(self, item: Json, index: int) -> Iterator[Chunk]:
        """End an item. Yield the chunks of what has not come of it."""
        opened = self._find(index)
        self._open.pop(index, None)
        opened.id = item.get("id")
        match item.get("type"):
            case "message":
                if not opened.begun:
                    yield from _list_chunks(_build_delta(self._build_phase(opened, item, index)))
                    yield from self._list_texts(item.get("content"), index)
            case "function_call":
                if opened.call < 0:
                    yield self._begin_call(opened, item)
                if not opened.begun:
                    yield _build_call(opened.call, {"arguments": item.get("arguments")})
            case "reasoning":
                for delta in self._end_reasoning(opened, item, index):
                    yield from _list_chunks(_build_delta(delta))
            case str() as kind:
                entry = self._begin_entry(PROVIDER_TOOL, {"block": item}, opened, index)
                run = {"type": kind, "name": item.get("name")}
                yield from _list_chunks(_build_delta({"reasoning_details": [entry], "executed_tools": [run]}))

    def _find(self, index: int) -> _OpenItem:
        """Return an item under way, also of a server that has not announced it."""
        if (opened := self._open.get(index)) is None:
            opened = self._open[index] = _OpenItem(None, (self._text_chars, self._calls))
        return opened

    def _build_phase(self, opened: _OpenItem, item: Json, index: int) -> Json:
        """Return what keeps the phase of a message, once."""
        phase = item.get("phase")
        if not isinstance(phase, str) or opened.shown:
            return {}
        opened.shown = phase
        return {"reasoning_details": [self._begin_entry(MESSAGE, {"phase": phase}, opened, index)]}

    def _list_texts(self, content: object, index: int) -> Iterator[Chunk]:
        """Yield the texts of a message that did not come in pieces."""
        for part in content if isinstance(content, list) else ():
            text, refusal = (part.get("text"), part.get("refusal")) if isinstance(part, dict) else (None, None)
            if isinstance(text, str) and text:
                self.add_text(text, index)
                yield text
            elif isinstance(refusal, str) and refusal:
                yield from _list_chunks(_build_delta({"refusal": refusal}))

    def _begin_call(self, opened: _OpenItem, item: Json) -> Chunk:
        opened.call, self._calls = self._calls, self._calls + 1
        function = {"name": item.get("name"), "arguments": ""}
        return _build_call(opened.call, function, id=item.get("call_id"), type="function")

    def _build_summary(self, opened: _OpenItem, piece: str, index: int, part: object) -> Json:
        """Return a piece of a summary; an empty line stands between its parts."""
        gap = ""
        if not opened.parts or part != opened.part:
            gap = GAP if opened.parts else ""
            opened.part = part
            opened.parts.append(0)
        opened.parts[-1] += len(piece)
        return self._build_thought(opened, SUMMARY, gap + piece, index)

    def _build_thought(self, opened: _OpenItem, kind: str, text: str, index: int) -> Json:
        """Return a piece of a thought. Of its text and its summary, clients are shown what comes first."""
        fields = {_FIELDS[kind]: text}
        if opened.begun and opened.shown == kind:
            entry = {"type": kind, "format": FORMAT, "index": index, **fields}
        else:
            entry = self._begin_entry(kind, fields, opened, index)
        if not opened.begun:
            opened.begun, opened.shown = True, kind
        return {**({"reasoning_content": text} if opened.shown == kind else {}), "reasoning_details": [entry]}

    def _begin_entry(self, kind: str, fields: Json, opened: _OpenItem, index: int) -> Json:
        about = {"id": opened.id} if isinstance(opened.id, str) else {}
        return build_entry(kind, {**fields, **about}, index=index, answer_id=self.answer_id, place=opened.place)

    def _end_reasoning(self, opened: _OpenItem, item: Json, index: int) -> Iterator[Json]:
        """Yield the deltas of reasoning that did not come in pieces, and of what is encrypted."""
        if not opened.begun:
            for number, text in enumerate(_list_part_texts(item.get("summary"))):
                yield self._build_summary(opened, text, index, number)
            for text in _list_part_texts(item.get("content")):
                yield self._build_thought(opened, TEXT, text, index)
        data = item.get("encrypted_content")
        if isinstance(data, str) and data:
            lengths = {"parts": opened.parts} if len(opened.parts) > 1 else {}
            yield {"reasoning_details": [self._begin_entry(ENCRYPTED, {"data": data, **lengths}, opened, index)]}


def _list_part_texts(parts: object) -> list[str]:
    texts = (part.get("text") for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
    return [text for text in texts if isinstance(text, str) and text]


def _list_chunks(chunk: Chunk | None) -> list[Chunk]:
    return [] if chunk is None else [chunk]


def _build_delta(delta: Json) -> Json | None:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} if delta else None


def _build_call(number: int, function: Json, **about: object) -> Json:
    call = {"index": number, **about, "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
