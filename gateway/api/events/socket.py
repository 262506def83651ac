"""GET /context/ws: a WebSocket that sends the events of a tenant's runs, and takes decisions.

1. One task writes from one queue. A client whose queue grows too long is disconnected.
2. The next message is read once the answer to the last one is sent. So a client that does not read gets no answer.
3. The key is checked before each decision and each event. Without a valid key nothing is decided or sent.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.api.decisions import ApiContext, DecisionBody, carry_out
from gateway.api.events.subscribers import WAITING_MOST, Audience, Outbox, encode_event
from gateway.api.ops_pages import Route
from gateway.api.request import (
    VIEWING,
    RequestBody,
    parse_json,
    parse_query,
    parse_query_number,
    read_user,
    validate_body,
)
from gateway.api.views import build_decided_view, build_error_view
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.contracts.views import dump_view
from gateway.lanes.aiohttp_adapter import Facade
from gateway.lanes.websocket import accept_websocket
from gateway.runs.decision_messages import ADDED

log = logging.getLogger("gateway")

SOCKET = "/context/ws"
MESSAGE_LIMIT_BYTES = 1 << 20
#: Events of one query, and the longest goodbye.
BATCH, CLOSE_S = 500, 2.0


class Ping(RequestBody):
    """A request for a pong."""

    type: Literal["ping"]


class Decide(DecisionBody):
    """A decision. Its answer contains the same `ref`."""

    type: Literal["decide"]
    id: str
    ref: Any = None


class SocketPages:
    """The WebSocket page of one worker. `keys` returns a value that is equal as long as no key has changed or ended."""

    def __init__(self, api: ApiContext, *, keys: Callable[[], object]) -> None:
        self._api = api
        self._audience = Audience(keys)
        self._open: set[web.WebSocketResponse] = set()

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("GET", SOCKET, self._serve_socket)]

    async def close(self) -> None:
        """Close all WebSockets with "going away". Idempotent."""
        await asyncio.gather(*(_close(s, WSCloseCode.GOING_AWAY, b"the gateway stops") for s in list(self._open)))

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        caller = self._api.authorise(request, *VIEWING)
        query = parse_query(request, "after")
        outbox = Outbox(caller.tenant)
        async with self._api.feed.subscribe(self._audience.receive), self._audience.subscribe(outbox):
            after = parse_query_number(query, "after", default=-1)
            outbox.seen = after if after >= 0 else await self._api.store.get_last_event()
            async with accept_websocket(request, message_limit_bytes=MESSAGE_LIMIT_BYTES) as socket:
                self._open.add(socket)
                try:
                    outbox.put_now = partial(_write_frames, request, socket)
                    await self._answer_messages(request, socket, outbox)
                finally:
                    self._open.discard(socket)
        return socket

    async def _answer_messages(self, request: web.Request, socket: web.WebSocketResponse, outbox: Outbox) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = (
                tasks.create_task(self._send(request, socket, outbox)),
                tasks.create_task(_close_slow_client(socket, outbox)),
            )
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    outbox.queue_reply(await self._answer_message(request, message.data))
                else:
                    outbox.queue_reply(
                        _build_complaint(GatewayError("invalid_json", "Send text: one JSON object a message."))
                    )
                await outbox.wait_until_empty()
            for task in beside:
                task.cancel()

    async def _send(self, request: web.Request, socket: web.WebSocketResponse, outbox: Outbox) -> None:
        """Send stored events, then new ones. Close the WebSocket once its key stops being valid."""
        try:
            more = True
            while more:
                self._check_key(request, outbox)
                events = await self._api.store.list_events(after=outbox.seen, tenant=outbox.tenant, limit=BATCH)
                for event in events:
                    if event.type != ADDED:
                        await socket.send_frame(encode_event(event), WSMsgType.TEXT)
                    outbox.seen = event.seq
                more = len(events) == BATCH
            while True:
                item = await outbox.wait_for_next()
                if isinstance(item, bytes):
                    await socket.send_frame(item, WSMsgType.TEXT)
                elif item[0] > outbox.seen:
                    self._check_key(request, outbox)
                    outbox.seen, words = item
                    await socket.send_frame(words, WSMsgType.TEXT)
        except GatewayError as error:
            await _close(socket, WSCloseCode.POLICY_VIOLATION, error.code.encode())

    def _check_key(self, request: web.Request, outbox: Outbox) -> None:
        """Check the key as it is now. Raises GatewayError: it is not valid, or is one of another tenant by now."""
        if self._api.find_caller(request).tenant != outbox.tenant:
            raise GatewayError("invalid_api_key", "The key is in another tenant now: open the WebSocket again.")

    async def _answer_message(self, request: web.Request, text: str) -> Json:
        """Return the answer to a message."""
        try:
            value = parse_json(text)
            kind = value.get("type") if isinstance(value, dict) else None
            if kind == "decide":
                return await self._decide(request, value)
            if kind == "ping":
                validate_body(Ping, value)
                return {"type": "pong"}
            raise GatewayError(
                "invalid_field",
                "The message has no known type: send an object whose 'type' is 'decide' or 'ping'.",
                param="type",
            )
        except GatewayError as error:
            return _build_complaint(error)

    async def _decide(self, request: web.Request, value: object) -> Json:
        assert isinstance(value, dict)
        told: Json = {"type": "decision", "ref": value.get("ref")}
        try:
            caller = self._api.find_caller(request)
            message = validate_body(Decide, value)
            wish = message.to_decision("websocket", user=read_user(request))
            approval = await carry_out(self._api.decide_and_resume(message.id, wish, caller=caller))
        except GatewayError as error:
            return {**told, "status": error.facts.status, "error": dump_view(build_error_view(error))}
        return {**told, "status": 200, "approval": dump_view(build_decided_view(approval))}


async def _close_slow_client(socket: web.WebSocketResponse, outbox: Outbox) -> None:
    """Close the connection of a client that does not read. It may come back with `after`."""
    await outbox.overfull.wait()
    log.warning("a client of %s is more than %d events behind: its connection is closed", SOCKET, WAITING_MOST)
    await _close(socket, WSCloseCode.TRY_AGAIN_LATER, b"too many events wait: come back with ?after=")


async def _close(socket: web.WebSocketResponse, code: int, reason: bytes) -> None:
    """Close a WebSocket. Wait at most `CLOSE_S` for the client."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await socket.close(code=code, message=reason, drain=False)


def _write_frames(request: web.Request, socket: web.WebSocketResponse, frames: bytes) -> bool:
    """Write frames, if the client is connected and keeps up. Return whether they were written."""
    wire = request.transport
    return isinstance(wire, Facade) and not socket.closed and wire.put(frames)


def _build_complaint(error: GatewayError) -> Json:
    return {"type": "error", "error": dump_view(build_error_view(error))}
