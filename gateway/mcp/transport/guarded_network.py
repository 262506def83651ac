"""HTTP to MCP servers and to the issuers of tokens for them: the allowed addresses, and the limits of answers.

1. The address of a connection is judged when it is made: a name that changes its address gains nothing.
2. Proxies of the environment are not used, and nothing is unpacked: a small answer stays small.
3. Failures are reported in our own words, never with a URL or a header, which may contain a credential.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Self, TypeAlias

import httpx2

from gateway.http.public_address import is_public
from gateway.json_values import SERVICE_VALUES_LIMIT, ValueCounter
from gateway.mcp.transport.web_connection import Answer, BrokenError, HeadError, WebConnection, written

# Addresses where a machine's provider answers with the machine's own credentials, and no MCP server runs.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "::/128", "0.0.0.0/8")
)
_EVENT_END = re.compile(rb"\n\n|\r\n\r\n|\r\r")
#: The beginning of a failure's text after which the server's effects are unknown.
CLOSED = "Connection closed"
#: Idle connections to one origin, and how long one is kept.
_MOST_IDLE: Final = 20
_IDLE_S: Final = 30.0
_PORTS: Final = {"http": 80, "https": 443}

#: The addresses of a name; raises OSError.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
_Origin: TypeAlias = tuple[str, str, int]


class GuardedNetwork(httpx2.AsyncBaseTransport):
    """The connections for one server. `max_bytes` limits every answer but event streams, whose events have a limit."""

    def __init__(self, *, private_networks: bool, max_bytes: int, resolve: Resolve | None = None) -> None:
        self._private_networks = private_networks
        self._max_bytes = max_bytes
        self._resolve = resolve or addresses_of
        self._tls = httpx2.create_ssl_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        self._open: set[WebConnection] = set()
        self._idle: dict[_Origin, list[WebConnection]] = {}  # the last one used at the end

    async def __aenter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        self._idle.clear()
        for connection in tuple(self._open):
            connection.abort()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its response.

        Raises httpx2.ConnectError where nothing was sent, httpx2.ReadError where something may have been.
        """
        url, times = request.url, request.extensions.get("timeout", {})
        if url.scheme not in _PORTS:
            raise httpx2.ConnectError("its address begins with neither http:// nor https://")
        origin = url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
        try:
            head = written(request.method, url.raw_path, request.headers.raw)
        except HeadError:
            raise httpx2.ReadError("the request has a header that HTTP cannot carry") from None
        whole = head + await request.aread()
        connection = self._taken(origin) or await self._connected(origin, wait_s=times.get("connect"))
        try:
            answer = await connection.ask(whole, method=request.method, wait_s=times.get("read"))
        except BaseException as error:
            connection.abort()
            if isinstance(error, BrokenError | TimeoutError):
                raise httpx2.ReadError(f"{CLOSED}: the server gave no answer") from None
            raise
        headers = httpx2.Headers(answer.fields)
        is_stream = headers.get("content-type", "").lower().startswith("text/event-stream")
        limit_bytes = None if is_stream else self._max_bytes
        body = _Body(answer, limit_bytes=limit_bytes, left=lambda: self._left(origin, answer))
        if headers.get("content-encoding", "identity").lower() != "identity":
            await body.aclose()
            raise httpx2.ReadError("the server packed its answer, which it was not asked for")
        return httpx2.Response(answer.head.status, headers=headers, stream=body)

    def _taken(self, origin: _Origin) -> WebConnection | None:
        """Return the idle connection that was used last, if one still is usable."""
        idle, now_s = self._idle.get(origin, []), asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.rests_until_s > now_s and connection.is_usable():
                return connection
            connection.abort()
        return None

    def _left(self, origin: _Origin, answer: Answer) -> None:
        """Keep the connection of an answer that is read, if it may carry another request."""
        connection = answer.connection
        if not answer.leaves_clean or connection not in self._open:
            connection.abort()
            return
        idle_s = _IDLE_S if answer.head.idle_timeout_s is None else min(_IDLE_S, answer.head.idle_timeout_s - 1.0)
        connection.rests_until_s = asyncio.get_running_loop().time() + idle_s
        idle = self._idle.setdefault(origin, [])
        idle.append(connection)
        if len(idle) > _MOST_IDLE:
            idle.pop(0).abort()

    async def _connected(self, origin: _Origin, *, wait_s: float | None) -> WebConnection:
        """Connect to an allowed address of a host. Raises httpx2.ConnectError."""
        try:
            async with asyncio.timeout(wait_s):
                return await self._first(await self._allowed(origin[1]), origin)
        except TimeoutError:
            raise httpx2.ConnectError("it cannot be reached in time") from None
        except OSError as error:
            raise httpx2.ConnectError(_unreachable(error)) from None

    async def _allowed(self, host: str) -> Sequence[str]:
        """Return the addresses of a host that a connection may lead to. Raises httpx2.ConnectError for none."""
        try:
            addresses = await self._resolve(host)
        except OSError:
            raise httpx2.ConnectError("its name cannot be resolved") from None
        allowed = [a for a in addresses if allows(host, a, private_networks=self._private_networks)]
        if not allowed:
            meant = any(allows(host, address, private_networks=True) for address in addresses)
            way_out = "write private_networks: true if that is meant" if meant else "no server has a place there"
            raise httpx2.ConnectError(f"its address is none of the public internet: {way_out}")
        return allowed

    async def _first(self, addresses: Sequence[str], origin: _Origin) -> WebConnection:
        """Connect to the first of some addresses that accepts. Raises OSError."""
        scheme, host, port = origin
        tls, failure = self._tls if scheme == "https" else None, OSError()
        for address in addresses:
            try:
                return await WebConnection.to(address, port, tls=tls, host=host, among=self._open)
            except OSError as error:
                failure = error
        raise failure


class _Body(httpx2.AsyncByteStream):
    """An answer's body. Its problems are a StreamError, which the SDK takes for that of one answer only.

    `left` is called once it is read, or will not be.
    """

    def __init__(self, answer: Answer, *, limit_bytes: int | None, left: Callable[[], None]) -> None:
        self._answer = answer
        self._limit_bytes = limit_bytes
        self._leave: Callable[[], None] | None = left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes, counter = 0, ValueCounter()
        try:
            async for piece in self._answer.pieces():
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
        except (BrokenError, TimeoutError):
            raise httpx2.StreamError(f"{CLOSED}: the answer broke off") from None

    async def aclose(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


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


def _unreachable(error: OSError) -> str:
    """Return the text of a failed connection, in our words only: the system's own may name addresses."""
    if isinstance(error, ssl.SSLError):
        return "its certificate or its TLS is not valid"
    return "it does not accept connections"
