"""The mending of JSON that servers write badly: halves of characters, bytes that are no UTF-8, NaN. Sans-I/O.

A server in JavaScript that cuts its text by UTF-16 units ends one event with half of a character, and begins the next
with the other half. The halves are put together. One that stays alone becomes U+FFFD, and so do bytes that are no
UTF-8.
"""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.contracts.storage.store import Json

_ALONE: Final = "\ufffd"
#: The names of the fields, and the numbers in lists, that lead to a text.
_Place: TypeAlias = tuple[str | int, ...]


class Mender:
    """The mending of the events of one answer.

    `halves` of characters wait for the next event, however well that is written, by the place of their text.
    """

    __slots__ = ("halves",)

    def __init__(self) -> None:
        self.halves: dict[_Place, str] = {}

    def mend_event(self, data: bytes) -> object:
        """Return the value of an event. Raises ValueError if it is no JSON."""
        value = _map_texts(_parse_json(data), self._join_halves, ())
        if self.halves and isinstance(value, dict) and _has_finish_reason(value):
            for place in self.halves:
                _replace_lone_half(value, place)
            self.halves.clear()
        return value

    def _join_halves(self, text: str, place: _Place) -> str:
        text = self.halves.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self.halves[place], text = text[-1], text[:-1]
        return _join_surrogates(text)


def mend_answer(data: bytes) -> object:
    """Return the value of an answer that is not streamed. Raises ValueError if it is not JSON."""
    return _map_texts(_parse_json(data), lambda text, _: _join_surrogates(text), ())


def _parse_json(data: bytes) -> object:
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _map_texts(value: object, change: Callable[[str, _Place], str], place: _Place) -> object:
    """Return a value with other texts."""
    if isinstance(value, str):
        return change(value, place)
    if isinstance(value, dict):
        return {_join_surrogates(name): _map_texts(one, change, (*place, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_map_texts(one, change, (*place, _get_number(one, at))) for at, one in enumerate(value)]
    return value


def _get_number(entry: object, at: int) -> int:
    """Return the number of an entry of a list: choices and calls have their own."""
    number = entry.get("index") if isinstance(entry, dict) else None
    return number if isinstance(number, int) else at


def _join_surrogates(text: str) -> str:
    """Return a text with surrogate pairs joined, and U+FFFD in place of lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _has_finish_reason(chunk: Json) -> bool:
    choices = chunk.get("choices")
    return isinstance(choices, list) and any(isinstance(one, dict) and one.get("finish_reason") for one in choices)


def _replace_lone_half(chunk: Json, place: _Place) -> None:
    """Put U+FFFD in front of a text of a delta whose half of a character nothing follows."""
    for choice in chunk["choices"]:
        if isinstance(choice, dict) and place[:1] == ("choices",) and place[2:3] == ("delta",) and len(place) == 4:
            delta = choice.get("delta") or {}
            choice["delta"] = {**delta, place[3]: _ALONE + (delta.get(place[3]) or "")}
