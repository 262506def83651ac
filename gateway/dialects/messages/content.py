"""The content of an answer: the chunks of a run, assembled to blocks, with the events of each change.

One block is open at a time. It ends when another one begins: each call, and each thought of a provider, is a block. A
call of a gateway's tool, and its result, are whole blocks (`mcp_tool_use`, `mcp_tool_result`), where calls are shown.
"""

from dataclasses import dataclass, field
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.messages.events import BlockEvents, encode_delta_head
from gateway.dialects.messages.thoughts import FORMAT, SHOWN, UNSIGNED
from gateway.dialects.offered_tools import split_tool_name
from gateway.dialects.opaque_fields import OpaqueFields
from gateway.dialects.packed_reasoning import pack_reasoning
from gateway.dialects.run_chunk_reader import TurnState
from gateway.jsontext import strict_json

_TEXTS: Final = ("text", "output_text")
#: The type of the deltas that a block of this type gets.
_DELTAS: Final = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
#: The field that the pieces of a block become.
_FIELDS: Final = {"text": "text", "thinking": "thinking", "tool_use": "input"}
_NO_ARGUMENTS: Final = "{}"


@dataclass(slots=True)
class OpenBlock:
    """A block that takes pieces. `key` recognises the pieces of a thought or a call that go on with it.

    `head` is the part of an event with a piece that stands in front of the piece.
    """

    kind: str
    index: int
    fields: Json
    head: bytes
    key: object = None
    pieces: list[str] = field(default_factory=list)
    signature: str = ""


