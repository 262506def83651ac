"""Compressed answers, decoded as they pass: so much in a turn of the event loop, and no more.

A byte of gzip may be a thousand of an answer, and a read from a socket brings 64 KiB. So only a little is decoded where
an answer comes. The rest waits in `DecodingQueue`, which decodes some in each turn of the loop, of one answer after the
other: however many there are, and however much they grow, all others wait for one such step at most. An answer may end
before it is decoded; its usage is read when it is. What takes too much is left out, and the usage is estimated.
"""

import asyncio
import logging
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from gateway.contracts.figures import Counted
from gateway.usage.ring_buffer import AnswerBuffer

log = logging.getLogger("gateway")

#: Decoded by one call.
STEP_BYTES: Final = 32768
#: Taken of a compressed piece at a time: each member of gzip copies what stands behind it.
PART_BYTES: Final = 4096
#: What a step costs, whatever it decodes, in bytes that could be decoded meanwhile: members of gzip may be empty.
STEP_COST: Final = 1024
#: What a further member costs besides: its decoder is made anew, which takes 14 us for zstd.
MEMBER_COST: Final = 8192
#: Decoded of each piece as it comes, and in each turn of the loop of all that waits, which takes some 0.5 ms.
AT_ONCE_BYTES: Final = 16384
TURN_BYTES: Final = 1 << 18
#: An answer that grows more than so many times, beyond a megabyte, is not decoded to its end: nothing else would be.
MOST_GROWTH: Final = 100
FREE_BYTES: Final = 1 << 20
#: Compressed bytes that wait of one answer, or of all of a worker, before no more is read of an answer that waits.
LATE_OF_ONE_BYTES: Final = 4 << 20
LATE_BYTES: Final = 16 << 20
#: An answer is left out, with all that waits of it, if more of all waits: one that came whole cannot be read later.
MOST_BYTES: Final = 32 << 20
#: Turns that are made up for when the worker ends: half a second.
LAST_TURNS: Final = 1000
_GZIP, _ZLIB, _RAW = 31, 15, -15
#: Codings whose libraries come with an extra.
_OF_EXTRA: Final = (b"br", b"zstd")
_FAMILY: Final = "gateway_usage_undecoded"


