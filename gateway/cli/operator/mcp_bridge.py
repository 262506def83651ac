"""`gateway mcp serve --stdio`: an MCP server for programs that start one, which relays to a running gateway.

It relays messages and changes none of them, so that a client sees what the gateway offers: tools, questions, progress,
prompts, resources. What the gateway would refuse unread over HTTP is refused here: a line is parsed on its way, and
what two parsers read as two things would leave as one of them. Two things differ between standard streams and HTTP:

1. HTTP repeats parts of a request in headers, by which proxies route it (`Headers`).
2. HTTP has sessions up to the protocol 2025-11-25, and a gateway that was started again knows none of them. The relay
   then opens a new one and repeats the request, which the gateway refused unread (`GatewaySession`).
"""

import asyncio
import io
import sys
from collections.abc import AsyncIterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol, TypeAlias

import anyio
import httpx2
import orjson
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from gateway.cli.operator.remote import get_error_message
from gateway.contracts.errors import GatewayError
from gateway.mcp.transport.guarded_network import GuardedNetwork
from gateway.mcp_server.errors import build_refusal
from gateway.mcp_server.quotas.message_reader import check_message, read_message

MAX_BYTES: Final = 32 << 20  # of one answer or event
#: The gateway bounds the values of a message, as it is configured.
_ANY_VALUES: Final = sys.maxsize
_FAREWELL_S = 2.0
#: Where a client listens, the bridge tries the gateway again this often while it is away.
_AGAIN_S: Final = 1.0

Receiving: TypeAlias = AsyncIterable[SessionMessage | Exception]


class MessageSender(Protocol):
    """The sending end of a stream of messages."""

    async def send(self, item: SessionMessage, /) -> None: ...


async def relay(url: str, key: str | None) -> None:
    """Relay between the standard streams and the endpoint of a gateway until standard input ends."""
    network = GuardedNetwork(private_networks=True, max_bytes=MAX_BYTES)
    session = GatewaySession(network, url=url)
    client = httpx2.AsyncClient(
        transport=session,
        headers={"Accept-Encoding": "identity"} | ({} if key is None else {"Authorization": f"Bearer {key}"}),
        timeout=None,  # a call may wait for a person, and a stream has no end
        trust_env=False,
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        streams = streamable_http_client(url, http_client=client, max_sse_event_size=MAX_BYTES)
        from_gateway, to_gateway = await stack.enter_async_context(streams)
        lines = anyio.wrap_file(sys.stdin.buffer)
        # The SDK's own reader, which would take one reading of a line that has two, gets none.
        _, to_client = await stack.enter_async_context(stdio_server(stdin=anyio.wrap_file(io.StringIO())))
        await stack.enter_async_context(to_client)  # its end is what ends the SDK's writer
        headers = Headers()
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_relay_to_client, from_gateway, to_client, headers)
        await _relay_to_gateway(lines, to_gateway, to_client, headers, session)
        tasks.cancel_scope.cancel()


async def _relay_to_gateway(
    lines: AsyncIterable[bytes],
    to_gateway: MessageSender,
    to_client: MessageSender,
    headers: "Headers",
    session: "GatewaySession",
) -> None:
    """Relay the client's messages. A line that is not a message gets its answer here."""
    async for line in lines:
        read: object = None
        try:
            read = await read_message(line.rstrip(b"\r\n"), most_values=_ANY_VALUES)
            check_message(read)
            message = jsonrpc_message_adapter.validate_python(read, by_name=False)
        except GatewayError as error:
            await to_client.send(SessionMessage(JSONRPCError.model_validate(build_refusal(error, read))))
            continue
        except ValidationError:
            told = ErrorData(code=PARSE_ERROR, message="This line is no message of JSON-RPC.")
            await to_client.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=told)))
            continue
        if isinstance(message, JSONRPCRequest) and message.method == "initialize":
            session.opening = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        await to_gateway.send(SessionMessage(message, ClientMessageMetadata(headers=headers.build(message))))


async def _relay_to_client(received: Receiving, to_client: MessageSender, headers: "Headers") -> None:
    """Relay the gateway's messages."""
    async for found in received:
        if not isinstance(found, Exception):
            headers.note_answer(found.message)
            await to_client.send(SessionMessage(found.message))


