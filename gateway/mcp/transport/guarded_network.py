"""HTTP to MCP servers and to the issuers of tokens for them: the allowed addresses, and the limits of answers.

1. The address of a connection is judged when it is made: a name that changes its address gains nothing.
2. Proxies of the environment are not used, and nothing is unpacked: a small answer stays small.
3. Failures are reported in our own words, never with a URL or a header, which may contain a credential.
"""

import ipaddress
import math
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cached_property
from typing import Final, Self, TypeAlias

import httpx2

from gateway.contracts.errors import GatewayError
from gateway.http.fields import TOKEN, VALUE
from gateway.http.response_head import ResponseHead
from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT, ValueCounter
from gateway.mcp.transport.guarded_pool import GuardedPool
from gateway.net.dns import LOOKUPS, is_address
from gateway.net.public_address import METADATA_NETWORKS, is_public
from gateway.upstream.call import UpstreamCall

#: Addresses of no server: a machine's provider answers there with the machine's own credentials, or nothing does.
_NEVER: Final = (*METADATA_NETWORKS, ipaddress.ip_network("::/128"), ipaddress.ip_network("0.0.0.0/8"))
#: The beginning of a failure's text after which the server's effects are unknown.
CLOSED = "Connection closed"
#: The head of a request, as `gateway.http` reads it.
_HEAD: Final = re.compile(rb"[A-Z]++ [!-~]++ HTTP/1\.1\r\n(?:" + TOKEN + rb"++:" + VALUE + rb"*+\r\n)++\r\n")
_PORTS: Final = {"http": 80, "https": 443}
#: How long the end of a body may take behind what was wanted of it.
_REST_S: Final = 1.0

#: The addresses of a name; raises OSError.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
#: Scheme, host and port.
Origin: TypeAlias = tuple[str, str, int]


class HeadError(httpx2.ReadError):
    """The error of a request head that HTTP cannot carry. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__("the request has a header that HTTP cannot carry")


class GuardedNetwork(httpx2.AsyncBaseTransport):
    """The connections for one server. `max_bytes` limits every answer but event streams: `messages` limits events."""

    def __init__(self, *, private_networks: bool, max_bytes: int, resolve: Resolve | None = None) -> None:
        self._private_networks = private_networks
        self._max_bytes = max_bytes
        self._resolve = resolve or LOOKUPS.resolve_addresses
        self._pools: dict[Origin, GuardedPool] = {}

    async def __aenter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        for pool in self._pools.values():
            pool.end()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of a `httpx2.AsyncClient` and return its response. Raises what `ask` does."""
        whole = encode_request_head(request.method, request.url.raw_path, request.headers.raw) + await request.aread()
        silence_s = request.extensions.get("timeout", {}).get("read")
        answer = await self.ask(get_origin(request.url), request.method, whole, silence_s=silence_s)
        fields = [(field.name, field.value) for field in answer.fields]
        return httpx2.Response(answer.status, headers=fields, stream=_Body(answer))

    async def ask(self, origin: Origin, method: str, whole: bytes, *, silence_s: float | None = None) -> "HttpAnswer":
        """Send a request, which is `written` and its body, and return the answer, whose body is still to be read.

        It is sent once: it may be a call, which may run as soon as it is sent. Raises httpx2.ConnectError where nothing
        was sent, httpx2.ReadError where something may have been.
        """
        call = UpstreamCall(
            self._get_pool(origin),
            method=method.encode(),
            silence_s=math.inf if silence_s is None else silence_s,
            is_once=True,
        )
        try:
            head = await call.send(whole)
        except BaseException as error:
            call.close()
            if isinstance(error, GatewayError):
                raise httpx2.ReadError(f"{CLOSED}: the server gave no answer") from None
            raise
        if (head.find_value(b"content-encoding") or b"identity").lower() != b"identity":
            call.close()
            raise httpx2.ReadError("the server compressed its answer although the request did not allow it")
        return HttpAnswer(head, call, limit_bytes=None if head.event_stream else self._max_bytes)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        tls = httpx2.create_ssl_context()  # reads all certificates, which takes 30 ms and 0.8 MB
        tls.set_alpn_protocols(["http/1.1"])
        return tls

    def _get_pool(self, origin: Origin) -> GuardedPool:
        """Return the connections to an origin, which are made at its first use."""
        pool = self._pools.get(origin)
        if pool is None:
            scheme, host, port = origin
            tls = self._tls if scheme == "https" else None
            pool = self._pools[origin] = GuardedPool(host, port, tls=tls, allowed=self._resolve_allowed)
        return pool

    async def _resolve_allowed(self, host: str) -> Sequence[str]:
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


class HttpAnswer:
    """An answer of a server: its status and fields, and its body as it comes. Close it, whatever happens.

    Problems of the body are a httpx2.StreamError. `limit_bytes` of None: the body has no end, as a stream of events.
    """

    def __init__(self, head: ResponseHead, call: UpstreamCall, *, limit_bytes: int | None) -> None:
        self.status, self.fields = head.status, head.fields
        self._head = head
        self._call = call
        self._limit_bytes = limit_bytes

    def get_field(self, name: bytes) -> str:
        """Return the value of a field by its name in lower case; "": there is none."""
        return (self._head.find_value(name) or b"").decode("latin-1")

    async def read(self) -> bytes:
        """Return the body. Raises httpx2.StreamError."""
        return b"".join([piece async for piece in self.iterate_pieces()])

    async def iterate_pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces. Raises httpx2.StreamError."""
        size_bytes, counter = 0, ValueCounter()
        try:
            while piece := await self._call.read_more():
                size_bytes += len(piece)
                if self._limit_bytes is not None:
                    counter.feed(piece)
                    if counter.count > SERVICE_VALUES_LIMIT:
                        raise httpx2.StreamError(f"it holds more than {SERVICE_VALUES_LIMIT} values")
                    if size_bytes > self._limit_bytes:
                        raise httpx2.StreamError(f"it is longer than {self._limit_bytes} bytes")
                yield piece
        except GatewayError:
            raise httpx2.StreamError(f"{CLOSED}: the answer broke off") from None

    def leave(self) -> None:
        """End the reading. The connection is used again if the body ends soon."""
        self._call.leave(within_s=_REST_S)

    def close(self) -> None:
        """End the answer: a connection that it is not read from to its end is closed."""
        self._call.close()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, for a `httpx2.AsyncClient`."""

    def __init__(self, answer: HttpAnswer) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.iterate_pieces()

    async def aclose(self) -> None:
        self._answer.close()


def get_origin(url: httpx2.URL) -> Origin:
    """Return the scheme, the host and the port of a URL. Raises httpx2.ConnectError for another scheme than HTTP's."""
    if url.scheme not in _PORTS:
        raise httpx2.ConnectError("its address begins with neither http:// nor https://")
    return url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]


def encode_request_head(method: str, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request. Raises HeadError, a httpx2.ReadError, for one that HTTP cannot carry."""
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
