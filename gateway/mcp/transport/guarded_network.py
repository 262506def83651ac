"""HTTP to MCP servers and to the issuers of tokens for them: the allowed addresses, and the limits of answers.

1. The address of a connection is judged when it is made: a name that changes its address gains nothing.
2. Proxies of the environment are not used, and nothing is unpacked: a small answer stays small.
3. Failures are reported in our own words, never with a URL or a header, which may contain a credential.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Self, TypeAlias

import httpcore2
import httpx2

from gateway.http.public_address import is_public
from gateway.json_values import SERVICE_VALUES_LIMIT, ValueCounter

# Addresses where a machine's provider answers with the machine's own credentials, and no MCP server runs.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "::/128", "0.0.0.0/8")
)
# Streams may be silent for hours: the network is asked whether the other side is still there.
_KEEP_ALIVE: tuple[httpcore2.SOCKET_OPTION, ...] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_EVENT_END = re.compile(rb"\n\n|\r\n\r\n|\r\r")
#: The beginning of a failure's text after which the server's effects are unknown.
CLOSED = "Connection closed"


#: The addresses of a name; raises OSError.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]


class GuardedNetwork(httpx2.AsyncBaseTransport):
    """The connections for one server. `max_bytes` limits every answer but event streams, whose events have a limit."""

    def __init__(self, *, private_networks: bool, max_bytes: int, resolve: Resolve | None = None) -> None:
        self._max_bytes = max_bytes
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=None,  # a call is a connection, and calls are limited elsewhere
            max_keepalive_connections=20,
            keepalive_expiry=30.0,
            network_backend=_Network(private_networks=private_networks, resolve=resolve or addresses_of),
            socket_options=_KEEP_ALIVE,
        )

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its response.

        Raises httpx2.ConnectError where nothing was sent, httpx2.ReadError where something may have been.
        """
        url, stream = request.url, request.stream
        assert isinstance(stream, AsyncIterable)
        try:
            answer = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                    headers=request.headers.raw,
                    content=stream,
                    extensions=request.extensions,
                )
            )
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise httpx2.ConnectError(_unreachable(error)) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
            raise httpx2.ReadError(f"{CLOSED}: the server gave no answer") from None
        assert isinstance(answer.stream, AsyncIterable)
        headers = httpx2.Headers(answer.headers)
        is_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
        body = _Body(answer.stream, limit_bytes=None if is_stream else self._max_bytes)
        if headers.get("content-encoding", "identity").lower() != "identity":
            await body.aclose()
            raise httpx2.ReadError("the server packed its answer, which it was not asked for")
        return httpx2.Response(answer.status, headers=headers, stream=body, extensions=answer.extensions)


class _Body(httpx2.AsyncByteStream):
    """An answer's body. Its problems are a StreamError, which the SDK takes for that of one answer only."""

    def __init__(self, stream: AsyncIterable[bytes], *, limit_bytes: int | None) -> None:
        self._stream = stream
        self._limit_bytes = limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes, counter = 0, ValueCounter()
        try:
            async for piece in self._stream:
                size_bytes += len(piece)
                if self._limit_bytes is None:
                    counter = _counted(counter, piece)
                else:
                    counter.feed(piece)
                if counter.count > SERVICE_VALUES_LIMIT:
                    raise httpx2.StreamError(f"it holds more than {SERVICE_VALUES_LIMIT} values")
                if self._limit_bytes is not None and size_bytes > self._limit_bytes:
                    raise httpx2.StreamError(f"it is longer than {self._limit_bytes} bytes")
                yield piece
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
            raise httpx2.StreamError(f"{CLOSED}: the answer broke off") from None

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)  # httpcore's own type of a stream has it, its interface does not
        if close is not None:
            await close()


def _counted(counter: ValueCounter, piece: bytes) -> ValueCounter:
    """Count the values of a piece of an event stream; return the counter. Each event is a text of its own."""
    first, *events = _EVENT_END.split(piece)
    counter.feed(first)
    for event in events:
        if counter.count > SERVICE_VALUES_LIMIT:
            break
        counter = ValueCounter()
        counter.feed(event)
    return counter


class _Network(httpcore2.AsyncNetworkBackend):
    """The TCP network, to allowed addresses only."""

    def __init__(self, *, private_networks: bool, resolve: Resolve) -> None:
        self._private_networks = private_networks
        self._resolve = resolve
        self._tcp = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self._resolve(host)
        except OSError:
            raise httpcore2.ConnectError("its name cannot be resolved") from None
        allowed = [a for a in addresses if allows(host, a, private_networks=self._private_networks)]
        if not allowed:
            meant = any(allows(host, address, private_networks=True) for address in addresses)
            way_out = "write private_networks: true if that is meant" if meant else "no server has a place there"
            raise httpcore2.ConnectError(f"its address is none of the public internet: {way_out}")
        failure: Exception = httpcore2.ConnectError()
        for address in allowed:
            try:
                return await self._tcp.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def addresses_of(host: str) -> list[str]:
    """Return the addresses of a name, each once. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def allows(host: str, address: str, *, private_networks: bool) -> bool:
    """Return whether a connection to `host` may be one to `address`: an address, or localhost, is meant as written."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if any(ip in network for network in _NEVER):
        return False
    name = host.strip("[]").rstrip(".").lower()
    return (
        private_networks
        or name == "localhost"
        or name.endswith(".localhost")
        or _is_address(name)
        or is_public(str(ip))
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _unreachable(error: Exception) -> str:
    """Return the text of a failed connection, in our words only: httpcore's own may name addresses."""
    text = str(error)
    if isinstance(error, httpcore2.ConnectTimeout):
        return "it cannot be reached in time"
    if text.startswith("its "):
        return text
    cause = error
    while cause.__context__ is not None and isinstance(cause.__context__, Exception):
        cause = cause.__context__
    if "CERTIFICATE" in str(cause).upper() or "SSL" in type(cause).__name__:
        return "its certificate or its TLS is not valid"
    return "it does not accept connections"
