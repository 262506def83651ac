"""Things by the bytes of heads, as many as fit into a bounded part of the memory; the oldest go first.

Here are the heads of the context lane; the plans of passthrough are in `passthrough/plan_cache.py`.
"""

from dataclasses import replace
from itertools import islice
from typing import Generic, TypeVar

from gateway.http.fields import Field
from gateway.http.request_head import RequestHead

#: The largest head worth keeping.
HEAD_LIMIT_BYTES = 4096
#: Memory for heads of the context lane. With heads of 600 bytes and 17 fields that is 900 clients.
HEADS_BYTES = 8 << 20
#: The size of a head besides its bytes, which it contains three times; that of a field besides these.
KNOWN_BYTES = 2400
FIELD_BYTES = 300
#: This share goes at once, so that room is not made for each new one.
SHARE = 16

Kept = TypeVar("Kept")


class HeadCache(Generic[Kept]):
    """Remembers things of one kind; `by_head` is always the same dict. One that goes while in use is made again."""

    def __init__(self) -> None:
        self.by_head: dict[bytes, Kept] = {}
        self._bytes = 0

    def drop(self, key: bytes) -> None:
        """Forget a thing that may not be used any more."""
        kept = self.by_head.pop(key, None)
        if kept is not None:
            self._bytes -= self._estimate_bytes(key, kept)

    def store(self, key: bytes, kept: Kept) -> None:
        """Remember a thing, unless its head is too large."""
        if len(key) > HEAD_LIMIT_BYTES or key in self.by_head:
            return
        self._bytes += self._estimate_bytes(key, kept)
        if self._bytes > self._get_room_bytes():
            for oldest in tuple(islice(self.by_head, len(self.by_head) // SHARE + 1)):
                self._bytes -= self._estimate_bytes(oldest, self.by_head.pop(oldest))
        self.by_head[key] = kept

    def _get_room_bytes(self) -> int:
        """Return the bytes of memory that the cache may use."""
        raise NotImplementedError

    def _estimate_bytes(self, key: bytes, kept: Kept) -> int:
        """Return the estimated bytes of memory of one entry."""
        raise NotImplementedError


class KnownHead:
    """A head of the context lane, without the digits of its Content-Length, which stand at `cut` (-1: it has none)."""

    __slots__ = ("_digits", "cut", "head")

    def __init__(self, head: RequestHead, cut: int, digits: bytes) -> None:
        self.head = head
        self.cut = cut
        self._digits = digits

    def match_head(self, digits: bytes, peer: str | None) -> RequestHead:
        """Return the head with these length digits and this peer; the same object if nothing differs."""
        head = self.head
        if digits == self._digits and peer == head.peer:
            return head
        fields, length = head.fields, head.length
        if self.cut >= 0:
            at = next(i for i, field in enumerate(fields) if field.name == b"content-length")
            name, value, line = fields[at]
            now = Field(name, digits, line[: -len(value) - 2] + digits + b"\r\n")
            fields, length = (*fields[:at], now, *fields[at + 1 :]), int(digits)
        self.head, self._digits = replace(head, fields=fields, length=length, peer=peer), digits
        self.head.derived = head.derived
        return self.head


class KnownHeads(HeadCache[KnownHead]):
    """Remembers heads of requests for the context lane."""

    def _get_room_bytes(self) -> int:
        return HEADS_BYTES

    def _estimate_bytes(self, key: bytes, kept: KnownHead) -> int:
        """Return the estimated bytes of memory of a head, by the length of its key and its fields."""
        return 3 * len(key) + FIELD_BYTES * len(kept.head.fields) + KNOWN_BYTES
