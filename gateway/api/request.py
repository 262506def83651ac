"""The parts of a request to our own pages: caller, query and body, read strictly."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.api.json_body import read_content
from gateway.context.context_headers import read_end_user
from gateway.contracts.api_bounds import LIMIT, LIMIT_MOST
from gateway.contracts.caller import CLI_AGENT, Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import Via
from gateway.contracts.storage.store import Json
from gateway.jsontext import strict_json
from gateway.lanes.aiohttp_adapter import get_head

#: What looking takes: one of these scopes.
VIEWING: Final = ("context", "approve")
BODY_LIMIT_BYTES = 1 << 20
_NUMBER = re.compile("[0-9]{1,18}", re.ASCII)
_TIME = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)
_NAME_CHARS = 100

#: The way of a request, where its credential determines it.
VIA: Final = web.RequestKey[Via]("via", str)  # type: ignore[arg-type]  # a word of `Via`

#: Lets the run of this id go on in this process if no worker drives it.
Resume: TypeAlias = Callable[[str], Awaitable[None]]
ModelT = TypeVar("ModelT", bound=BaseModel)
EntryT = TypeVar("EntryT")


class Authorise(Protocol):
    """The check of a caller."""

    def __call__(self, request: web.Request, *scopes: str) -> Caller:
        """Return the caller, which has at least one of the scopes. Raises GatewayError."""
        ...


class RequestBody(BaseModel):
    """The body of a request to a page."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def identify_with_scope(scopes: Collection[str], identify: Callable[[str], Caller]) -> Caller:
    """Return the caller, which has at least one of the scopes. Raises the refusal of the first scope."""
    refusal: GatewayError | None = None
    for scope in scopes:
        try:
            return identify(scope)
        except GatewayError as error:
            refusal = refusal or error
    raise refusal or GatewayError("scope_missing", "No gateway key may read this page.")


def parse_query(request: web.Request, *known: str, lists: Collection[str] = ()) -> Mapping[str, str]:
    """Return the query, without `lists`, which may come several times. Raises GatewayError (unknown_field,
    invalid_field).
    """
    query: dict[str, str] = {}
    for name, value in request.query.items():
        if name in lists:
            continue
        if name not in known:
            there_are = f"use {', '.join(map(repr, known))}" if known else "leave it out"
            raise GatewayError(
                "unknown_field", f"This page does not have this query parameter: {there_are}.", param=name[:_NAME_CHARS]
            )
        if name in query or not value:
            raise GatewayError("invalid_field", "Send this query parameter once, with a value.", param=name)
        query[name] = value
    return query


def get_via(request: web.Request) -> Via:
    """Return the way that a decision arrived: by the console, or by the client's User-Agent."""
    if VIA in request:
        return request[VIA]
    return "cli" if request.headers.get("User-Agent") == CLI_AGENT else "rest"


def read_user(request: web.Request) -> str | None:
    """Return the end user whom a request names (`X-Context-User`). Raises GatewayError (invalid_header)."""
    return read_end_user(get_head(request))


def parse_limit(query: Mapping[str, str], *, default: int = LIMIT) -> int:
    """Return the length of a page. Raises GatewayError (invalid_field)."""
    limit = parse_query_number(query, "limit", default=default)
    if not 1 <= limit <= LIMIT_MOST:
        raise GatewayError(
            "invalid_field",
            f"The value of 'limit' is out of range: send a number from 1 to {LIMIT_MOST}.",
            param="limit",
        )
    return limit


def paginate(
    entries: Sequence[EntryT], query: Mapping[str, str], *, key: Callable[[EntryT], str]
) -> tuple[Sequence[EntryT], str | None]:
    """Return one page of a list, and the `after` of the next page or None. `after` is a value of `key`.

    Raises GatewayError (invalid_field).
    """
    begin, limit = 0, parse_limit(query, default=LIMIT_MOST)
    if (after := query.get("after")) is not None:
        begin = 1 + next((at for at, entry in enumerate(entries) if key(entry) == after), -1)
        if not begin:
            raise build_stale_cursor_error("after")
    page = entries[begin : begin + limit]
    return page, key(page[-1]) if begin + limit < len(entries) else None


