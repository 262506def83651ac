"""One connection to a server, from the handshake to its end; opened, used and closed in its owner's task.

The SDK implements the protocol in both of its eras. `_Wire` corrects three things of it. The SDK does not report the
end of a connection. It refuses a whole listing for one bad tool. It refuses a result that does not fit its schema,
although the text of that result is useful.

Only public names of the SDK are used. `tests/mcp/test_sdk_contract.py` lists the behaviour that they must keep.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import MappingProxyType
from typing import Any, Final

import orjson
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.client import ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    GetPromptRequest,
    Implementation,
    ListPromptsRequest,
    ListResourcesRequest,
    ListResourceTemplatesRequest,
    PaginatedRequestParams,
    ReadResourceRequest,
    Request,
    ToolListChangedNotification,
)
from mcp_types.methods import validate_server_result
from pydantic import TypeAdapter, ValidationError

from gateway import __version__
from gateway.aio.cooperative import TimeSlice
from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.store import Json
from gateway.mcp.backoff import Backoff
from gateway.mcp.calls import AnsweredError, LostError, NotRunError
from gateway.mcp.definitions import SCHEMA_BYTES, TOOLS_LIMIT, format_shown_name
from gateway.mcp.server_facts import Channel
from gateway.mcp.transport import rpc_result

MAX_PAGES: Final = 100
#: Of a list of tools on all its pages, with their cursors, as compact JSON; and of one tool in it.
LIST_BYTES: Final = 16 << 20
TOOL_BYTES: Final = 1 << 20
#: What the SDK reads of a page beside names of tools, and schemas that ask for arguments as headers.
_OF_PAGE: Final[Sequence[str]] = ("nextCursor", "resultType", "ttlMs", "cacheScope")
_HEADER: Final = b'"x-mcp-header"'
#: Of the schemas with such headers on a page: the SDK reads them in one go.
HEADERS_BYTES: Final = 256 << 10
#: Of what a server calls itself.
_IMPLEMENTATION_CHARS: Final = 100
#: The requests to a server about its prompts and resources.
_ASKED: Mapping[str, type[Request[Any, Any]]] = {
    "prompts/list": ListPromptsRequest,
    "prompts/get": GetPromptRequest,
    "resources/list": ListResourcesRequest,
    "resources/templates/list": ListResourceTemplatesRequest,
    "resources/read": ReadResourceRequest,
}
_TOO_LARGE: Final = f"its list of tools has more than {LIST_BYTES:,} bytes: the rest is left out"
_TOO_MANY_HEADERS: Final = f"the schemas with x-mcp-header have more than {HEADERS_BYTES:,} bytes together"
_AS_WRITTEN: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_RAW, _DISCOVER = "raw", "server/discover"
# The message of the SDK and our HTTP dispatcher for an ended connection; a server may use the code for its own errors.
_CLOSED = "Connection closed"


@asynccontextmanager
async def open_connection(channel: Channel, *, probe_s: float | None) -> AsyncIterator["McpConnection"]:
    """Open a connection that is ready for calls. Raises LostError, AnsweredError and the transport's errors, in groups.

    `probe_s`: how long to wait for an answer of the newer era; None: the server is known to be of the older one.
    """
    async with channel as dispatcher:
        connection = McpConnection(_Wire(dispatcher))
        async with connection.session:
            await connection.negotiate(probe_s=probe_s)
            listening = asyncio.create_task(connection.listen())
            try:
                yield connection
            finally:
                listening.cancel()
                await asyncio.wait({listening})


class McpConnection:
    """The implementation of `calls.Line`, with the methods that the owner of the connection needs."""

    def __init__(self, wire: "_Wire") -> None:
        self._wire = wire
        self.session = ClientSession(
            dispatcher=wire,
            message_handler=self._handle_message,
            client_info=Implementation(name="twolane", version=__version__),
        )
        self.stirred = asyncio.Event()  # its tools may have changed, or it is gone
        self._listing = asyncio.Lock()
        self._known = "ping"  # a method that every server of its era answers
        wire.gone.add_done_callback(lambda _: self.stirred.set())

    @property
    def closed_future(self) -> asyncio.Future[None]:
        return self._wire.gone

    @property
    def protocol(self) -> str:
        return self.session.protocol_version or ""

    @property
    def implementation(self) -> str | None:
        """Return the server's name and version, cut; None: it states none."""
        info = self.session.server_info
        return None if info is None else f"{info.name} {info.version}".strip()[:_IMPLEMENTATION_CHARS] or None

    async def negotiate(self, *, probe_s: float | None) -> None:
        """Agree on the newer era where the server supports it, else on the older one."""
        with _map_sdk_errors():
            if probe_s is not None and await self._can_discover(probe_s):
                self._known = _DISCOVER
            else:
                try:
                    await self.session.initialize()
                except MCPError as error:
                    if error.code != UNSUPPORTED_PROTOCOL_VERSION:
                        raise
                    await self.session.discover()  # it was only slow to answer the first time
                    self._known = _DISCOVER
        self._wire.version = self.protocol

    async def _can_discover(self, limit_s: float) -> bool:
        """Return whether the server supports the newer era; older ones answer with various errors, some not at all."""
        try:
            async with asyncio.timeout(limit_s):
                await self.session.discover()
        except (MCPError, ValidationError, RuntimeError, TimeoutError):
            return False
        return True

    async def list_tools(self) -> tuple[list[Any], list[str]]:
        """Return the entries of `tools/list` as the server wrote them, and the problems.

        Raises LostError, AnsweredError.
        """
        async with self._listing:
            with _map_sdk_errors():
                return await self._read_pages()

    async def _read_pages(self) -> tuple[list[Any], list[str]]:
        """Return the tools of all pages, and the problems: bounded in pages, tools and bytes."""
        found: list[Any] = []
        problems: list[str] = []
        cursors: list[str | None] = [None]
        room_bytes, turn = LIST_BYTES, TimeSlice()
        while len(cursors) <= MAX_PAGES and len(found) <= TOOLS_LIMIT:
            page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursors[-1]))
            refused = self._wire.fit - {tool.name for tool in page.tools}
            problems += (f"the tool {name!r} is left out: {_TOO_MANY_HEADERS}" for name in self._wire.beyond)
            problems += (f"the tool {name!r} is left out: its x-mcp-header is not valid" for name in refused)
            for place, tool in enumerate(self._wire.take_tools()):
                if _get_tool_name(tool) in refused | self._wire.beyond:
                    continue
                size_bytes = _measure_size_bytes(tool)
                if size_bytes > room_bytes:
                    return found, [*problems, _TOO_LARGE]
                room_bytes -= size_bytes
                if size_bytes <= TOOL_BYTES:
                    found.append(tool)
                else:
                    reason = f"its definition has {size_bytes:,} bytes, which is more than {TOOL_BYTES:,}"
                    problems.append(f"the tool {format_shown_name(tool, place)} is left out: {reason}")
                await turn.pause()
            if page.next_cursor is None:
                return found, problems
            if page.next_cursor in cursors:
                return found, [*problems, "its list of tools has no end: the pages come again"]
            cursors.append(page.next_cursor)
            room_bytes -= len(page.next_cursor)
            if room_bytes < 0:
                return found, [*problems, _TOO_LARGE]
        limits = f"{TOOLS_LIMIT} tools or {MAX_PAGES} pages"
        return found, [*problems, f"its list of tools is longer than {limits}: the rest is left out"]

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        progressed: Callable[[CallProgress], None],
        meta: Mapping[str, str] = MappingProxyType({}),
    ) -> Json:
        """Return a tool's result as the server wrote it. Raises LostError and AnsweredError."""

        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            progressed(CallProgress(message, progress, total))

        params = CallToolRequestParams(name=tool, arguments=arguments, _meta={**meta} or None)
        request = CallToolRequest(params=params)
        with _map_sdk_errors():
            try:
                raw: Json = await self.session.send_request(request, _AS_WRITTEN, progress_callback=report_progress)
            except MCPError as error:
                if error.code == HEADER_MISMATCH:
                    # Perhaps the server wants arguments as headers, by a schema that it has changed: the list is read
                    # again. The call is not sent again: the code may be the server's own, of a call that ran.
                    self.stirred.set()
                raise
        return _require_complete(raw["_meta"][_RAW])

    async def ping(self) -> None:
        """Return once the server answers, whatever the answer. Raises LostError."""
        with suppress(AnsweredError), _map_sdk_errors():
            await self._wire.send_raw_request(self._known, {})

    def end(self) -> None:
        """End the connection: its owner closes the rest of it. Idempotent."""
        self._wire.end()

    def offers(self, kind: str) -> bool:
        """Return whether the server declares this kind of things: `prompts` or `resources`."""
        return getattr(self.session.server_capabilities, kind, None) is not None

    async def ask(self, method: str, params: Json) -> Json:
        """Return the result of a request about prompts or resources. Raises LostError and AnsweredError."""
        request: Request[Any, Any] = _ASKED[method].model_validate({"method": method, "params": params})
        with _map_sdk_errors():
            raw: Json = await self.session.send_request(request, _AS_WRITTEN)
        return _require_complete(raw)

    async def listen(self) -> None:
        """Subscribe to changes of its tools, where the newer era requires that; until it is cancelled."""
        capabilities = self.session.server_capabilities
        if capabilities is None or capabilities.tools is None or not capabilities.tools.list_changed:
            return
        backoff = Backoff()
        while not self.closed_future.done():
            try:
                async with listen(self.session, tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.stirred.set()
            except ListenNotSupportedError:
                return
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            await asyncio.sleep(backoff.choose_wait_s(up_s=0))
            self.stirred.set()  # changes in between were not reported

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.stirred.set()


class _Wire(Dispatcher[TransportContext]):
    """The dispatcher of the SDK's session, in front of the SDK's own one."""

    def __init__(self, dispatcher: Dispatcher[TransportContext]) -> None:
        self._dispatcher = dispatcher
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.version = ""  # of the protocol
        self._listed: list[Any] = []  # the last page as the server wrote it: a hash must not depend on the SDK
        self.fit: frozenset[str] = frozenset()  # what the SDK was given of it
        self.beyond: frozenset[str] = frozenset()  # what it was not given, for want of room

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await self._dispatcher.run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self.end()

    def end(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await self._dispatcher.notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Send a request for the SDK, and keep raw results of calls and lists from its validation."""
        result = await self._dispatcher.send_raw_request(method, params, opts)
        if method == "tools/call":
            return {"content": [], "resultType": "complete", "_meta": {_RAW: result}}
        if method == "tools/list" and isinstance(result.get("tools"), list):
            self._listed = result["tools"]
            page = {key: result[key] for key in _OF_PAGE if key in result}
            fit, self.beyond = await self._select_fitting_tools(page, self._listed[:TOOLS_LIMIT])
            self.fit = frozenset(tool["name"] for tool in fit)
            return {**page, "tools": fit}
        return result

    def take_tools(self) -> list[Any]:
        """Return the tools of the last page as the server wrote them, once: nothing of it is kept."""
        listed, self._listed = self._listed, []
        return listed

    async def _select_fitting_tools(self, page: Json, tools: list[Any]) -> tuple[list[Json], frozenset[str]]:
        """Return the tools that are valid in the protocol, as far as the SDK reads them, and the tools without room."""
        found: list[Json] = []
        beyond: set[str] = set()
        room_bytes, turn = HEADERS_BYTES, TimeSlice()
        for tool in tools:
            await turn.pause()
            if not isinstance(tool, dict) or not isinstance(schema := tool.get("inputSchema"), dict):
                continue
            text = orjson.dumps(schema)
            has_headers = _HEADER in text
            read = {"name": tool.get("name"), "inputSchema": schema if has_headers else {"type": "object"}}
            # A tool with a larger schema is left out when the definitions are read.
            if len(text) > SCHEMA_BYTES or not self._is_valid_tool(read, page):
                continue
            room_bytes -= len(text) if has_headers else 0
            if room_bytes < 0 and has_headers:
                beyond.add(tool["name"])
            else:
                found.append(read)
        return found, frozenset(beyond)

    def _is_valid_tool(self, tool: Json, page: Json) -> bool:
        """Return whether the definition is valid in the protocol."""
        try:
            validate_server_result("tools/list", self.version, {**page, "tools": [tool], "nextCursor": None})
        except ValidationError:
            return False
        return True


def _require_complete(raw: Json) -> Json:
    """Return a result as the server wrote it. Raises AnsweredError for a question in its place."""
    if raw.get("resultType") == "input_required":
        raise AnsweredError("it asks for more input, which cannot be given here")
    return raw


def _measure_size_bytes(tool: Any) -> int:
    """Return the size of what was read of a message, so that it can be written as JSON."""
    return len(orjson.dumps(tool))


def _get_tool_name(tool: Any) -> object:
    return tool.get("name") if isinstance(tool, dict) else None


@contextmanager
def _map_sdk_errors() -> Iterator[None]:
    """Map the exceptions of the SDK to LostError and AnsweredError."""
    try:
        yield
    except rpc_result.RequestNotRunError as error:
        raise NotRunError(error.message) from None
    except MCPError as error:
        if error.code == CONNECTION_CLOSED and error.message.startswith(_CLOSED):
            raise LostError(error.message) from None
        raise AnsweredError(error.message or f"error {error.code}") from None
    except ValidationError as error:
        raise AnsweredError(f"its answer is no {error.title}, as the protocol has it") from None
    except RuntimeError as error:  # no version of the protocol in common
        raise AnsweredError(str(error)) from None
