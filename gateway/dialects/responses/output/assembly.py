"""The output of a response: the chunks of a run, assembled to items, with the events of each change.

One item takes pieces at a time, such as the message that the model is writing. It ends when the next item begins. Calls
of the gateway's tools stand beside it: several may be under way (gateway/dialects/responses/output/gateway_calls.py).
"""

from typing import Final

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects.opaque_fields import OpaqueFields
from gateway.dialects.responses.calls import NO_ARGUMENTS, is_blank
from gateway.dialects.responses.events import ResponseEvents
from gateway.dialects.responses.fields import INCLUDED
from gateway.dialects.responses.ids import build_output_id
from gateway.dialects.responses.output.gateway_calls import GatewayCalls
from gateway.dialects.responses.output.items import (
    REFUSAL,
    TEXT,
    THOUGHT,
    ClientCall,
    Item,
    PartKind,
    Status,
    TextPart,
    Texts,
    WholeItem,
)
from gateway.dialects.responses.response_metadata import ResponseFacts
from gateway.dialects.run_chunk_reader import TurnState

#: How ids of calls begin, by the kind of the tool.
_PREFIXES: Final = {"function": "fc", "custom": "ctc", "local_shell": "lsh", "shell": "sh", "apply_patch": "apc"}
_TEXTS: Final = ("text", "output_text")


