"""The texts of a request and of its answer, for stages that look into each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias

import orjson

from gateway.contracts.exchange import Chunk, Emit, Pause, Reply
from gateway.contracts.store import Json
from gateway.dialects.beside import OPAQUE, Gathered

#: Changes a text, or returns it as it is.
Change: TypeAlias = Callable[[str], str]

_CALLS: Final = ("tool_calls", "function_call")
#: Texts that are ids, signatures or data: changed, they would be worth nothing.
_OPAQUE: Final = OPAQUE | {"index", "name", "role", "url"}


class TextFilter(Protocol):
    """The filter of one text under way. Once it has `ended` nothing may follow."""

    @property
    def ended(self) -> str | None: ...

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class Ended(Exception):  # noqa: N818  (an event: a filter ended the answer)
    """The exception that ends an answer. `rule` is the name of the rule that ended it."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def changed_body(body: Json, change: Change) -> Json:
    """Return the request with each text of its messages changed: contents, thoughts, and arguments of calls."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    return {**body, "messages": [_message(one, change) if isinstance(one, dict) else one for one in messages]}


def changed_value(value: Any, change: Change) -> Any:
    """Return a JSON value with its texts, keys and whole numbers changed; a changed number is a text."""
    match value:
        case str():
            return change(value)
        case bool():
            return value
        case int():
            return value if (told := change(text := str(value))) == text else told
        case dict():
            return {
                change(name): inner if name in _OPAQUE else changed_value(inner, change)
                for name, inner in value.items()
            }
        case list():
            return [changed_value(inner, change) for inner in value]
    return value


def changed_arguments(arguments: object, change: Change) -> object:
    """Return the arguments of a call with their texts changed; JSON in a text is read, so that escapes hide nothing."""
    if not isinstance(arguments, str):
        return changed_value(arguments, change)
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return change(arguments)
    told = changed_value(parsed, change)
    return arguments if told == parsed else orjson.dumps(told).decode()


def changed_calls(fields: Json, change: Change) -> Json:
    """Return the calls of a message, under `tool_calls` and `function_call`, with changed arguments."""
    told = dict(fields)
    if isinstance(calls := fields.get("tool_calls"), list):
        told["tool_calls"] = [
            {**call, "function": _function(call["function"], change)}
            if isinstance(call, dict) and isinstance(call.get("function"), dict)
            else call
            for call in calls
        ]
    if isinstance(function := fields.get("function_call"), dict):
        told["function_call"] = _function(function, change)
    return told


def screened_reply(
    reply: Reply,
    new_filter: Callable[[], TextFilter],
    calls: Callable[[Json], Json] | None,
    *,
    over: Change,
    shadow: bool = False,
) -> Reply:
    """Return the reply with each of its texts through a filter of its own. Held text comes before the end.

    `calls` gets the model's own calls once they are whole; None: they go on as they come. `over` gets any other text of
    the answer, such as a citation, in pieces as they come. Its stream raises `Ended` where a filter ended the answer.
    `shadow`: the answer goes on as it comes, and the filters only see it.
    """

    async def stream(emit: Emit) -> None:
        answer = _Answer(new_filter, calls, over)

        def take(chunk: Chunk) -> Pause | None:
            told = answer.told(chunk)
            if shadow:
                return emit(chunk)
            pause = None if told is None else emit(told)
            if answer.ended is not None:
                raise Ended(answer.ended)
            return pause

        await reply.stream(take)
        rest = answer.rest()
        if rest and not shadow and (pause := emit({"choices": [{"index": 0, "delta": rest}]})) is not None:
            await pause()
        if answer.ended is not None:
            raise Ended(answer.ended)

    return replace(reply, stream=stream)


class _Calls:
    """The calls of one answer, put together from their pieces."""

    def __init__(self) -> None:
        self._by_index: dict[object, tuple[Json, _Function]] = {}
        self._function_call = _Function()

    def add(self, name: str, value: Any) -> None:
        """Add what a chunk has under `tool_calls` or `function_call`."""
        if name == "function_call":
            self._function_call.add(value or {})
            return
        for place, piece in enumerate(value or ()):
            call, function = self._by_index.setdefault(piece.get("index", place), ({}, _Function()))
            call |= {key: part for key, part in piece.items() if key != "function" and part is not None}
            function.add(piece.get("function") or {})

    def whole(self) -> Json:
        """Return the fields of a message with these calls; {}: there is none."""
        calls = [{"function": function.whole(), **call} for call, function in self._by_index.values()]
        told: Json = {"tool_calls": calls} if calls else {}
        older = self._function_call.whole()
        return {**told, "function_call": older} if older else told


class _Function:
    """The name and the arguments of a call: texts are continued, null adds nothing, anything else is replaced."""

    def __init__(self) -> None:
        self._texts = Gathered()
        self._others: Json = {}

    def add(self, piece: Json) -> None:
        for key, part in piece.items():
            if isinstance(part, str):
                self._texts.add(key, part)
            elif part is not None:
                self._others[key] = part

    def whole(self) -> Json:
        return {**self._others, **self._texts.whole()}


@dataclass(slots=True)
class _Answer:
    """An answer under way: the filters of its texts by their fields, and its calls so far."""

    new_filter: Callable[[], TextFilter]
    calls: Callable[[Json], Json] | None
    over: Change
    ended: str | None = None
    _filters: dict[str, TextFilter] = field(default_factory=dict)
    _calls: _Calls = field(default_factory=_Calls)

    def told(self, chunk: Chunk) -> Chunk | None:
        """Return what may be sent of a chunk; None: nothing yet."""
        if isinstance(chunk, str):
            return self._text("content", chunk) or None
        choices = chunk.get("choices")
        if not choices:
            return chunk
        told = [self._choice(choice) for choice in choices if choice.get("index", 0) == 0]
        return {**chunk, "choices": told}

    def rest(self) -> Json:
        """Return the fields that were held back, at the end of the answer."""
        delta: Json = {}
        for name, one in self._filters.items():
            if self.ended is None and (text := one.finish()):
                delta[name] = text
            self.ended = self.ended or one.ended
        self._filters.clear()
        if self.ended is None and self.calls is not None and (calls := self._calls.whole()):
            self._calls = _Calls()
            try:
                delta |= self.calls(calls)
            except Ended as event:
                self.ended = event.rule
        return delta

    def _choice(self, choice: Json) -> Json:
        delta: Json = {}
        for name, value in (choice.get("delta") or {}).items():
            if name in _CALLS and self.calls is not None:
                self._calls.add(name, value)
            elif isinstance(value, str) and name not in _OPAQUE:
                delta[name] = self._text(name, value)
            elif name == "content" and isinstance(value, list):
                delta[name] = [self._part(part) for part in value]
            elif name in _CALLS or name in _OPAQUE:
                delta[name] = value
            else:
                self._tell_over(name, value, delta)
        if choice.get("finish_reason") and self.ended is None:
            for name, value in self.rest().items():
                known = delta.get(name)
                if isinstance(known, list):
                    delta[name] = [*known, {"type": "text", "text": value}]
                else:
                    delta[name] = known + value if isinstance(known, str) else value
        if self.ended is not None:
            return {**choice, "delta": delta, "finish_reason": None}
        return {**choice, "delta": delta}

    def _tell_over(self, name: str, value: object, delta: Json) -> None:
        try:
            delta[name] = changed_value(value, self.over)
        except Ended as event:
            self.ended = self.ended or event.rule

    def _text(self, name: str, text: str) -> str:
        one = self._filters.get(name)
        if one is None:
            one = self._filters[name] = self.new_filter()
        told = one.feed(text)
        self.ended = self.ended or one.ended
        return told

    def _part(self, part: object) -> object:
        """Return a part of a content. Its text is one with the text of other parts."""
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return {**part, "text": self._text("content", part["text"])}
        return changed_value(part, self.over)


def _message(message: Json, change: Change) -> Json:
    told = changed_calls(message, change)
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        value = message.get(name)
        if isinstance(value, str):
            told[name] = change(value)
        elif isinstance(value, list):
            told[name] = [
                {**part, "text": change(part["text"])}
                if isinstance(part, dict) and isinstance(part.get("text"), str)
                else part
                for part in value
            ]
    return told


def _function(function: Json, change: Change) -> Json:
    if "arguments" not in function:
        return function
    return {**function, "arguments": changed_arguments(function["arguments"], change)}
