"""HTTP to MCP servers and to the issuers of tokens for them: the allowed addresses, and the limits of answers.

1. The address of a connection is judged when it is made: a name that changes its address gains nothing.
2. Proxies of the environment are not used, and nothing is unpacked: a small answer stays small.
3. Failures are reported in our own words, never with a URL or a header, which may contain a credential.
"""

import ipaddress
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Self, TypeAlias

import httpx2

from gateway.errors import GatewayError
from gateway.http.fields import TOKEN, VALUE
from gateway.http.public_address import is_public
from gateway.json_values import SERVICE_VALUES_LIMIT, ValueCounter
from gateway.mcp.transport.guarded_pool import GuardedPool
from gateway.upstream.call import UpstreamCall
from gateway.upstream.lookups import LOOKUPS, is_address

# Addresses where a machine's provider answers with the machine's own credentials, and no MCP server runs.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "::/128", "0.0.0.0/8")
)
#: The beginning of a failure's text after which the server's effects are unknown.
CLOSED = "Connection closed"
#: The head of a request, as `gateway.http` reads it.
_HEAD: Final = re.compile(rb"[A-Z]++ [!-~]++ HTTP/1\.1\r\n(?:" + TOKEN + rb"++:" + VALUE + rb"*+\r\n)++\r\n")
_PORTS: Final = {"http": 80, "https": 443}

#: The addresses of a name; raises OSError.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
_Origin: TypeAlias = tuple[str, str, int]


class HeadError(ValueError):
    """The error of a request head that HTTP cannot carry. Nothing was sent."""


class GuardedNetwork(httpx2.AsyncBaseTransport):
    """The connections for one server. `max_bytes` limits every answer but event streams: `messages` limits events."""

    def __init__(self, *, private_networks: bool, max_bytes: int, resolve: Resolve | None = None) -> None:
        self._private_networks = private_networks
        self._max_bytes = max_bytes
        self._resolve = resolve or LOOKUPS.addresses
        self._tls = httpx2.create_ssl_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        self._pools: dict[_Origin, GuardedPool] = {}

    async def __aenter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        for pool in self._pools.values():
            pool.end()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its response.

        Raises httpx2.ConnectError where nothing was sent, httpx2.ReadError where something may have been.
        """
        url, times = request.url, request.extensions.get("timeout", {})
        if url.scheme not in _PORTS:
            raise httpx2.ConnectError("its address begins with neither http:// nor https://")
        origin = url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
        try:
            whole = written(request.method, url.raw_path, request.headers.raw) + await request.aread()
        except HeadError:
            raise httpx2.ReadError("the request has a header that HTTP cannot carry") from None
        read_s = times.get("read")
        call = UpstreamCall(
            self._pool(origin),
            method=request.method.encode(),
            silence_s=math.inf if read_s is None else read_s,
            is_once=True,  # it may be a call, which may run as soon as it is sent
        )
        try:
            head = await call.send(whole)
        except BaseException as error:
            call.close()
            if isinstance(error, GatewayError):
                raise httpx2.ReadError(f"{CLOSED}: the server gave no answer") from None
            raise
        body = _Body(call)
        response = httpx2.Response(
            head.status, headers=[(field.name, field.value) for field in head.fields], stream=body
        )
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            call.close()
            raise httpx2.ReadError("the server packed its answer, which it was not asked for")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            body.limit_bytes = self._max_bytes
        return response

    def _pool(self, origin: _Origin) -> GuardedPool:
        pool = self._pools.get(origin)
        if pool is None:
            scheme, host, port = origin
            tls = self._tls if scheme == "https" else None
            pool = self._pools[origin] = GuardedPool(host, port, tls=tls, allowed=self._allowed)
        return pool

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


class _Body(httpx2.AsyncByteStream):
    """An answer's body. Its problems are a StreamError, which the SDK takes for that of one answer only."""

    def __init__(self, call: UpstreamCall) -> None:
        self._call = call
        self.limit_bytes: int | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes, counter = 0, ValueCounter()
        try:
            while piece := await self._call.more():
                size_bytes += len(piece)
                if self.limit_bytes is not None:
                    counter.feed(piece)
                    if counter.count > SERVICE_VALUES_LIMIT:
                        raise httpx2.StreamError(f"it holds more than {SERVICE_VALUES_LIMIT} values")
                    if size_bytes > self.limit_bytes:
                        raise httpx2.StreamError(f"it is longer than {self.limit_bytes} bytes")
                yield piece
        except GatewayError:
            raise httpx2.StreamError(f"{CLOSED}: the answer broke off") from None

    async def aclose(self) -> None:
        self._call.close()


def written(method: str, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request. Raises HeadError."""
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    head = b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target, lines)
    if _HEAD.fullmatch(head) is None or head.count(b"\r\n") != len(fields) + 2:
        raise HeadError
    return head


def allows(host: str, address: str, *, private_networks: bool) -> bool:
    """Return whether a connection to `host` may be one to `address`: an address, or localhost, is meant as written."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if any(ip in network for network in _NEVER):
        return False
    name = host.strip("[]").rstrip(".").lower()
    return (
        private_networks or name == "localhost" or name.endswith(".localhost") or is_address(name) or is_public(str(ip))
    )
