"""The end of a message body: by length, by chunks, or by the end of the connection (RFC 9112 section 6.3).

A reader is fed what arrives and returns what may be forwarded: the same bytes, framing included. Framing is checked
before it is forwarded; an incomplete size line, and everything from the last chunk on, is held until it is whole, so
that a body that was cut never looks finished to the next reader.

Chunks: RFC 9112 section 7.1, extensions 7.1.1, trailers 7.1.2. Incomplete messages: RFC 9112 section 8.

https://www.rfc-editor.org/rfc/rfc9112#section-6.3 https://www.rfc-editor.org/rfc/rfc9112#section-7.1
"""

import re
from typing import Protocol

from gateway.http.fields import TOKEN, VALUE, FieldError, check_trailers

#: Longest chunk-size line with its extensions, and longest trailer section, in bytes.
LINE_LIMIT_BYTES = 4096
TRAILERS_LIMIT_BYTES = 16384
#: Chunks read at once, about 1 ms: 10 MB of one-byte chunks would stop all others for 2 s.
CHUNKS_AT_ONCE = 1000
#: A body with so many waits for the next turn of the event loop all the same: libuv reads up to 32 times in one.
MANY_CHUNKS = 200

#: RFC 9112 section 7.1.1 without its optional white space, which llhttp and h11 refuse.
_QUOTED = rb"\"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\" + VALUE + rb")*+\""
_EXTENSIONS = rb"(?:;" + TOKEN + rb"++(?:=(?:" + TOKEN + rb"++|" + _QUOTED + rb"))?)*+"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})" + _EXTENSIONS + rb"\r\n")
#: A beginning that more bytes could still complete; the extensions are checked once the line is whole.
_BEGINNING = re.compile(rb"[0-9A-Fa-f]{1,15}(?:;" + VALUE + rb"*+)?\r?")


#: The size lines that a whole chunk of so many bytes, framing included, can begin with as they are usually written, for
#: the lengths that came (`note_length`): size lines of all lengths would take 0.25 MB.
SIZE_LINES: list[tuple[bytes, ...]] = [()] * 2048
_FROM_LINE, _IN_DATA, _AFTER_DATA, _FROM_LAST = range(4)


class BodyError(ValueError):
    """The body's framing is broken; nothing of the bad part was passed on."""


class Body(Protocol):
    """A body on its way. `done` once its last byte was fed; `rest` then holds what came after it.

    `waiting`: what was fed is enough for one turn of the event loop. Feed b"" in the next turn, and nothing else before
    that, so that what is held stays bounded.
    """

    @property
    def done(self) -> bool: ...

    @property
    def rest(self) -> bytes: ...

    @property
    def waiting(self) -> bool: ...

    def feed(self, data: bytes) -> bytes:
        """Return the part of `data` (and of the bytes held) that may be forwarded now. Raises BodyError."""
        ...


def note_length(length: int) -> None:
    """Write the size lines of a length into `SIZE_LINES`. A few lengths belong to no chunk, and have none."""
    if not SIZE_LINES[length]:
        for size in range(max(length - len("7f8\r\n\r\n"), 1), length - len("\r\n\r\n")):
            if size + len(f"{size:x}\r\n\r\n") == length:
                SIZE_LINES[length] = tuple({f"{size:x}\r\n".encode(), f"{size:X}\r\n".encode()})


