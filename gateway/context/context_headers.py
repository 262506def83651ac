"""The X-Context-* headers that steer one context request, read strictly: a value without a meaning is refused.

Each refusal names the header, the value that came, and the values that there are. This leaks nothing: the caller's key
was checked before.
"""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Final

from gateway.config.messages import suggest_nearest
from gateway.config.problems import quote_word
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import collect_context_headers

#: The headers that there are, by their last word.
HEADERS: Final = ("mode", "chain", "prompt", "conversation", "tools", "user", "approvals", "events", "task")
ID_LIMIT_CHARS: Final = 256
_PREFIX: Final = "x-context-"
#: Headers with a closed list of values. The lane itself is the mode.
_WORDS: Final = {"mode": ("context",), "approvals": ("hold", "turn", "reject"), "events": ("0", "1")}
#: Headers that a program fills in, with nothing where it has nothing: then as if they were not there. An empty user is
#: refused: memories would belong to the key.
_FILLED_IN: Final = ("conversation", "task")
#: Fields of a body that name the end user; the first one that does counts.
_END_USERS: Final = ("user", "safety_identifier")
#: Names that an error shows.
_SHOWN: Final = 50


def parse_context_headers(head: RequestHead) -> Mapping[str, str]:
    """Return the X-Context-* headers by their last word. Raises GatewayError (invalid_header)."""
    steering: dict[str, str] = {}
    for header, raw in collect_context_headers(head).items():
        name = header.decode("latin-1").removeprefix(_PREFIX)
        value = _decode_header(raw).strip()
        if name not in HEADERS:
            raise _build_unknown_header_error(name)
        if not value and name in _FILLED_IN:
            continue
        if not value or len(value) > ID_LIMIT_CHARS or not value.isprintable():
            text = (
                f"{_normalize_title(name)} must have a value of 1 to {ID_LIMIT_CHARS} printable characters; "
                "leave it out else."
            )
            raise GatewayError("invalid_header", text, param=_PREFIX + name)
        if value not in _WORDS.get(name, (value,)):
            raise _build_invalid_value_error(name, value)
        steering[name] = value
    return steering


def find_end_user(steering: Mapping[str, str], body: Json) -> str | None:
    """Return the end user by X-Context-User, else by the body's `user` or `safety_identifier`, else None.

    OpenAI's API has the latter in the place of the former. Raises GatewayError (invalid_field).
    """
    named = steering.get("user")
    for field in () if named is not None else _END_USERS:
        given = body.get(field)
        if not isinstance(given, str) or not given.strip():
            continue
        if len(given) > ID_LIMIT_CHARS or not given.isprintable():
            text = f"'{field}' must have 1 to {ID_LIMIT_CHARS} printable characters: memories are kept under it."
            raise GatewayError("invalid_field", text, param=field)
        return given.strip()
    return named


def read_end_user(head: RequestHead) -> str | None:
    """Return the end user whom the head of a request names (X-Context-User). Raises GatewayError (invalid_header)."""
    return find_end_user(parse_context_headers(head), {})


def parse_tool_names(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names and globs of X-Context-Tools.

    Raises GatewayError (invalid_header) for one that matches no tool. `known` are the names of all tools; one that
    ends with `.*` stands for the tools of a service that does not run.
    """
    wanted = tuple(name.strip() for name in text.split(","))
    for name in wanted:
        if not any(_matches_tool(name, tool) for tool in known):
            raise build_unknown_name_error("tools", "tool", name, known)
    return wanted


def build_unknown_name_error(
    header: str, kind: str, given: str, known: Collection[str], *, code: str = "invalid_header"
) -> GatewayError:
    """Return the refusal of a name in the header X-Context-`header`. `known` are the valid names."""
    return GatewayError(
        code, format_unknown_name(kind, given, known, place=_normalize_title(header)), param=_PREFIX + header
    )


def format_unknown_name(kind: str, given: str, known: Collection[str], *, place: str) -> str:
    """Return the text of a refused name at this place of a request. `known` are the valid names."""
    names = sorted(known)
    there_are = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    hint = suggest_nearest(given, names) or "."
    return f"There is no {kind} {quote_word(given)} ({place}){hint} There are: {there_are or 'none'}."


def _build_unknown_header_error(name: str) -> GatewayError:
    there_are = ", ".join(map(_normalize_title, HEADERS))
    text = (
        f"There is no header {quote_word(_normalize_title(name))}{suggest_nearest(name, list(HEADERS)) or '.'} "
        f"There are: {there_are}."
    )
    return GatewayError("invalid_header", text, param=_PREFIX + name)


def _build_invalid_value_error(name: str, value: str) -> GatewayError:
    """Return the error of a header whose value is not one of its words."""
    if name == "mode" and value == "passthrough":
        text = "X-Context-Mode: this path has no passthrough; send the request to '/v1', or leave the header out."
    else:
        choices = " or ".join(map(repr, _WORDS[name]))
        text = f"{_normalize_title(name)} must be {choices}, not {quote_word(value)}."
    return GatewayError("invalid_header", text, param=_PREFIX + name)


def _decode_header(raw: bytes) -> str:
    """Decode UTF-8, which clients send, else Latin-1, the former encoding of HTTP headers."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _normalize_title(name: str) -> str:
    return f"X-Context-{name[:ID_LIMIT_CHARS].capitalize()}"


def _matches_tool(name: str, tool: str) -> bool:
    return fnmatchcase(tool, name) or (tool.endswith(".*") and name.startswith(tool[:-1]))
