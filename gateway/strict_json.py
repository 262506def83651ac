"""JSON with one reading: no repeated keys, no NaN or Infinity, bounded in depth and values. All else is refused."""

import json
import re
from typing import Any

import orjson

from gateway.json_values import VALUES_LIMIT, holds_more

#: Deepest nesting of arrays and objects.
DEPTH_LIMIT = 128
_KEY_CHARS = 64
_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]', re.DOTALL)


class StrictJsonError(ValueError):
    """A text that is not strict JSON. The message has the cause and the place (characters from the start)."""


class RepeatedKeyError(StrictJsonError):
    """An object that has a key twice: two readers may take two values."""

    def __init__(self, key: str) -> None:
        self.key = key[:_KEY_CHARS]
        super().__init__(f"the key {self.key!r} is there twice")


def loads(text: str) -> Any:
    """Return the value. Raises StrictJsonError, or RepeatedKeyError where that is the first and only fault so far."""
    if holds_more(text.encode("utf-8", "surrogatepass"), VALUES_LIMIT):
        raise StrictJsonError(f"it holds more than {VALUES_LIMIT} values")
    if nesting(text) > DEPTH_LIMIT:
        raise StrictJsonError(f"it is nested more than {DEPTH_LIMIT} levels deep")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float)
        orjson.dumps(value)
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"{error.msg} (character {error.pos + 1})") from None
    except StrictJsonError:
        raise
    except (ValueError, TypeError, RecursionError):
        raise StrictJsonError("a number is too large, or a text is not valid Unicode") from None
    return value


def check_keys(content: bytes) -> None:
    """Check that no object in a JSON text, which another parser has read, has a key twice. Raises RepeatedKeyError."""
    json.loads(content.decode(), object_pairs_hook=_object, parse_int=len, parse_float=len)


def nesting(text: str) -> int:
    """Return the greatest depth of braces and brackets outside strings. Takes linear time."""
    depth = deepest = 0
    for token in _NESTING.finditer(text):
        character = text[token.start()]
        if character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character != '"':
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise RepeatedKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _refuse_constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise StrictJsonError("a number is too large")
    return number
