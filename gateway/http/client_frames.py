"""The frames of a WebSocket's client, divided by their heads before aiohttp reads them (RFC 6455 section 5.2).

1. A frame without a mask ends the connection with 1002 (section 5.1). aiohttp reads such frames, so it gets one in its
   place that it refuses.
2. A page may bound the messages that it has at a time, in number and in bytes. A frame that would be too much waits
   with all that follows it; the lane then reads no more from the client. Nothing is lost, and nothing more is kept.
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
#: A frame with reserved bits: the reader answers it with 1002.
REFUSED: Final = b"\xf0\x80"


class ClientFrames:
    """The bytes of one client behind its handshake.

    `most` is how many whole messages may be handed on until `done` is called for the oldest, and `limit_bytes` what
    they may have together with the next one. A single message may be longer: its reader refuses it. None: no bound.
    """

    __slots__ = ("_at", "_broken", "_data", "_ends", "_left", "_limit_bytes", "_message_bytes", "_most", "_whole",
                 "_whole_bytes", "waits")  # fmt: skip

    def __init__(self, *, limit_bytes: int = 0, most: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._most = most
        self._data, self._at = b"", 0  # what came, and how much of it is handed on
        self._left = 0  # bytes of the frame's payload that are still to come
        self._ends = False  # the frame is the last one of its message
        self._message_bytes = 0  # of the message that is not whole yet
        self._whole: deque[int] = deque()
        self._whole_bytes = 0
        self._broken = False
        self.waits = False

    def feed(self, data: bytes) -> bytes:
        """Return what the reader gets now. The rest waits for `done`, or for the rest of a frame's head."""
        if self._broken:
            return b""
        self._data, self._at = (self._data[self._at :] + data if self._data else data), 0
        return self._handed_on()

    def done(self) -> bytes:
        """Forget the oldest message, which its page has dealt with. Return what the reader gets in its place."""
        if self._whole:
            self._whole_bytes -= self._whole.popleft()
        self.waits = False
        return b"" if self._broken else self._handed_on()

    def _handed_on(self) -> bytes:
        start = self._at
        while self._at < len(self._data) and self._next():
            pass
        found = self._data[start : self._at]
        if self._broken:
            found += REFUSED
        if self._broken or self._at == len(self._data):
            self._data, self._at = b"", 0
        return found

    def _next(self) -> bool:
        """Pass over a head, or over what is here of a payload. Return False if that must wait."""
        if not self._left:
            return self._head()
        taken = min(self._left, len(self._data) - self._at)
        self._at += taken
        self._left -= taken
        if not self._left:
            self._frame_ended()
        return True

    def _head(self) -> bool:
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
        if is_data and self._too_much(length):
            self.waits = True
            return False
        self._ends = is_data and bool(first & _FIN)
        self._message_bytes += length * is_data
        self._at = at + size + _MASK_BYTES
        self._left = length
        if not length:
            self._frame_ended()
        return True

    def _too_much(self, length: int) -> bool:
        if self._most is None or not self._whole:
            return False
        return len(self._whole) >= self._most or self._whole_bytes + self._message_bytes + length > self._limit_bytes

    def _frame_ended(self) -> None:
        if not self._ends:
            return
        if self._most is not None:
            self._whole.append(self._message_bytes)
            self._whole_bytes += self._message_bytes
        self._message_bytes = 0
