"""Keep-alive connections to one MCP server over HTTP, or to one issuer: as upstreams' are, to allowed addresses."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import httpx2

from gateway.upstream.call import UpstreamCall
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import IDLE_LIMIT_S, Pool

_CONNECT_S: Final = 10.0
#: Idle connections that are kept.
_MOST_IDLE: Final = 20


class GuardedPool(Pool):
    """The connections to one origin. `allowed` returns the addresses that its host may have now."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        allowed: Callable[[str], Awaitable[Sequence[str]]],
    ) -> None:
        endpoint = Endpoint(name=host, host=host, port=port, authority=b"", tls=tls, connect_s=_CONNECT_S)
        super().__init__(endpoint, clock=asyncio.get_running_loop().time)
        self._allowed = allowed

    def take_idle(self) -> UpstreamConnection | None:
        while (connection := super().take_idle()) is not None:
            if self._clock() - connection.idle_since < connection.idle_limit_s:
                return connection
            connection.abort()
        return None

    async def connect(self) -> UpstreamConnection:
        """Connect to the first allowed address that accepts. Raises httpx2.ConnectError."""
        try:
            async with asyncio.timeout(self.endpoint.connect_s):
                connection = await self._connect_first(await self._allowed(self.endpoint.host))
        except TimeoutError:
            raise httpx2.ConnectError("it cannot be reached in time") from None
        except OSError as error:
            raise httpx2.ConnectError(_describe_connect_error(error)) from None
        connection.idle_limit_s = IDLE_LIMIT_S
        if not connection.is_lost:
            self.open.add(connection)
        return connection

    def return_connection(self, connection: UpstreamConnection, *, idle_timeout_s: float | None) -> None:
        super().return_connection(connection, idle_timeout_s=idle_timeout_s)
        if len(self.idle) > _MOST_IDLE:
            self.idle.pop(0).abort()

    def end(self) -> None:
        """End all connections now; each waiting caller gets the error."""
        for connection in tuple(self.open):
            if isinstance(connection.turn, UpstreamCall):
                connection.turn.close()
        self.close()


def _describe_connect_error(error: OSError) -> str:
    """Return the text of a failed connection, in our words only: the system's own may name addresses."""
    if isinstance(error, ssl.SSLError):
        return "its certificate or its TLS is not valid"
    return "it does not accept connections"