def build_stale_cursor_error(param: str) -> GatewayError:
    """Return the error for an `after` that is not in the list, or not any more."""
    return GatewayError(
        "invalid_field",
        f"The list has no entry with this id, or not any more: leave {param!r} out to begin at its start.",
        param=param,
    )


def parse_query_number(query: Mapping[str, str], name: str, *, default: int) -> int:
    """Return a number that is not negative. Raises GatewayError (invalid_field)."""
    text = query.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None:
        raise GatewayError(
            "invalid_field", f"The value of {name!r} is not a number: send a whole number, 0 or more.", param=name
        )
    return int(text)


def parse_query_time(query: Mapping[str, str], name: str) -> float | None:
    """Return a Unix time in seconds, or None if the query has none. Raises GatewayError (invalid_field)."""
    text = query.get(name)
    if text is not None and _TIME.fullmatch(text) is None:
        raise GatewayError(
            "invalid_field",
            f"The value of {name!r} is not a time: send Unix seconds, such as 1767225600.",
            param=name,
        )
    return None if text is None else float(text)


def parse_query_choice(query: Mapping[str, str], name: str, words: Collection[str]) -> str | None:
    """Return one of these words, or None if the query has none. Raises GatewayError (invalid_field)."""
    word = query.get(name)
    if word is not None and word not in words:
        raise GatewayError(
            "invalid_field",
            f"The value of {name!r} is not known: send one of {', '.join(map(repr, words))}.",
            param=name,
        )
    return word


async def read_body(request: web.Request, model: type[ModelT], caller: Caller) -> ModelT:
    """Return the body. Raises GatewayError (request_too_large, invalid_json, unknown_field, invalid_field)."""
    return validate_body(model, parse_json(await read_body_text(request, caller, limit_bytes=BODY_LIMIT_BYTES)))


async def read_body_text(request: web.Request, caller: Caller, *, limit_bytes: int) -> str:
    """Return the text of the body. Raises GatewayError (request_too_large, invalid_json)."""
    content = await read_content(request, caller, limit_bytes=limit_bytes, limit_name="this page takes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise GatewayError("invalid_json", "The body is not UTF-8: encode it as UTF-8.") from None


def parse_json(text: str) -> object:
    """Parse a JSON value. Ambiguous JSON is refused. Raises GatewayError (invalid_json)."""
    try:
        value: object = strict_json.loads(text)
    except strict_json.RepeatedKeyError as error:
        raise GatewayError(
            "invalid_json", f"An object in the body has the key {error.key!r} twice: send each key once."
        ) from None
    except strict_json.StrictJsonError as error:
        raise GatewayError("invalid_json", f"The body is not JSON: {error}.") from None
    return value


def validate_body(model: type[ModelT], value: object) -> ModelT:
    """Return the value as a `model`.

    Raises GatewayError (invalid_json, unknown_field, missing_field, invalid_field).
    """
    try:
        return model.model_validate(require_object(value))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join(map(str, problem["loc"]))[:_NAME_CHARS]
    if problem["type"] == "extra_forbidden":
        raise GatewayError(
            "unknown_field",
            f"The body does not have this field: leave it out, or use one of {_list_field_names(model)}.",
            param=param,
        )
    if problem["type"] == "missing":
        raise GatewayError("missing_field", "The body lacks this field: add it.", param=param)
    raise GatewayError("invalid_field", f"The value of this field is not valid: {problem['msg']}.", param=param)


def require_object(value: object) -> Json:
    """Return the value if it is a JSON object. Raises GatewayError (invalid_json)."""
    if not isinstance(value, dict):
        raise GatewayError("invalid_json", "The body is not a JSON object: send one, such as {}.")
    return value


def _list_field_names(model: type[BaseModel]) -> str:
    return ", ".join(field.alias or name for name, field in model.model_fields.items())
