"""The texts of a request and of its answer, for stages that look into each of them.

All of it is work in parts (`gateway.aio.cooperative`): requests and answers may be long.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import orjson

from gateway.aio.cooperative import Work, run_at_once, run_cooperatively
from gateway.contracts.exchange import AnswerEnded, Chunk, Emit, Pause, Reply
from gateway.contracts.records import replace
from gateway.contracts.storage.store import Json
from gateway.dialects.document_texts import build_text_url, read_text_url
from gateway.dialects.extra_message_fields import OPAQUE, FieldAccumulator
from gateway.plugin.stream_redactor import PIECE_CHARS, TextFilter, feed_in_pieces
from gateway.plugin.thought_filter import ThoughtFilters

#: Changes a text, or returns it as it is.
Change: TypeAlias = Callable[[str], Work[str]]

_CALLS: Final = ("tool_calls", "function_call")
_THOUGHTS: Final = ("reasoning_details", "thinking_blocks")
#: The same thoughts as one text.
_THOUGHT_TEXTS: Final = ("reasoning_content", "reasoning")
#: What comes behind the thoughts of a round.
_BEHIND_THOUGHTS: Final = ("content", *_CALLS)
#: Texts that are data, or words of the API: they are not shown to a reader.
_SILENT: Final = frozenset(
    (
        *("b64_json", "data", "encrypted_content", "file_data", "signature", "thought_signature"),
        *("detail", "effort", "format", "modalities", "model", "reasoning_effort", "role", "service_tier", "type"),
        *("tool_choice", "verbosity", "voice"),
    )
)
#: Texts that must stay as they are: they name something, or a schema needs them.
_NAMES: Final = frozenset(
    (
        *("$ref", "call_id", "file_id", "file_url", "id", "image_url", "name", "pattern", "required", "tool_call_id"),
        "url",
    )
)
#: Of an answer.
_OPAQUE: Final = OPAQUE | {"index", "name", "role", "url"}
#: Fields whose keys are the client's own words, and names.
_WORDS: Final = "metadata"
_NAMED: Final = "properties"
#: Fields of a request that the API knows. In all others its client chooses names and keys, at any depth.
_KNOWN: Final = frozenset(
    (
        *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_tokens"),
        *("max_completion_tokens", "messages", "metadata", "modalities", "model", "n", "parallel_tool_calls"),
        *("prediction", "presence_penalty", "prompt_cache_key", "reasoning", "reasoning_effort", "response_format"),
        *("safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature"),
        *("tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options"),
    )
)
#: Events with calls of the gateway's tools.
_OF_CALLS: Final = ("tool.", "approval.")
#: Roles of messages whose `name` is that of a function.
_FUNCTIONS: Final = ("function", "tool")
_DATA_URL: Final = "data:"
_ESCAPE: Final = re.compile(r"\\u(?![dD][89a-fA-F])([0-9a-fA-F]{4})")


class AnswerEndedByRule(AnswerEnded):
    """The exception that ends an answer. `rule` is the name of the rule that ended it."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def change_body(body: Json, change: Change, *, names: bool = False) -> Work[Json]:
    """Return the request with its texts changed, wherever they stand; `user` comes first.

    Numbers stay, except in the arguments of calls. So do data, words of the API such as roles, and names: ids, names of
    functions and parameters, addresses. `names`: these are changed, too. Keys are changed in `metadata`, and names
    and keys of fields that the API does not know.
    """
    walk, told = _Walk(change, names=names), dict[str, tuple[str, Any]]()
    for name in sorted(body, key=lambda name: name != "user"):
        is_known = name in _KNOWN
        key = name if is_known else (yield from change(name))
        told[name] = key, (yield from walk.change_value(body[name], name, foreign=not is_known))
    return dict(told[name] for name in body)


