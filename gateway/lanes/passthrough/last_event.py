"""The end of an event stream for which its client does not wait.

Many clients close their connection at the event that ends an answer. The end of its body comes milliseconds later. Such
an answer was whole for its client, so `LastEvent` watches for that event, and `Remainder` reads what is left.
"""

import re
from asyncio import AbstractEventLoop
from typing import Final

from gateway.http.body import Body, BodyError
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.pool import Pool

#: The end of a body behind the last event may take so long, and be so long.
REST_S: Final = 1.0
REST_BYTES: Final = 16384
#: The last events: of chat completions, of messages, and of Responses. In a text of JSON the quotes have backslashes.
_LAST: Final = re.compile(
    rb'(?:\A|[\r\n])data: ?\[DONE\]|"type": ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
)
#: No last event is longer than this up to the end of its name.
_NAME_BYTES: Final = 40


class LastEvent:
    """Watches the pieces of an event stream, with their framing or without, for its last event."""

    __slots__ = ("_came", "_end")

    def __init__(self) -> None:
        self._came = False
        self._end = b"\n"

    @property
    def is_whole(self) -> bool:
        """Return whether the last event is here up to the end of its line."""
        return self._came and self._end.removesuffix(b"\r\n").endswith((b"\n", b"\r"))

    def scan_piece(self, piece: bytes) -> None:
        """Scan the next piece of the stream for its last event."""
        if not self._came:
            text = piece if self._end.endswith(b"\n") else self._end + piece  # its name may be in two pieces
            # Looking for five words takes a fifth of the time of one look for the expression.
            if (
                b"[DONE]" in text
                or b'"message_stop"' in text
                or b'"response.completed"' in text
                or b'"response.incomplete"' in text
                or b'"response.failed"' in text
            ):
                self._came = _LAST.search(text) is not None
        self._end = (piece if len(piece) >= _NAME_BYTES else self._end + piece)[-_NAME_BYTES:]


class Remainder:
    """The rest of an answer whose client has left; a turn of its upstream connection, which is kept if the rest ends.

    `idle_timeout_s` is what the upstream says of its idle connections. `reusable`: it wants to keep this one.
    """

    def __init__(
        self,
        upstream: UpstreamConnection,
        body: Body,
        pool: Pool,
        loop: AbstractEventLoop,
        *,
        idle_timeout_s: float | None,
        reusable: bool,
    ) -> None:
        self._upstream = upstream
        self._body = body
        self._pool = pool
        self._idle_timeout_s = idle_timeout_s
        self._reusable = reusable
        self._length = 0
        self._timer = loop.call_later(REST_S, self._abandon_connection)
        upstream.turn = self
        self.on_response_bytes(b"")  # a part of it may wait in the body

    def on_response_bytes(self, data: bytes) -> None:
        """Read the rest of the answer, to reuse the connection if it ends soon and cleanly."""
        self._length += len(data)
        try:
            self._body.feed(data)
        except BodyError:
            self._abandon_connection()
            return
        if self._body.done and not self._body.rest and self._reusable:
            self._timer.cancel()
            self._pool.return_connection(self._upstream, idle_timeout_s=self._idle_timeout_s)
        elif self._body.done or self._body.waiting or self._length > REST_BYTES:
            self._abandon_connection()

    def _abandon_connection(self) -> None:
        self._timer.cancel()
        self._upstream.abort()

    def on_upstream_eof(self) -> bool:
        return False

    def on_upstream_lost(self, _error: Exception | None) -> None:
        self._timer.cancel()

    def on_upstream_full(self) -> None:
        """Do nothing: the request was sent."""

    def on_upstream_drained(self) -> None:
        """See `on_upstream_full`."""
