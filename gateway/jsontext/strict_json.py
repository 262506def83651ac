"""JSON with one reading: no repeated keys, no NaN or Infinity, bounded in depth and values. All else is refused."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import orjson

from gateway.jsontext.value_count import VALUES_LIMIT, holds_more, iter_outline

#: Deepest nesting of arrays and objects.
DEPTH_LIMIT = 128
_KEY_CHARS = 64
_PLACE_CHARS: Final = 200
_TOO_LARGE: Final = "a number is too large"
_NO_TEXT: Final = "a text is not valid Unicode: it has half of a character (a lone surrogate)"
_BRACKETS: Final = b"{}[]"
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_SPACE: Final = b" \t\n\r"


#: A value and the way to it: the place of the value that holds it, and its name or number there.
_Place: TypeAlias = "tuple[_Place | None, str | int]"


class StrictJsonError(ValueError):
    """A text that is not strict JSON. The message has the cause and the place (characters from the start).

    `place` is the way to a value that no JSON holds, such as `a.b[1]`; "": it is the whole, or not known.
    """

    def __init__(self, reason: str, place: str = "") -> None:
        self.place = place
        super().__init__(f"{reason} (at {place})" if place else reason)


class RepeatedKeyError(StrictJsonError):
    """An object that has a key twice: two readers may take two values."""

    def __init__(self, key: str) -> None:
        self.key = key[:_KEY_CHARS]
        super().__init__(f"the key {self.key!r} is there twice")


def loads(text: str, *, most_values: int = VALUES_LIMIT) -> Any:
    """Return the value. Raises StrictJsonError, or RepeatedKeyError where that is the first and only fault so far."""
    content = text.encode("utf-8", "surrogatepass")
    if holds_more(content, most_values):
        raise StrictJsonError(f"it holds more than {most_values} values")
    if measure_depth(content) > DEPTH_LIMIT:
        raise StrictJsonError(f"it is nested more than {DEPTH_LIMIT} levels deep")
    try:
        value = json.loads(
            text, object_pairs_hook=_build_object, parse_constant=_refuse_constant, parse_float=_parse_float
        )
        orjson.dumps(value)
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"{error.msg} (character {error.pos + 1})") from None
    except RepeatedKeyError:
        raise
    except StrictJsonError as error:
        raise StrictJsonError(str(error), _find_fault(text)[1]) from None
    except (ValueError, TypeError, RecursionError):
        raise StrictJsonError(*_find_fault(text)) from None
    return value


def read(content: bytes, *, most_values: int = VALUES_LIMIT) -> Any:
    """Return the value of a JSON text in UTF-8. Raises StrictJsonError as `loads` does.

    A text has one reading if a compact serializer writes the same again outside of strings, but for space: a key that
    is there twice would be a string less. It needs no closer look. Large texts are compared in pieces, so that no other
    thread waits for the whole.
    """
    if not holds_more(content, most_values):
        try:
            value = orjson.loads(content)
            written = orjson.dumps(value)
            if (written == content or _strip_strings(written) == _strip_strings(content)) and not _is_deep(
                content, value
            ):
                return value
        except (ValueError, TypeError):
            pass
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise StrictJsonError("it is not UTF-8") from None
    return loads(text, most_values=most_values)


def check_keys(content: bytes) -> None:
    """Check that no object in a JSON text, which another parser has read, has a key twice. Raises RepeatedKeyError."""
    json.loads(content.decode(), object_pairs_hook=_build_object, parse_int=len, parse_float=len)


def measure_depth(content: bytes) -> int:
    """Return the greatest depth of braces and brackets outside strings. Takes linear time."""
    depth = deepest = 0
    for piece in iter_outline(content):
        for character in piece.translate(None, _NO_BRACKETS):
            if character in b"{[":
                depth += 1
                deepest = max(deepest, depth)
            else:
                depth -= 1
    return deepest


def _strip_strings(content: bytes) -> bytes:
    """Return what a JSON text has outside of its strings, without space."""
    return b"".join(piece.translate(None, _SPACE) for piece in iter_outline(content))


def _is_deep(content: bytes, value: object) -> bool:
    """Return whether a value, which was read from `content`, is nested deeper than the limit."""
    if content.count(b"{") + content.count(b"[") <= DEPTH_LIMIT:
        return False
    level, depth = [value], -1
    while level:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    return depth >= DEPTH_LIMIT


def _find_fault(text: str) -> tuple[str, str]:
    """Return the first value of a JSON text that no JSON holds: the reason, and its place."""
    try:
        waiting: list[tuple[object, _Place | None]] = [(json.loads(text), None)]
    except (ValueError, RecursionError):  # a number of too many digits, or a fault behind this one
        return _TOO_LARGE, ""
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, str):
            if not _is_whole(value):
                return _NO_TEXT, _format_place(place)
        elif isinstance(value, int | float):
            if not -(1 << 63) <= value < 1 << 64:  # NaN is in no range
                return _TOO_LARGE, _format_place(place)
        elif isinstance(value, Mapping):
            if not all(map(_is_whole, value)):
                return _NO_TEXT, _format_place(place)
            waiting += [(inner, (place, key)) for key, inner in reversed(list(value.items()))]
        elif isinstance(value, list):
            waiting += [(inner, (place, number)) for number, inner in reversed(list(enumerate(value)))]
    return _TOO_LARGE, ""


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _format_place(place: "_Place | None") -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")[:_PLACE_CHARS]


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise RepeatedKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _refuse_constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise StrictJsonError(_TOO_LARGE)
    return number
