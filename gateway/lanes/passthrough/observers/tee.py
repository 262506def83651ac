"""Bodies that hand a copy of their payload, without framing, to an observer as it passes."""

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from gateway.http.body import Body, ChunkedBody, LengthBody, OpenBody
from gateway.http.response_head import ResponseHead

#: Takes the next piece of a payload.
Keep: TypeAlias = Callable[[bytes], None]
#: Chunks of a stream that are kept as they pass; each is shorter than 2 KiB.
LAST_CHUNKS: Final = 32
_CODING: Final = re.compile(rb"\r\ncontent-encoding:([^\r\n]*)", re.IGNORECASE)


class PayloadSink(Protocol):
    """Takes the payload of a response.

    `takes_ends`: of what follows, the last `LAST_CHUNKS` chunks are enough, and a number of bytes that are left out
    (`skip`). `chunks`: so many are wanted at once, at most. `is_late`: no more should be read of the response before
    some of it was worked through.
    """

    @property
    def takes_ends(self) -> bool: ...
    @property
    def chunks(self) -> int: ...
    @property
    def is_late(self) -> bool: ...
    def keep(self, piece: bytes) -> None: ...
    def skip(self, length: int) -> None: ...


class JoinedSinks:
    """Several takers of one payload."""

    def __init__(self, sinks: Sequence[PayloadSink]) -> None:
        self._sinks = sinks
        self.chunks = min(sink.chunks for sink in sinks)

    @property
    def takes_ends(self) -> bool:
        """Return whether every sink needs only the beginning and the end of the payload."""
        return all(sink.takes_ends for sink in self._sinks)

    @property
    def is_late(self) -> bool:
        """Return whether any sink is late."""
        return any(sink.is_late for sink in self._sinks)

    def keep(self, piece: bytes) -> None:
        """Pass the piece to each sink."""
        for sink in self._sinks:
            sink.keep(piece)

    def skip(self, length: int) -> None:
        """Report `length` skipped bytes to each sink."""
        for sink in self._sinks:
            sink.skip(length)


class Tee:
    """The way of one response's payload to a sink, also of whole chunks that go past the exchange.

    Those are kept several at a time, and once the sink does with the ends, in a ring.
    """

    __slots__ = ("_ring", "_run", "keep", "sink")

    def __init__(self, sink: PayloadSink) -> None:
        self.sink = sink
        self.keep = sink.keep
        self._run: list[bytes] | None = None  # whole chunks that went past, to be kept together
        self._ring: deque[bytes] | None = None  # the last ones, once the beginning is there

    def build_body(self, head: ResponseHead, *, payload_only: bool) -> Body:
        """Return the reader of the body that follows `head`, which copies the payload to the sink."""
        return build_teed_body(head, self.keep, payload_only=payload_only)

    def build_rest_body(self, left: int) -> LengthBody:
        """Return the reader of the last `left` bytes of a body, with a copy."""
        return TeedLengthBody(left, self.keep)

    def build_relay(self, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Return a function that forwards whole chunks with `write`, and keeps them for the sink."""
        if not self.sink.takes_ends:
            if self._run is None:
                self._run = []
            run, add, most, keep_all = self._run, self._run.append, self.sink.chunks, self._keep_all

            def relay_all(data: bytes) -> None:
                write(data)
                add(data)
                if len(run) == most:
                    keep_all(run)

            return relay_all

        if self._ring is None:
            self._ring = deque(maxlen=LAST_CHUNKS)
        remember = self._ring.append

        def relay(data: bytes) -> None:
            write(data)
            remember(data)

        return relay

    def keep_relayed(self, relayed: int) -> None:
        """Keep what was relayed since the last call: `relayed` bytes, with their framing."""
        if self._run:
            self._keep_all(self._run)
        if not self._ring:
            return
        if (missing := relayed - sum(map(len, self._ring))) > 0:
            self.sink.skip(missing)
        self._keep_all(self._ring)

    def _keep_all(self, chunks: list[bytes] | deque[bytes]) -> None:
        """Keep the payload of chunks that went past, and forget them."""
        self.keep(b"".join([chunk[chunk.index(b"\n") + 1 : -2] for chunk in chunks]))
        chunks.clear()


class TeedLengthBody(LengthBody):
    """A body of `Content-Length` bytes."""

    __slots__ = ("_keep",)

    def __init__(self, length: int, keep: Keep) -> None:
        super().__init__(length)
        self._keep = keep

    def feed(self, data: bytes) -> bytes:
        data = super().feed(data)
        self._keep(data)
        return data


class TeedOpenBody(OpenBody):
    """A body that ends with its connection."""

    __slots__ = ("_keep",)

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def feed(self, data: bytes) -> bytes:
        self._keep(data)
        return data


class TeedChunkedBody(ChunkedBody):
    """A chunked body: its payload is collected as for a client that gets no framing, whatever this one gets."""

    __slots__ = ("_framed", "_keep")

    def __init__(self, keep: Keep, *, payload_only: bool) -> None:
        super().__init__(payload_only=True)
        self._keep = keep
        self._framed = not payload_only

    @property
    def passes_chunks(self) -> bool:
        return self._framed and self.between_chunks

    def _split_payload(self, data: bytes, start: int, payload: list[bytes]) -> bytes:
        """Split the data as the base class does, and copy the payload to the sink."""
        passed = super()._split_payload(data, start, payload)
        self._keep(passed)
        if self._framed:
            return data if start == len(data) else data[:start]
        return passed


def build_teed_body(head: ResponseHead, keep: Keep, *, payload_only: bool) -> LengthBody | OpenBody | ChunkedBody:
    """Return the reader of the body that follows `head`, which passes the payload to `keep`, too."""
    if head.framing == "chunked":
        return TeedChunkedBody(keep, payload_only=payload_only)
    if head.framing == "close":
        return TeedOpenBody(keep)
    return TeedLengthBody(head.length, keep)


def read_content_coding(head: bytes) -> bytes:
    """Return the Content-Encoding of a regular head, which was not parsed."""
    found = _CODING.search(head)
    return found[1].strip() if found is not None else b""
