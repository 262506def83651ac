"""The reading of a message of an MCP client, before anything else looks at it.

What two parsers would read as two things is refused: repeated keys, numbers that are none or too large, halves of
characters. What passes is written anew for the SDK. So what is approved, what runs and what is on record are the same.
"""

from collections.abc import Mapping
from typing import Final

from gateway import strict_json
from gateway.api.content import aside
from gateway.errors import GatewayError

#: Most characters of short texts, by their places. Of a sealed state, we write some hundred.
SHORT: Final = 1 << 10
STATE: Final = 64 << 10


async def read_message(content: bytes, *, most_values: int) -> object:
    """Return the JSON value in a body. Raises GatewayError (invalid_json), which names what is wrong and the place."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise GatewayError("invalid_json", "The body is not UTF-8: encode it as UTF-8.") from None
    try:
        value: object = await aside(lambda: strict_json.loads(text, most_values=most_values), content=content)
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
    """Check the short texts of a message. Raises GatewayError (invalid_field), which names the place."""
    if not isinstance(message, Mapping):
        return
    _check_short("id", message, SHORT)
    if not isinstance(params := message.get("params"), Mapping):
        return
    _check_short("params.name", params, SHORT)
    _check_short("params.requestState", params, STATE)
    if isinstance(meta := params.get("_meta"), Mapping):
        _check_short("params._meta.progressToken", meta, SHORT)


def _check_short(place: str, holder: Mapping[str, object], most: int) -> None:
    value = holder.get(place.rpartition(".")[2])
    if isinstance(value, str) and len(value) > most:
        raise GatewayError("invalid_field", f"'{place}' is longer than {most} characters.", param=place)
