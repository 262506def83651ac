"""The reading of a message of an MCP client, before anything else looks at it.

What two parsers would read as two things is refused: repeated keys, numbers that are none or too large, halves of
characters. What passes is written anew for the SDK. So what is approved, what runs and what is on record are the same.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gateway import strict_json
from gateway.errors import GatewayError
from gateway.turns import aside

#: Most characters of short texts, by their places. Of a sealed state, we write some hundred.
SHORT: Final = 1 << 10
STATE: Final = 64 << 10


async def read_message(content: bytes, *, most_values: int) -> object:
    """Return the JSON value in a body. Raises GatewayError (invalid_json), which names what is wrong and the place."""
    try:
        value: object = await aside(lambda: strict_json.read(content, most_values=most_values), content=content)
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
    """Check the id and the short texts of a message. Raises GatewayError (invalid_field), which names the place."""
    if not isinstance(message, Mapping):
        return
    if "method" in message and "id" in message and not _is_id(message["id"]):
        raise GatewayError(
            "invalid_field", "The 'id' of a request is a string or an integer: send one of these.", param="id"
        )
    _check_short("id", message, SHORT)
    if not isinstance(params := message.get("params"), Mapping):
        return
    _check_short("params.name", params, SHORT)
    _check_short("params.requestState", params, STATE)
    if isinstance(meta := params.get("_meta"), Mapping):
        _check_short("params._meta.progressToken", meta, SHORT)


class UnderWay:
    """The ids of the requests that the SDK answers in sessions of the older era, also of those whose client has left.

    The SDK finds the stream of an answer by its id as a text: of two requests with one, the last gets the first answer.
    """

    def __init__(self) -> None:
        self._ids: set[tuple[tuple[str, str], str, str]] = set()

    def take(self, owner: tuple[str, str], session_id: str, message: object) -> Callable[[], None]:
        """Take the id of a request, and return what frees it. Raises GatewayError (invalid_field): it is taken."""
        if not isinstance(message, Mapping) or "method" not in message or "id" not in message:
            return _nothing
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


def _nothing() -> None:
    pass


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _check_short(place: str, holder: Mapping[str, object], most: int) -> None:
    value = holder.get(place.rpartition(".")[2])
    if isinstance(value, str) and len(value) > most:
        raise GatewayError("invalid_field", f"'{place}' is longer than {most} characters.", param=place)
