"""Keep-alive connections to one upstream: the last one used is the first one taken.

Invariants: a connection is in the pool only after a whole answer to a whole request, with nothing left over; a byte or
a FIN that arrives there ends it; nothing is queued here, a request without an idle connection opens one.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from aiohappyeyeballs import AddrInfoType, start_connection

from gateway.contracts.errors import GatewayError
from gateway.net.dns import LOOKUPS
from gateway.upstream.connection import SMALL_READ_BYTES, UpstreamConnection
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.failures import Failures
from gateway.upstream.tls import ResumingContext

#: Idle connections are closed after this long, or a second before the upstream's own `Keep-Alive: timeout`.
IDLE_LIMIT_S = 30.0
#: How long a closing connection may take to send what is left.
CLOSE_LIMIT_S = 5.0
#: Each further address of a name is tried so many seconds after the one before, while that one is silent (RFC 8305).
NEXT_ADDRESS_S: Final = 0.25
#: OpenSSL's reasons for an answer that is no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


@dataclass(slots=True)
class PoolCounts:
    """The counts of what happened at one upstream so far; read at scrape time."""

    opened: int = 0
    connect_errors: int = 0
    up: bool = True


class Pool:
    """The connections to one endpoint. Used on one event loop only."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self.counts = PoolCounts()
        self.failures = Failures(endpoint, clock=clock)
        self.open: set[UpstreamConnection] = set()
        self.idle: list[UpstreamConnection] = []
        self._clock = clock
        self._closed = False

    @cached_property
    def buffer(self) -> memoryview:
        """Return what long answers are read into, one read at a time."""
        return memoryview(bytearray(SMALL_READ_BYTES))

    def take_idle(self) -> UpstreamConnection | None:
        """Return an idle connection that is alive and silent, or None.

        One system call (about 1 us) checks it: a FIN or a stray answer that waits unread must not meet a request.
        """
        idle = self.idle
        while idle:
            connection = idle.pop()
            if connection.transport.is_closing():
                continue
            if connection.is_stale():
                connection.abort()
                continue
            connection.reused = True
            return connection
        return None

    def return_connection(self, connection: UpstreamConnection, *, idle_timeout_s: float | None) -> None:
        """Take back a connection whose turn ended cleanly; close it if it cannot be used again."""
        if not connection.reused and isinstance(self.endpoint.tls, ResumingContext):
            self.endpoint.tls.keep_session(connection.transport.get_extra_info("ssl_object"))
        connection.end_turn()
        if connection.spoke_first or connection.transport.get_write_buffer_size():
            # The answer came before the request was read: another may follow, and what is unsent may never be.
            connection.abort()
            return
        if self._closed or connection.transport.is_closing():
            connection.transport.close()
            return
        if connection.paused:
            connection.resume(connection.paused)
        connection.idle_since = self._clock()
        if idle_timeout_s is not None:
            connection.idle_limit_s = min(IDLE_LIMIT_S, max(idle_timeout_s - 1.0, 0.0))
        self.idle.append(connection)

    async def connect(self) -> UpstreamConnection:
        """Open a new connection, TLS included. Raises GatewayError (upstream_error, upstream_timeout)."""
        endpoint, silent = self.endpoint, "the name server of its host did not answer"
        try:
            async with asyncio.timeout(endpoint.connect_s):
                addresses = await LOOKUPS.resolve_addresses(endpoint.host)
                silent = "it did not accept a connection"
                connection = await self._connect_first(addresses)
        except TimeoutError:
            self._record_failure()
            text = f"Upstream {endpoint.name!r} could not be reached: {silent} within {endpoint.connect_s:g} s."
            raise GatewayError("upstream_timeout", text) from None
        except (OSError, ssl.CertificateError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                text = "This gateway has no open file left for another upstream connection; try again shortly."
                raise GatewayError("overloaded", text, retry_after_s=1) from None
            self._record_failure()
            raise GatewayError(
                "upstream_error", f"Upstream {endpoint.name!r} could not be reached: {_describe_error(error)}."
            ) from None
        self.counts.opened += 1
        self.counts.up = True
        connection.idle_limit_s = IDLE_LIMIT_S
        if not connection.is_lost:
            self.open.add(connection)
        return connection

    async def _connect_first(self, addresses: Sequence[str]) -> UpstreamConnection:
        """Connect to the first address that accepts, without waiting for silent ones. Raises OSError."""
        endpoint, loop = self.endpoint, asyncio.get_running_loop()
        where: dict[str, Any] = {"host": addresses[0], "port": endpoint.port}
        if len(addresses) > 1:
            where = {"sock": await _open_first_socket(addresses, endpoint.port)}
        name = (endpoint.server_name or endpoint.host) if endpoint.tls else None
        _, connection = await loop.create_connection(
            lambda: UpstreamConnection(self), ssl=endpoint.tls, server_hostname=name, **where
        )
        return connection

    def forget_connection(self, connection: UpstreamConnection) -> None:
        """Forget a connection that is gone."""
        self.open.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def end_old_connections(self, lost: UpstreamConnection) -> None:
        """End the idle connections that have waited since `lost` did, or for longer: it was lost when it was used.

        What forgot it, mostly a balancer, has forgotten them, too, and each would cost a request.
        """
        for connection in [c for c in self.idle if c.idle_since <= lost.idle_since]:
            self.idle.remove(connection)
            connection.abort()

    def finish(self, connection: UpstreamConnection) -> None:
        """End a connection that is not to be used again, after what is unsent, within bounds."""
        connection.turn = None
        connection.idle_since = self._clock()
        connection.transport.close()

    def sweep(self, now: float) -> None:
        """Close what has been idle for too long, and end what does not finish closing."""
        self.failures.log_suppressed()
        for connection in [c for c in self.open if c.turn is None and c.transport.is_closing()]:
            if now - connection.idle_since > CLOSE_LIMIT_S:
                connection.abort()
        for connection in [c for c in self.idle if now - c.idle_since > c.idle_limit_s]:
            self.idle.remove(connection)
            connection.transport.close()

    def close(self) -> None:
        """Close idle connections now and busy ones when their turn ends. Idempotent."""
        self._closed = True
        self.failures.flush()
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.transport.close()

    def _record_failure(self) -> None:
        self.counts.connect_errors += 1
        self.counts.up = False


async def _open_first_socket(addresses: Sequence[str], port: int) -> socket.socket:
    """Return a connection to the first of several addresses that accepts. Raises OSError."""
    places: list[AddrInfoType] = []
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        places.append((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)))
    return await start_connection(places, happy_eyeballs_delay=NEXT_ADDRESS_S)


def _describe_error(error: OSError | ssl.CertificateError) -> str:
    """Return a short cause without addresses or paths."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "it does not speak TLS at this port; its base_url may have to begin with http:// instead of https://"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'handshake error'})"
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror or 'no reason given'}): check the host of its base_url"
    if type(error) is OSError and not error.errno:
        return "none of its addresses accepts a connection, for several reasons"
    if error.errno == errno.ECONNREFUSED:
        return "Connection refused, as nothing listens there: start it, or check its base_url"
    if not error.errno:
        return error.strerror or type(error).__name__
    return os.strerror(error.errno)  # asyncio's own texts name the address