class _Walk:
    """The way through a request. `names`: names are changed, too."""

    def __init__(self, change: Change, *, names: bool) -> None:
        self._change = change
        self._names = names

    def change_value(self, value: Any, name: str, *, foreign: bool = False) -> Work[Any]:
        """Return a value, which is under this name, with its texts changed. `foreign`: the API knows no key in it."""
        if isinstance(value, str):
            if foreign:
                return (yield from self._change(value))
            is_kept = name in _NAMES and (not self._names or value.startswith(_DATA_URL))
            return value if is_kept or name in _SILENT else (yield from self._change(value))
        if isinstance(value, dict):
            keys = foreign or name == _WORDS or (self._names and name == _NAMED)
            return (yield from self._change_fields(value, keys=keys, foreign=foreign))
        if isinstance(value, list):
            told = [*value]
            for place, inner in enumerate(value):
                told[place] = yield from self.change_value(inner, name, foreign=foreign)
            return told
        return value

    def _change_fields(self, fields: Json, *, keys: bool, foreign: bool) -> Work[Json]:
        told: Json = {}
        for name, inner in fields.items():
            key = (yield from self._change(name)) if keys else name
            if name == "arguments":
                told[key] = yield from change_arguments(inner, self._change)
            elif name == "file_data" and isinstance(inner, str) and (text := read_text_url(inner)) is not None:
                changed = yield from self._change(text)
                told[key] = inner if changed == text else build_text_url(changed, like=inner)
            elif isinstance(inner, str) and _is_read(fields, name):
                told[key] = yield from self._change(inner)
            else:
                told[key] = yield from self.change_value(inner, name, foreign=foreign)
        return told


def _is_read(fields: Json, name: str) -> bool:
    """Return whether a text is one in spite of its name: who wrote a message, or a document that is plain text."""
    if name == "name":
        return "role" in fields and fields["role"] not in _FUNCTIONS
    return name == "data" and fields.get("type") == "text"


def change_value(value: Any, change: Change) -> Work[Any]:
    """Return a JSON value with its texts, keys and whole numbers changed; a changed number is a text."""
    match value:
        case str():
            return (yield from change(value))
        case bool():
            return value
        case int():
            return value if (told := (yield from change(text := str(value)))) == text else told
        case dict():
            fields = {}
            for name, inner in value.items():
                key = yield from change(name)
                fields[key] = inner if name in _OPAQUE else (yield from change_value(inner, change))
            return fields
        case list():
            entries = [*value]
            for place, inner in enumerate(value):
                entries[place] = yield from change_value(inner, change)
            return entries
    return value


def change_arguments(arguments: object, change: Change) -> Work[object]:
    """Return the arguments of a call with their texts changed; JSON in a text is read, so that escapes hide nothing."""
    if not isinstance(arguments, str):
        return (yield from change_value(arguments, change))
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        plain = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), arguments)
        told = yield from change(plain)
        return arguments if told == plain else told
    told = yield from change_value(parsed, change)
    return arguments if told == parsed else orjson.dumps(told).decode()


def change_calls(fields: Json, change: Change) -> Work[Json]:
    """Return the calls of a message, under `tool_calls` and `function_call`, with changed arguments."""
    told = dict(fields)
    if isinstance(calls := fields.get("tool_calls"), list):
        told["tool_calls"] = [*calls]
        for place, call in enumerate(calls):
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                function = yield from _change_function(call["function"], change)
                told["tool_calls"][place] = {**call, "function": function}
    if isinstance(older := fields.get("function_call"), dict):
        told["function_call"] = yield from _change_function(older, change)
    return told


def _change_function(function: Json, change: Change) -> Work[Json]:
    if "arguments" not in function:
        return function
    return {**function, "arguments": (yield from change_arguments(function["arguments"], change))}


