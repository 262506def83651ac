"""The content of a request, for every API: the speakers, the tool calls and their results."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import orjson

from gateway.demo.functions import NO_FUNCTIONS, Functions

Json: TypeAlias = dict[str, Any]
Kind = Literal["system", "user", "result", "answer", "call", "broken_call"]

_ERROR_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
)
_PROMPTED_CALL: Final = re.compile(r"\s*(?:<think>.*?</think>\s*)?(?:```\w*\s*)?(?=[\[{])", re.DOTALL)
_FENCE_END: Final = re.compile(r"```\s*$")


class RefusalError(Exception):
    """The demo model answers this request with an error."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param

    def build_error(self) -> Json:
        """Return the error object of OpenAI's API."""
        kind = "server_error" if self.status >= 500 else _ERROR_TYPES.get(self.status, "invalid_request_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """One message or item; `texts` are its parts, in order."""

    kind: Kind
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request to any of the generating routes; without `native_calls` the API has no field for tool calls."""

    model: str
    entries: tuple[ConversationEntry, ...]
    stream: bool
    max_tokens: int | None
    include_usage: bool = False
    native_calls: bool = True
    functions: Functions = NO_FUNCTIONS


def read_body(raw: bytes | str) -> Json:
    """Return the request's JSON object."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RefusalError(
            f"The request body is not JSON: {error}. Send one JSON object.", code="invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise RefusalError("The request body is JSON but not an object. Send one JSON object.", code="invalid_json")
    return body


def read_conversation(
    body: Json,
    *,
    entries: Sequence[ConversationEntry],
    max_tokens: Sequence[str],
    include_usage: bool = False,
    native_calls: bool = True,
    functions: Functions = NO_FUNCTIONS,
) -> Conversation:
    """Read the fields that all the APIs share, around the entries that each API reads in its own way."""
    model = body.get("model", "demo")
    if not isinstance(model, str):
        raise RefusalError(f"'model' must be a string, not {model!r}.", param="model")
    return Conversation(
        model=model,
        entries=tuple(entries),
        stream=body.get("stream") is True,
        max_tokens=_read_limit(body, max_tokens),
        include_usage=include_usage,
        native_calls=native_calls,
        functions=functions,
    )


def read_list(body: Json, name: str) -> list[Json]:
    """Return a list of objects that the request must have."""
    items = body.get(name)
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise RefusalError(f"{name!r} must be a list of at least one object.", param=name)
    return items


def read_texts(content: object, *, param: str) -> tuple[str, ...]:
    """Return the text parts of a content: a string, nothing, or a list of parts without images and the like."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        raise RefusalError(f"{param!r} must be a string or a list of parts, not {content!r}.", param=param)
    parts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return tuple(part for part in parts if isinstance(part, str))


def classify_text(texts: tuple[str, ...]) -> ConversationEntry:
    """Classify the model's text: a prompted tool call, a broken one, or an answer."""
    text = "".join(texts)
    start = _PROMPTED_CALL.match(text)
    if start is None or '"tool"' not in text:
        return ConversationEntry("answer", texts)
    return ConversationEntry("call" if is_json(_FENCE_END.sub("", text[start.end() :])) else "broken_call", texts)


def is_json(text: str) -> bool:
    """Return whether the arguments of a call can be parsed; an empty text means no arguments."""
    if not text:
        return True
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _read_limit(body: Json, names: Sequence[str]) -> int | None:
    for name in names:
        limit = body.get(name)
        if limit is None:
            continue
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise RefusalError(f"{name!r} must be a whole number above 0, not {limit!r}.", param=name)
        return limit
    return None