class Output:
    """The items of one response."""

    def __init__(self, facts: ResponseFacts, *, response_id: str, events: ResponseEvents) -> None:
        self.turn = TurnState()
        self.items: list[Item] = []
        self.events = events
        self._facts = facts
        self._packs = INCLUDED in (facts.fields.get("include") or ())
        self._response_id = response_id
        self._open: Texts | ClientCall | None = None
        self.part: TextPart | None = None  # the last one of `_open`, if that consists of parts: it takes pieces
        self._call_index: object = None  # the upstream's, of `_open` if that is a call
        self._known: set[str] = set()  # ids of the client's calls
        self._said_chars = 0  # of texts, without `_open`
        self._of_gateway = GatewayCalls(facts)
        self._opaque = OpaqueFields()

    def begin(self) -> None:
        """Add the compaction that was made before the model call, if there is one. Idempotent."""
        if (sealed := self._facts.compaction) is not None and not self.items:
            item_id = build_output_id("cmp", self._response_id, 0)
            self.add(WholeItem({"id": item_id, "type": "compaction", "encrypted_content": sealed}))
            self.end_item(0)

    def add_chunk(self, chunk: Chunk) -> None:
        """Add a chunk of a run."""
        if isinstance(chunk, str):
            self._add_answer_text(chunk)
            return
        delta, told = self.turn.take_chunk(chunk)
        if told is not None:
            self._add_event(told)
        if delta:
            self._take_delta(delta)

    def end(self, status: Status) -> None:
        """End the open item with a status; an empty answer becomes a message without text."""
        compactions = 0 if self._facts.compaction is None else 1
        if len(self.items) == compactions and self._open is None and status == "completed":
            self._begin_part(TEXT)
        self.close(status)
        if self.items and isinstance(self.items[-1], ClientCall):
            self._add_opaque()
        for index in self._of_gateway.end():
            self.end_item(index)

    def fail(self) -> None:
        """Leave the open item unfinished: clients would keep a finished one in the conversation."""
        item, self._open, self.part = self._open, None, None
        if isinstance(item, Texts) or (item is not None and item.streams):
            item.status = "incomplete"
        if isinstance(item, Texts) and item.thinks:
            item.beside = self._opaque.take()
        self._of_gateway.end()

    def _take_delta(self, delta: Json) -> None:
        """Add each field of a delta to its item."""
        for field, value in delta.items():
            match field:
                case "content" if isinstance(value, str):
                    self._add_answer_text(value)
                case "content" | "images":
                    self._take_parts(value)
                case "reasoning_content":
                    self._take_text(THOUGHT, value)
                case "reasoning":
                    if not delta.get("reasoning_content"):  # some upstreams send both
                        self._take_text(THOUGHT, value)
                case "refusal":
                    self._take_text(REFUSAL, value)
                case "tool_calls":
                    self._take_calls(_filter_objects(value))
                case "function_call":
                    self._take_call({"function": value}, "function_call")
                case "reasoning_details" | "thinking_blocks" | "extra_content":
                    self._opaque.add(field, value)
                case "annotations":
                    for annotation in _filter_objects(value):
                        self._annotate(annotation)

    def _add_event(self, event: Json) -> None:
        if event["type"] == "run.resumed":
            self._resume_run(event["said"])
        elif self._facts.shows_calls:
            self._of_gateway.add_event(event, self)

    def _resume_run(self, said: str) -> None:
        """Go on with a run that a crash cut, and whose recorded text is `said`.

        A text beyond this, or thoughts, came of an answer of the model that is lost. It follows again, as another one.
        """
        item = self._open
        self._opaque.take()
        chars = self._said_chars + (item.said_chars if isinstance(item, Texts) else 0)
        if isinstance(item, Texts) and (item.thinks or chars > len(said)):
            self.close("incomplete")
        elif not isinstance(item, Texts):
            self.close()
        self._add_answer_text(said[chars:])
        self._said_chars = len(said) - (self._open.said_chars if isinstance(self._open, Texts) else 0)

    # Texts.

    def _take_text(self, kind: PartKind, text: object) -> None:
        if isinstance(text, str) and text:
            self._add_piece(kind, text)

    def _take_parts(self, parts: object) -> None:
        """Add the texts and embedded images of a content list; other parts are left out."""
        for part in _filter_objects(parts):
            if part.get("type") in _TEXTS and isinstance(part.get("text"), str):
                self._add_answer_text(part["text"])
            elif (image := _find_image(part)) is not None:
                self._add_image(image)

    def _add_answer_text(self, text: str) -> None:
        """Add text of the answer; line ends before the first one are left out."""
        if not isinstance(self._open, Texts) or self._open.thinks:
            said = text.lstrip("\n")  # a message begins with its first line
            self._said_chars += len(text) - len(said)
            text = said
        if text:
            self._add_piece(TEXT, text)

    def _add_piece(self, kind: PartKind, text: str) -> None:
        part = self.part
        if part is None or part.kind is not kind:
            part = self._begin_part(kind)
        self.events.add_delta(part.head, text)
        part.pieces.append(text)

    def _begin_part(self, kind: PartKind) -> TextPart:
        """Begin a part of this kind, in the open item or a new one, with its events."""
        thinks = kind is THOUGHT
        item = self._open
        if isinstance(item, Texts) and item.thinks == thinks:
            self._close_part()
        else:
            place = self._take_next_place("rs") if thinks else self.open_place("msg")
            item = Texts(*place, thinks=thinks, packs=self._packs)
            self.add(item)
            self._open = item
        self.part = part = item.build_part(kind)
        self.events.add(kind.added, {**part.place, "part": part.build_view()})
        return part

    def _close_part(self) -> None:
        """End the open text part, if any, with its events."""
        if (part := self.part) is None:
            return
        kind = part.kind
        self.events.add(kind.text_done, {**part.place, kind.text: part.close(), **kind.of_texts})
        self.events.add(kind.done, {**part.place, "part": part.build_view()})
        self.part = None

    def _annotate(self, annotation: Json) -> None:
        """Add a citation to the text that the model is writing."""
        part = self.part
        if part is None or part.kind is not TEXT or (citation := _convert_citation(annotation)) is None:
            return
        fields = {**part.place, "annotation_index": len(part.annotations), "annotation": citation}
        part.annotations.append(citation)
        self.events.add("response.output_text.annotation.added", fields)

    # Items.

    def open_place(self, prefix: str) -> tuple[str, int]:
        """End the item that takes pieces. Return id and index of the item that is added next.

        What its model must see again, and no item holds yet, goes in front of it.
        """
        self.close()
        self._add_opaque()
        return self._take_next_place(prefix)

    def _take_next_place(self, prefix: str) -> tuple[str, int]:
        self.close()
        index = len(self.items)
        return build_output_id(prefix, self._response_id, index), index

    def _add_opaque(self) -> None:
        """Add a reasoning item without thoughts for the fields that no item holds yet, if any."""
        last = self.items[-1] if self.items else None
        if isinstance(last, Texts) and last.thinks:
            goes_on = last.beside is not None and last.beside.goes_on
        else:
            goes_on = isinstance(last, Texts | ClientCall)
        if (beside := self._opaque.take(goes_on=goes_on)) is None:
            return
        item = Texts(*self._take_next_place("rs"), thinks=True)
        self.add(item)
        item.status, item.beside = "completed", beside
        self.end_item(item.index)

    def add(self, item: Item) -> None:
        """Add an item, whose place is known."""
        self.events.add("response.output_item.added", {"output_index": len(self.items), "item": item.build_view()})
        self.items.append(item)

    def end_item(self, index: int) -> None:
        """Emit the event that an item is whole."""
        self.events.add("response.output_item.done", {"output_index": index, "item": self.items[index].build_view()})

    def close(self, status: Status = "completed") -> None:
        """End the item that takes pieces, if any."""
        item = self._open
        if item is None:
            return
        self._open = None
        if isinstance(item, Texts):
            item.status = status
            if item.thinks:
                item.beside = self._opaque.take()
            self._close_part()
            self._said_chars += item.said_chars
        elif not item.streams and status == "incomplete":
            return  # a part of it could not be shown
        else:
            self._close_call(item, status)
        self.end_item(item.index)

    # Calls of the client's tools, and images.

    def _take_calls(self, pieces: list[Json]) -> None:
        """Add pieces of calls. What their model must see again with them is known before the first item begins."""
        open_id = self._open.call_id if isinstance(self._open, ClientCall) else None
        for piece in pieces:
            if not isinstance(call_id := piece.get("id"), str) or call_id == open_id or call_id not in self._known:
                self._opaque.add_call(piece)
        for piece in pieces:
            self._take_call(piece, piece.get("index"))

    def _take_call(self, piece: Json, index: object) -> None:
        """Add a piece of a call: id and name come first, arguments at once or bit by bit."""
        function = piece.get("function")
        if not isinstance(function, dict):
            return
        call, name = self._open, function.get("name")
        call_id = found if isinstance(found := piece.get("id"), str) else ""
        goes_on = isinstance(call, ClientCall) and index == self._call_index and call_id in ("", call.call_id)
        if not goes_on or not isinstance(call, ClientCall):
            if call_id in self._known or not isinstance(name, str) or not name:
                return  # shown before a crash, or a piece of such a call
            call = self._begin_call(name, call_id, index)
        if isinstance(arguments := function.get("arguments"), str) and arguments:
            self._take_piece(call, arguments)

    def _take_piece(self, call: ClientCall, arguments: str) -> None:
        """Add a piece of arguments. Blanks wait for what follows: they may be all that there is."""
        call.pieces.append(arguments)
        if call.streams and (call.is_told or not is_blank(arguments)):
            delta = arguments if call.is_told else call.arguments
            call.is_told = True
            self._add_arguments_event(call, "function_call_arguments.delta", delta=delta)

    def _begin_call(self, name: str, call_id: str, index: object) -> ClientCall:
        """Begin an item for a call of the client's tool; one that does not stream is added at its end."""
        tool = self._facts.find_tool(name)
        item_id, place = self.open_place(_PREFIXES[tool.kind])
        call_id = call_id or build_output_id("call", self._response_id, place)
        call = ClientCall(id=item_id, index=place, call_id=call_id, tool=tool)
        self._known.add(call_id)
        if call.streams:
            self.add(call)
        self._open, self._call_index = call, index
        return call

    def _close_call(self, call: ClientCall, status: Status) -> None:
        """Emit the final arguments of a call; an item that could not stream is added first."""
        if not call.streams:
            self.add(call)
        call.status = status
        if status == "completed" and not call.is_told and is_blank(call.arguments):
            call.pieces = []
            self._take_piece(call, NO_ARGUMENTS)
        shown = call.build_view()
        match shown["type"]:
            case "function_call":
                if not call.streams:
                    self._add_arguments_event(call, "function_call_arguments.delta", delta=call.arguments)
                self._add_arguments_event(call, "function_call_arguments.done", arguments=call.arguments)
            case "custom_tool_call":
                self._add_arguments_event(call, "custom_tool_call_input.delta", delta=shown["input"])
                self._add_arguments_event(call, "custom_tool_call_input.done", input=shown["input"])

    def _add_arguments_event(self, call: ClientCall, kind: str, **told: str) -> None:
        self.events.add(f"response.{kind}", {"item_id": call.id, "output_index": call.index, **told})

    def _add_image(self, data: str) -> None:
        """Add a whole image, in Base64, as an item with its events."""
        item_id, index = self.open_place("ig")
        fields = {"id": item_id, "type": "image_generation_call"}
        item = WholeItem({**fields, "status": "in_progress", "result": None})
        self.add(item)
        place = {"item_id": item_id, "output_index": index}
        self.events.add("response.image_generation_call.completed", place)
        item.fields = {**fields, "status": "completed", "result": data}
        self.end_item(index)


