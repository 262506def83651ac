"""Responses over a WebSocket: one at a time, as the events that a stream has (Open Responses, "WebSocket Transport").

1. A turn is a request of its own: key, limits and configuration are looked at anew for each.
2. Responses with `store` false are remembered by their connection alone. A turn that fails forgets the response that it
   went on from.
3. A client that leaves ends its turn as one that leaves its stream.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import orjson
from aiohttp import ClientConnectionResetError, WSCloseCode, WSMessage, WSMsgType, web

from gateway.api.asking import Entered
from gateway.api.content import check_values
from gateway.api.responses.creating import Begun, Creation
from gateway.api.site import Route
from gateway.contracts.exchange import Chunk
from gateway.contracts.store import Json, StoreError, unwritten
from gateway.dialects.dialect import Stream
from gateway.dialects.endpoints import paths_of
from gateway.dialects.responses.events import payloads
from gateway.errors import GatewayError
from gateway.lanes.websocket import websocket

#: The longest life of a connection, as the specification has it.
LIFE_S: Final = 3600.0
#: Messages that wait for their turn, and the latest responses that a connection remembers.
WAITING, REMEMBERED = 4, 8
_HTTP_ONLY: Final = ("stream", "stream_options", "background")


@dataclass(slots=True)
class SocketResponses:
    """The WebSockets of one worker on which responses are created."""

    creation: Creation
    life_s: float = LIFE_S
    _open: set[web.WebSocketResponse] = field(default_factory=set)

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("GET", path, self._socket) for path in paths_of("responses")]

    async def close(self) -> None:
        """Close all WebSockets with "going away". Idempotent."""
        going = [one.close(code=WSCloseCode.GOING_AWAY, message=b"the gateway stops") for one in list(self._open)]
        await asyncio.gather(*going)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        requests = self.creation.requests
        async with requests.entered(request) as entered:  # a stranger opens none
            limit_bytes = entered.lane.body_bytes
        async with websocket(request, message_limit_bytes=limit_bytes) as socket:
            self._open.add(socket)
            conversation = _Connection(self.creation, request, socket)
            turns = asyncio.get_running_loop().create_task(conversation.run())
            try:
                async with asyncio.timeout(self.life_s):
                    async for message in socket:
                        await conversation.waiting.put(message)
            except TimeoutError:
                await conversation.complain(
                    GatewayError(
                        "websocket_connection_limit_reached",
                        "This WebSocket has been open for its longest time: open a new one.",
                    )
                )
            finally:
                self._open.discard(socket)
                turns.cancel()
                await asyncio.wait({turns})
        return socket


class _Connection:
    """One WebSocket and what it remembers."""

    def __init__(self, creation: Creation, request: web.Request, socket: web.WebSocketResponse) -> None:
        self.waiting: asyncio.Queue[WSMessage] = asyncio.Queue(WAITING)
        self._creation = creation
        self._request = request
        self._socket = socket
        self._remembered: dict[str, Sequence[Json]] = {}

    async def run(self) -> None:
        """Answer one message after the other."""
        with suppress(ClientConnectionResetError):
            while True:
                message = await self.waiting.get()
                before: str | None = None
                try:
                    content, before = _request_in(message)
                    failed = await self._turn(content)
                except GatewayError as error:
                    failed = True
                    await self.complain(error)
                if failed and before is not None:
                    self._remembered.pop(before, None)

    async def complain(self, error: GatewayError) -> None:
        """Send an error. The message names what to do next."""
        told = {"type": error.facts.type, "code": error.code, "message": error.message, "param": error.param}
        await self._send(orjson.dumps({"type": "error", "status": error.facts.status, "error": told}))

    async def _turn(self, content: bytes) -> bool:
        """Create a response and send its events. Return whether it failed. Raises GatewayError before the first."""
        requests = self._creation.requests
        async with requests.entered(self._request) as entered:
            await check_values(content, limit=entered.lane.body_values)
            try:
                begun = await self._creation.begin(self._request, entered, content, local=self._remembered)
                await self._relay(entered, begun)
            except StoreError as error:
                raise unwritten(error, "The gateway's store failed, so nothing was done: its log says why.") from None
        if begun.keep is None:
            self._remember(begun)
        requests.resumption.delivered(begun.run, begun.request_key)
        failed: bool = begun.answer.resource()["status"] == "failed"
        return failed

    async def _relay(self, entered: Entered, begun: Begun) -> None:
        """Send the events of a run as they come, as `ContextLane.answer` sends them over HTTP."""
        lane, run, stream = entered.lane, begun.run, begun.answer.stream()
        whole = False
        lane.runs.join(run)
        try:
            await run.transcript.opened(within_s=lane.status_wait_s)
            await self._send_all(stream.first())
            try:
                await run.transcript.read(_Listener(self, stream))
                last = stream.finish()
                if begun.keep is not None:
                    await begun.keep()
            except GatewayError as error:
                last = stream.error(error, request_id=run.request_id)
                if begun.keep is not None:
                    with suppress(GatewayError):
                        await begun.keep()
            await self._send_all(last)
            whole = True
        except GatewayError:
            whole = True
            raise
        finally:
            lane.runs.leave(run, whole=whole)

    def _remember(self, begun: Begun) -> None:
        """Remember the conversation up to a response that is not stored, and forget the oldest of too many."""
        resource = begun.answer.resource()
        if resource["status"] in ("completed", "incomplete"):
            self._remembered[begun.row.id] = [*begun.items, *resource["output"]]
            if len(self._remembered) > REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    async def _send_all(self, frames: bytes) -> None:
        for payload in payloads(frames):
            await self._send(payload)

    async def _send(self, payload: bytes) -> None:
        await self._socket.send_frame(payload, WSMsgType.TEXT)


class _Listener:
    """The reader of a transcript that sends what comes, and waits until it is sent."""

    def __init__(self, connection: _Connection, stream: Stream) -> None:
        self._connection = connection
        self._stream = stream
        self._owed = b""

    def take(self, chunks: Sequence[Chunk]) -> bool:
        self._owed += b"".join(map(self._stream.frames, chunks))
        return False

    async def caught_up(self) -> None:
        owed, self._owed = self._owed, b""
        await self._connection._send_all(owed)


def _request_in(message: WSMessage) -> tuple[bytes, str | None]:
    """Return the body of the request that a message is, and the response that it goes on from. Raises GatewayError."""
    if message.type is not WSMsgType.TEXT:
        raise GatewayError("invalid_json", "Send text: one JSON object a message.")
    try:
        value: Json = orjson.loads(message.data)
    except orjson.JSONDecodeError as error:
        raise GatewayError("invalid_json", f"The message is not JSON: {error}.") from None
    if not isinstance(value, dict) or value.get("type") != "response.create":
        raise GatewayError(
            "invalid_field", "The message has no known type: send an object of type 'response.create'.", param="type"
        )
    for name in _HTTP_ONLY:
        if name in value:
            raise GatewayError(
                "unsupported_parameter",
                f"'{name}' belongs to HTTP: leave it out on a WebSocket, which always sends events.",
                param=name,
            )
    del value["type"]
    before = value.get("previous_response_id")
    return orjson.dumps(value), before if isinstance(before, str) else None
