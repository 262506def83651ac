"""An answer of Messages as chunks of chat completions: a stream of events as they arrive, or one message.

An answer that ends without a stop reason was cut.
"""

import orjson

from gateway.contracts.exchange import Chunk, Emit, Pause
from gateway.contracts.storage.store import Json
from gateway.http.sse import EventReader
from gateway.model.apis.answer_reading import END_S, parse_object, parse_value, read_stream, read_whole
from gateway.model.apis.joined_chunks import join_chunks
from gateway.model.apis.messages.blocks import AnswerBlocks
from gateway.model.apis.messages.ending import build_ending, build_usage
from gateway.model.fast_text_deltas import MESSAGES_TEXT, TextEvents
from gateway.model.json_repair import Mender
from gateway.model.refusal import convert_error_event
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall

#: What a stream has in front of the data of a text.
_LINE = b"event: content_block_delta\ndata: "


class AnswerEvents:
    """The events of one answer. `finished`: its stop reason has come."""

    def __init__(self, target: Target) -> None:
        self.finished = False
        self.stopped = False
        self.blocks = AnswerBlocks()
        self._target = target
        self._usage: Json = {}

    def read(self, event: Json) -> Chunk | None:
        """Return the chunk of an event; None: it has none. Raises GatewayError for an error, and for a broken event."""
        match event.get("type"):
            case "content_block_delta" if isinstance(delta := event.get("delta"), dict):
                return self.blocks.add(delta)
            case "content_block_start" if isinstance(block := event.get("content_block"), dict):
                index = event.get("index")
                return self.blocks.begin(block, index if type(index) is int else 0)
            case "content_block_stop":
                return self.blocks.end()
            case "message_start" if isinstance(message := event.get("message"), dict):
                return self._begin(message)
            case "message_delta" if isinstance(delta := event.get("delta"), dict):
                return self._end(delta, event.get("usage"))
            case "message_stop":
                self.stopped = True
                return None
            case "error":
                raise convert_error_event(event, self._target)
            case str() as kind if kind not in _EVENTS:
                return None  # such as pings, and what the API will have
        raise self._target.build_answer_error("an event of its answer is no event of Messages: does its `api` fit it?")

    def _begin(self, message: Json) -> Json:
        self.blocks.answer_id = str(message.get("id") or "")
        self._keep_usage(message.get("usage"))
        chunk: Json = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
        return {**{name: message[name] for name in ("id", "model") if isinstance(message.get(name), str)}, **chunk}

    def _end(self, delta: Json, usage: object) -> Json | None:
        self._keep_usage(usage)
        if delta.get("stop_reason") is None:
            return None
        self.finished = True
        told = build_usage(self._usage)
        about = {"container": delta["container"]} if isinstance(delta.get("container"), dict) else {}
        return {"choices": [build_ending(delta)], **({} if told is None else {"usage": told}), **about}

    def _keep_usage(self, usage: object) -> None:
        """Keep what a report states. Later ones may leave out what the first has."""
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}


_EVENTS = frozenset(
    ("content_block_delta", "content_block_start", "message_start", "message_delta"),
)


async def emit_stream(call: UpstreamCall, target: Target, emit: Emit) -> None:
    """Emit the chunks of one answer. Raises GatewayError if it breaks off."""
    events, mender, answer = EventReader(), Mender(), AnswerEvents(target)
    texts = TextEvents(_parse_text, key=MESSAGES_TEXT, line=_LINE)
    count_text = answer.blocks.add_text

    def take(piece: bytes) -> Pause | None:
        if not events.held and (text := texts.find_text(piece, framed=True)) is not None:
            count_text(text)
            return emit(text)  # a piece is mostly one event
        pause = None
        for data in events.feed(piece):
            if (text := texts.find_text(data)) is not None:
                count_text(text)
                pause = emit(text) or pause
                continue
            event = parse_value(data, target, mender.mend_event)
            chunk = answer.read(event if isinstance(event, dict) else {})
            if answer.stopped:
                call.leave(within_s=END_S)
                return pause
            if chunk is not None:
                if isinstance(chunk, str):
                    texts.learn_shape(data, chunk)
                pause = emit(chunk) or pause
        return pause

    def check_end() -> None:
        if not answer.finished:
            raise target.build_answer_error("its answer ends without a stop reason")

    await read_stream(call, target, take, check_end=check_end)


async def emit_whole(call: UpstreamCall, target: Target, emit: Emit) -> None:
    """Emit one message as a chunk. Raises GatewayError if it is none."""

    def convert(content: bytes) -> Json:
        chunk = convert_message(parse_object(content, target), target)
        if chunk is None:
            raise target.build_answer_error("its answer is no message: does its `api` fit it?")
        return chunk

    await read_whole(call, target, emit, convert)


def convert_message(message: Json, target: Target) -> Json | None:
    """Return a message as one chunk; None: it is none."""
    content = message.get("content")
    if message.get("type") != "message" or not isinstance(content, list):
        return None
    answer = AnswerEvents(target)
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop"},
        ]
    events.append(
        {"type": "message_delta", "delta": {**message, "stop_reason": message.get("stop_reason") or "end_turn"}}
    )
    return join_chunks([chunk for event in events if (chunk := answer.read(event)) is not None])


def _parse_text(data: bytes) -> str | None:
    """Return the text of an event with a piece of text; None for any other."""
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(event, dict) or event.get("type") != "content_block_delta":
        return None
    delta = event.get("delta")
    text = delta.get("text") if isinstance(delta, dict) and delta.get("type") == "text_delta" else None
    return text if isinstance(text, str) else None
