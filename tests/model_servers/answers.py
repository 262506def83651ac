"""The answers of models, and the styles in which servers write them as a stream of events."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from .calls import Call, Json, in_pieces

#: Where a stream says how many tokens it took.
UsagePlace = Literal["own", "own with a choice", "finish", "choice", "x_groq", "nowhere"]
#: Where an answer has the thoughts of its model. "": this server shows none.
ThoughtPlace = Literal["", "reasoning_content", "reasoning", "reasoning_details", "parts", "<think>", "<reasoning>"]
_TAGS: Final = {"<think>": "</think>", "<reasoning>": "</reasoning>"}
DONE: Final = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says: a text, or calls. Thoughts come first."""

    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Style:
    """How a server writes the stream of an answer."""

    #: Lines before the first event, and behind the last but `[DONE]`.
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    done: bool = True
    #: The delta of an event before the first text; None: there is none.
    opening: Json | None = field(default_factory=lambda: {"role": "assistant", "content": ""})
    #: Fields of each delta, of each choice, and of each event, that say nothing.
    delta: Json = field(default_factory=dict)
    choice: Json = field(default_factory=dict)
    chunk: Json = field(default_factory=dict)
    #: The finish reason of a choice that goes on.
    unfinished: Json = field(default_factory=lambda: {"finish_reason": None})
    #: The finish reason comes with the last piece, in place of an event of its own with the delta `closing`.
    finish_with_last: bool = False
    closing: Json = field(default_factory=dict)
    called: str = "tool_calls"
    calls: Callable[[Sequence[Call]], Iterator[Json]] = in_pieces
    #: The most calls of one answer.
    most_calls: int = 2
    thought: ThoughtPlace = ""
    #: Texts are lists of parts.
    parts: bool = False
    #: Each event has an id of its own.
    fresh_ids: bool = False
    usage: UsagePlace = "own"
    tokens: tuple[int, int] = (11, 7)


def event(data: object) -> str:
    """Return an event of a stream."""
    return f"data: {json.dumps(data)}\n\n"


def written(style: Style, answer: Answer) -> list[str]:
    """Return the events of an answer."""
    choices = [
        {"index": 0, "delta": {**style.delta, **delta}, **style.unfinished, **style.choice}
        for delta in _deltas(style, answer)
    ]
    reason = style.called if answer.calls else "stop"
    if not style.finish_with_last:
        choices.append({"index": 0, "delta": {**style.delta, **style.closing}, **style.choice})
    choices[-1]["finish_reason"] = reason
    chunks = [_chunk(style, [choice]) for choice in choices]
    _count(style, chunks)
    events = [event({"id": f"c-{at if style.fresh_ids else 0}", **chunk}) for at, chunk in enumerate(chunks)]
    return [*style.before, *events, *style.behind, *([DONE] if style.done else [])]


def completion(style: Style, answer: Answer, calls: Callable[[Sequence[Call]], list[Json]] | None = None) -> Json:
    """Return an answer that is no stream."""
    message: Json = {"role": "assistant", "content": None if answer.calls else answer.text}
    if answer.calls:
        plain = [{"id": call.id, "type": "function", "function": call.function} for call in answer.calls]
        message["tool_calls"] = plain if calls is None else calls(answer.calls)
    reason = "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    facts = {"id": "c-0", "object": "chat.completion", "created": 1, "model": "m"}
    return {**facts, "choices": [choice], "usage": _usage(style)}


def _chunk(style: Style, choices: list[Json]) -> Json:
    return {"object": "chat.completion.chunk", "created": 1, "model": "m", **style.chunk, "choices": choices}


def _usage(style: Style) -> Json:
    prompt, answer = style.tokens
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _count(style: Style, chunks: list[Json]) -> None:
    """Put the count of tokens where the style has it."""
    last, usage = chunks[-1], _usage(style)
    match style.usage:
        case "own":
            chunks.append({**_chunk(style, []), "usage": usage})
        case "own with a choice":
            chunks.append({**_chunk(style, [{**last["choices"][0], "delta": {**style.delta, "content": ""}}])})
            chunks[-1]["usage"] = usage
        case "finish":
            last["usage"] = usage
        case "choice":
            last["choices"][0]["usage"] = usage
        case "x_groq":
            last["x_groq"] = {"id": "req_1", "usage": usage}


def _deltas(style: Style, answer: Answer) -> Iterator[Json]:
    if style.opening is not None:
        yield style.opening
    text = answer.text
    if answer.thought and style.thought:
        if style.thought in _TAGS:
            text = f"{style.thought}{answer.thought}{_TAGS[style.thought]}{text}"
        else:
            yield from (_thought(style.thought, piece) for piece in _pieces(answer.thought))
    for piece in _pieces(text):
        yield {"content": [{"type": "text", "text": piece}] if style.parts else piece}
    if answer.calls:
        yield from style.calls(answer.calls[: style.most_calls])


def _thought(place: ThoughtPlace, piece: str) -> Json:
    if place == "parts":
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]}
    if place == "reasoning_details":
        detail = {"type": "reasoning.text", "text": piece, "format": "unknown", "index": 0}
        return {"content": "", "reasoning": piece, "reasoning_details": [detail]}
    return {"content": None, place: piece} if place == "reasoning_content" else {place: piece}


def _pieces(text: str) -> list[str]:
    third = max(1, len(text) // 3)
    return [piece for piece in (text[:third], text[third : 2 * third], text[2 * third :]) if piece]
