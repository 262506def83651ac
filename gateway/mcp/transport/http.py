"""The transport of a server over streamable HTTP: its headers and tokens, and the treatment of each failure.

1. A request that fails is answered with an error of the protocol, so that it ends one call and not the connection.
2. The connection ends when the server's address accepts no connection any more, when the server ended the session, or
   when it does not take a message that is no request: the SDK sends nothing else meanwhile.
3. A redirect within the origin of the address (307, 308) is followed, and what comes later goes there at once. A call
   of a tool is never sent again: by its first answer it may have run.
4. A request that is cancelled by a message, as in the older era, is over: its connection is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Final

import anyio
import httpx2
import orjson
from anyio.abc import ObjectReceiveStream
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
#: Redirects that are followed in the life of a connection.
REDIRECTS: Final = 5
_REDIRECTED: Final = (307, 308)
_CALL: Final = "tools/call"
_CANCELLED: Final = "notifications/cancelled"
#: The request that a task has posted.
_POSTED: "ContextVar[_Post | None]" = ContextVar("posted", default=None)


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
            answering,
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


class _Received(ObjectReceiveStream[SessionMessage | Exception]):
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


class _Client(httpx2.AsyncClient):
    """A client of one address, which is read once and not for each request; or of the one that it redirects to."""

    def __init__(self, url: str, answering: "_Answering", **settings: Any) -> None:
        super().__init__(transport=answering, **settings)
        self._answering = answering
        self._text, self._url = url, httpx2.URL(url)

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:
        place = (self._answering.moved or self._url) if url == self._text else url
        return super().build_request(method, place, **parts)


class _Post:
    """A request that was posted, until its answer has been read. `limit` is that of the wait for its head."""

    def __init__(self, request_id: RequestId) -> None:
        self.request_id = request_id
        self.limit: asyncio.Timeout | None = None
        self.stream: httpx2.AsyncByteStream | None = None
        self.is_cancelled = False

    async def cancel(self) -> None:
        """End the request: nothing more is read of its answer."""
        self.is_cancelled = True
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(0.0)
        if self.stream is not None:
            await self.stream.aclose()


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
        self._posts: dict[RequestId, _Post] = {}
        self._redirects = 0
        self.moved: httpx2.URL | None = None  # where the server is, as it says itself

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        message: Json | None = orjson.loads(await request.aread()) if request.method == "POST" else None
        if message is not None:
            _POSTED.set(_Post(message["id"]) if is_request(message) else None)
        post = _POSTED.get() if request.method in ("POST", "GET") else None
        if post is not None and post.is_cancelled:  # its stream would be resumed
            return _failure(409, "the request was cancelled")
        if post is not None:
            self._posts[post.request_id] = post
        try:
            response = await self._answer(request, message, post)
        finally:
            if post is not None and post.stream is None:
                self._end(post)
        if message is not None and message.get("method") == _CANCELLED:
            await self._cancel(message.get("params"))
        return response

    async def _answer(self, request: httpx2.Request, message: Json | None, post: _Post | None) -> httpx2.Response:
        is_told = message is not None and not is_request(message)
        limit_s = self._accept_limit_s if is_told else _FAREWELL_S if request.method == "DELETE" else None
        try:
            async with asyncio.timeout(limit_s) as limit:
                if post is not None:
                    post.limit = limit
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
        finally:
            if post is not None:
                post.limit = None
        if response.status_code in _REDIRECTED:
            return await self._redirected(request, message, post, response)
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            self._lost("the server has ended the session")
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        if response.status_code >= 400 and not is_json:
            await response.aclose()
            return _failure(response.status_code, f"it answered with HTTP {response.status_code}")
        response = strictly(
            response,
            request_id=None if post is None else post.request_id,
            limit_bytes=MAX_BYTES,
            requests=self._requests,
            lost=self._lost,
            is_over=lambda: post is not None and post.is_cancelled,
        )
        if post is not None:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            post.stream = response.stream
            response.stream = _Posted(response.stream, ended=partial(self._end, post))
        return response

    async def _redirected(
        self, request: httpx2.Request, message: Json | None, post: _Post | None, response: httpx2.Response
    ) -> httpx2.Response:
        if message is not None and message.get("method") == _CALL:
            await response.aclose()
            return _failure(502, "it redirects the call, which is not sent again, as it may have run")
        if (place := _place_within(request.url, response.headers.get("location", ""))) is None:
            return response  # the SDK says where it leads, and does not follow
        await response.aclose()
        if self._redirects == REDIRECTS:
            return _failure(502, "it redirects again and again: write the address of the server itself in url")
        self._redirects += 1
        self.moved = place
        again = httpx2.Request(
            request.method, place, headers=request.headers, content=request.content, extensions=request.extensions
        )
        return await self._answer(again, message, post)

    async def _cancel(self, params: object) -> None:
        """End the request that a message has cancelled."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(request_id, str | int) and (post := self._posts.get(request_id)) is not None:
            await post.cancel()

    def _end(self, post: _Post) -> None:
        if self._posts.get(post.request_id) is post:
            del self._posts[post.request_id]

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


class _Posted(httpx2.AsyncByteStream):
    """The answer to a request that was posted. `ended` is called when it has been read, or is given up."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        self._ended()
        await self._stream.aclose()


def _place_within(url: httpx2.URL, location: str) -> httpx2.URL | None:
    """Return where a redirect leads, if that is at the same origin, or at the same name with TLS; else None."""
    try:
        place = url.join(location)
    except httpx2.InvalidURL:
        return None
    is_same = (place.scheme, place.host, place.port) == (url.scheme, url.host, url.port)
    is_safer = (url.scheme, url.port, place.scheme, place.port) == ("http", None, "https", None)
    if not location or place.userinfo != url.userinfo or not (is_same or (is_safer and place.host == url.host)):
        return None
    return place


def _failure(status: int, message: str, *, code: int = INTERNAL_ERROR) -> httpx2.Response:
    """Return an answer like that of a server that reports an error; the SDK inserts the id of the request."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, json=error)