def screen_reply(
    reply: Reply,
    new_filter: Callable[[], TextFilter],
    calls: Callable[[Json], Work[Json]] | None,
    *,
    over: Change,
    events: Change | None = None,
    shadow: bool = False,
) -> Reply:
    """Return the reply with each of its texts through a separate filter. Held text comes before the end.

    `calls` gets the model's own calls once they are whole; None: they go on as they come. `over` gets any other text of
    the answer, such as a citation, in pieces as they come. `events` looks into the gateway's events of calls.
    Its stream raises `Ended` where a filter ended the answer. `shadow`: the answer goes on as it comes, and the filters
    only see it.
    """

    async def stream(emit: Emit) -> None:
        answer = _Answer(new_filter, calls, over, events)
        waiting: deque[Chunk] = deque()

        def send(chunk: Chunk, told: Chunk | None) -> Pause | None:
            if shadow:
                return emit(chunk)
            pause = None if told is None else emit(told)
            if answer.ended is not None and _find_event(chunk) is None:  # no call that is under way is cut for an event
                raise AnswerEndedByRule(answer.ended)
            return pause

        async def work() -> None:
            while waiting:
                told = await run_cooperatively(answer.filter_chunk(waiting[0]))
                if (pause := send(waiting.popleft(), told)) is not None:
                    await pause()

        def take(chunk: Chunk) -> Pause | None:
            if waiting or answer.is_long(chunk):
                waiting.append(chunk)
                return work
            return send(chunk, run_at_once(answer.filter_chunk(chunk)))

        await reply.stream(take)
        await work()
        rest = await run_cooperatively(answer.release_rest())
        if rest and not shadow and (pause := emit({"choices": [{"index": 0, "delta": rest}]})) is not None:
            await pause()
        if answer.ended is not None:
            raise AnswerEndedByRule(answer.ended)

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

    def __bool__(self) -> bool:
        return bool(self.build_fields())

    def build_fields(self) -> Json:
        """Return the fields of a message with these calls; {}: there is none."""
        calls = [{"function": function.build_fields(), **call} for call, function in self._by_index.values()]
        told: Json = {"tool_calls": calls} if calls else {}
        older = self._function_call.build_fields()
        return {**told, "function_call": older} if older else told


def _find_event(chunk: Chunk) -> Json | None:
    """Return the event that a chunk is, or None for all others."""
    event = None if isinstance(chunk, str) else chunk.get("context")
    return event if isinstance(event, dict) and isinstance(event.get("type"), str) else None


def _is_long(name: str, value: object) -> bool:
    if isinstance(value, str):
        return len(value) > PIECE_CHARS
    return isinstance(value, list | dict) and name not in _CALLS


class _Function:
    """The name and the arguments of a call: texts are continued, null adds nothing, anything else is replaced."""

    def __init__(self) -> None:
        self._texts = FieldAccumulator()
        self._others: Json = {}

    def add(self, piece: Json) -> None:
        for key, part in piece.items():
            if isinstance(part, str):
                self._texts.add(key, part)
            elif part is not None:
                self._others[key] = part

    def build_fields(self) -> Json:
        return {**self._others, **self._texts.get_whole()}


