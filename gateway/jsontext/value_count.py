"""The number of values in a JSON text, counted before it is parsed.

A parser blocks the whole process while it works, and each value of its result costs microseconds later. In a test,
500,000 messages of 30 bytes each made all others wait 4 s. So a text is bounded in values as well as in bytes. Commas
and braces within strings do not count. Empty lists and objects count twice.
"""

from collections.abc import Generator, Iterator
from typing import Final

#: The limit for senders without a configured one: models, and callers of the gateway's own pages.
VALUES_LIMIT: Final = 50_000
#: What is taken of a service in one message: 500 tools with long schemas hold 100,000.
SERVICE_VALUES_LIMIT: Final = 250_000
#: So much is counted at a time: some 2 ms at worst.
PIECE_BYTES: Final = 1 << 16
_MARKS = (b",", b"{", b"[")


class Outline:
    """The view of a JSON text without what its strings contain. It arrives in pieces, which may be cut anywhere."""

    def __init__(self) -> None:
        self._in_string = False
        self._escaped = False  # the next character is

    def feed(self, piece: bytes) -> bytes:
        """Return what a piece has outside of strings, and the quotes."""
        if self._escaped and piece:
            piece, self._escaped = piece[1:], False
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece, self._escaped = piece[:-1], True
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        inside = slice(not self._in_string, None, 2)
        parts[inside] = [b""] * len(parts[inside])
        self._in_string ^= len(parts) % 2 == 0
        return b'"'.join(parts)


class ValueCounter:
    """The counter of one JSON text that arrives in pieces. `count` is the number of values so far."""

    def __init__(self) -> None:
        self.count = 1
        self._outline = Outline()

    def feed(self, piece: bytes) -> None:
        """Count the values of one piece. Pieces may be cut anywhere."""
        self.count += sum(map(self._outline.feed(piece).count, _MARKS))


def holds_more(content: bytes, limit: int) -> bool:
    """Return whether the text has more values than `limit`. Counts no further than that."""
    return len(content) > limit and any(count > limit for count in _iter_counts(content))


def has_more_values(content: bytes, limit: int) -> Generator[None, None, bool]:
    """Return whether the text has more values than `limit`, as work in parts: where it yields, others may go on."""
    for count in _iter_counts(content):
        if count > limit:
            return True
        yield
    return False


def _iter_counts(content: bytes) -> Iterator[int]:
    """Yield the number of values so far, after each piece of the text."""
    counter = ValueCounter()
    for start in range(0, len(content), PIECE_BYTES):
        counter.feed(content[start : start + PIECE_BYTES])
        yield counter.count


def iter_outline(content: bytes) -> Iterator[bytes]:
    """Yield what a JSON text has outside of its strings, and their quotes. No step takes longer than a piece does."""
    outline = Outline()
    return (outline.feed(content[start : start + PIECE_BYTES]) for start in range(0, len(content), PIECE_BYTES))


def count_values(value: object, *, most: int) -> int:
    """Return the number of values in a parsed value, counted as in its text; `most` + 1: there are more.

    It counts no further than that.
    """
    count, containers = 1, [value]
    while containers and count <= most:
        inner = containers.pop()
        if isinstance(inner, dict | list | tuple):
            count += max(len(inner), 1)
            containers += inner.values() if isinstance(inner, dict) else inner
    return min(count, most + 1)
