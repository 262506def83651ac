"""The frames of a WebSocket's client, divided by their heads before aiohttp reads them (RFC 6455 section 5.2).

1. A frame without a mask ends the connection with 1002 (section 5.1). aiohttp reads such frames, so it gets one in its
   place that it refuses.
2. A page may bound the messages that it has at a time, in number and in bytes. A frame that would be too much waits
   with all that follows it; the lane then reads no more from the client. Nothing is lost, and nothing more is kept.
3. A few frames are enough for one turn of the event loop, and a client that sends small ones without end is refused.
4. For a page that bounds its messages, a long frame goes on in the pieces in which it comes, as fragments of its
   message (section 5.4). aiohttp unmasks a whole frame at once, which is 100 ms for 25 MiB.
"""

from collections import deque
from typing import Final

_FIN: Final = 0x80
_RESERVED: Final = 0x70  # no extension is negotiated
_MASKED: Final = 0x80
_CONTROL: Final = 0x8
_MASK_BYTES: Final = 4
#: The bytes of a payload's length behind the first two, by the value that announces them.
_LENGTH_BYTES: Final = {126: 2, 127: 8}
_OPCODE: Final = 0x0F
#: A frame with reserved bits: the reader answers it with 1002.
REFUSED: Final = b"\xf0\x80"

#: Frames handed on at once: pings, which cost most, take 1 to 2 ms with their answers.
FRAMES_AT_ONCE: Final = 200
#: After so many the rest waits for the next turn of the event loop all the same: libuv reads up to 32 times in one.
MANY_FRAMES: Final = 50
#: A control frame, or a piece of a message, of less than this many bytes is small.
SMALL_BYTES: Final = 126
#: Small frames that a client may send at once. It may be as long without being read as a long turn takes, and ping.
SMALL_MOST: Final = 5000
#: So many more it may send by each sweep, twice a second.
SMALL_A_SWEEP: Final = 250
#: A frame longer than this goes on in pieces.
LONG_BYTES: Final = 256 << 10


def build_frame_head(first: int, length: int, mask: bytes = b"") -> bytes:
    """Return the head of a frame with this first byte and a payload of `length` bytes; only a client's has a mask."""
    masked = _MASKED if mask else 0
    if length < 126:
        return bytes((first, masked | length)) + mask
    kind = 126 if length < 1 << 16 else 127
    return bytes((first, masked | kind)) + length.to_bytes(_LENGTH_BYTES[kind]) + mask


class _FrameFragments:
    """A long frame, handed on as fragments of its message."""

    __slots__ = ("_fin", "_mask", "_opcode")

    def __init__(self, first: int, mask: bytes) -> None:
        self._opcode, self._fin = first & _OPCODE, first & _FIN
        self._mask = mask

    def build_head(self, length: int, *, last: bool) -> bytes:
        """Return the head of the next piece, which has `length` bytes."""
        first, mask, turn = self._opcode | self._fin * last, self._mask, length % _MASK_BYTES
        self._opcode, self._mask = 0, mask[turn:] + mask[:turn]
        return build_frame_head(first, length, mask)