class Decoder(Protocol):
    """A decompressor of the standard library's kind."""

    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class AnswerDecoder:
    """Decodes a compressed answer into `kept`, in bounded steps. Where it cannot, the rest is left out.

    Members of gzip follow each other (RFC 1952 section 2.2), and zeros behind them are padding; so do frames of zstd.
    `member` is the first byte of each; b"": there is only one.
    """

    __slots__ = (
        "_at",
        "_came",
        "_decoder",
        "_grown",
        "_has_more",
        "_kept",
        "_leave_out",
        "_member",
        "_new",
        "_part",
        "_pieces",
        "_size",
        "_then",
        "_undecoded",
    )

    def __init__(
        self, kept: AnswerBuffer, new: Callable[[], Decoder], undecoded: "DecodingQueue", *, member: bytes = b""
    ) -> None:
        self._leave_out: Callable[[int], None] | None = None  # takes the lengths of what is not decoded
        self._then: Callable[[], None] | None = None
        self._kept = kept
        self._new = new
        self._member = member
        self._undecoded = undecoded
        self._decoder = new()
        self._came = self._grown = 0
        self._pieces: deque[bytes] = deque()
        self._at = 0  # so much is taken of the first one
        self._size = 0  # of what is not taken of all
        self._part = b""  # taken, and not decoded
        self._has_more = False  # the decoder has, without a further part

    def keep_piece(self, piece: bytes) -> None:
        """Take the next piece, and decode a little if nothing waits."""
        if not self._came and self._new is _build_zlib_decoder and not _has_zlib_header(piece):
            self._decoder = zlib.decompressobj(_RAW)  # RFC 9110 section 8.4.1.2: some send deflate without its wrapper
        length = len(piece)
        self._came += length
        if self._leave_out is not None:
            self._leave_out(length)
            return
        waits, undecoded = self._part or self._pieces or self._has_more, self._undecoded
        if not waits and length <= PART_BYTES:
            self._part = piece
        else:
            self._pieces.append(piece)
            self._size += length
            undecoded.size += length
        if waits:
            if undecoded.size > MOST_BYTES:
                self.skip_rest()
            return
        self.decode(AT_ONCE_BYTES)
        if self._part or self._pieces or self._has_more:
            undecoded.add(self)
            if self._size and undecoded.size > MOST_BYTES:
                self.skip_rest()

    @property
    def waits(self) -> bool:
        """Return whether something is here that is not decoded yet."""
        return bool(self._part or self._pieces or self._has_more)

    @property
    def is_late(self) -> bool:
        """Return whether so much waits that no more should be read now."""
        return self._size > LATE_OF_ONE_BYTES or (self._size > 0 and self._undecoded.size > LATE_BYTES)

    def decode(self, most: int) -> None:
        """Decode what waits, about so many bytes of the answer."""
        while most > 0 and (self._part or self._pieces or self._has_more):
            if not (self._part or self._has_more):
                self._take_part()
            most -= STEP_COST + (self._begin_member() if self._decoder.eof else self._decode_step())
            if self._leave_out is not None:
                self._drop_waiting(self._leave_out)

    def skip_rest(self) -> None:
        """Leave out what waits, and what follows."""
        if self._leave_out is None:
            self._leave_out = self._kept.skip_undecodable
            self._drop_waiting(self._leave_out)

    def call_when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when nothing waits any longer. No more pieces come."""
        self._then = then

    def report_done(self) -> None:
        """Call the callback of `call_when_done`, as nothing waits any longer."""
        then, self._then = self._then, None
        if then is not None:
            then()

    def _take_part(self) -> None:
        """Take the next part of the waiting bytes."""
        piece = self._pieces[0]
        self._part = piece[self._at : self._at + PART_BYTES]
        self._at += PART_BYTES
        if self._at >= len(piece):
            del self._pieces[0]
            self._at = 0
        self._size -= len(self._part)
        self._undecoded.size -= len(self._part)

    def _decode_step(self) -> int:
        """Decode one step of the member; return how many bytes of the answer that are."""
        decoder = self._decoder
        try:
            decoded = decoder.decompress(self._part, STEP_BYTES)
        except zlib.error:
            self._leave_out = self._kept.skip_undecodable
            return 0
        length = len(decoded)
        self._grown += length
        if self._grown > FREE_BYTES + MOST_GROWTH * (self._came - self._size):
            self._leave_out = self._kept.skip_undecodable
            return 0
        self._kept.keep_piece(decoded)
        self._part = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        self._has_more = length >= STEP_BYTES and not (self._part or decoder.eof)
        return length

    def _begin_member(self) -> int:
        """Begin with the next member, or leave out what is none."""
        if self._member:
            self._part = self._part.lstrip(b"\0")
            if self._part.startswith(self._member):
                self._decoder = self._new()
                return MEMBER_COST
        if self._part and self._decoder.eof:
            self._leave_out = self._kept.count_unread
        return 0

    def _drop_waiting(self, leave_out: Callable[[int], None]) -> None:
        """Drop the waiting bytes, and pass their number to `leave_out`."""
        leave_out(len(self._part) + self._size)
        self._undecoded.size -= self._size
        self._pieces.clear()
        self._part, self._has_more, self._at, self._size = b"", False, 0, 0


class DecodingQueue:
    """The answers of one worker that wait to be decoded, `size` compressed bytes. Used on one event loop only.

    It counts undecodable answers, too, and logs the first one of each coding.
    """

    __slots__ = ("_is_timed", "_unknown", "_waiting", "size")

    def __init__(self) -> None:
        self.size = 0
        self._unknown: Counter[str] = Counter()  # answers by the coding that nothing decodes
        self._waiting: deque[AnswerDecoder] = deque()
        self._is_timed = False

    def note_unknown(self, coding: bytes) -> None:
        """Count an answer with a Content-Encoding that nothing decodes."""
        name = coding.decode() if coding in _OF_EXTRA else "other"
        if not self._unknown[name]:
            hint = "pip install 'twolane[codings]' counts it" if coding in _OF_EXTRA else "no decoder knows it"
            log.warning("answers come with the Content-Encoding %s, so their usage is estimated: %s", name, hint)
        self._unknown[name] += 1

    def collect_counts(self) -> Iterator[Counted]:
        """Yield how many answers could not be decoded, by their coding."""
        for name, count in self._unknown.items():
            yield (_FAMILY, (name,)), (count,)

    def add(self, decoding: AnswerDecoder) -> None:
        """Decode an answer in this turn of the loop, if nothing else was, and in the next ones."""
        self._waiting.append(decoding)
        if not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_soon(self._decode_next_turn)
            self._decode_next()

    def finish(self) -> None:
        """Decode what waits, because the worker ends. Give up what would take too long."""
        for _ in range(LAST_TURNS):
            if not self._waiting:
                return
            self._decode_next()
        for decoding in self._waiting:
            decoding.skip_rest()
            decoding.report_done()
        self._waiting.clear()

    def _decode_next_turn(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._decode_next_turn)
            self._decode_next()
        else:
            self._is_timed = False

    def _decode_next(self) -> None:
        """Decode a part of the oldest answer, and queue it again if more waits."""
        decoding = self._waiting.popleft()
        decoding.decode(TURN_BYTES)
        if decoding.waits:
            self._waiting.append(decoding)
        else:
            decoding.report_done()


def _build_gzip_decoder() -> Decoder:
    return zlib.decompressobj(_GZIP)


def _build_zlib_decoder() -> Decoder:
    return zlib.decompressobj(_ZLIB)


def _has_zlib_header(piece: bytes) -> bool:
    return not piece or (piece[0] & 15 == 8 and piece[0] >> 4 <= 7)  # RFC 1950 section 2.2


_DECODERS: Final = {b"gzip": _build_gzip_decoder, b"x-gzip": _build_gzip_decoder, b"deflate": _build_zlib_decoder}
_MEMBERS: Final[Mapping[bytes, bytes]] = MappingProxyType({b"gzip": b"\x1f", b"x-gzip": b"\x1f", b"zstd": b"\x28"})


def build_answer_decoder(kept: AnswerBuffer, coding: bytes, undecoded: DecodingQueue) -> AnswerDecoder | None:
    """Return what decodes an answer with this Content-Encoding; None: nothing does, which is counted unless plain."""
    coding = coding.strip().lower()
    new = _find_decoder(coding)
    if new is not None:
        return AnswerDecoder(kept, new, undecoded, member=_MEMBERS.get(coding, b""))
    if not is_uncompressed(coding):
        undecoded.note_unknown(coding)
    return None


def _find_decoder(coding: bytes) -> Callable[[], Decoder] | None:
    """Return the factory of decoders for a Content-Encoding; None: it is not supported."""
    if coding in _OF_EXTRA:
        # Late: only the answers of some upstreams need these libraries.
        from gateway.usage.codings import get_brotli_factory, get_zstandard_factory

        return get_brotli_factory() if coding == b"br" else get_zstandard_factory()
    return _DECODERS.get(coding)


def is_uncompressed(coding: bytes) -> bool:
    """Return whether an answer with this Content-Encoding is not compressed."""
    return coding.strip().lower() in (b"", b"identity")