class AnswerContent:
    """The blocks of one message. `blocks` are those that have ended, for an answer that is not streamed."""

    def __init__(self, events: BlockEvents, *, shows_calls: bool, message_id: str) -> None:
        self.turn = TurnState()
        self.blocks: list[Json] = []
        self.refuses = False
        self._events = events
        self._shows_calls = shows_calls
        self._message_id = message_id
        self._open: OpenBlock | None = None
        self._n_blocks = 0
        self._broken: str | None = None  # the name of a tool whose arguments are no object
        self._known: set[str] = set()  # ids of calls that have begun
        self._finished: set[str] = set()  # ids of the gateway's calls that have results
        self._opaque = OpaqueFields()

    def take(self, chunk: Chunk) -> None:
        """Add a chunk of a run."""
        if isinstance(chunk, str):
            self.add_text(chunk)
            return
        delta, told = self.turn.take_chunk(chunk)
        if told is not None:
            self._add_event(told)
        if delta:
            self._take_delta(delta)

    @property
    def text_head(self) -> bytes | None:
        """Return the part of an event in front of a piece of the open text. None: no text is open."""
        block = self._open
        return None if block is None or block.kind != "text" else block.head

    def add_text(self, text: str) -> None:
        """Add a piece of the answer's text."""
        if text:
            self._add_piece(self._get_block("text", {"type": "text", "text": ""}), text)

    def end(self) -> None:
        """End the open block.

        Raises GatewayError (agent_malformed_tool_call) for a call whose arguments are no object, if no limit cut it.
        """
        self._close()
        if not self.blocks or self.blocks[-1]["type"] != "text":  # clients read the last text at the end
            self._add_opaque()
        if self._broken is not None and self.turn.finish != "length":
            raise GatewayError(
                "agent_malformed_tool_call",
                f"The model called {self._broken!r} with arguments that are no JSON object: send the request again, or "
                "use another model.",
            )

    # Texts and thoughts.

    def _take_delta(self, delta: Json) -> None:
        """Add each field of a delta to its block."""
        signed = self._take_details(delta["reasoning_details"]) if "reasoning_details" in delta else False
        for name, value in delta.items():
            match name:
                case "content" if isinstance(value, str):
                    self.add_text(value)
                case "content":
                    self._take_parts(value)
                case "reasoning_content":
                    if not signed:
                        self._add_thought(value)
                case "reasoning":
                    if not signed and not delta.get("reasoning_content"):  # some upstreams send both
                        self._add_thought(value)
                case "refusal":
                    if isinstance(value, str) and value:
                        self.refuses = True
                        self.add_text(value)
                case "tool_calls":
                    self._take_calls(_filter_objects(value))
                case "citations":
                    self._add_citations(_filter_objects(value))
                case "thinking_blocks" | "extra_content":
                    self._opaque.add(name, value)

    def _take_parts(self, parts: object) -> None:
        """Add the texts of a content list; Messages have no other parts of an answer."""
        for part in _filter_objects(parts):
            if part.get("type") in _TEXTS and isinstance(part.get("text"), str):
                self.add_text(part["text"])

    def _add_thought(self, text: object) -> None:
        """Add a piece of a thought that no provider has signed."""
        if isinstance(text, str) and text:
            block = self._get_block("thinking", {"type": "thinking", "thinking": "", "signature": ""}, key=UNSIGNED)
            block.signature = UNSIGNED
            self._add_piece(block, text)

    def _take_details(self, details: object) -> bool:
        """Add pieces of thoughts. Return whether their format is that of Messages, so that they are shown as blocks."""
        signed = False
        for detail in _filter_objects(details):
            if detail.get("format") != FORMAT or detail.get("type") not in SHOWN:
                self._opaque.add("reasoning_details", [detail])
                continue
            signed = True
            key = detail.get("type"), detail.get("index")
            if detail.get("type") == "reasoning.encrypted":
                self._add_whole({"type": "redacted_thinking", "data": str(detail.get("data") or "")})
                continue
            block = self._get_block("thinking", {"type": "thinking", "thinking": "", "signature": ""}, key=key)
            if isinstance(text := detail.get("text"), str) and text:
                self._add_piece(block, text)
            if isinstance(signature := detail.get("signature"), str):
                block.signature += signature
        return signed

    def _add_citations(self, citations: list[Json]) -> None:
        """Add citations to the text that the model is writing."""
        block = self._open
        if block is None or block.kind != "text":
            return
        for citation in citations:
            block.fields.setdefault("citations", []).append(citation)
            self._events.add_citation(block.index, citation)

    # Calls.

    def _take_calls(self, pieces: list[Json]) -> None:
        """Add pieces of the client's calls. What their model must see again with them stands in front of the first."""
        for piece in pieces:
            if piece.get("id") not in self._known:
                self._opaque.add_call(piece)
        for piece in pieces:
            self._take_call(piece)

    def _take_call(self, piece: Json) -> None:
        """Add a piece of a call: id and name come first, arguments at once or bit by bit."""
        function, index, block = piece.get("function"), piece.get("index"), self._open
        if not isinstance(function, dict):
            return
        name, call_id = function.get("name"), piece.get("id")
        goes_on = block is not None and block.kind == "tool_use" and block.key == index
        if block is None or not goes_on or (call_id and call_id != block.fields["id"]):
            if not isinstance(name, str) or not name or call_id in self._known:
                return  # a piece of a call that was shown before
            call_id = call_id if isinstance(call_id, str) and call_id else f"toolu_{self._message_id}{self._n_blocks}"
            self._known.add(call_id)
            self._close()
            self._add_opaque()
            fields = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            block = self._begin("tool_use", fields, key=index)
        if isinstance(arguments := function.get("arguments"), str) and arguments:
            self._add_piece(block, arguments)

    def _add_event(self, event: Json) -> None:
        """Add what an event of the run shows of it; other events are left out."""
        match event["type"]:
            case "run.resumed":
                self.add_text(event["said"])
            case "tool.started" if self._shows_calls:
                self._begin_own_call(event)
            case "tool.finished" if self._shows_calls:
                self._begin_own_call(event)
                if event["call_id"] not in self._finished:
                    self._finished.add(event["call_id"])
                    content = [{"type": "text", "text": event["result"]}] if event["result"] else []
                    about = {"tool_use_id": event["call_id"], "is_error": not event["ok"]}
                    self._add_whole({"type": "mcp_tool_result", **about, "content": content})

    def _begin_own_call(self, event: Json) -> None:
        """Add a call of a gateway's tool, if it is new: a run that goes on shows its calls again."""
        call_id = event["call_id"]
        if call_id in self._known:
            return
        self._known.add(call_id)
        label, name = split_tool_name(event["tool"], event["service"])
        self._close()
        self._add_opaque()
        fields = {"type": "mcp_tool_use", "id": call_id, "name": name, "server_name": label}
        index = self._n_blocks
        self._n_blocks += 1
        self._events.start(index, {**fields, "input": {}})
        self._events.add_piece(encode_delta_head(index, "input_json_delta"), event["arguments"])
        self._events.stop(index)
        self.blocks.append({**fields, "input": orjson.loads(event["arguments"])})

    # Blocks.

    def _get_block(self, kind: str, fields: Json, *, key: object = None) -> OpenBlock:
        """Return the open block if it is of this kind and key, else one that begins."""
        block = self._open
        if block is not None and block.kind == kind and block.key == key:
            return block
        self._close()
        if kind == "text":
            self._add_opaque()
        return self._begin(kind, fields, key=key)

    def _begin(self, kind: str, fields: Json, *, key: object) -> OpenBlock:
        index = self._n_blocks
        block = self._open = OpenBlock(kind, index, fields, encode_delta_head(index, _DELTAS[kind]), key)
        self._n_blocks += 1
        self._events.start(index, fields)
        return block

    def _add_piece(self, block: OpenBlock, piece: str) -> None:
        block.pieces.append(piece)
        self._events.add_piece(block.head, piece)

    def _close(self) -> None:
        """End the open block, if any, with its events."""
        block, self._open = self._open, None
        if block is None:
            return
        whole: str | Json = "".join(block.pieces)
        if block.kind == "tool_use":
            whole = self._read_arguments(block, str(whole))
        fields = {**block.fields, _FIELDS[block.kind]: whole}
        if block.kind == "thinking":
            fields["signature"] = block.signature
            self._events.add_piece(encode_delta_head(block.index, "signature_delta"), block.signature)
        self._events.stop(block.index)
        self.blocks.append(fields)

    def _read_arguments(self, block: OpenBlock, arguments: str) -> Json:
        """Return the arguments of a call as an object, and note a call that has none."""
        try:
            found = strict_json.loads(arguments if arguments.strip() else _NO_ARGUMENTS)
        except strict_json.StrictJsonError:
            found = None
        if not isinstance(found, dict):
            self._broken = block.fields["name"]
            return {}
        return found

    def _add_whole(self, block: Json) -> None:
        """Add a block that comes in one piece."""
        self._close()
        self._events.start(self._n_blocks, block)
        self._events.stop(self._n_blocks)
        self.blocks.append(block)
        self._n_blocks += 1

    def _add_opaque(self) -> None:
        """Add a block with the fields of the model's answer that no block has, if there are any."""
        if (found := self._opaque.take()) is not None:
            self._add_whole({"type": "redacted_thinking", "data": pack_reasoning(found)})


def _filter_objects(value: object) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
