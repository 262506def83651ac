"""The beginning and the end of an answer, kept in bounded memory while it passes."""

from typing import Final

from gateway.usage.response_parser import names_model

#: Kept of the beginning, and of one that does not name its model within that; of the end, at least `TAIL_BYTES` and at
#: most twice as much, and so all of a short answer.
HEAD_BYTES: Final = 4096
LONG_HEAD_BYTES: Final = 65536
TAIL_BYTES: Final = 32768
#: It marks only the encoding, and no parser wants it.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class AnswerBuffer:
    """The pieces of an answer without their framing.

    `length` counts its bytes, and `unread` the undecodable ones.
    """

    __slots__ = ("_begun", "_head", "_pieces", "_size", "_wanted", "length", "unread")

    def __init__(self) -> None:
        self.length = self.unread = 0
        self._head = b""
        self._begun = False  # the beginning is kept apart from the pieces
        self._wanted = HEAD_BYTES
        self._pieces: list[bytes] = []
        self._size = 0

    def keep_piece(self, piece: bytes) -> None:
        """Take the next piece."""
        self.length += len(piece)
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > 2 * TAIL_BYTES:
            self._split_beginning()
            tail = b"".join(self._pieces)[-TAIL_BYTES:]
            self._pieces, self._size = [tail], len(tail)

    @property
    def is_begun(self) -> bool:
        """Return whether the whole beginning is here, so that pieces may be left out from now on."""
        if not self._begun and self.length >= self._wanted:
            self._wanted = _get_head_limit(self._pieces)
            if self.length >= self._wanted:
                self._split_beginning()
        return self._begun

    def skip_bytes(self, length: int) -> None:
        """Leave out so many bytes. What was kept until now is not the end any more."""
        self.length += length
        self._drop_pieces()

    def skip_undecodable(self, length: int) -> None:
        """Leave out so many bytes that cannot be decoded."""
        self.unread += length
        self._drop_pieces()

    def count_unread(self, length: int) -> None:
        """Count so many bytes behind the end of what could be decoded. It stays the end."""
        self.unread += length

    def get_ends(self) -> tuple[bytes, bytes | None]:
        """Return the beginning and the end of the answer, or all of it and None, without a byte order mark."""
        tail = b"".join(self._pieces)
        head, end = (tail, None) if self._size == self.length else (self._head, tail)
        return head.removeprefix(_BYTE_ORDER_MARK), end

    def _split_beginning(self) -> None:
        """Keep the beginning apart, unless it is."""
        if not self._begun:
            self._begun = True
            self._head = b"".join(self._pieces)[: _get_head_limit(self._pieces)]

    def _drop_pieces(self) -> None:
        self._split_beginning()
        self._pieces, self._size = [], 0


def _get_head_limit(pieces: list[bytes]) -> int:
    """Return how much of a beginning is kept."""
    return HEAD_BYTES if names_model(b"".join(pieces)[:HEAD_BYTES]) else LONG_HEAD_BYTES
