"""The reading half of a raw connection: bytes counted as they come, and cut into heads and bodies on demand.

No limits of time here, `Peer` sets them. A FIN where bytes are due raises EOFError; broken framing raises ValueError.
"""

import hashlib
from typing import Final

from gateway.testing.messages import is_chunked, read_chunk_size, read_content_length, read_status, split_head
from gateway.testing.streams import Stream

HEAD_END: Final = b"\r\n\r\n"
_TAIL_BYTES: Final = 120


class ReceiveBuffer:
    """The bytes that one connection received, and the part of them not yet taken."""

    def __init__(self, stream: Stream, *, keep_bytes: int) -> None:
        self.received = bytearray()
        self.n_received = 0
        self.sha256 = hashlib.sha256()
        self.at_eof = False
        self._stream = stream
        self._keep_bytes = keep_bytes
        self._unread = bytearray()

    def __str__(self) -> str:
        tail = bytes(self._unread[-_TAIL_BYTES:])
        return f"{self.n_received} bytes received so far, {len(self._unread)} of them not yet taken, ending in {tail!r}"

    async def fill(self) -> bool:
        """Read once; return False at the other side's FIN."""
        data = await self._stream.recv()
        if not data:
            self.at_eof = True
            return False
        self.n_received += len(data)
        self.sha256.update(data)
        self.received += data[: max(0, self._keep_bytes - len(self.received))]
        self._unread += data
        return True

    async def take(self, n: int) -> bytes:
        while len(self._unread) < n:
            await self._require_bytes(f"{n} bytes")
        return self._take_unread(n)

    async def take_until(self, token: bytes) -> bytes:
        searched = 0
        while (at := self._unread.find(token, searched)) < 0:
            searched = max(0, len(self._unread) - len(token) + 1)
            await self._require_bytes(f"{token!r}")
        return self._take_unread(at + len(token))

    async def take_some(self) -> bytes:
        """Return the buffered bytes, or else the bytes of the next read; b"" at the FIN."""
        if not self._unread:
            await self.fill()
        return self._take_unread(len(self._unread))

    async def take_rest(self) -> bytes:
        while await self.fill():
            pass
        return self._take_unread(len(self._unread))

    async def drop(self, n: int) -> None:
        """Take `n` bytes and drop them."""
        while n > len(self._unread):
            n -= len(self._unread)
            self._unread.clear()
            await self._require_bytes(f"{n} more bytes")
        del self._unread[:n]

    async def drop_rest(self) -> None:
        """Drop everything through the other side's FIN."""
        self._unread.clear()
        while await self.fill():
            self._unread.clear()

    async def take_body(self, head: bytes, *, method: str) -> bytes:
        """Return the raw body that belongs to `head`, of a request, or of an answer to a `method` request."""
        _start_line, headers = split_head(head)
        is_response = head.startswith(b"HTTP/")
        if is_response and _is_bodiless(read_status(head), method):
            return b""
        if is_chunked(headers):
            return await self._take_chunked()
        if (length := read_content_length(headers)) is not None:
            return await self.take(length)
        return await self.take_rest() if is_response else b""

    async def _take_chunked(self) -> bytes:
        raw = bytearray()
        while True:
            line = await self.take_until(b"\r\n")
            raw += line
            if (size := read_chunk_size(line[:-2])) == 0:
                break
            chunk = await self.take(size + 2)
            if not chunk.endswith(b"\r\n"):
                raise ValueError(f"a chunk of {size} bytes ends in {chunk[-8:]!r}, not in CRLF")
            raw += chunk
        while line != b"\r\n":
            line = await self.take_until(b"\r\n")
            raw += line
        return bytes(raw)

    async def _require_bytes(self, what: str) -> None:
        if not await self.fill():
            raise EOFError(f"the other side ended the connection before {what} came: {self}")

    def _take_unread(self, n: int) -> bytes:
        data = bytes(self._unread[:n])
        del self._unread[:n]
        return data


def _is_bodiless(code: int, method: str) -> bool:
    """Return whether an answer ends with its head, whatever its framing fields are (RFC 9112 section 6.3)."""
    return method == "HEAD" or code < 200 or code in (204, 304) or (method == "CONNECT" and code < 300)
