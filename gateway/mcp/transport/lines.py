"""The lines of a stream in bounded memory: of an overlong line only the beginning and the end are stored. No I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ANY: Final = re.compile(b"")
#: The stored bytes of each end of a line that is too long.
ENDS_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. If it was longer than the limit, `head` and `tail` are all that is left of it."""

    head: bytes
    tail: bytes = b""
    whole: bool = True


class Lines:
    """The splitter of a stream into lines. Its time is linear in the input. It never stores more than the limit.

    A whole line without `mark` is skipped and counted: a million of them cost as little as their bytes do.
    """

    def __init__(self, *, limit_bytes: int, mark: re.Pattern[bytes] = _ANY) -> None:
        self.skipped = 0
        self._limit_bytes = limit_bytes
        self._mark = mark
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of a line that is too long
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that end in this piece."""
        begin, last = 0, data.rfind(b"\n")
        if last < 0:
            self._add_piece(data)
            return
        if self._size:
            begin = data.index(b"\n") + 1
            self._add_piece(data[: begin - 1])
            line = self._take_line()
            if line.whole and self._mark.search(line.head) is None:
                self.skipped += 1
            else:
                yield line
        while (found := self._mark.search(data, begin, last)) is not None:
            start = data.rfind(b"\n", begin, found.start()) + 1 or begin
            end = data.index(b"\n", found.end())
            self.skipped += data.count(b"\n", begin, start)
            self._add_piece(data[start:end])
            yield self._take_line()
            begin = end + 1
        self.skipped += data.count(b"\n", begin, last + 1)
        self._add_piece(data[last + 1 :])

    def get_rest(self) -> Line | None:
        """Return the text after the last end of a line, once the stream has ended; None: there is none."""
        return self._take_line() if self._size else None

    def _add_piece(self, piece: bytes) -> None:
        """Add to the open line; of an overlong one keep only the beginning and the end."""
        self._size += len(piece)
        if self._head is None:
            self._pieces.append(piece)
            if self._size <= self._limit_bytes:
                return
            self._head, piece = self._cut_ends()
        self._tail = (self._tail + piece[-ENDS_BYTES:])[-ENDS_BYTES:]

    def _cut_ends(self) -> tuple[bytes, bytes]:
        """Return both ends of the pieces, and drop the rest. Joining them all would take the limit a second time."""
        pieces, self._pieces = self._pieces, []
        head, tail = b"", b""
        for piece in pieces:
            head += piece[: ENDS_BYTES - len(head)]
            if len(head) == ENDS_BYTES:
                break
        for piece in reversed(pieces):
            tail = piece[-ENDS_BYTES:] + tail
            if len(tail) >= ENDS_BYTES:
                break
        return head, tail

    def _take_line(self) -> Line:
        line = Line(b"".join(self._pieces)) if self._head is None else Line(self._head, self._tail, whole=False)
        self._pieces, self._size, self._head, self._tail = [], 0, None, b""
        return line