class _Messages:
    """The messages of a client that were handed on, by their bytes, and the bounds of a page; None for `most`: none."""

    __slots__ = ("_limit_bytes", "_most", "_whole", "_whole_bytes", "open_bytes")

    def __init__(self, limit_bytes: int, most: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._most = most
        self._whole: deque[int] = deque()
        self._whole_bytes = 0
        self.open_bytes = 0  # of the message that is not whole yet

    def should_divide(self, length: int) -> bool:
        """Return whether to pass a frame on in pieces; an oversized message is refused by its head."""
        return self._most is not None and length > LONG_BYTES and self.open_bytes + length < self._limit_bytes

    def must_wait(self, length: int) -> bool:
        """Return whether a frame of this length must wait."""
        if self._most is None or not self._whole:
            return False
        return len(self._whole) >= self._most or self._whole_bytes + self.open_bytes + length > self._limit_bytes

    def end(self) -> None:
        """Note that the open message is whole."""
        if self._most is not None:
            self._whole.append(self.open_bytes)
            self._whole_bytes += self.open_bytes
        self.open_bytes = 0

    def forget_oldest(self) -> None:
        """Forget the oldest message, which its page has handled."""
        if self._whole:
            self._whole_bytes -= self._whole.popleft()


class ClientFrames:
    """The bytes of one client behind its handshake.

    `most` is how many whole messages may be handed on until `finish_message` is called for the oldest, and
    `limit_bytes` what they may have together with the next one. A single message may be longer: its reader refuses it.
    None: no bound.

    `yields`: the rest waits for the next turn of the event loop. Call `feed` with b"" in it. `flooded`: the client sent
    too many small frames, and nothing more is handed on. `sweep` gives it room for further ones.
    """

    __slots__ = ("_at", "_broken", "_data", "_divided", "_ends", "_left", "_messages", "_small_left", "_start",
                 "flooded", "waits", "yields")  # fmt: skip

    def __init__(self, *, limit_bytes: int = 0, most: int | None = None) -> None:
        self._messages = _Messages(limit_bytes, most)
        self._data, self._at = b"", 0  # what came, and how much of it is read
        self._start = 0  # how much of it is handed on
        self._left = 0  # bytes of the frame's payload that are still to come
        self._divided: _FrameFragments | None = None
        self._ends = False  # the frame is the last one of its message
        self._small_left = SMALL_MOST
        self._broken = False
        self.waits = self.yields = self.flooded = False

    def feed(self, data: bytes) -> bytes:
        """Return what the reader gets now. The rest waits for `finish_message`, a turn, or the end of a head."""
        if self._broken:
            return b""
        if data:
            self._data, self._at = (self._data[self._at :] + data if self._data else data), 0
        return self._parse_frames()

    def finish_message(self) -> bytes:
        """Forget the oldest message, which its page has handled. Return the bytes for the reader."""
        self._messages.forget_oldest()
        self.waits = False
        return b"" if self._broken else self._parse_frames()

    def sweep(self) -> None:
        """Give the client room for further small frames. Called twice a second."""
        self._small_left = min(self._small_left + SMALL_A_SWEEP, SMALL_MOST)

    def _parse_frames(self) -> bytes:
        """Return the frames that may pass now: a bounded number in one turn of the loop."""
        found: list[bytes] = []
        self._start, heads = self._at, 0
        while self._at < len(self._data):
            if self._left:
                self._skip_payload(found)
            elif heads < FRAMES_AT_ONCE and self._skip_head(found):
                heads += 1
            else:
                break
        self.yields = heads > MANY_FRAMES and not self._broken
        found.append(self._data[self._start : self._at])
        if self._broken and not self.flooded:
            found.append(REFUSED)
        if self._broken or self._at == len(self._data):
            self._data, self._at = b"", 0
        return b"".join(found)

    def _skip_payload(self, found: list[bytes]) -> None:
        """Pass over what is here of a payload. A divided frame's payload is a piece with its own head."""
        taken = min(self._left, len(self._data) - self._at)
        self._left -= taken
        if self._divided is not None:
            found.append(self._divided.build_head(taken, last=not self._left))
            found.append(self._data[self._at : self._at + taken])
            self._start = self._at + taken
        self._at += taken
        if not self._left:
            self._note_end_of_frame()

    def _skip_head(self, found: list[bytes]) -> bool:
        """Pass over a head. Return False if that must wait, or ends the connection."""
        data, at = self._data, self._at
        if len(data) - at < 2:
            return False
        first, second = data[at], data[at + 1]
        if first & _RESERVED or not second & _MASKED:
            self._broken = True
            return False
        length = second & ~_MASKED
        size = 2 + _LENGTH_BYTES.get(length, 0)
        if len(data) - at < size + _MASK_BYTES:
            return False
        if size > 2:
            length = int.from_bytes(data[at + 2 : at + size])
        is_data = not first & _CONTROL
        if is_data and self._messages.must_wait(length):
            self.waits = True
            return False
        if (
            length < SMALL_BYTES
            and (not is_data or not first & _FIN or not first & _OPCODE)
            and not self._count_small_frame()
        ):
            return False
        self._at = at + size + _MASK_BYTES
        if is_data and self._messages.should_divide(length):
            found.append(data[self._start : at])
            self._divided, self._start = _FrameFragments(first, data[at + size : self._at]), self._at
        self._ends = is_data and bool(first & _FIN)
        self._messages.open_bytes += length * is_data
        self._left = length
        if not length:
            self._note_end_of_frame()
        return True

    def _count_small_frame(self) -> bool:
        """Count a small frame. Return False for one too many."""
        self._small_left -= 1
        self._broken = self.flooded = self._small_left < 0
        return not self.flooded

    def _note_end_of_frame(self) -> None:
        self._divided = None
        if self._ends:
            self._messages.end()
