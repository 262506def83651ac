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
#: Taken of a compressed piece at a time: each member of gzip copies what stands behind it.
PART_BYTES: Final = 4096
MOST_GROWTH: Final = 100
FREE_BYTES: Final = 1 << 20
_GZIP, _ZLIB, _RAW = 31, 15, -15
#: The first byte of each member of gzip.
_MEMBER = b"\x1f"
#: It tells nothing but the encoding, and no parser wants it.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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

    def pass_over(self, length: int) -> None:
        """Count so many bytes behind the end of what could be decoded. It stays the end."""
        self.unread += length

    def ends(self) -> tuple[bytes, bytes | None]:
        """Return the beginning and the end of the answer, or all of it and None, without a byte order mark."""
        tail = b"".join(self._pieces)
        head, end = (tail, None) if self._size == self.length else (self._head, tail)
        return head.removeprefix(_BYTE_ORDER_MARK), end

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
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class Decoding:
    """Decodes a compressed answer into `kept`, in bounded steps. Where it cannot, the rest is left out.

    Members of gzip follow each other (RFC 1952 section 2.2); zeros behind them are padding.
    """

    __slots__ = ("_came", "_decoder", "_grown", "_kept", "_leave_out", "_new")

    def __init__(self, kept: Kept, new: Callable[[], Decoder]) -> None:
        self._leave_out: Callable[[int], None] | None = None  # takes the lengths of what is not decoded
        self._kept = kept
        self._new = new
        self._decoder = new()
        self._came = self._grown = 0

    def keep(self, piece: bytes) -> None:
        """Take the next piece."""
        if not self._came and self._new is _zlib and not _has_zlib_header(piece):
            self._decoder = zlib.decompressobj(_RAW)  # RFC 9110 section 8.4.1.2: some send deflate without its wrapper
        self._came += len(piece)
        most = FREE_BYTES + MOST_GROWTH * self._came
        for start in range(0, len(piece), PART_BYTES):
            part = piece[start : start + PART_BYTES]
            while part and self._leave_out is None:
                part = self._behind(part) if self._decoder.eof else self._decode(part, most=most)
            if self._leave_out is not None:
                self._leave_out(len(part))

    def _decode(self, part: bytes, *, most: int) -> bytes:
        """Return what stands behind the member, or what is not decoded: the answer may be no larger than `most`."""
        decoder, kept = self._decoder, self._kept
        try:
            while not decoder.eof:
                decoded = decoder.decompress(part, STEP_BYTES)
                self._grown += len(decoded)
                if self._grown > most:
                    raise zlib.error("it grows too much")
                kept.keep(decoded)
                part = decoder.unconsumed_tail
                if not part and len(decoded) < STEP_BYTES:
                    break
        except zlib.error:
            self._leave_out = kept.give_up
            return part
        return decoder.unused_data

    def _behind(self, part: bytes) -> bytes:
        """Return the next member, which begins now, or what is none."""
        if self._new is _gzip:
            part = part.lstrip(b"\0")
            if part.startswith(_MEMBER):
                self._decoder = self._new()
                return part
        if part:
            self._leave_out = self._kept.pass_over
        return part


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