def find_thought(chunk: Chunk) -> str | None:
    """Return the piece of a thought that a chunk consists of. None: there is something else in it."""
    if isinstance(chunk, str) or len(chunk) != 1:
        return None
    choices: list[Json] = chunk.get("choices") or []
    if len(choices) != 1 or len(choice := choices[0]) != 2 or choice.get("index") != 0:
        return None
    delta: Json = choice.get("delta") or {}
    thought: str | None = (delta.get("reasoning_content") or delta.get("reasoning")) if len(delta) == 1 else None
    return thought


def _filter_objects(value: object) -> list[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _find_image(part: Json) -> str | None:
    """Return the embedded image of a part, in Base64; None for a link or another part."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    head, _, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    return data if head.startswith("data:") and head.endswith(";base64") else None


def _convert_citation(annotation: Json) -> Json | None:
    """Return an annotation of a chat completion in the API's form; None if it has no URL."""
    cited = annotation.get("url_citation")
    if not isinstance(cited, dict) or not isinstance(url := cited.get("url"), str):
        return None
    title = cited.get("title")
    start, end = (
        value if isinstance(value := cited.get(f"{side}_index"), int) and value >= 0 else 0 for side in ("start", "end")
    )
    places = {"start_index": start, "end_index": end}
    return {"type": "url_citation", "url": url, "title": title if isinstance(title, str) else "", **places}