@dataclass(slots=True)
class _Answer:
    """An answer under way: the filters of its texts by their fields, and its calls so far."""

    new_filter: Callable[[], TextFilter]
    calls: Callable[[Json], Work[Json]] | None
    over: Change
    events: Change | None
    ended: str | None = None
    _filters: dict[str, TextFilter] = field(default_factory=dict)
    _calls: _Calls = field(default_factory=_Calls)
    _thoughts: dict[str, ThoughtFilters] = field(init=False)

    def __post_init__(self) -> None:
        change = partial(change_value, change=self.over)
        self._thoughts = {name: ThoughtFilters(self.new_filter, change) for name in _THOUGHTS}

    def is_long(self, chunk: Chunk) -> bool:
        """Return whether a chunk may need more than a moment: a long text, calls that are whole, or unknown fields."""
        if isinstance(chunk, str):
            return len(chunk) > PIECE_CHARS
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            if (choice.get("finish_reason") and self._calls) or any(map(_is_long, delta, delta.values())):
                return True
        return False

    def filter_chunk(self, chunk: Chunk) -> Work[Chunk | None]:
        """Return what may be sent of a chunk; None: nothing yet."""
        if isinstance(chunk, str) and any(one.holds_back for one in self._thoughts.values()):
            chunk = {"choices": [{"index": 0, "delta": {"content": chunk}}]}
        if isinstance(chunk, str):
            return (yield from self._screen_text("content", chunk)) or None
        if (event := _find_event(chunk)) is not None:
            return (yield from self._screen_event(chunk, event))
        choices = chunk.get("choices")
        if not choices:
            return chunk
        told = [choice for choice in choices if choice.get("index", 0) == 0]
        for place, choice in enumerate(told):
            told[place] = yield from self._screen_choice(choice)
        return {**chunk, "choices": told}

    def _screen_event(self, chunk: Json, event: Json) -> Work[Json | None]:
        """Return an event; None: the answer has ended. Its text that was sent before is changed, and calls are not."""
        try:
            if isinstance(said := event.get("said"), str):
                chunk = {**chunk, "context": {**event, "said": (yield from self.over(said))}}
            elif self.events is not None and event["type"].startswith(_OF_CALLS):
                yield from change_value(event, self.events)
        except AnswerEndedByRule as ended:
            self.ended = self.ended or ended.rule
        return chunk if self.ended is None else None

    def release_rest(self) -> Work[Json]:
        """Return the fields that were held back, at the end of the answer."""
        delta: Json = {}
        self._end_thought(delta)
        for name, one in self._filters.items():
            if self.ended is None and (text := one.finish()):
                delta[name] = text
            self.ended = self.ended or one.ended
        self._filters.clear()
        if self.ended is None and self.calls is not None and (calls := self._calls.build_fields()):
            self._calls = _Calls()
            try:
                delta |= yield from self.calls(calls)
            except AnswerEndedByRule as event:
                self.ended = event.rule
        return delta

    def _screen_choice(self, choice: Json) -> Work[Json]:
        delta: Json = {}
        fields = choice.get("delta") or {}
        if fields.keys().isdisjoint(_THOUGHTS) and not fields.keys().isdisjoint(_BEHIND_THOUGHTS):
            self._end_thought(delta)
        for name, value in fields.items():
            if name in _THOUGHTS and isinstance(value, list):
                yield from self._screen_thoughts(name, value, delta)
            elif name in _CALLS and self.calls is not None:
                self._calls.add(name, value)
            elif isinstance(value, str) and name not in _OPAQUE:
                delta[name] = delta.get(name, "") + (yield from self._screen_text(name, value))
            elif name == "content" and isinstance(value, list):
                delta[name] = [*value]
                for place, part in enumerate(value):
                    delta[name][place] = yield from self._screen_part(part)
            elif name in _CALLS or name in _OPAQUE:
                delta[name] = value
            else:
                yield from self._change_field(name, value, delta)
        if choice.get("finish_reason") and self.ended is None:
            for name, value in (yield from self.release_rest()).items():
                known = delta.get(name)
                if isinstance(known, list):
                    delta[name] = [*known, *(value if isinstance(value, list) else [{"type": "text", "text": value}])]
                else:
                    delta[name] = known + value if isinstance(known, str) else value
        if self.ended is not None:
            return {**choice, "delta": delta, "finish_reason": None}
        return {**choice, "delta": delta}

    def _screen_thoughts(self, name: str, entries: list[object], delta: Json) -> Work[None]:
        thoughts = self._thoughts[name]
        n_finished = thoughts.n_finished
        try:
            delta[name] = yield from thoughts.screen(entries)
        except AnswerEndedByRule as event:
            self.ended = self.ended or event.rule
        self.ended = self.ended or thoughts.ended
        if thoughts.n_finished > n_finished:
            self._end_thought_texts(delta)

    def _end_thought(self, delta: Json) -> None:
        """Add what was held back of a thought that is over."""
        for name, thoughts in self._thoughts.items():
            if self.ended is None and (rest := thoughts.finish()):
                delta[name] = rest
                self._end_thought_texts(delta)
            self.ended = self.ended or thoughts.ended

    def _end_thought_texts(self, delta: Json) -> None:
        """Add what was held back of the same thought as one text: by itself it would be a further thought."""
        for name in _THOUGHT_TEXTS:
            one = self._filters.pop(name, None)
            if one is not None and self.ended is None and (text := one.finish()):
                delta[name] = delta.get(name, "") + text
                self.ended = one.ended

    def _change_field(self, name: str, value: object, delta: Json) -> Work[None]:
        try:
            delta[name] = yield from change_value(value, self.over)
        except AnswerEndedByRule as event:
            self.ended = self.ended or event.rule

    def _screen_text(self, name: str, text: str) -> Work[str]:
        one = self._filters.get(name)
        if one is None:
            one = self._filters[name] = self.new_filter()
        told = one.feed(text) if len(text) <= PIECE_CHARS else (yield from feed_in_pieces(one, text))
        self.ended = self.ended or one.ended
        return told

    def _screen_part(self, part: object) -> Work[object]:
        """Return a part of a content. Its text is one with the text of other parts."""
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return {**part, "text": (yield from self._screen_text("content", part["text"]))}
        return (yield from change_value(part, self.over))
