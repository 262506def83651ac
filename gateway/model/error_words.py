"""The words, the code and the parameter of an upstream's error, in whatever shape its server writes it. Sans-I/O.

Servers nest them as OpenAI does (`error.message`), as FastAPI does (`detail`, a text or a list of faults), as Google's
API gateways do (a list), as AWS does (`Message`), flat (`message`, `msg`), or answer in plain text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

#: So much of the words goes to the client.
MESSAGE_CHARS: Final = 2000
_CODE_CHARS, _DEPTH, _FAULTS = 100, 5, 20
#: Fields with the words, or with what has them: the first with a text counts.
_WORDS: Final = (
    *("error", "errors", "message", "Message", "detail", "details", "msg", "error_message", "errorMessage"),
    *("error_description", "reason", "description", "fault", "faultstring", "title"),
)
_CODES: Final = ("code", "error_code", "errorCode")
_CODE = re.compile(r"[A-Za-z][\w.:/-]*")
#: The words of servers about a conversation that is longer than their model reads. Agents shorten it on this one code.
TOO_LONG: Final = "context_length_exceeded"
_TOO_LONG = re.compile(
    r"exceed_context_size_error|(?:maximum|max(?:imum)? (?:model|allowed)|model's) context (?:length|window|size)"
    r"|(?:longer|larger|greater|more tokens|exceeds?) than (?:the )?(?:model's |maximum )?(?:context|max_model_len)"
    r"|exceeds? the (?:available |model's |maximum )?context (?:size|length|window)"
    r"|(?:prompt|input) is too long|context window exceeds"
    r"|exceeded model token limit|input token count[^.\n]{0,30}exceeds the maximum|maximum prompt length is"
    r"|reduce the length of the messages",
    re.IGNORECASE,
)
#: Pages, and JSON that was cut.
_NO_WORDS = re.compile(r"<(?:!doctype|html|\?xml|head|body)|[{\[]", re.IGNORECASE)
_STATUS = re.compile("[45][0-9][0-9]")
#: The statuses of the types of OpenAI and Anthropic, for errors that come without one.
_STATUS_OF_TYPE: Final[Mapping[object, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
}


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """The words of an upstream about an error. `message` is "" if it has no text.

    `code` and `param` are the upstream's own; None: it has none. `status` is the one that its fields name, 0 for none.
    """

    message: str = ""
    code: str | None = None
    param: str | None = None
    status: int = 0


def parse_answer_error(content: bytes, *, secret: str = "") -> ErrorWords:
    """Return the words in the body of an error answer, without a secret that it may repeat."""
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError:
        text = content.decode("utf-8", "replace").strip()
        is_text = "".join(text.split()).isprintable() and "\ufffd" not in text
        return ErrorWords(_mask_and_cut(text, secret)) if is_text and not _NO_WORDS.match(text) else ErrorWords()
    return parse_error_words(parsed, secret=secret)


def parse_error_words(error: object, *, secret: str = "") -> ErrorWords:
    """Return a JSON value's words about an error, without a secret that it may repeat."""
    message = "; ".join(dict.fromkeys(text for text in _iterate_error_texts(error, _DEPTH) if text))
    fields = list(_iterate_error_objects(error, _DEPTH))
    said = [str(one.get(name)) for one in fields for name in ("status", "code", "status_code", "http_status")]
    code = _find_code(fields, message, secret)
    of_type = 400 if code == TOO_LONG else next(filter(None, (_get_type_status(one.get("type")) for one in fields)), 0)
    return ErrorWords(
        _mask_and_cut(message, secret),
        code=code,
        param=next(
            (_mask_and_cut(param, secret) for one in fields if isinstance(param := one.get("param"), str)), None
        ),
        status=next((int(status) for status in said if _STATUS.fullmatch(status)), of_type),
    )


def is_error(event: Mapping[str, object]) -> bool:
    """Return whether an event of a stream is an error: it has no choices, and states what went wrong."""
    if event.get("error") is not None:
        return True
    if event.get("choices") is not None:
        return False
    return event.get("object") == "error" or event.get("type") == "error" or any(event.get(name) for name in _WORDS)


def _iterate_error_texts(value: object, depth: int) -> Iterator[str]:
    """Yield the texts of an error: of an object, the texts of its first field with some."""
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, list) and depth:
        for fault in value[:_FAULTS]:
            yield from _iterate_error_texts(fault, depth - 1)
    elif isinstance(value, dict) and depth:
        texts = next(
            filter(None, ([*_iterate_error_texts(value[name], depth - 1)] for name in _WORDS if value.get(name))), []
        )
        place = _format_location(value.get("loc") or value.get("field"))
        yield from (f"{place}: {text}" if place else text for text in texts)
        if not texts and depth < _DEPTH:  # faults by the names of their fields
            yield from (f"{name}: {text}" for name, one in value.items() for text in _list_fault_texts(one))


def _list_fault_texts(value: object) -> list[str]:
    """Return the texts of a list of validation faults, [] for any other value."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _format_location(location: object) -> str:
    """Return where a fault is, as FastAPI writes it."""
    parts = location if isinstance(location, list) else [location]
    return ".".join(str(part) for part in parts if isinstance(part, str | int) and part != "body")


def _iterate_error_objects(value: object, depth: int) -> Iterator[Mapping[str, object]]:
    """Yield the objects in which an error has its code, the innermost first."""
    if isinstance(value, list) and value:
        yield from _iterate_error_objects(value[0], depth)
    elif isinstance(value, dict) and depth:
        for name in _WORDS:
            yield from _iterate_error_objects(value.get(name), depth - 1)
        yield value


def _mask_and_cut(text: str, secret: str) -> str:
    return (text.replace(secret, "***") if secret else text)[:MESSAGE_CHARS]


def _get_type_status(kind: object) -> int:
    return _STATUS_OF_TYPE.get(kind, 0) if isinstance(kind, str) else 0


def _find_code(fields: list[Mapping[str, object]], message: str, secret: str) -> str | None:
    """Return the code. Many servers have none, and a type that repeats the status."""
    said = [code for one in fields for name in _CODES if isinstance(code := one.get(name), str)]
    if _TOO_LONG.search(message) or any(_TOO_LONG.fullmatch(str(one.get("type"))) for one in fields):
        return TOO_LONG
    usable = (code for code in said if _CODE.fullmatch(code) and len(code) <= _CODE_CHARS)
    return next((code for code in usable if not (secret and secret in code)), None)
