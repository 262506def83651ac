"""An answer of Responses as chunks of chat completions: a stream of events as they arrive, or one response.

An answer that ends without its last event was cut.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from gateway.contracts.exchange import Chunk, Emit, Pause
from gateway.contracts.storage.store import Json
from gateway.http.sse import EventReader
from gateway.model.apis.answer_reading import END_S, parse_object, parse_value, read_stream, read_whole
from gateway.model.apis.joined_chunks import join_chunks
from gateway.model.apis.responses.ending import build_ending, build_error, build_usage
from gateway.model.apis.responses.items import AnswerItems
from gateway.model.json_repair import Mender
from gateway.model.refusal import convert_error_event
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall

_TEXT: Final = "response.output_text.delta"
#: What a stream has in front of the data of a text.
_LINE: Final = b"event: response.output_text.delta\ndata: "
#: How the data of a text begins, also of servers that write spaces.
_BEGINNINGS: Final = (b'{"type":"response.output_text.delta"', b'{"type": "response.output_text.delta"')
_DELTAS: Final = frozenset(
    (
        *(_TEXT, "response.refusal.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta"),
        "response.function_call_arguments.delta",
    )
)
_ENDINGS: Final = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled"))
#: The states of a response that has an answer.
_ANSWERED: Final = frozenset(("completed", "incomplete"))


class _TextDelta(Struct, gc=False):
    """The fields of an event with a piece of text that matter here."""

    type: str
    delta: str
    output_index: int = 0


_decode_text = Decoder(_TextDelta).decode


class ResponseReader:
    """The events of one answer. `finished`: its end has come."""

    def __init__(self, target: Target) -> None:
        self.finished = False
        self.items = AnswerItems()
        self._target = target

    def read_text(self, data: bytes) -> str | None:
        """Return the text of an event that is a piece of text; None: read it as any other."""
        try:
            event = _decode_text(data)
        except (DecodeError, ValueError):  # several events, or text that is no UTF-8
            return None
        if event.type != _TEXT:
            return None
        self.items.add_text(event.delta, event.output_index)
        return event.delta

    def read(self, event: Json) -> Iterator[Chunk]:
        """Yield the chunks of an event. Raises GatewayError for an error, and for a broken event."""
        kind, index = event.get("type"), event.get("output_index")
        index = index if type(index) is int else 0
        if kind in _DELTAS:
            if (chunk := self.items.add(str(kind), event, index)) is not None:
                yield chunk
            return
        response, item = event.get("response"), event.get("item")
        match kind:
            case "response.output_item.added" if isinstance(item, dict):
                if (chunk := self.items.begin(item, index)) is not None:
                    yield chunk
            case "response.output_item.done" if isinstance(item, dict):
                yield from self.items.end(item, index)
            case "response.output_text.annotation.added" if isinstance(note := event.get("annotation"), dict):
                yield _build_chunk({"annotations": [_convert_annotation(note)]})
            case "response.created" if isinstance(response, dict):
                yield self._begin(response)
            case str() if kind in _ENDINGS and isinstance(response, dict):
                yield self._end(response)
            case "error":
                raise convert_error_event(build_error(event), self._target)
            case str():
                return  # what repeats the pieces, and what the API will have
            case _:
                raise self._target.build_answer_error(
                    "an event of its answer is no event of Responses: does its `api` fit it?"
                )

    def _begin(self, response: Json) -> Json:
        self.items.answer_id = str(response.get("id") or "")
        about = {name: response[name] for name in ("id", "model") if isinstance(response.get(name), str)}
        return {**about, **_build_chunk({"role": "assistant"})}

    def _end(self, response: Json) -> Json:
        """Return the chunk that ends the answer. Raises GatewayError for one that has failed."""
        status = response.get("status")
        if status not in _ANSWERED:
            error = response.get("error")
            if isinstance(error, dict):
                raise convert_error_event(build_error({"error": error}), self._target)
            raise self._target.build_answer_error(f"its answer ends with the status {status!r}")
        self.finished = True
        usage = build_usage(response.get("usage"))
        tier = response.get("service_tier")
        return {
            "choices": [build_ending(response, has_calls=self.items.has_calls)],
            **({} if usage is None else {"usage": usage}),
            **({"service_tier": tier} if isinstance(tier, str) else {}),
        }


async def emit_stream(call: UpstreamCall, target: Target, emit: Emit) -> None:
    """Emit the chunks of one answer. Raises GatewayError if it breaks off."""
    events, mender, answer = EventReader(), Mender(), ResponseReader(target)
    read_text = answer.read_text

    def take(piece: bytes) -> Pause | None:
        if not events.held and piece.startswith(_LINE) and piece.endswith(b"\n\n"):  # a piece is mostly one event
            text = read_text(piece[len(_LINE) : -2])
            if text is not None:
                return emit(text)
        pause = None
        for data in events.feed(piece):
            if data.startswith(_BEGINNINGS) and (text := read_text(data)) is not None:
                pause = emit(text) or pause
                continue
            event = parse_value(data, target, mender.mend_event)
            for chunk in answer.read(event if isinstance(event, dict) else {}):
                pause = emit(chunk) or pause
            if answer.finished:
                call.leave(within_s=END_S)
                return pause
        return pause

    def check_end() -> None:
        if not answer.finished:
            raise target.build_answer_error("its answer ends without `response.completed`")

    await read_stream(call, target, take, check_end=check_end)


async def emit_whole(call: UpstreamCall, target: Target, emit: Emit) -> None:
    """Emit one response as a chunk. Raises GatewayError if it is none."""

    def convert(content: bytes) -> Json:
        chunk = convert_response(parse_object(content, target), target)
        if chunk is None:
            raise target.build_answer_error("its answer is no response: does its `api` fit it?")
        return chunk

    await read_whole(call, target, emit, convert)


def convert_response(response: Json, target: Target) -> Json | None:
    """Return a response as one chunk; None: it is none."""
    output = response.get("output")
    if response.get("object") != "response" or not isinstance(output, list):
        return None
    answer = ResponseReader(target)
    chunks = list(answer.read({"type": "response.created", "response": response}))
    for index, item in enumerate(output):
        chunks += answer.read({"type": "response.output_item.done", "output_index": index, "item": item})
    chunks += answer.read({"type": "response.completed", "response": response})
    return join_chunks(chunks)


def _build_chunk(delta: Json) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _convert_annotation(note: Json) -> Json:
    """Return an annotation as chats have it."""
    if note.get("type") != "url_citation" or "url_citation" in note:
        return note
    return {
        "type": "url_citation",
        "url_citation": {name: value for name, value in note.items() if name != "type"},
    }
