"""The check of a request of an MCP client before anything else looks at it.

Parsers take what no JSON text can hold: halves of characters, which nothing can write down again, and numbers that are
none, which would become `null`, so that what is approved and what runs were not the same.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, TypeAlias

from gateway.errors import GatewayError

#: Most characters of short texts, by their places. Of a sealed state, we write some hundred.
SHORT: Final = 1 << 10
STATE: Final = 64 << 10
_PLACE_CHARS: Final = 200

#: A value and the way to it: the place of the value that holds it, and its name or number there.
_Place: TypeAlias = "tuple[_Place | None, str | int]"


def check_message(request_id: object, params: Mapping[str, Any] | None) -> None:
    """Check the id and the parameters of a request. Raises GatewayError (invalid_field), which names the place."""
    _check_short("id", request_id, SHORT)
    if params is None:
        return
    meta = params.get("_meta")
    _check_short("params.name", params.get("name"), SHORT)
    _check_short("params.requestState", params.get("requestState"), STATE)
    if isinstance(meta, Mapping):
        _check_short("params._meta.progressToken", meta.get("progressToken"), SHORT)
    _check_values(params)


def _check_short(place: str, value: object, most: int) -> None:
    if isinstance(value, str) and len(value) > most:
        raise _refused(place, f"is longer than {most} characters")


def _check_values(params: Mapping[str, Any]) -> None:
    """Check all texts and numbers. Values may be nested as deeply as a parser allows."""
    waiting: list[tuple[object, _Place]] = [(params, (None, "params"))]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str):
            if not _is_whole(value):
                raise _refused(_named(place), "has half of a character (a lone surrogate): send whole ones")
        elif isinstance(value, float):
            if not isfinite(value):
                raise _refused(_named(place), "is not a finite number")
        elif isinstance(value, Mapping):
            if not all(map(_is_whole, value)):
                raise _refused(_named(place), "has a key with half of a character (a lone surrogate): send whole ones")
            waiting += [(inner, (place, key)) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(inner, (place, number)) for number, inner in enumerate(value)]


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named(place: "_Place | None") -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps))[1 : _PLACE_CHARS + 1]


def _refused(place: str, what: str) -> GatewayError:
    return GatewayError("invalid_field", f"'{place}' {what}.", param=place)
