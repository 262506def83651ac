"""The texts that do not show themselves: a Secret never, a Hidden text not by accident."""

import hmac
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

MASK = "***"
# Shorter values are ordinary words; replacing them in a log would only garble it.
_SHORTEST_REDACTED = 8


class Secret:
    """A text whose `repr`, `str`, formatting and JSON are `***`. Only `reveal()` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)


class MaskedText(str):
    """A text that a variable brought in where no secret is expected: an ordinary str, but its `repr` is `***`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return MASK


def mask(value: object) -> object:
    """Return a copy of free-form content that can be shown."""
    if isinstance(value, MaskedText):
        return MASK
    if isinstance(value, Mapping):
        return {key: mask(item) for key, item in value.items()}
    return [mask(item) for item in value] if isinstance(value, list | tuple) else value


def iterate_secret_texts(value: object) -> Iterator[str]:
    """Yield the texts of all secrets below `value` (a section, mapping or tuple) that a log sink should replace."""
    if isinstance(value, Secret):
        if len(value.reveal()) >= _SHORTEST_REDACTED:
            yield value.reveal()
    elif isinstance(value, BaseModel):
        for _, field in value:
            yield from iterate_secret_texts(field)
    elif isinstance(value, Mapping):
        for field in value.values():
            yield from iterate_secret_texts(field)
    elif isinstance(value, tuple):
        for field in value:
            yield from iterate_secret_texts(field)