class LengthBody:
    """A body of `Content-Length` bytes."""

    __slots__ = ("done", "left", "rest")

    waiting = False

    def __init__(self, length: int) -> None:
        self.left = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that belong to the body; the rest is kept in `rest`."""
        left = self.left - len(data)
        if left > 0:
            self.left = left
            return data
        self.done, self.left = True, 0
        if left == 0:
            return data
        self.rest = data[left:]
        return data[:left]


class OpenBody:
    """A response body that ends with its connection."""

    __slots__ = ("done", "rest")

    waiting = False

    def __init__(self) -> None:
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        return data


class ChunkedBody:
    """A chunked body, forwarded with its framing as it came, or as bare payload for an HTTP/1.0 client."""

    __slots__ = ("_at", "_held", "_left", "_payload_only", "done", "rest", "waiting")

    def __init__(self, *, payload_only: bool = False) -> None:
        self.done = self.waiting = False
        self.rest = b""
        self._at = _FROM_LINE
        self._left = 0
        self._held = b""
        self._payload_only = payload_only

    @property
    def between_chunks(self) -> bool:
        """Return whether the next bytes begin a chunk, so that a whole chunk need not be fed."""
        return self._at == _FROM_LINE and not self._held

    @property
    def passes_chunks(self) -> bool:
        """Return whether the next bytes begin a chunk that is forwarded as it comes: a whole one need not be fed."""
        return self.between_chunks and not self._payload_only

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to forward, at most CHUNKS_AT_ONCE chunks at a time. Raises BodyError."""
        if self._held:
            data, self._held = self._held + data, b""
        start, end, payload, lines = 0, len(data), [], 0
        while start < end and lines < CHUNKS_AT_ONCE:
            if self._at == _IN_DATA:
                taken = min(self._left, end - start)
                if self._payload_only:
                    payload.append(data[start : start + taken])
                start += taken
                self._left -= taken
                if self._left:
                    break
                self._at = _AFTER_DATA
            elif self._at == _AFTER_DATA:
                if data[start : start + 2] != b"\r\n":
                    if end - start == 1 and data[start] == 0x0D:
                        break
                    raise BodyError("a chunk does not end with CR LF where its size says")
                start += 2
                self._at = _FROM_LINE
            else:
                if self._at == _FROM_LINE:
                    start, lines = self._read_whole_chunks(data, start, lines, payload)
                    if start == end or lines == CHUNKS_AT_ONCE:
                        break
                lines += 1
                after = (
                    self._read_size_line(data, start) if self._at == _FROM_LINE else self._read_last_chunk(data, start)
                )
                if after < 0:
                    break
                start = after
                if self.done:
                    break
        self.waiting = lines > MANY_CHUNKS and not self.done
        return self._split_payload(data, start, payload)

    def _read_whole_chunks(self, data: bytes, start: int, lines: int, payload: list[bytes]) -> tuple[int, int]:
        """Read the chunks from `start` on that are here whole; return the offset behind them, and all lines so far."""
        while lines < CHUNKS_AT_ONCE and (line := _SIZE_LINE.match(data, start)) is not None:
            begin = line.end()
            end = begin + int(line[1], 16)
            if end == begin or begin - start > LINE_LIMIT_BYTES or not data.startswith(b"\r\n", end):
                break
            if self._payload_only:
                payload.append(data[begin:end])
            start, lines = end + 2, lines + 1
        return start, lines

    def _split_payload(self, data: bytes, start: int, payload: list[bytes]) -> bytes:
        """Return the part to forward of the scanned data, and hold the part that is not scanned."""
        if self.done:
            self.rest = data[start:]
        elif start < len(data):
            self._held = data[start:]
        if self._payload_only:
            return b"".join(payload)
        return data if start == len(data) else data[:start]

    def _read_size_line(self, data: bytes, start: int) -> int:
        """Read a size line; return the offset behind it, or -1 while it is incomplete."""
        found = _SIZE_LINE.match(data, start)
        if found is None:
            line_end = data.find(b"\n", start)
            if line_end >= 0 or len(data) - start > LINE_LIMIT_BYTES or not _BEGINNING.fullmatch(data, start):
                raise BodyError("a chunk-size line is malformed or too long")
            return -1
        if found.end() - start > LINE_LIMIT_BYTES:
            raise BodyError("a chunk-size line is malformed or too long")
        size = int(found[1], 16)
        if size:
            self._left, self._at = size, _IN_DATA
            return found.end()
        self._at = _FROM_LAST
        return self._read_last_chunk(data, start)

    def _read_last_chunk(self, data: bytes, start: int) -> int:
        """Read the last chunk's line and the trailers as one piece; return the offset behind them, or -1."""
        trailers = data.index(b"\r\n", start) + 2
        end = trailers if data.startswith(b"\r\n", trailers) else data.find(b"\r\n\r\n", trailers)
        if max(end, len(data) if end < 0 else 0) - trailers > TRAILERS_LIMIT_BYTES:
            raise BodyError("the trailers are too long")
        if end < 0:
            return -1
        end += 2 if end == trailers else 4
        try:
            check_trailers(data[trailers:end])
        except FieldError as error:
            raise BodyError(str(error)) from None
        self.done = True
        return end
