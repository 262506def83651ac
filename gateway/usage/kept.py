"""The beginning and the end of an answer, kept in bounded memory while it passes, and decoded if it is compressed."""

import zlib
from collections.abc import Callable
from typing import Final, Protocol

from gateway.usage.answers import names_model

#: Kept of the beginning, and of one that does not name its model within that; of the end, at least `TAIL_BYTES` and at
#: most twice as much, and so all of a short answer.
HEAD_BYTES: Final = 4096
LONG_HEAD_BYTES: Final = 65536
TAIL_BYTES: Final = 32768
#: Decoded at a time. An answer that grows more than so many times, beyond a megabyte, is not decoded to its end: it
#: would hold up all others.
STEP_BYTES: Final = 65536
MOST_GROWTH: Final = 100
FREE_BYTES: Final = 1 << 20
_GZIP, _ZLIB, _RAW = 31, 15, -15


class Kept:
    """The pieces of an answer without their framing.

    `length` counts its bytes, and `unread` those that could not be decoded.
    """

    __slots__ = ("_begun", "_head", "_pieces", "_size", "_wanted", "length", "unread")

    def __init__(self) -> None:
        self.length = self.unread = 0
        self._head = b""
        self._begun = False  # the beginning is kept apart from the pieces
        self._wanted = HEAD_BYTES
        self._pieces: list[bytes] = []
        self._size = 0

    def keep(self, piece: bytes) -> None:
        """Take the next piece."""
        self.length += len(piece)
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > 2 * TAIL_BYTES:
            self._begin()
            tail = b"".join(self._pieces)[-TAIL_BYTES:]
            self._pieces, self._size = [tail], len(tail)

    @property
    def is_begun(self) -> bool:
        """Return whether the whole beginning is here, so that pieces may be left out from now on."""
        if not self._begun and self.length >= self._wanted:
            self._wanted = _wanted_of(self._pieces)
            if self.length >= self._wanted:
                self._begin()
        return self._begun

    def skip(self, length: int) -> None:
        """Leave out so many bytes. What was kept until now is no longer the end."""
        self.length += length
        self._leave()

    def give_up(self, length: int) -> None:
        """Leave out so many bytes that cannot be decoded."""
        self.unread += length
        self._leave()

    def ends(self) -> tuple[bytes, bytes | None]:
        """Return the beginning and the end of the answer, or all of it and None."""
        tail = b"".join(self._pieces)
        return (tail, None) if self._size == self.length else (self._head, tail)

    def _begin(self) -> None:
        """Keep the beginning apart, unless it is."""
        if not self._begun:
            self._begun = True
            self._head = b"".join(self._pieces)[: _wanted_of(self._pieces)]

    def _leave(self) -> None:
        self._begin()
        self._pieces, self._size = [], 0


def _wanted_of(pieces: list[bytes]) -> int:
    """Return how much of a beginning is kept."""
    return HEAD_BYTES if names_model(b"".join(pieces)[:HEAD_BYTES]) else LONG_HEAD_BYTES


class Decoder(Protocol):
    """A decompressor of the standard library's kind."""

    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class Decoding:
    """Decodes a compressed answer into `kept`, in bounded steps. Where it cannot, the rest is left out."""

    __slots__ = ("_came", "_decoder", "_failed", "_grown", "_kept", "_new")

    def __init__(self, kept: Kept, new: Callable[[], Decoder]) -> None:
        self._failed = False
        self._kept = kept
        self._new = new
        self._decoder = new()
        self._came = self._grown = 0

    def keep(self, piece: bytes) -> None:
        """Take the next piece."""
        if not self._came and self._new is _zlib and not _has_zlib_header(piece):
            self._decoder = zlib.decompressobj(_RAW)  # RFC 9110 section 8.4.1.2: some send deflate without its wrapper
        self._came += len(piece)
        if not self._failed:
            try:
                self._failed = not self._decode(piece, most=FREE_BYTES + MOST_GROWTH * self._came)
            except zlib.error:
                self._failed = True
        if self._failed:
            self._kept.give_up(len(piece))

    def _decode(self, piece: bytes, *, most: int) -> bool:
        """Return whether the answer is no larger than `most` until now."""
        decoder, kept = self._decoder, self._kept
        while not decoder.eof:
            decoded = decoder.decompress(piece, STEP_BYTES)
            self._grown += len(decoded)
            if self._grown > most:
                return False
            kept.keep(decoded)
            piece = decoder.unconsumed_tail
            if not piece and len(decoded) < STEP_BYTES:
                break
        return True


def _gzip() -> Decoder:
    return zlib.decompressobj(_GZIP)


def _zlib() -> Decoder:
    return zlib.decompressobj(_ZLIB)


def _has_zlib_header(piece: bytes) -> bool:
    return not piece or (piece[0] & 15 == 8 and piece[0] >> 4 <= 7)  # RFC 1950 section 2.2


_DECODERS: Final = {b"gzip": _gzip, b"x-gzip": _gzip, b"deflate": _zlib}


def keeper_of(kept: Kept, coding: bytes) -> Callable[[bytes], None]:
    """Return what takes the pieces of an answer with this Content-Encoding. What cannot be decoded is left out."""
    coding = coding.strip().lower()
    if coding in (b"", b"identity"):
        return kept.keep
    new = _DECODERS.get(coding)
    return Decoding(kept, new).keep if new is not None else lambda piece: kept.give_up(len(piece))
