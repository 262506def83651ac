"""One call of a tool: its time limits, its ends, and the text that the model reads in each case.

1. A caller returns at once when its call is cancelled, out of time or without a server. A separate task sends the
   messages that the protocol still requires.
2. A program that leaves a call without an answer gets a ping. Further calls wait for that, for `_ALIVE_S` at most: one
   that is stuck is ended and started again, and no call spends its own time on it.
3. A call runs once. Only a tool that the operator declares idempotent is called again, once, after a lost server; any
   call is made over the next connection if it is certain that it did not run.
3. A call is sent again only if what cleared it is unchanged: its policy, and its tool as the next connection lists it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from gateway.aio.cooperative import run_cooperatively
from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolResult
from gateway.contracts.tracing.context import ToolTrace
from gateway.mcp.metrics import OperationMetrics
from gateway.mcp.server_facts import CALL_STANDS, Config
from gateway.mcp.tool_result import convert_tool_result

# An answer may have been read just before the connection ended.
_GRACE_S = 0.25
#: How long a call that did not run waits for another connection, in seconds.
_BACK_S = 3.0
#: How long a program may take to show that it lives, behind a call that it left without an answer.
_ALIVE_S: Final = 3.0
_MAX_TOLD = 2000  # characters of a server's own error
#: A server's own words for a time that was over. Its tool may go on all the same.
_TIMED_OUT: Final = re.compile(r"\btim(?:ed?|ing)[ -]?out\b|\bdeadline exceeded\b|超时|逾時", re.IGNORECASE)
_UNKNOWN: Final = "Whether it had an effect is not known: say so, and call it again only if its user wants that."
#: Is called with each report about the progress of a call.
Told: TypeAlias = Callable[[CallProgress], None]


class LostError(Exception):
    """The error that the connection ended before the answer."""


class NotRunError(LostError):
    """The error that the connection ended before the server ran the call."""


class WithdrawnError(NotRunError):
    """The error that the call is not sent, or not again, because what cleared it has changed."""


class AnsweredError(Exception):
    """The error that a server answered with; the text is the server's."""


class ServerConnection(Protocol):
    """A connection to a server, as far as calls need it."""

    @property
    def closed_future(self) -> asyncio.Future[None]:
        """Return a future that is done once nothing can come from it any more."""
        ...

    async def call(self, tool: str, arguments: Json, *, progressed: Told, meta: Mapping[str, str]) -> Json:
        """Return the result as the server wrote it. Raises LostError and AnsweredError.

        A cancelled call is cancelled at the server, too. `progressed` is called with each report about its progress.
        `meta` goes into the `_meta` of the request.
        """
        ...

    async def ping(self) -> None:
        """Return once the server answers. Raises LostError."""
        ...

    def end(self) -> None:
        """End the connection, and with it the server. Idempotent."""
        ...


