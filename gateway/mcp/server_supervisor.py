"""The owner of one server: one task that starts it, connects to it, notices its end, and starts it anew.

1. A connection is opened, listed and closed by the owner's task alone; calls only use it.
2. No caller waits for a server to start: `start` returns at once. A call of a server that is not there fails at once.
3. Every end of a connection, of any cause, has one sequence: state `error`, a wait that grows, a new start.

Theory of operation. The SDK's context managers must be left in the task that entered them. So one task (`_owner`) does
everything that opens or closes, and all other code only reads `_link`, the connection that calls may use at present.

The states are `stopped`, `starting`, `running` and `error`:

    stopped --start--> starting --listed--> running --gone--> error
    starting --failed--> error --after a wait--> starting
    any state --stop--> stopped

1. `_run_server` imports the SDK in a thread, which takes seconds. Without the SDK the state stays `error`. Otherwise it
   opens one connection after the other.
2. `_run_connection` makes a channel (a program or an HTTP transport), performs the handshake and lists the tools, all
   within `start_timeout`. A program waits for its place first, and that clock begins behind it (`transport.starts`).
   Only then is `_link` set and the state `running`: a call never meets a server without a list.
3. `_follow_connection` waits for the end, and lists the tools again when the server reports a change, but not more
   often than each `_BETWEEN_LISTINGS_S`. A listing that fails is reported and ends nothing.
4. When the connection is gone, `_link` is cleared and the state set first, since closing may take seconds.
5. The wait before a new start comes from Backoff. It grows while starts fail, and begins anew after a long good run.

Two eras of the protocol. A server of the older one may leave the probe for the newer one unanswered, so the probe has
its own short time limit. Some programs even end when they get it. If a program is lost before it ever ran well, the
next attempt leaves the probe out (`_probe`), and if that fails too, the one after it tries the probe again.

Reasons. The first reason that the channel reports (`_why`) is the cause; later ones are consequences. An exit code
explains more than either. The program's last line on standard error is added, because it is mostly the real cause.

A server that runs once for all gateways has a `Placement`. Where it runs at another worker, `_run_elsewhere` takes the
place of `_run_connection`, and `_link` is a connection to that worker. Where it runs here, the connection ends as soon
as the lease is another worker's, and `_get_connection` returns none while the lease is not certain.

Dangers.
- Two cancellations. A second one would break off the closing that the first one started, and leave a process behind.
  So `stop` makes one task (`_ending`) for all callers and shields it.
- A start that hangs in closing. `_report_late_start` sets the state by its own timer, even if closing takes longer.
- `definitions` come from the last listing. They stay while the server is away.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from gateway.aio.cooperative import run_cooperatively
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.service import ServiceStatus
from gateway.contracts.storage.store import Json, ServiceState, StoreError
from gateway.contracts.tools import ToolResult
from gateway.contracts.tracing.context import ToolTrace
from gateway.mcp.backoff import Backoff
from gateway.mcp.calls import AnsweredError, LostError, OpenLink, ServerCalls, ServerLink, Told
from gateway.mcp.definitions import Definitions, read_definitions
from gateway.mcp.metrics import OperationMetrics
from gateway.mcp.placement import Placement
from gateway.mcp.remote_connection import RemoteChannel, RemoteConnection, open_remote_connection
from gateway.mcp.sdk_import import IMPORTING, MISSING_SDK, silence_loggers
from gateway.mcp.server_facts import SESSION_ENDED, Channel, Config, MakeChannel
from gateway.mcp.transport.process import StartError
from gateway.mcp.transport.start_limit import Starts, get_worker_starts

log = logging.getLogger("gateway")

_ENDED = "its connection ended"
#: The reason for the end of a connection to a server that another worker runs from now on.
_MOVED = "another gateway runs it now"
#: A server that cannot be reached at the worker that runs it is tried so often, until another worker runs it.
_ELSEWHERE_S: Final = 1.0
# The shortest time between two listings of a server that reports changes all the time.
_BETWEEN_LISTINGS_S = 0.2
_PROBE_S = 3.0
_MAX_ERROR = 500  # characters
_MOST_LOGGED = 20
# The last words of a server in Python that was written for another major version of the SDK than it is installed with.
_SDK_FAILS = re.compile(
    r"(?:ImportError|ModuleNotFoundError): .*\b(?:from|named) '(?:mcp|fastmcp)\b"
    r"|AttributeError: (?:module '(?:mcp|fastmcp)\b[\w.]*'|'(?:Fast)?(?:MCP|Server)' object) has no attribute"
)
_OTHER_SDK = (
    ", as its package does not fit the SDK for MCP that it runs with: pin that below 2, as with `uvx --with 'mcp<2' "
    "PACKAGE`"
)
_ERROR_TYPES = {AnsweredError: "answered_error", LostError: "connection_lost", TimeoutError: "timeout"}


@dataclass(slots=True, kw_only=True)
class _OperatorStatus:
    """The status of a server, as its operator sees it."""

    state: ServiceState = "stopped"
    since_s: float
    error: str | None = None
    protocol: str | None = None
    implementation: str | None = None
    restarts: int = 0


class _Open:
    """The connection to a server, and why it ended."""

    __slots__ = ("channel", "link", "listing", "probe", "up_s", "why")

    def __init__(self) -> None:
        self.channel: Channel | RemoteChannel | None = None
        self.link: ServerLink | None = None  # while calls may use it
        self.listing: tuple[list[Any], list[str]] = [], []  # for other workers that use it
        self.probe = True  # the next connection asks for the newer era first
        self.up_s: float | None = None  # since when
        self.why: str | None = None


class ServerSupervisor:
    """One server. `channel` makes the transport of one connection; `changed` is called after every change."""

    def __init__(
        self,
        server: Config,
        channel: MakeChannel,
        *,
        changed: Callable[[], None],
        counters: Counters,
        clock: Clock,
        backoff: Backoff | None = None,
        starts: Starts | None = None,
        placement: Placement | None = None,
    ) -> None:
        """Set what a server needs. `starts` are by default this worker's. `placement`: it runs once for all."""
        self._server = server
        self._make_channel = channel
        self._watchers = [changed]
        self._meter = OperationMetrics(server, counters=counters, clock=clock)
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._starts = starts
        self._owner: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._open = _Open()
        self._linked = asyncio.Event()
        self._placement = placement
        self._seen = _OperatorStatus(since_s=clock.time())
        self.definitions = Definitions({})  # as of the last listing, also while the server is away
        self._calls = ServerCalls(
            server,
            line=self._get_connection,
            next_line=self._wait_for_connection,
            lost=self._note_lost,
            meter=self._meter,
        )

    def __repr__(self) -> str:
        return f"<Session of {self._server.name!r}: {self._seen.state}>"

    @property
    def is_running(self) -> bool:
        return self._get_connection() is not None

    def get_condition(self) -> ServiceStatus:
        """Return the state of the server for its operator, with its last error and output."""
        channel = self._open.channel
        return ServiceStatus(
            state=self._seen.state,
            since_s=self._seen.since_s,
            transport=self._server.transport,
            error=self._seen.error,
            protocol=self._seen.protocol,
            implementation=self._seen.implementation,
            restarts=self._seen.restarts,
            runs_at=None if self._placement is None else self._placement.address,
            is_here=self._placement is None or self._placement.worker is None,
            skipped_lines=channel.skipped_lines if channel is not None else 0,
            stderr=tuple(channel.stderr) if channel is not None else (),
        )

    def start(self) -> None:
        """Connect in the background. Idempotent."""
        if self._owner is None:
            self._seen.restarts, self._seen.error = 0, None
            self._set_state("starting")
            self._owner = asyncio.create_task(self._run_server(), name=f"mcp {self._server.name}")

    async def stop(self) -> None:
        """Stop the server, and return once nothing of it runs any more. Idempotent; `start` may follow."""
        if self._owner is None:
            return
        if self._ending is None:
            self._ending = asyncio.create_task(self._stop_owner(self._owner))
        await asyncio.shield(self._ending)

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        told: Told | None = None,
        trace: ToolTrace | None = None,
        stands: Callable[[], bool] = lambda: True,
    ) -> ToolResult:
        """Call a tool as `Calls.call` does."""
        return await self._calls.call(tool, arguments, told=told, trace=trace, stands=stands)

    def offers(self, kind: str) -> bool:
        """Return whether the server, while it runs, offers this kind of things: `prompts` or `resources`."""
        line = self._get_connection()
        return line is not None and line.offers(kind)

    async def ask(self, method: str, params: Json) -> Json:
        """Return the result of a request about prompts or resources. Raises AnsweredError, LostError, TimeoutError."""
        with self._meter.operation(method) as operation:
            line = self._get_connection()
            if line is None:
                operation.error_type = "not_running"
                raise LostError
            try:
                async with asyncio.timeout(self._server.timeout):
                    result = await line.ask(method, params)
            except (AnsweredError, LostError, TimeoutError) as error:
                operation.error_type = _ERROR_TYPES[type(error)]
                raise
            operation.error_type = ""
            return result

    def find_local_link(self) -> ServerLink | None:
        """Return the connection to the server if it runs here; None: it does not."""
        link = self._get_connection()
        return None if isinstance(link, RemoteConnection) else link

    def list_raw_tools(self) -> tuple[list[Any], list[str]]:
        """Return the last listing as the server wrote it, and the problems."""
        return self._open.listing

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change, and return what ends that."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def check_alive(self) -> None:
        """Begin to check whether a program lives, which ends one that does not answer."""
        self._calls.check_alive()

    def _tell(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    async def _stop_owner(self, owner: asyncio.Task[None]) -> None:
        # Once: a second cancellation would break off the closing that the first one brings about.
        owner.cancel()
        await asyncio.wait({owner})
        if self._placement is not None:
            await self._placement.release()
        self._owner = self._ending = None
        self._set_state("stopped")

    async def _run_server(self) -> None:
        """Start and connect the server again and again, with pauses, until it is to stop."""
        try:
            open_link = await asyncio.to_thread(_load)
        except ImportError:
            self._set_state("error", MISSING_SDK)
            return
        while True:
            self._open.up_s = None
            error = await (self._run_here(open_link) if self._placement is None else self._run_placed(open_link))
            if self._ending is not None:
                return
            self._set_state("error", error)
            log.warning("service %r: %s", self._server.name, error)
            await asyncio.sleep(self._get_restart_wait_s())
            self._seen.restarts += 1
            self._set_state("starting", error)

    async def _run_here(self, open_link: OpenLink) -> str:
        """Open a connection and follow it to its end; return why it ended. Of programs, few start at a time."""
        if self._server.transport != "stdio":
            return await self._run_connection(open_link, _do_nothing)
        async with (self._starts or get_worker_starts()).place() as ready:
            return await self._run_connection(open_link, ready)

    async def _run_placed(self, open_link: OpenLink) -> str:
        """Run the server here as long as this worker is to, or use it at another worker until that moves it here.

        Return why it ended here.
        """
        assert self._placement is not None
        while True:
            try:
                worker = await self._placement.choose()
            except (StoreError, OSError) as failure:
                return f"where it runs cannot be decided: {failure}"[:_MAX_ERROR]
            if worker is not None:
                error = await self._run_elsewhere(self._placement, worker)
                self._open.up_s = None
                self._set_state("starting", error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._placement.wait_until_moved(worker), _ELSEWHERE_S)
                continue
            moving = asyncio.create_task(self._end_when_moved(self._placement))
            try:
                error = await self._run_here(open_link)
            finally:
                moving.cancel()
                await asyncio.wait({moving})
            if self._open.why != _MOVED:
                return error
            log.warning("service %r: %s", self._server.name, _MOVED)

    async def _run_elsewhere(self, placement: Placement, worker: str) -> str:
        """Use the server at another worker until it ends there; return why it did."""
        self._open.why, self._open.channel = None, RemoteChannel()
        try:
            async with (
                asyncio.timeout(self._server.start_timeout) as start,
                open_remote_connection(placement, worker) as connection,
            ):
                await self._list_tools(connection)
                start.reschedule(None)
                self._note_linked(connection)
                await self._follow_connection(connection)
            return f"it ended at the gateway {placement.address}"
        except (LostError, AnsweredError, TimeoutError) as error:
            return f"it cannot be used at the gateway {placement.address}: {error or 'no answer'}"[:_MAX_ERROR]
        finally:
            self._open.link = None

    async def _end_when_moved(self, placement: Placement) -> None:
        """End the connection once another worker is to run the server."""
        await placement.wait_until_moved(None)
        self._note_lost(_MOVED)
        while True:  # a start may be under way, whose connection ends as soon as it is there
            if self._open.link is not None:
                self._open.link.end()
            await self._linked.wait()
            self._linked.clear()

    def _get_restart_wait_s(self) -> float:
        """Return how long to wait for a new start: not at all where a server forgot its session, and was well."""
        if self._open.up_s is None:
            return self._backoff.choose_wait_s(up_s=0.0)
        return (
            0.0
            if self._open.why == SESSION_ENDED
            else self._backoff.choose_wait_s(up_s=self._clock.monotonic() - self._open.up_s)
        )

    async def _run_connection(self, open_link: OpenLink, ready: Callable[[], None]) -> str:
        """Open a connection and follow it to its end; return why it ended. `ready` is called once calls may use it."""
        self._open.why = None
        channel = self._open.channel = self._make_channel(self._note_lost)
        # Servers of the older era may leave a method that they do not know unanswered.
        probe_s = min(_PROBE_S, self._server.start_timeout / 3) if self._open.probe else None
        start = asyncio.timeout(self._server.start_timeout)
        late = asyncio.get_running_loop().call_later(self._server.start_timeout, self._report_late_start, channel)
        try:
            async with start, open_link(channel, probe_s=probe_s) as connection:
                await self._list_tools(connection)
                start.reschedule(None)
                late.cancel()
                ready()
                self._note_linked(connection)
                await self._follow_connection(connection)
            return self._describe_end(channel)
        except (Exception, BaseExceptionGroup) as failure:
            return self._describe_failure(_find_first_failure(failure), channel)[:_MAX_ERROR]
        finally:
            late.cancel()
            self._open.link = None

    def _describe_failure(self, failure: BaseException, channel: Channel) -> str:
        """Return the text for a failure, and decide whether the next connection probes for the newer era."""
        if self._open.up_s is None:
            # Some programs end themselves when they are asked for an era that they do not know.
            hurt = self._open.probe and self._server.transport == "stdio" and isinstance(failure, LostError)
            self._open.probe = not hurt
        match failure:
            case TimeoutError():
                return self._describe_late_start(channel)
            case LostError():
                return self._describe_end(channel)
            case AnsweredError() | StartError():
                return str(failure)
        log.error("service %r", self._server.name, exc_info=failure)
        return f"{type(failure).__name__}: {failure}".partition("\n")[0]

    async def _list_tools(self, connection: ServerLink) -> None:
        """Read the server's tools, and keep their checked definitions; log those left out."""
        with self._meter.operation("tools/list") as operation:
            operation.error_type = "failed"
            listed, problems = await connection.list_tools()
            operation.error_type = ""
        if self._placement is not None:
            self._open.listing = listed, problems
        definitions = await run_cooperatively(read_definitions(listed))
        self.definitions = Definitions(definitions.tools, (*problems, *definitions.left_out))
        for problem in self.definitions.left_out[:_MOST_LOGGED]:
            log.warning("service %r: %s", self._server.name, problem)

    async def _follow_connection(self, connection: ServerLink) -> None:
        """Follow a connection until it is gone, and list its tools again when they change."""
        backoff = Backoff()
        while not connection.closed_future.done():
            await connection.stirred.wait()
            connection.stirred.clear()
            if connection.closed_future.done():
                break
            await asyncio.sleep(_BETWEEN_LISTINGS_S)
            try:
                async with asyncio.timeout(self._server.start_timeout):
                    await self._list_tools(connection)
                self._seen.error, backoff = self._describe_problems(), Backoff()
            except (AnsweredError, TimeoutError, LostError) as error:
                self._seen.error = f"its tools could not be listed again: {str(error) or 'no answer'}"[:_MAX_ERROR]
                if isinstance(error, LostError):  # over HTTP it may be the end of one request only
                    await asyncio.wait({connection.closed_future}, timeout=backoff.choose_wait_s(up_s=0))
                    connection.stirred.set()
            self._tell()
        # Closing the rest of it may take seconds. No call may use it any more.
        self._open.link = None
        self._set_state("error", self._open.why or _ENDED)

    def _note_lost(self, reason: str) -> None:
        self._open.why = self._open.why or reason

    def _describe_end(self, channel: Channel) -> str:
        if channel.returncode is not None:
            return _append_last_line(f"its program ended with exit code {channel.returncode}", channel)
        return _append_last_line(self._open.why or _ENDED, channel)

    def _report_late_start(self, channel: Channel) -> None:
        self._set_state("error", self._describe_late_start(channel))

    def _describe_late_start(self, channel: Channel) -> str:
        return _append_last_line(f"did not answer within {self._server.start_timeout:g} s of its start", channel)

    def _describe_problems(self) -> str | None:
        """Return the problems of a running server as text for its operator, or None."""
        return "; ".join(self.definitions.left_out)[:_MAX_ERROR] or None

    def _note_linked(self, connection: ServerLink) -> None:
        self._open.link, self._seen.protocol, self._open.up_s = connection, connection.protocol, self._clock.monotonic()
        self._seen.implementation = connection.implementation
        self._set_state("running", self._describe_problems())
        self._linked.set()

    def _set_state(self, state: ServiceState, error: str | None = None) -> None:
        self._seen.state, self._seen.error, self._seen.since_s = state, error, self._clock.time()
        self._tell()

    def _get_connection(self) -> ServerLink | None:
        connection = self._open.link
        if connection is None or connection.closed_future.done():
            return None
        is_certain = self._placement is None or isinstance(connection, RemoteConnection) or self._placement.is_here
        return connection if is_certain else None

    async def _wait_for_connection(self) -> ServerLink:
        while (line := self._get_connection()) is None:
            self._linked.clear()
            await self._linked.wait()
        return line


def _do_nothing() -> None:
    """Do nothing: no program holds a place."""


def _load() -> OpenLink:
    """Import the SDK. It takes a second or two, so call it outside of the event loop."""
    with IMPORTING:
        from gateway.mcp.connection import open_connection

    silence_loggers("client", "httpcore2", "httpx2", "mcp")
    return open_connection


def _append_last_line(reason: str, channel: Channel) -> str:
    """Return the reason, with the program's last line on standard error, which mostly is the cause."""
    written = channel.stderr
    if not written:
        return reason
    hint = _OTHER_SDK if _SDK_FAILS.search(written[-1][:_MAX_ERROR]) else ""
    return f"{reason}{hint}; its last line on standard error: {written[-1]}"[:_MAX_ERROR]


def _find_first_failure(failure: BaseException) -> BaseException:
    """Return the first failure: task groups wrap the exceptions that are raised in them."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
