"""The answer of a model as chunks: a stream of events as they arrive, or one JSON answer as one chunk.

An answer that ends without a finish reason was cut.
"""

import re
from contextlib import suppress

import orjson

from gateway.contracts.exchange import Emit, Pause
from gateway.contracts.storage.store import Json
from gateway.http.sse import EventReader
from gateway.jsontext import strict_json
from gateway.model.apis.answer_reading import END_S, parse_object, parse_value, read_stream, read_whole
from gateway.model.error_words import is_error
from gateway.model.fast_text_deltas import TextEvents
from gateway.model.json_repair import Mender
from gateway.model.refusal import convert_error_event
from gateway.model.upstream_client import Target
from gateway.upstream.call import UpstreamCall

_DONE = b"[DONE]"
#: Arguments of a call as an object, where the API has a text.
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*\{')
#: What a chunk, and a choice, may have besides a text, that does not matter here.
_ABOUT_CHUNK = frozenset(
    ("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "obfuscation")
)
_ABOUT_CHOICE = frozenset(("index", "delta", "finish_reason", "logprobs"))


async def emit_stream(call: UpstreamCall, target: Target, emit: Emit) -> None:
    """Emit the chunks of one answer. Raises GatewayError if it breaks off."""
    events, texts, mender = EventReader(), TextEvents(_parse_text), Mender()
    finished, empty = False, True

    def take_event(piece: bytes) -> Pause | None:
        nonlocal finished, empty
        if not (events.held or mender.halves) and (text := texts.find_text(piece, framed=True)) is not None:
            return emit(text)  # a piece is mostly one event
        pause = None
        for data in events.feed(piece):
            if not mender.halves and (text := texts.find_text(data)) is not None:
                pause = emit(text) or pause
                continue
            if data.strip() == _DONE:
                finished = not empty
                call.leave(within_s=END_S)
                return pause
            chunk = _parse_chunk(data, target, mender)
            if chunk is None:
                continue
            if (text := _find_text(chunk)) is not None:
                empty = False
                texts.learn_shape(data, text)
                pause = emit(text) or pause
                continue
            finishes = _has_finish_reason(chunk.get("choices"))
            if finishes is None:
                raise target.build_answer_error("an event of its answer is no chat completion chunk")
            if _ARGUMENTS.search(data) is not None:
                _check_arguments(data, target)
            empty = empty and not chunk.get("choices")
            finished = finished or finishes
            pause = emit(chunk) or pause
        return pause

    def check_end() -> None:
        if not finished:
            _raise_last(events, target)
            raise target.build_answer_error(
                "its answer is empty" if empty else "its answer ends without a finish reason"
            )

    await read_stream(call, target, take_event, check_end=check_end)


def _raise_last(events: EventReader, target: Target) -> None:
    """Raise the error at the end of a stream that no empty line follows, as LitServe writes it."""
    for data in events.feed(b"\n\n") if events.held else ():
        with suppress(orjson.JSONDecodeError):
            error = orjson.loads(data)
            if isinstance(error, dict) and is_error(error):
                raise convert_error_event(error, target)


async def emit_whole(call: UpstreamCall, target: Target, emit: Emit) -> None:
    """Emit one JSON answer as a chunk. Raises GatewayError if it is no chat completion."""

    def convert(content: bytes) -> Json:
        chunk = convert_to_chunk(parse_object(content, target))
        if chunk is None or _has_finish_reason(chunk["choices"]) is None:
            raise target.build_answer_error("its answer is no chat completion")
        if _ARGUMENTS.search(content) is not None:
            _check_arguments(content, target)
        return chunk

    await read_whole(call, target, emit, convert)


def convert_to_chunk(completion: Json) -> Json | None:
    """Return a chat completion as one chunk, or None if it has no choices with messages.

    A lone choice is the first one, whatever its number: only one is requested.
    """
    choices = completion.get("choices")
    if not (isinstance(choices, list) and choices):
        return None
    told = []
    for choice in choices:
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            return None
        calls = message.get("tool_calls")
        if isinstance(calls := _normalize_calls(calls), list):
            numbered = [{"index": i, **call} if isinstance(call, dict) else call for i, call in enumerate(calls)]
            message = {**message, "tool_calls": numbered}
        further = {key: value for key, value in choice.items() if key != "message"}
        told.append({**further, "delta": message, "finish_reason": choice.get("finish_reason") or "stop"})
    if len(told) == 1:
        told[0]["index"] = 0
    return {**completion, "choices": told}


def _parse_chunk(data: bytes, target: Target, mender: Mender) -> Json | None:
    """Return an event as a chunk; None for other events, such as pings. Raises GatewayError."""
    if not data.lstrip().startswith((b"{", b"[")):
        return None
    chunk = parse_value(data, target, mender.mend_event, is_badly_written=bool(mender.halves))
    if isinstance(chunk, list):  # as Google answers with an error
        chunk = next((one for one in chunk if isinstance(one, dict) and is_error(one)), None)
    if not isinstance(chunk, dict):
        return None
    choices = chunk.get("choices")
    if (choices is None or "error" in chunk) and is_error(chunk):
        raise convert_error_event(chunk, target)
    if isinstance(choices, list) and len(choices) == 1:
        if choices[0] is None:
            return {**chunk, "choices": []}
        if isinstance(choices[0], dict):
            delta = choices[0].get("delta")
            if isinstance(delta, dict) and isinstance(delta.get("tool_calls"), dict):
                choices[0]["delta"] = {**delta, "tool_calls": _normalize_calls(delta["tool_calls"])}
            if choices[0].get("index", 0) != 0:  # one choice was requested
                return {**chunk, "choices": [{**choices[0], "index": 0}]}
    return chunk


def _normalize_calls(calls: object) -> object:
    """Return the calls of a delta or a message as a list: some servers send the only one by itself."""
    return [calls] if isinstance(calls, dict) else calls


def _check_arguments(data: bytes, target: Target) -> None:
    """Check arguments that come as an object as strictly as their text: one reading. Raises GatewayError."""
    try:
        strict_json.loads(data.decode())
    except strict_json.StrictJsonError as error:
        raise target.build_answer_error(f"a tool call of its answer cannot be read: {error}") from None


def _find_text(chunk: Json) -> str | None:
    """Return the text of a chunk that contains nothing else, as nearly all do. None: read the whole chunk."""
    choices = chunk.get("choices")
    if chunk.get("usage") is not None or not (isinstance(choices, list) and len(choices) == 1):
        return None
    choice = choices[0]
    if not (isinstance(choice, dict) and chunk.keys() <= _ABOUT_CHUNK and choice.keys() <= _ABOUT_CHOICE):
        return None
    if choice.get("index", 0) != 0 or choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return None
    delta = choice.get("delta")
    if not (isinstance(delta, dict) and len(delta) == 1):
        return None
    text = delta.get("content")
    return text if isinstance(text, str) else None


def _parse_text(data: bytes) -> str | None:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return _find_text(chunk) if isinstance(chunk, dict) else None


def _has_finish_reason(choices: object) -> bool | None:
    """Return whether one of these choices has a finish reason. None: the choices are malformed."""
    if not isinstance(choices, list):
        return False if choices is None else None
    finishes = False
    for choice in choices:
        if not isinstance(choice, dict):
            return None
        reason, delta = choice.get("finish_reason"), choice.get("delta")
        if reason is not None:
            if not isinstance(reason, str):
                return None
            finishes = finishes or reason != ""
        if delta is None:
            continue
        if not isinstance(delta, dict):
            return None
        calls = delta.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
            return None
        if not _is_function(delta.get("function_call")):
            return None
    return finishes


def _is_call(call: object) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("index"), int | None):
        return False
    return _is_function(call.get("function"))


def _is_function(function: object) -> bool:
    """Return whether this is None or a piece of a call. Some upstreams send its arguments as an object."""
    if not isinstance(function, dict):
        return function is None
    return isinstance(function.get("name"), str | None) and isinstance(function.get("arguments"), str | dict | None)
