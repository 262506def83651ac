"""The reading of a message of an MCP client, before anything else looks at it.

What two parsers would read as two things is refused: repeated keys, numbers that are none or too large, halves of
characters. What passes is written anew for the SDK. So what is approved, what runs and what is on record are the same.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.aio.cooperative import run_aside
from gateway.contracts.errors import GatewayError
from gateway.jsontext import strict_json

#: Most characters of short texts, by their places. Of a sealed state, we write some hundred.
SHORT: Final = 1 << 10
STATE: Final = 64 << 10


async def read_message(content: bytes, *, most_values: int) -> object:
    """Return the JSON value in a body. Raises GatewayError (invalid_json), which names what is wrong and the place."""
    try:
        value: object = await run_aside(lambda: strict_json.read(content, most_values=most_values), content=content)
    except strict_json.RepeatedKeyError as error:
        raise GatewayError(
            "invalid_json",
            f"An object in the message has the key {error.key!r} twice: send each key once.",
            param=error.key,
        ) from None
    except strict_json.StrictJsonError as error:
        raise GatewayError("invalid_json", f"The message is not JSON: {error}.", param=error.place or None) from None
    return value


def check_message(message: object) -> None:
    """Check the form and the short texts of a message. Raises GatewayError (invalid_field), which names the place."""
    if isinstance(message, list):
        raise _build_invalid_error(
            "The message is a batch, and there are none in this protocol: send each message by itself."
        )
    if not isinstance(message, Mapping):
        raise _build_invalid_error(
            "The message is no JSON object: send a request, a notification or a response of JSON-RPC."
        )
    if message.get("jsonrpc") != "2.0":
        raise _build_invalid_error("The 'jsonrpc' of a message is \"2.0\": send that.", "jsonrpc")
    if "method" not in message:
        _check_response(message)
    elif not isinstance(message["method"], str):
        raise _build_invalid_error("The 'method' of a request is a string: send one.", "method")
    elif "id" in message and not _is_id(message["id"]):
        raise _build_invalid_error("The 'id' of a request is a string or an integer: send one of these.", "id")
    elif not isinstance(message.get("params") or {}, Mapping):
        raise _build_invalid_error("The 'params' of a message are an object: send one.", "params")
    _check_length("id", message, SHORT)
    if not isinstance(params := message.get("params"), Mapping):
        return
    _check_length("params.name", params, SHORT)
    _check_length("params.requestState", params, STATE)
    if isinstance(meta := params.get("_meta"), Mapping):
        _check_length("params._meta.progressToken", meta, SHORT)


class OpenRequestIds:
    """The ids of the requests that the SDK answers in sessions of the older era, also after their client has left.

    The SDK finds the stream of an answer by its id as a text: of two requests with one, the last gets the first answer.
    """

    def __init__(self) -> None:
        self._ids: set[tuple[tuple[str, str], str, str]] = set()

    def take(self, owner: tuple[str, str], session_id: str, message: object) -> Callable[[], None]:
        """Take the id of a request, and return what frees it. Raises GatewayError (invalid_field): it is taken."""
        if not isinstance(message, Mapping) or "method" not in message or "id" not in message:
            return _do_nothing
        key = (owner, session_id, str(message["id"]))
        if key in self._ids:
            raise GatewayError(
                "invalid_field",
                f"A request with the id {message['id']!r} is under way in this session (7 and '7' count as one id): "
                "send each request with an id of its own.",
                param="id",
            )
        self._ids.add(key)
        return lambda: self._ids.discard(key)


def _do_nothing() -> None:
    pass


def _check_response(message: Mapping[str, object]) -> None:
    """Check the form of a message without a method. Raises GatewayError (invalid_field)."""
    error = message.get("error")
    if isinstance(error, Mapping):
        is_whole = isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
    else:
        is_whole = isinstance(message.get("result"), Mapping) and _is_id(message.get("id"))
    if not is_whole:
        text = "The message has no 'method' and is no response: a response has an 'id' with a 'result' or an 'error'."
        raise _build_invalid_error(text, "method")


def _build_invalid_error(text: str, param: str | None = None) -> GatewayError:
    return GatewayError("invalid_field", text, param=param)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _check_length(place: str, holder: Mapping[str, object], most: int) -> None:
    """Raise GatewayError (invalid_field) if the text at a place is longer than `most` characters."""
    value = holder.get(place.rpartition(".")[2])
    if isinstance(value, str) and len(value) > most:
        raise GatewayError("invalid_field", f"'{place}' is longer than {most} characters.", param=place)
