"""The connection to a server that runs at another worker: the link of `server_link`, over requests to that worker.

1. One request stays open as long as the server runs there. Its first line has the facts about the server, and each
   further one reports a change. Its end is that of the connection.
2. Each call is a request of its own: lines of progress, then one line with the outcome. To close it cancels the call.
3. A request that did not reach the other worker has not run. If its answer breaks off, the outcome is not known.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

import orjson

from gateway.contracts.exchange import CallProgress
from gateway.contracts.storage.store import Json
from gateway.mcp.calls import AnsweredError, LostError, NotRunError
from gateway.mcp.placement import Placement
from gateway.upstream.replicas.client import LostReplicaError, NotReachedError, ReplicaAnswer

#: The pages of a worker for those that use its servers.
SERVICES: Final = "/replica/services"
WATCH, TOOLS, CALL, ASK, CHECK = (f"{SERVICES}/{action}" for action in ("watch", "tools", "call", "ask", "check"))
_FIELDS: Final = ((b"Content-Type", b"application/json"),)
_OK: Final = 200


class RemoteChannel:
    """The channel of a connection to a server at another worker: it shows nothing of the server's program."""

    skipped_lines: Final = 0
    stderr: Sequence[str] = ()
    returncode: Final = None


class RemoteConnection:
    """A `ServerLink` to a server that `worker` runs."""

    def __init__(self, placement: Placement, worker: str) -> None:
        self._placement = placement
        self._worker = worker
        self._facts: Json = {}
        self.stirred = asyncio.Event()
        self.closed_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed_future.add_done_callback(lambda _: self.stirred.set())

    @property
    def protocol(self) -> str:
        return str(self._facts.get("protocol", ""))

    @property
    def implementation(self) -> str | None:
        return self._facts.get("implementation")

    def offers(self, kind: str) -> bool:
        return kind in self._facts.get("offers", ())

    def end(self) -> None:
        """End the connection. Idempotent."""
        if not self.closed_future.done():
            self.closed_future.set_result(None)

    async def follow(self, opened: asyncio.Event) -> None:
        """Read the facts about the server and its changes, until it ends. Raises LostError, AnsweredError."""
        answer = await self._send(WATCH, {})
        try:
            async for line in _read_lines(answer):
                if opened.is_set():
                    self.stirred.set()
                else:
                    self._facts = line
                    opened.set()
        except LostReplicaError as error:
            raise LostError(str(error)) from None
        finally:
            answer.close()
            self.end()

    async def list_tools(self) -> tuple[list[Any], list[str]]:
        listing = await self._get_outcome(TOOLS, {})
        return listing["tools"], listing["problems"]

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        progressed: Callable[[CallProgress], None],
        meta: Mapping[str, str] = MappingProxyType({}),
    ) -> Json:
        return await self._get_outcome(
            CALL, {"tool": tool, "arguments": arguments, "meta": dict(meta)}, progressed=progressed
        )

    async def ask(self, method: str, params: Json) -> Json:
        return await self._get_outcome(ASK, {"method": method, "params": params})

    async def ping(self) -> None:
        """Let the other worker check whether its server lives, which ends it if not. Raises LostError."""
        (await self._send(CHECK, {})).close()

    async def _get_outcome(
        self, target: str, body: Json, *, progressed: Callable[[CallProgress], None] | None = None
    ) -> Json:
        """Send a request and return its result. Raises NotRunError, LostError and AnsweredError."""
        answer = await self._send(target, body)
        try:
            async for line in _read_lines(answer):
                match line:
                    case {"progress": [value, total, message]}:
                        if progressed is not None:
                            progressed(CallProgress(message, value, total))
                    case {"result": result}:
                        return dict(result)
                    case {"answered": text}:
                        raise AnsweredError(text)
                    case {"not_run": text}:
                        raise NotRunError(text)
                    case _:
                        raise LostError(str(line.get("lost", "")))
        except LostReplicaError as error:
            raise LostError(str(error)) from None
        finally:
            answer.close()
        raise LostError("the other worker ended its answer")

    async def _send(self, target: str, body: Json) -> ReplicaAnswer:
        """Send a request about the server. Raises NotRunError and LostError."""
        content = orjson.dumps({"name": self._placement.name, **body})
        try:
            answer = await self._placement.replicas.send(
                self._worker, b"POST", target.encode(), fields=_FIELDS, body=content
            )
        except NotReachedError as error:
            self.end()
            raise NotRunError(str(error)) from None
        except LostReplicaError as error:
            self.end()
            raise LostError(str(error)) from None
        if answer.status != _OK:
            answer.close()
            self.end()
            raise NotRunError("it does not run there just now")
        return answer


@asynccontextmanager
async def open_remote_connection(placement: Placement, worker: str) -> AsyncIterator[RemoteConnection]:
    """Open a connection to a server at another worker. Raises NotRunError and LostError."""
    connection, opened = RemoteConnection(placement, worker), asyncio.Event()
    loop = asyncio.get_running_loop()
    following = loop.create_task(connection.follow(opened))
    opening = loop.create_task(opened.wait())
    try:
        await asyncio.wait({following, opening}, return_when=asyncio.FIRST_COMPLETED)
        if not opened.is_set():
            await following
            raise LostError("the other worker ended its answer")
        yield connection
    finally:
        opening.cancel()
        following.cancel()
        await asyncio.gather(following, opening, return_exceptions=True)
        connection.end()


async def _read_lines(answer: ReplicaAnswer) -> AsyncIterator[Json]:
    """Yield the JSON objects of an answer, one a line. Raises LostReplicaError."""
    pieces: list[bytes] = []
    while piece := await answer.read_more():
        *whole, rest = piece.split(b"\n")
        for line in whole:
            pieces.append(line)
            yield orjson.loads(b"".join(pieces))
            pieces = []
        pieces.append(rest)
