"""The blocks of one answer as they stream, as deltas of chat completions. Sans-I/O.

Texts are content, and calls are `tool_calls`. Thoughts come twice: as `reasoning_content`, which clients show, and as
`reasoning_details`, which go back to the model. Blocks of tools that the provider has run go back to it, too, and are
named in `executed_tools`: their results are untrusted text.
"""

from typing import Final

import orjson

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.thoughts import ENCRYPTED, FORMAT, PROVIDER_TOOL, TEXT, build_entry

#: Blocks of the answer's own, and not of a tool that the provider has run.
_OWN: Final = frozenset(("text", "thinking", "redacted_thinking", "tool_use"))
_OF_CALLS: Final = ("caller", "toolset_name")


class AnswerBlocks:
    """The blocks of one answer. `answer_id` is the answer's id, once its first event has come."""

    __slots__ = ("_begun", "_call", "_calls", "_entry", "_json", "_open", "_text_chars", "answer_id")

    def __init__(self) -> None:
        self.answer_id = ""
        self._text_chars = 0
        self._calls = 0
        self._call = -1  # the number of the call under way
        self._open: Json = {}
        self._entry: Json | None = None  # the beginning of a thought, until its first piece comes
        self._begun = False  # something of the block under way has come
        self._json: list[str] = []  # the input of a provider's call

    def add_text(self, text: str) -> None:
        """Count a text that was read without its event."""
        self._text_chars += len(text)

    def begin(self, block: Json, index: int) -> Chunk | None:
        """Begin a block. Return the chunk of what it begins with; None: nothing."""
        kind = block.get("type")
        self._open, self._begun, self._entry = block, False, None
        self._json.clear()
        match kind:
            case "text":
                return self._build_text(block.get("text"))
            case "thinking":
                self._entry = self._begin_entry(TEXT, {"text": ""}, index)
                self._open = {"type": kind, "index": index}
                pieces = (
                    self.add({"type": f"{name}_delta", name: block.get(name)}) for name in ("thinking", "signature")
                )
                return _join_deltas([piece for piece in pieces if isinstance(piece, dict)])
            case "redacted_thinking":
                return _build_delta(
                    {"reasoning_details": [self._begin_entry(ENCRYPTED, {"data": block.get("data")}, index)]}
                )
            case "tool_use":
                return self._begin_call(block)
        self._open = {**block, "index": index}
        return None

    def add(self, delta: Json) -> Chunk | None:
        """Add a piece to the block under way. Return its chunk; None: it has none."""
        match delta.get("type"):
            case "text_delta":
                return self._build_text(delta.get("text"))
            case "thinking_delta":
                return self._build_thought("text", delta.get("thinking"))
            case "signature_delta":
                return self._build_thought("signature", delta.get("signature"))
            case "input_json_delta":
                return self._add_input(delta.get("partial_json"))
            case "citations_delta" if isinstance(citation := delta.get("citation"), dict):
                return _build_delta({"citations": [citation]})
        return None

    def end(self) -> Chunk | None:
        """End the block under way. Return the chunk of what it ends with; None: nothing."""
        block, self._open = self._open, {}
        kind = block.get("type")
        if kind == "tool_use" and not self._begun:
            given = block.get("input")
            return self._build_call({"arguments": orjson.dumps(given if isinstance(given, dict) else {}).decode()})
        if kind is None or kind in _OWN:
            return None
        if self._json:
            block["input"] = _parse_input("".join(self._json))
        entry = self._begin_entry(
            PROVIDER_TOOL, {"block": {k: v for k, v in block.items() if k != "index"}}, block["index"]
        )
        name = block.get("name")
        return _build_delta({"reasoning_details": [entry], "executed_tools": [{"type": kind, "name": name}]})

    def _build_text(self, text: object) -> Chunk | None:
        if not isinstance(text, str) or not text:
            return None
        self._text_chars += len(text)
        return text

    def _build_thought(self, field: str, text: object) -> Chunk | None:
        if self._open.get("type") != "thinking" or not isinstance(text, str) or not text:
            return None
        entry, self._entry = self._entry, None
        entry = {"type": TEXT, "format": FORMAT, "index": self._open["index"]} if entry is None else entry
        shown: Json = {"reasoning_content": text} if field == "text" else {}
        return _build_delta({**shown, "reasoning_details": [{**entry, field: text}]})

    def _begin_entry(self, kind: str, fields: Json, index: int) -> Json:
        place = self._text_chars, self._calls
        return build_entry(kind, fields, index=index, answer_id=self.answer_id, place=place)

    def _begin_call(self, block: Json) -> Chunk:
        self._call, self._calls = self._calls, self._calls + 1
        further = {name: block[name] for name in _OF_CALLS if block.get(name) is not None}
        function = {"name": block.get("name"), "arguments": ""}
        return self._build_call(function, id=block.get("id"), type="function", **further)

    def _add_input(self, piece: object) -> Chunk | None:
        if not isinstance(piece, str) or not piece:
            return None
        if self._open.get("type") != "tool_use":
            self._json.append(piece)
            return None
        self._begun = True
        return self._build_call({"arguments": piece})

    def _build_call(self, function: Json, **about: object) -> Json:
        return _build_delta({"tool_calls": [{"index": self._call, **about, "function": function}]})


def _build_delta(delta: Json) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _join_deltas(chunks: list[Json]) -> Json | None:
    """Return the pieces of a thought that came at once as one chunk."""
    if not chunks:
        return None
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    details = [entry for delta in deltas for entry in delta["reasoning_details"]]
    return _build_delta({**deltas[0], "reasoning_details": details})


def _parse_input(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
