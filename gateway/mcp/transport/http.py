"""The transport of a server over streamable HTTP: its headers and tokens, and the treatment of each failure.

1. A request that fails is answered with an error of the protocol, so that it ends one call and not the connection.
2. The connection ends when the server's address accepts no connection any more, when the server ended the session, or
   when it does not take a message that is no request: the SDK sends nothing else meanwhile.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
import orjson
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, RequestId

from gateway.contracts.plugin import Clock
from gateway.contracts.store import Json
from gateway.mcp.transport.guarded_network import CLOSED, GuardedNetwork
from gateway.mcp.transport.issuer import IssuerError
from gateway.mcp.transport.messages import is_request, strictly
from gateway.mcp.transport.oauth import Tokens
from gateway.mcp.transport.requests import Answers, Requests
from gateway.mcp.types import Endpoint, Incoming, Streams

MAX_BYTES = 32 << 20  # of one answer or event, as of a line over standard output
#: How long a server may take to accept a message that is no request: an answer to it, or a notification.
ACCEPT_S = 30.0
_FAREWELL_S = 2.0
#: The id of the request that a task has posted.
_POSTED: ContextVar[RequestId | None] = ContextVar("posted", default=None)


class HttpTransport:
    """A `types.Channel` over HTTP, for one connection; `lost` gets the reason why it cannot go on."""

    skipped_lines = 0
    stderr = ()
    returncode = None

    def __init__(
        self, endpoint: Endpoint, *, lost: Callable[[str], None], clock: Clock, accept_limit_s: float = ACCEPT_S
    ) -> None:
        self._endpoint = endpoint
        self._accept_limit_s = accept_limit_s
        self._tell_lost = lost
        self._clock = clock
        self._resources = AsyncExitStack()
        self._received: _Received | None = None

    async def __aenter__(self) -> Streams:
        endpoint = self._endpoint
        web = GuardedNetwork(private_networks=endpoint.private_networks, max_bytes=MAX_BYTES)
        requests = Requests()
        answering = _Answering(
            web,
            tokens=self._tokens(web),
            accept_limit_s=self._accept_limit_s,
            requests=requests,
            lost=self._lost,
        )
        client = _Client(
            endpoint.url,
            transport=answering,
            headers={**endpoint.headers, "Accept-Encoding": "identity"},
            timeout=None,  # a call has its own time, a stream has none, and a connection that of its pool
            trust_env=False,
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            read, write = await stack.enter_async_context(
                streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=MAX_BYTES)
            )
            self._received = _Received(read)
            self._resources = stack.pop_all()
        return self._received, Answers(write, requests)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            await self._resources.__aexit__(kind, error, trace)
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # answers that came after the end
        # A connection that ends cancels the code in it, which is no failure to report; an exception of that code is.
        return not isinstance(error, Exception)

    def _tokens(self, web: GuardedNetwork) -> Tokens | None:
        if self._endpoint.oauth is None:
            return None
        resource = str(httpx2.URL(self._endpoint.url).copy_with(query=None, fragment=None))
        return Tokens(self._endpoint.oauth, resource=resource, web=web, clock=self._clock)

    def _lost(self, reason: str) -> None:
        """End the SDK's stream of messages, because the SDK would go on; report the reason."""
        self._tell_lost(reason)
        if self._received is not None:
            self._received.end()


class _Received:
    """The SDK's stream of messages from a server (`types.Incoming`), which may also be ended from outside."""

    def __init__(self, read: Incoming) -> None:
        self._read = read
        self._receiving = anyio.CancelScope()
        self._is_ended = False

    def end(self) -> None:
        """End the stream. Nothing that comes later is received."""
        self._is_ended = True
        self._receiving.cancel()

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream."""
        if not self._is_ended:
            with anyio.CancelScope() as self._receiving:
                return await self._read.receive()
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class _Client(httpx2.AsyncClient):
    """A client of one address, which is read once and not for each request."""

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._text, self._url = url, httpx2.URL(url)

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:
        return super().build_request(method, self._url if url == self._text else url, **parts)


class _Answering(httpx2.AsyncBaseTransport):
    """The sender of requests, with a token if there are any; it answers failed requests itself."""

    def __init__(
        self,
        web: GuardedNetwork,
        *,
        tokens: Tokens | None,
        accept_limit_s: float,
        requests: Requests,
        lost: Callable[[str], None],
    ) -> None:
        self._web = web
        self._tokens = tokens
        self._accept_limit_s = accept_limit_s
        self._requests = requests
        self._lost = lost

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        message = orjson.loads(request.content) if request.method == "POST" else None
        is_told = message is not None and not is_request(message)
        limit_s = self._accept_limit_s if is_told else _FAREWELL_S if request.method == "DELETE" else None
        try:
            async with asyncio.timeout(limit_s):
                response = await self._sent(request)
        except httpx2.ConnectError as error:
            self._lost(str(error))
            return _failure(503, f"{CLOSED}: {error}", code=CONNECTION_CLOSED)
        except httpx2.ReadError as error:
            return _failure(502, str(error), code=CONNECTION_CLOSED)
        except IssuerError as error:
            return _failure(401, f"no token for it: {error}")
        except TimeoutError:
            if is_told:
                self._lost(f"it did not accept a message within {limit_s:g} s")
            return _failure(504, "the server gave no answer")
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            self._lost("the server has ended the session")
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        if response.status_code >= 400 and not is_json:
            await response.aclose()
            return _failure(response.status_code, f"it answered with HTTP {response.status_code}")
        return strictly(
            response,
            request_id=_id_of(request.method, message),
            limit_bytes=MAX_BYTES,
            requests=self._requests,
            lost=self._lost,
        )

    async def aclose(self) -> None:
        await self._web.aclose()

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        if self._tokens is None:
            return await self._web.handle_async_request(request)
        for is_last in (False, True):
            token = await self._tokens.token()
            request.headers["Authorization"] = f"Bearer {token}"
            response = await self._web.handle_async_request(request)
            if response.status_code != 401 or is_last:
                break
            await response.aclose()
            self._tokens.refused(token)
        return response


def _id_of(method: str, message: Json | None) -> RequestId | None:
    """Return the id of the request that was posted, or whose stream goes on; None: a notification, or nothing.

    The SDK resumes the stream of a request in the task that posted it, and takes any answer there for the right one.
    """
    if message is not None:
        _POSTED.set(message.get("id"))
    return _POSTED.get() if method in ("POST", "GET") else None


def _failure(status: int, message: str, *, code: int = INTERNAL_ERROR) -> httpx2.Response:
    """Return an answer like that of a server that reports an error; the SDK inserts the id of the request."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, json=error)
