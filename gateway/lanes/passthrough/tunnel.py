"""A tunnel: after 101 Switching Protocols bytes are copied both ways until both sides have ended.

The only transaction that keeps a half-closed connection open. It ends after both FINs, when one side is lost, or when
nothing moved in either direction for the upstream's idle time.
"""

import asyncio
from collections.abc import Sequence

from gateway.auth.keyring import Key
from gateway.lanes.client import SENDING, Client
from gateway.lanes.passthrough.observers.observer import Observer
from gateway.upstream.connection import UpstreamConnection


class Tunnel:
    """A client connection and an upstream connection, joined."""

    __slots__ = ("_client", "_client_ended", "_idle_s", "_moved", "_observers", "_upstream", "_upstream_ended", "key")

    mode = "tunnel"
    streaming = False

    def __init__(
        self,
        client: Client,
        upstream: UpstreamConnection,
        *,
        idle_s: float,
        key: Key | None,
        observers: Sequence[Observer] = (),
    ) -> None:
        """`key` opened it, if it took one. `observers` are those of the exchange whose place it takes."""
        self.key = key
        self._client = client
        self._upstream = upstream
        self._idle_s = idle_s
        self._observers = observers
        self._moved = client.listener.clock()
        self._client_ended = False
        self._upstream_ended = False

    def request_received(self, data: bytes) -> None:
        self._moved = self._client.listener.clock()
        self._upstream.write(data)

    def response_received(self, data: bytes) -> None:
        self._moved = self._client.listener.clock()
        self._client.write(data)

    def client_eof(self) -> bool:
        self._client_ended = True
        return self._half_closed(self._upstream.transport)

    def upstream_eof(self) -> bool:
        self._upstream_ended = True
        return self._half_closed(self._client.transport)

    def client_gone(self) -> None:
        if self._client_ended:
            self._upstream.pool.finish(self._upstream)
        else:
            self._upstream.abort()
        self._tell_end()

    def upstream_lost(self, error: Exception | None) -> None:
        if error is None:
            self._client.turn_done(keep=False)
        else:
            self._client.abort()
        self._tell_end()

    def client_full(self) -> None:
        self._upstream.pause()

    def client_drained(self) -> None:
        self._upstream.resume()

    def upstream_full(self) -> None:
        self._client.pause(SENDING)

    def upstream_drained(self) -> None:
        self._client.resume(SENDING)

    def sweep(self, now: float) -> None:
        if now - self._moved > self._idle_s:
            self._client.listener.metrics.deadlines["idle"] += 1
            self._client.abort()

    def _tell_end(self) -> None:
        for observer in self._observers:
            observer.on_tunnel_ended()

    def _half_closed(self, other: asyncio.Transport) -> bool:
        """Pass a FIN on. False, which closes, once both sides have sent theirs or FIN cannot be sent (TLS)."""
        if (self._client_ended and self._upstream_ended) or not other.can_write_eof():
            other.close()
            return False
        other.write_eof()
        return True
