"""Bodies that hand a copy of their payload, without framing, to somebody else as it passes."""

from collections.abc import Callable

from gateway.http.body import ChunkedBody, LengthBody, OpenBody
from gateway.http.response_head import ResponseHead

#: Takes the next piece of a payload.
Keep = Callable[[bytes], None]


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
        passed = super()._split_payload(data, start, payload)
        self._keep(passed)
        if self._framed:
            return data if start == len(data) else data[:start]
        return passed


def teed_body_of(head: ResponseHead, keep: Keep, *, payload_only: bool) -> LengthBody | OpenBody | ChunkedBody:
    """Return the reader of the body that follows `head`, as `body_of` does, with a copy for `keep`."""
    if head.framing == "chunked":
        return TeedChunkedBody(keep, payload_only=payload_only)
    if head.framing == "close":
        return TeedOpenBody(keep)
    return TeedLengthBody(head.length, keep)