class ServerLink(ServerConnection, Protocol):
    """A connection with the methods that the owner of a server needs, whatever carries it."""

    #: Is set once its tools may have changed, or it is gone.
    stirred: asyncio.Event

    @property
    def protocol(self) -> str: ...

    @property
    def implementation(self) -> str | None: ...

    async def list_tools(self) -> tuple[list[Any], list[str]]:
        """Return the entries of `tools/list` as the server wrote them, and the problems."""
        ...

    def offers(self, kind: str) -> bool:
        """Return whether the server declares this kind of things: `prompts` or `resources`."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """Return the result of a request about prompts or resources. Raises LostError and AnsweredError."""
        ...


#: Opens a link over a channel: (channel, probe_s=seconds or None).
OpenLink: TypeAlias = Callable[..., AbstractAsyncContextManager[ServerLink]]


class ServerCalls:
    """The calls of one server's tools. `line` returns the present connection; `next_line` waits for one.

    `lost` is called with the reason before a connection is ended here.
    """

    def __init__(
        self,
        server: Config,
        *,
        line: Callable[[], ServerConnection | None],
        next_line: Callable[[], Awaitable[ServerConnection]],
        lost: Callable[[str], None],
        meter: OperationMetrics,
    ) -> None:
        self._server = server
        self._line = line
        self._next_line = next_line
        self._lost = lost
        self._meter = meter
        self._check: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[Json]] = set()  # a task without a reference may vanish

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        told: Told | None = None,
        trace: ToolTrace | None = None,
        stands: Callable[[], bool] = lambda: True,
    ) -> ToolResult:
        """Return the tool's result, or its failure: every failure but a cancellation is a result, too.

        `told` gets the server's reports about its progress. `trace` is the span of the call. `stands`: see `ToolCall`.
        """
        meta = {} if trace is None else trace.get_fields("mcp")
        patience = _Patience(*self._server.get_limits_s(tool), told=told or _ignore_progress, meta=meta, stands=stands)
        with self._meter.operation("tools/call") as operation:
            result, operation.error_type = await self._get_tool_result(tool, arguments, patience)
        if trace is not None:
            trace.error = operation.error_type
            trace.facts |= {"mcp.method.name": "tools/call", "network.transport": self._meter.network}
        return result

    async def _get_tool_result(self, tool: str, arguments: Json, patience: "_Patience") -> tuple[ToolResult, str]:
        """Return a result and the type of its error."""
        service = self._server.name
        absent = f"the service {service!r} is not running just now. Say so, and go on without it."
        try:
            if self._check is not None:
                await asyncio.wait({self._check})
                if not patience.stands():
                    raise WithdrawnError
            if self._line() is None:
                return ToolResult(absent, ok=False), "not_running"
            answer = await self._call_with_retries(tool, arguments, patience)
            if answer.get("content") is None and answer.get("structuredContent") is None:
                raise AnsweredError("its answer is no result of a call: it has no content")
            result = await run_cooperatively(convert_tool_result(answer))
            if result.ok:
                return result, ""
            return (_with_note(result) if self._may_have_run(tool, result.content) else result), "tool_error"
        except TimeoutError:
            self.check_alive()
            then = "Say so, and go on without it." if self._is_idempotent(tool) else _UNKNOWN
            text = (
                f"the tool {tool!r} of the service {service!r} did not answer within {patience.was_s:g} s and was "
                f"stopped. {then}"
            )
            return ToolResult(text, ok=False), "timeout"
        except WithdrawnError:
            text = (
                f"Not run: it waited for the service {service!r}, and the tool {tool!r} or the policy has changed. "
                "Call it again if it is still what you want."
            )
            return ToolResult(text, ok=False), "not_running"
        except NotRunError:
            return ToolResult(absent, ok=False), "not_running"
        except LostError:
            text = (
                f"the service {service!r} ended while it ran the tool {tool!r}; whether it had an effect is not known. "
                "Say so, and call it again only if its user wants that."
            )
            return ToolResult(text, ok=False), "connection_lost"
        except AnsweredError as error:
            said = str(error)[:_MAX_TOLD]
            text = f"the service {service!r} answered the call of {tool!r} with an error: {said}"
            result = ToolResult(text, ok=False)
            return (_with_note(result) if self._may_have_run(tool, said) else result), "answered_error"

    def check_alive(self) -> None:
        """Begin to ping a stdio server; over HTTP, one ping proves nothing about other requests."""
        if self._server.transport == "stdio" and self._check is None and (line := self._line()) is not None:
            self._check = asyncio.create_task(self._check_server_alive(line))

    async def _check_server_alive(self, line: ServerConnection) -> None:
        """Ping the server, and end the connection if it does not answer in time."""
        try:
            async with asyncio.timeout(_ALIVE_S):
                await line.ping()
        except TimeoutError:
            self._lost(f"it answered neither a call in time nor, within {_ALIVE_S:g} s, whether it lives")
            line.end()
        except LostError:
            pass
        finally:
            self._check = None

    def _is_idempotent(self, tool: str) -> bool:
        return tool in self._server.idempotent

    def _may_have_run(self, tool: str, error: str) -> bool:
        """Return whether a server gave up on a call that may have run to its end, and that is not to run twice."""
        return not self._is_idempotent(tool) and _TIMED_OUT.search(error, 0, _MAX_TOLD) is not None

    async def _call_with_retries(self, tool: str, arguments: Json, patience: "_Patience") -> Json:
        """Return the answer to a call, which is made again if it did not run, or if its tool may run twice."""
        line, is_idempotent, has_waited = self._line(), self._is_idempotent(tool), False
        while line is not None:
            try:
                return await self._call_once(line, tool, arguments, patience)
            except NotRunError:
                if has_waited:
                    raise
                has_waited, wait_s = True, patience.left_s if self._is_idempotent(tool) else _BACK_S
                if (next_line := await self._find_next_connection(line, min(wait_s, patience.left_s))) is None:
                    raise
                if not patience.stands():
                    raise WithdrawnError from None
                line = next_line
            except LostError:
                if not is_idempotent:
                    raise
                is_idempotent = False  # it is made again once
                line = await asyncio.wait_for(self._next_line(), patience.left_s)
                if not patience.stands():
                    raise
        raise LostError

    async def _find_next_connection(self, line: ServerConnection, wait_s: float) -> ServerConnection | None:
        """Return the connection that follows an ended one, or None after `wait_s` seconds."""
        await asyncio.wait({line.closed_future}, timeout=_GRACE_S)
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._next_line(), wait_s)
        return None

    async def _call_once(self, line: ServerConnection, tool: str, arguments: Json, patience: "_Patience") -> Json:
        """Send a call once and return its answer. Raises TimeoutError, LostError, AnsweredError."""
        making = line.call(tool, arguments, progressed=patience.report_progress, meta=patience.meta)
        context = copy_context()
        context.run(CALL_STANDS.set, patience.stands)
        asked = asyncio.create_task(making, context=context)
        self._asked.add(asked)
        asked.add_done_callback(self._forget_task)
        ends: set[asyncio.Future[Any]] = {asked, line.closed_future}
        try:
            while not asked.done() and not line.closed_future.done():
                if patience.left_s <= 0:
                    raise TimeoutError
                await asyncio.wait(ends, timeout=patience.left_s, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await asyncio.wait({asked}, timeout=_GRACE_S)
            if not asked.done() or asked.cancelled():
                raise LostError
            return asked.result()
        finally:
            asked.cancel()

    def _forget_task(self, asked: asyncio.Task[Json]) -> None:
        self._asked.discard(asked)
        if not asked.cancelled():
            asked.exception()  # else asyncio logs a failure that no caller awaits any more


def _with_note(result: ToolResult) -> ToolResult:
    """Return a failed result with a note that the call may have had an effect."""
    parts = None if result.parts is None else [*result.parts, {"type": "text", "text": _UNKNOWN}]
    return replace(result, content=f"{result.content}\n{_UNKNOWN}", parts=parts)


class _Patience:
    """The time of one call: `limit_s` from its start and from each progress, in all never more than `longest_s`.

    `told` is called with each report. `meta` goes with each request, and `stands` is checked before it is sent again.
    """

    def __init__(
        self,
        limit_s: float,
        longest_s: float,
        *,
        told: Told,
        meta: Mapping[str, str],
        stands: Callable[[], bool],
    ) -> None:
        self._limit_s = limit_s
        self.meta = meta
        self.stands = stands
        self._told = told
        self._clock = asyncio.get_running_loop().time
        self._began_s = self._clock()
        self._longest_s = longest_s
        self._until_s = self._began_s + limit_s
        #: How long it lasts: a number of the configuration, or one that progress made.
        self.was_s = limit_s

    def report_progress(self, progress: CallProgress) -> None:
        self._told(progress)
        since_s = self._clock() - self._began_s
        self.was_s = min(round(since_s + self._limit_s, 1), self._longest_s)
        self._until_s = self._began_s + min(since_s + self._limit_s, self._longest_s)

    @property
    def left_s(self) -> float:
        return self._until_s - self._clock()


def _ignore_progress(_progress: CallProgress) -> None:
    """Do nothing: no caller waits for reports."""
