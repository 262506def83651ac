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

    def on_request_bytes(self, data: bytes) -> None:
        self._moved = self._client.listener.clock()
        self._upstream.write(data)

    def on_response_bytes(self, data: bytes) -> None:
        self._moved = self._client.listener.clock()
        self._client.write(data)

    def on_client_eof(self) -> bool:
        self._client_ended = True
        return self._forward_fin(self._upstream.transport)

    def on_upstream_eof(self) -> bool:
        self._upstream_ended = True
        return self._forward_fin(self._client.transport)

    def on_client_gone(self) -> None:
        """End the upstream's side: cleanly if the client had sent its FIN, else at once."""
        if self._client_ended:
            self._upstream.pool.finish(self._upstream)
        else:
            self._upstream.abort()
        self._notify_observers()

    def on_upstream_lost(self, error: Exception | None) -> None:
        """End the client's side: cleanly after a FIN of the upstream, else at once."""
        if error is None:
            self._client.end_transaction(keep=False)
        else:
            self._client.abort()
        self._notify_observers()

    def on_client_full(self) -> None:
        self._upstream.pause()

    def on_client_drained(self) -> None:
        self._upstream.resume()

    def on_upstream_full(self) -> None:
        self._client.pause(SENDING)

    def on_upstream_drained(self) -> None:
        self._client.resume(SENDING)

    def sweep(self, now: float) -> None:
        """End the tunnel if no byte has moved for the idle time."""
        if now - self._moved > self._idle_s:
            self._client.listener.metrics.deadlines["idle"] += 1
            self._client.abort()

    def _notify_observers(self) -> None:
        for observer in self._observers:
            observer.on_tunnel_ended()

    def _forward_fin(self, other: asyncio.Transport) -> bool:
        """Forward a FIN. Return False, which closes, if both sides have sent theirs or FIN cannot be sent."""
        if (self._client_ended and self._upstream_ended) or not other.can_write_eof():
            other.close()
            return False
        other.write_eof()
        return True
