"""The usage in an answer: found in its bytes, of which the middle may be missing. Pure functions.

Only the usage at the top level counts: a model may write the word in its text, and a client may have put it into a tool
that a Response repeats. Parsing a whole answer to find that out would cost more than relaying it. So:

1. In a long answer of one JSON object, `{` and all that follows from a key on are an object exactly if the key stands
   at the top level: one deeper leaves braces over. In the same way, all that precedes a key and `}` are an object. So a
   parser that gets only the end of an answer, or its beginning, proves where the key stands.
2. In a stream, the last events are read whole, the last one first. Of an event that is longer than what is kept, such
   as one with an image, the end is proved as above: the usage of a Response stands one level deeper.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from math import ceil
from typing import Final, NamedTuple

import orjson

from gateway.contracts.model_names import MODEL_CHARS
from gateway.http.sse import EventError, EventReader
from gateway.jsontext.value_count import VALUES_LIMIT, holds_more
from gateway.usage.tokens import BYTES_A_TOKEN, TokenCounts, parse_native_tokens, parse_tokens

#: So many places of a key are tried, and so many of the first and last events looked at for the model.
TRIES: Final = 8
EVENTS: Final = 64
#: A whole answer up to this size is read as it is: it has less than `VALUES_LIMIT` values.
SHORT_BYTES: Final = 8192
#: So much of the beginning and of the end is searched for the model, and of the beginning for usage.
NEAR_BYTES: Final = 4096
#: The end of nearly all streams: their last events, one of which has the usage.
LAST_BYTES: Final = 1024
#: So many events of the beginning and of the end stand for the others where texts are estimated.
SAMPLES: Final = 16
#: What an event has besides its data: `data: ` and two line ends.
_FRAME_BYTES = 8
_USAGE = b'"usage"'
#: What Gemini and Ollama call it, which has the input first.
_NATIVE: Final = (b'"usageMetadata"', b'"prompt_eval_count"', b'"eval_count"')
_END_OF_EVENT = re.compile(rb"\r?\n\r?\n|\r\r")
#: What the standard library's parser takes, and the quick one does not.
_ODD = re.compile(rb"\\u[dD][89a-fA-F]|NaN|Infinity")
_MODEL_KEY = b'"model"'
_NAMES_MODEL = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*"[^"]')
_MODEL = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*"(?:[^"\\]|\\.)*+"')
#: In a text that is reversed: such a key, a string of any kind, and what objects and lists begin and end with.
_FROM_END = {
    key: re.compile(
        rb':[ \t\r\n]*+%b(?=[ \t\r\n]*+[,{])|"[^"]*+(?:"(?=\\)[^"]*+)*+(?:"|\Z)|[{}\[\]]' % key[::-1],
    )
    for key in (_USAGE, _MODEL_KEY, *_NATIVE)
}
_STREAM_OF_RESPONSE = re.compile(rb'"type"[ \t]*:[ \t]*"response\.')


class AnswerFacts(NamedTuple):
    """The facts that an answer states. `partial`: tokens of its beginning alone, so the output goes on."""

    tokens: TokenCounts | None = None
    model: str = ""
    partial: bool = False


_NOTHING: Final = AnswerFacts()


def parse_whole(head: bytes, tail: bytes | None = None) -> AnswerFacts:
    """Return the facts of a JSON answer, given its beginning and its end, or all of it as `head`."""
    if tail is None and len(head) <= SHORT_BYTES:
        found = _parse_value(head)
        return (
            AnswerFacts(parse_tokens(found.get("usage")), _get_model_name(found))
            if isinstance(found, dict)
            else _NOTHING
        )
    end = head if tail is None else tail
    found = _find_last_object(end, _USAGE) or {}
    tokens = parse_tokens(found.get("usage")) or parse_tokens(_find_top_value(head[:NEAR_BYTES], _USAGE))
    if tokens is None and tail is None and _USAGE in head:
        found = _parse_object(head) or {}
        tokens = parse_tokens(found.get("usage"))
    model = (
        _get_model_name(found)
        or _get_model_name(_find_last_object(end[-NEAR_BYTES:], _MODEL_KEY) or {})
        or _find_top_model(head[:NEAR_BYTES])
    )
    if not model:
        found = _parse_object(head) if tail is None else _find_last_object(end, _MODEL_KEY)
        model = _get_model_name(found or {}) or _find_top_model(head)
    return AnswerFacts(tokens, model)


def parse_stream(head: bytes, tail: bytes | None = None) -> AnswerFacts:
    """Return the facts of an event stream, given its beginning and end, or all of it as `head`."""
    first = _read_first_events(head)
    end = head if tail is None else tail
    if not end.endswith(b"\n\n"):
        end += b"\n\n"  # some do not close their last event
    last, event = _find_last_usage(_read_last_events(end[-LAST_BYTES:]))
    if last is None and _USAGE in end:
        last, event = _find_last_usage(_parse_events(end) if tail is None else _read_last_events(end))
    partial = event.get("type") == "message_start"
    if last is None and tail is not None:
        told = _find_long_event_value(head, tail, _USAGE, "usage")
        last = told if isinstance(told, dict) else None
    model = first.model or _get_model(event) or _find_later_model(head, tail)
    if last is None:
        tokens = parse_tokens(first.usage)
        return AnswerFacts(tokens, model, partial=tokens is not None)
    if isinstance(first.usage, dict):
        # Anthropic sends the input at the beginning, and the output at the end, which may repeat the input.
        last = {**first.usage, **{key: value for key, value in last.items() if value is not None}}
    return AnswerFacts(parse_tokens(last), model, partial)


def parse_native(head: bytes, tail: bytes | None = None) -> AnswerFacts | None:
    """Read an answer of Gemini's or Ollama's own API, whose last object or line has its usage; None: it has none."""
    end = (head if tail is None else tail).rstrip()
    if head.lstrip().startswith(b"["):
        end = end.removesuffix(b"]").rstrip()
    for key in _NATIVE:
        found = _find_last_object(end, key) if key in end else None
        if found is not None and (tokens := parse_native_tokens(found)) is not None:
            named = found.get("modelVersion")
            return AnswerFacts(tokens, clean_model_name(named) if isinstance(named, str) else _find_last_model(end))
    return None


def _find_last_model(end: bytes) -> str:
    """Return the model that the last object of an answer names; "": none."""
    return _get_model_name(_find_last_object(end, _MODEL_KEY) or {})


def names_model(head: bytes) -> bool:
    """Return whether the beginning of an answer seems to name its model, so that no more of it is wanted."""
    return _NAMES_MODEL.search(head) is not None


def has_id(head: bytes, name: bytes) -> bool:
    """Return whether an answer of one JSON object, which begins with `head`, has this `id`."""
    found = re.finditer(rb'"id"[ \t\r\n]*:[ \t\r\n]*"%b"' % re.escape(name), head)
    return any(_is_top_level(head, one.start()) for one in islice(found, TRIES))


def estimate_stream_tokens(head: bytes, tail: bytes | None, length: int) -> int:
    """Return an estimate of the tokens of the texts in a stream of `length` bytes, from its first and last events.

    Four UTF-8 bytes are a token, and an event with a text is at least one for each choice. If what is kept has no text,
    all of what is missing may be text.
    """
    kept = [_parse_events(head)] if tail is None else [_parse_events(head), _read_last_events(tail)]
    if tail is None:
        length = sum(map(_get_frame_size, kept[0]))
    for samples in (SAMPLES, 0):
        if density := max(_compute_density(texts, samples=samples) for texts in kept):
            return ceil(density * length)
    return 0 if tail is None else ceil(max(length - len(head) - len(tail), 0) / BYTES_A_TOKEN)


def _compute_density(texts: Sequence[bytes], *, samples: int) -> float:
    """Return how many tokens of text a byte of these events has, by so many of them; 0: by all.

    Each byte has the same chance to be sampled, so a few long events count as much as they are long.
    """
    if not samples or len(texts) <= samples:
        size = sum(map(_get_frame_size, texts))
        return sum(map(_estimate_event_tokens, texts)) / size if size else 0.0
    ends = list(accumulate(map(_get_frame_size, texts)))
    at = [texts[bisect_left(ends, ends[-1] * (number + 0.5) / samples)] for number in range(samples)]
    return sum(_estimate_event_tokens(text) / _get_frame_size(text) for text in at) / samples


def _get_frame_size(text: bytes) -> int:
    return len(text) + _FRAME_BYTES


class _Words(NamedTuple):
    model: str
    usage: object


def _read_first_events(head: bytes) -> _Words:
    """Return the model that the first events name, and the usage with which an answer begins (`message_start`)."""
    words = _read_events(_parse_events(head[: _find_event_end(head)]))
    if not words.model:  # it begins with something else
        words = _read_events(_parse_events(head)[:EVENTS])
    return words if words.model or not head.startswith(b"{") else _Words(_find_top_model(head), None)


def _read_events(texts: Sequence[bytes]) -> _Words:
    """Return the model that the first events name, and the usage of a `message_start`."""
    usage: object = None
    for text in texts:
        if _MODEL_KEY not in text or (event := _parse_object(text)) is None:
            continue
        if event.get("type") == "message_start":
            usage = _get_holder(event).get("usage")
        if model := _get_model(event):
            return _Words(model, usage)
    return _Words("", usage)


def _find_last_usage(texts: Sequence[bytes]) -> tuple[dict[str, object] | None, dict[str, object]]:
    """Return the last usage in the last events, and its event."""
    for text in reversed(texts):
        if _USAGE in text and (event := _parse_object(text)) is not None and (found := _find_usage(event)) is not None:
            return found, event
    return None, {}


def _find_later_model(head: bytes, tail: bytes | None) -> str:
    """Return the model that no event of the beginning names; "": it is not known.

    Some name it in later chunks only. In the first and last events of a Response it stands behind the instructions.
    """
    ends = _parse_events(head) if tail is None else _read_last_events(tail)
    for text in reversed(ends[-EVENTS:]):
        if names_model(text) and (event := _parse_object(text)) is not None and (model := _get_model(event)):
            return model
    if tail is None or not _STREAM_OF_RESPONSE.search(head):
        return ""
    named = _find_long_event_value(head, tail, _MODEL_KEY, "model")
    return clean_model_name(named) if isinstance(named, str) else _find_long_event_model(head)


def _find_long_event_model(head: bytes) -> str:
    """Return the model of a Response whose event begins in `head` and does not end there."""
    starts = [found.end() for found in _END_OF_EVENT.finditer(head)]
    event = head[starts[-1] if starts else 0 :].partition(b"data:")[2].lstrip()
    for number, found in enumerate(_MODEL.finditer(event)):
        if number == TRIES:
            break
        before = event[: found.start()].rstrip()
        above = _parse_object(before[:-1] + b"}}") if before.endswith(b",") else None
        if above and next(reversed(above)) == "response":
            return _get_model_name(_parse_object(b"{" + found[0] + b"}") or {})
    return ""


def _get_holder(event: dict[str, object]) -> dict[str, object]:
    """Return what names the model: the message or the Response that an event brings, or the event itself."""
    inner = event.get("message") or event.get("response")
    return inner if isinstance(inner, dict) else event


def _get_model(event: dict[str, object]) -> str:
    return _get_model_name(_get_holder(event))


def _find_usage(event: dict[str, object]) -> dict[str, object] | None:
    """Return the usage of an event: at its top level, or that of the response or message that it brings."""
    for holder in (event, event.get("response"), event.get("message")):
        if isinstance(holder, dict) and parse_tokens(usage := holder.get("usage")) is not None:
            assert isinstance(usage, dict)
            return usage
    return None


def _find_long_event_value(head: bytes, tail: bytes, key: bytes, name: str) -> object:
    """Return a value at the top level or in the Response of an event with a lost beginning, or None."""
    is_response = _STREAM_OF_RESPONSE.search(head) is not None
    found = _find_last_object(tail.rstrip(b"\r\n"), key, opening=b'{"response":{' if is_response else b"{")
    holder = found.get("response") if found is not None and is_response else found
    return holder.get(name) if isinstance(holder, dict) else None


def _read_last_events(tail: bytes) -> list[bytes]:
    """Return the data of the events at the end of a stream that are here whole."""
    begins = _find_event_end(tail)
    return _parse_events(tail[begins:]) if begins else []


def _find_event_end(stream: bytes) -> int:
    """Return the length of a stream up to the end of its first event; 0: that is not here."""
    end = stream.find(b"\n\n")
    if end >= 0 and stream.find(b"\r", 0, end) < 0:
        return end + 2
    found = _END_OF_EVENT.search(stream)
    return found.end() if found is not None else 0


def _parse_events(stream: bytes) -> list[bytes]:
    try:
        return EventReader().feed(stream)
    except EventError:
        return []


def _estimate_event_tokens(text: bytes) -> float:
    """Return an estimate of the tokens that an event adds to an answer."""
    event = _parse_object(text)
    return 0.0 if event is None else estimate_text_tokens(event)


def estimate_text_tokens(event: Mapping[str, object]) -> float:
    """Return an estimate of the tokens of the texts in an event or a chunk, one for each choice with a text at least.

    Tool calls and reasoning are texts, too.
    """
    choices = event.get("choices")
    tokens = 0.0
    for part in choices if isinstance(choices, list) and choices else [event]:
        if isinstance(part, dict) and (text := _get_text(part)):
            tokens += max(len(text.encode(errors="replace")) / BYTES_A_TOKEN, 1.0)
    return tokens


def _find_last_object(text: bytes, key: bytes, *, opening: bytes = b"{") -> dict[str, object] | None:
    """Return the object that begins with the last such key of the level below `opening`; None: there is none.

    The text is read from its end, where no string is open, so that it takes one look however often the word is in it.
    """
    level, depth = opening.count(b"{"), 0
    for found in _FROM_END[key].finditer(text[::-1]):
        mark = found[0]
        if mark in (b"}", b"]"):
            depth += 1
        elif mark in (b"{", b"["):
            depth -= 1
        elif mark.startswith(b":") and depth == level:
            return _parse_object(opening + text[len(text) - found.end() :])
    return None


def _find_top_value(head: bytes, key: bytes) -> object:
    """Return the value of the first such key at the top level, which ends within `head`; None: there is none."""
    at = -1
    for _ in range(TRIES):
        at = head.find(key, at + 1)
        if at < 0:
            break
        if not _is_top_level(head, at):
            continue
        # An object of usage has no braces in texts; each `}` may be its end.
        end = at
        for _ in range(TRIES):
            end = head.find(b"}", end + 1)
            if end < 0:
                break
            if (found := _parse_object(b"{" + head[at : end + 1] + b"}")) is not None:
                return found.get("usage")
    return None


def _find_top_model(head: bytes) -> str:
    """Return the model that an object names at its top level, within its beginning; "": none."""
    for number, found in enumerate(_MODEL.finditer(head)):
        if number == TRIES:
            break
        if _is_top_level(head, found.start()):
            named = _parse_object(b"{" + found[0] + b"}")
            return clean_model_name(str(named["model"])) if named is not None else ""
    return ""


def _is_top_level(head: bytes, at: int) -> bool:
    before = head[:at].rstrip()
    if before == b"{":
        return True
    return before.endswith(b",") and _parse_object(before[:-1] + b"}") is not None


def _parse_object(text: bytes) -> dict[str, object] | None:
    """Return a JSON object; None: the text is something else, or has too many values to be read here."""
    if holds_more(text, VALUES_LIMIT):
        return None
    found = _parse_value(text)
    return found if isinstance(found, dict) else None


def _parse_value(text: bytes) -> object:
    """Return the value of a JSON text; None: it is none.

    Half of an emoji that was cut, as an escape or as bytes, and `NaN` are no JSON, but many clients take them.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if text.isascii() and _ODD.search(text) is None:
            return None
    try:
        return json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _get_model_name(found: dict[str, object]) -> str:
    model = found.get("model")
    return clean_model_name(model) if isinstance(model, str) else ""


def clean_model_name(model: str) -> str:
    """Return the name of a model if it can be one: it becomes a label of metrics and a row of the store; else ""."""
    return model if len(model) <= MODEL_CHARS and model.isprintable() else ""


def _get_text(part: Mapping[str, object]) -> str:
    """Return the text that an event, or a choice in it, adds to an answer, also of a tool call or of reasoning."""
    delta = part.get("delta")
    if isinstance(delta, str):
        return delta
    said = delta if isinstance(delta, dict) else part.get("text")
    return "".join(_collect_texts(said)) if said else ""


def _collect_texts(value: object) -> Iterator[str]:
    """Yield the texts in a value that stand where models write: not types, ids and roles."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, list):
            waiting += inner
        elif isinstance(inner, dict):
            waiting += [deeper for key, deeper in inner.items() if key not in ("type", "id", "role", "index")]