class Headers:
    """The headers of requests: version, method, name, and arguments that a tool's schema wants in headers."""

    def __init__(self) -> None:
        self._version: str | None = None
        self._open: dict[str | int, str] = {}
        self._of_tools: dict[str, dict[tuple[str, ...], str]] = {}

    def build(self, message: JSONRPCMessage) -> dict[str, str] | None:
        """Return the headers of a message, which is on its way to the gateway."""
        version = self._version
        if not isinstance(message, JSONRPCRequest):
            return None if version is None else {MCP_PROTOCOL_VERSION_HEADER: version}
        if message.method in ("initialize", "tools/list"):
            self._open[message.id] = message.method
        params = message.params or {}
        meta = params.get("_meta")
        named = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
        if not isinstance(named, str):
            return None if version is None else {MCP_PROTOCOL_VERSION_HEADER: version}
        headers = {MCP_PROTOCOL_VERSION_HEADER: named, MCP_METHOD_HEADER: message.method}
        name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            arguments = params.get("arguments")
            if message.method == "tools/call" and name in self._of_tools:
                headers |= mcp_param_headers(self._of_tools[name], arguments if isinstance(arguments, dict) else {})
        return headers

    def note_answer(self, message: JSONRPCMessage) -> None:
        """Read what headers of later requests depend on: the version of a session, and the schemas of tools."""
        if isinstance(message, JSONRPCError) and message.id is not None:
            self._open.pop(message.id, None)
        if not isinstance(message, JSONRPCResponse) or (method := self._open.pop(message.id, None)) is None:
            return
        if method == "initialize":
            version = message.result.get("protocolVersion")
            self._version = version if isinstance(version, str) else None
            return
        tools = message.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            self._of_tools[tool["name"]] = x_mcp_header_map(tool["inputSchema"])


class GatewaySession(httpx2.AsyncBaseTransport):
    """The requests to one gateway. `opening` is the client's `initialize`, if it has sent one.

    A failure becomes an answer with an error of the protocol, so that it ends one request and not the relay.
    """

    def __init__(self, network: httpx2.AsyncBaseTransport, *, url: str) -> None:
        self._network = network
        self._url = url
        self._renewing = asyncio.Lock()
        self._renewed: dict[str, str] = {}
        self.opening: dict[str, Any] | None = None

    async def aclose(self) -> None:
        await self._network.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request in the session of now, and again in a new session if the gateway does not know it."""
        while request.method == "GET":  # the stream of a client that listens: the gateway may come back
            try:
                return await self._send_with_renewal(request)
            except httpx2.ConnectError:
                await asyncio.sleep(_AGAIN_S)
        try:
            async with asyncio.timeout(_FAREWELL_S if request.method == "DELETE" else None):
                response = await self._send_with_renewal(request)
        except httpx2.ConnectError as error:
            return _format_failure(503, f"The gateway at {self._url} does not answer: {error}. Is it running?")
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            return _format_failure(502, f"The gateway at {self._url} broke off: {error}.")
        except TimeoutError:
            return _format_failure(504, "The gateway gave no answer.")
        return await _read_refusal(response) if response.status_code >= 400 else response

    async def _send_with_renewal(self, request: httpx2.Request) -> httpx2.Response:
        session = self._set_session(request)
        response = await self._network.handle_async_request(request)
        if response.status_code == 404 and request.method == "DELETE":
            await response.aclose()
            return httpx2.Response(204)  # a session that is gone has ended
        if response.status_code != 404 or session is None or self.opening is None:
            return response
        await response.aclose()
        await self._renew(request, session)
        self._set_session(request)
        return await self._network.handle_async_request(request)

    def _set_session(self, request: httpx2.Request) -> str | None:
        """Write the session of now into a request, and return it."""
        session = request.headers.get(MCP_SESSION_ID)
        while session is not None and session in self._renewed:
            session = self._renewed[session]
        if session is not None:
            request.headers[MCP_SESSION_ID] = session
        return session

    async def _renew(self, request: httpx2.Request, session: str) -> None:
        """Open a session in place of one that the gateway does not know any more; once for all requests."""
        async with self._renewing:
            if session in self._renewed:
                return
            headers = {
                name: value
                for name, value in request.headers.items()
                if name in ("authorization", "host", "accept-encoding", MCP_PROTOCOL_VERSION_HEADER)
            }
            headers |= {"accept": "application/json, text/event-stream", "content-type": "application/json"}
            opened = await self._post(self.opening, headers)
            if (new := opened.headers.get(MCP_SESSION_ID)) is None:
                return
            self._renewed[session] = new
            initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._post(initialized, {**headers, MCP_SESSION_ID: new})

    async def _post(self, message: object, headers: Mapping[str, str]) -> httpx2.Response:
        content = orjson.dumps(message)
        response = await self._network.handle_async_request(
            httpx2.Request("POST", self._url, headers={**headers}, content=content)
        )
        await response.aread()
        await response.aclose()
        return response


async def _read_refusal(response: httpx2.Response) -> httpx2.Response:
    """Return a refusal as an error of the protocol: that of the gateway's pages has another form."""
    try:
        content = orjson.loads(await response.aread())
    except (httpx2.HTTPError, httpx2.StreamError, ValueError):
        content = None
    if isinstance(content, dict) and "jsonrpc" in content:
        return response
    status = response.status_code
    reason = get_error_message(content.get("error") if isinstance(content, dict) else None)
    step = " Its key is the one in GATEWAY_API_KEY." if status in (401, 403) else ""
    return _format_failure(status, f"The gateway answered {status}: {reason}{step}")


def _format_failure(status: int, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": message}}
    return httpx2.Response(status, json=error)
