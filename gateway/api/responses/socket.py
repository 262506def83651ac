"""Responses over a WebSocket: one at a time, as the events that a stream has (Open Responses, "WebSocket Transport").

1. A turn is a separate request: key, limits and configuration are looked at anew for each.
2. Responses with `store` false are remembered by their connection alone. A turn that fails forgets the response that it
   went on from.
3. A client that leaves ends its turn as one that leaves its stream.
4. The headers of the handshake steer all turns, so it is refused for headers that no turn could have. What names one
   request, or its repetition, belongs to none of them.
5. A client may send further messages while one is answered: `WAITING`, and with it as many bytes as one may have. Then
   nothing more is read until the answer ends.
6. A steer is answered at once, and keeps its place among the messages that wait (steering.py).
7. `stream_id` names the lane of a message, and each event of its answer has it. All lanes share one queue.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType
from typing import Final

import orjson
from aiohttp import ClientConnectionResetError, WSCloseCode, WSMsgType, web

from gateway.aio.cooperative import run_aside
from gateway.api.context_request import AdmittedRequest
from gateway.api.json_body import check_values, is_text
from gateway.api.ops_pages import REQUEST_ID, Route
from gateway.api.responses.creating import Creation, ResponseDraft, StartedResponse
from gateway.api.responses.steering import (
    STEER_BYTES,
    TYPE,
    Steer,
    SteerQueue,
    build_successor,
    find_steer,
    find_unsteerable_reason,
    prepend_steers,
)
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json, StoreError, UntoldError, build_unwritten_error
from gateway.dialects.dialect import AnswerStream
from gateway.dialects.field_checks import build_short_text_kind, refuse
from gateway.dialects.json_object import parse_json_object
from gateway.dialects.registry import build_paths
from gateway.dialects.responses.events import extract_payloads
from gateway.dialects.responses.request import ResponseRequest, parse_request_body
from gateway.http.client_frames import ClientFrames
from gateway.http.error_response import generate_request_id
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import add_log_facts
from gateway.lanes.websocket import PageSocket, accept_websocket
from gateway.runs.run_id import generate_run_id

log = logging.getLogger("gateway")

#: The longest life of a connection, as the specification has it.
LIFE_S: Final = 3600.0
#: Messages that wait for their turn, and the latest responses that a connection remembers.
WAITING, REMEMBERED = 4, 8
CREATE: Final = "response.create"
_LANE: Final = build_short_text_kind(64)
#: Fields of requests over HTTP that mean nothing here.
_HTTP_ONLY: Final = ("stream_options", "background")


@dataclass(slots=True)
class SocketResponses:
    """The WebSockets of one worker on which responses are created."""

    creation: Creation
    life_s: float = LIFE_S
    _open: set[web.WebSocketResponse] = field(default_factory=set)

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [("GET", path, self._serve_socket) for path in build_paths("responses")]

    async def close(self) -> None:
        """Close all WebSockets with "going away". Idempotent."""
        going = [one.close(code=WSCloseCode.GOING_AWAY, message=b"the gateway stops") for one in list(self._open)]
        await asyncio.gather(*going)

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        async with self.creation.requests.admit_request(request) as entered:  # only a holder of a key opens one
            await _check_handshake(entered)
            limit_bytes = entered.lane.bounds.body_bytes
        frames = ClientFrames(limit_bytes=limit_bytes, most=1 + WAITING)
        async with accept_websocket(
            request, message_limit_bytes=limit_bytes, frames=frames, decode_text=False
        ) as socket:
            self._open.add(socket)
            connection = _Connection(self.creation, request, socket)
            turns = asyncio.get_running_loop().create_task(connection.run())
            try:
                async with asyncio.timeout(self.life_s):
                    async for message in socket:
                        if message.type is WSMsgType.TEXT and not await is_text(message.data):
                            await socket.close(code=WSCloseCode.INVALID_TEXT)
                        elif message.type is not WSMsgType.ERROR:
                            await connection.add(message.data if message.type is WSMsgType.TEXT else None)
                        del message  # it is as large as a body, and the next one may come late
            except TimeoutError:
                text = "This WebSocket has been open for its longest time: open a new one."
                request_id = generate_request_id()
                log.info("a WebSocket for responses has been open for its longest time, request id %s", request_id)
                await connection.complain(GatewayError("websocket_connection_limit_reached", text), request_id)
            finally:
                self._open.discard(socket)
                turns.cancel()
                await asyncio.wait({turns})
        return socket


class _SteerPlace:
    """The place of a steer, which has its answer, among the messages that wait."""


class _Connection:
    """One WebSocket and what it remembers."""

    def __init__(self, creation: Creation, request: web.Request, socket: PageSocket) -> None:
        self._waiting: asyncio.Queue[bytes | _SteerPlace | None] = asyncio.Queue()  # as many as the WebSocket takes
        self._creation = creation
        self._request = request
        self._socket = socket
        self._remembered: dict[str, Sequence[Json]] = {}
        self._before: str | None = None  # the response that the turn goes on from
        self._body: Json = {}  # of the turn, without its input
        self._lane = b""  # of the turn, as its events have it
        self._steering = SteerQueue()
        self._carried: list[Steer] = []  # by the turn, until its response has begun

    async def add(self, content: bytes | None) -> None:
        """Add a message, to be answered behind earlier ones. None: it is not text. A steer is answered now."""
        if content is not None and (steer := find_steer(content)) is not None:
            self._waiting.put_nowait(_SteerPlace())
            lane = self._lane if steer.get("previous_response_id") == self._steering.active else b""
            with suppress(ClientConnectionResetError):
                await self._send(orjson.dumps(self._steering.add_steer(steer)), lane=lane)
        else:
            self._waiting.put_nowait(content)

    async def run(self) -> None:
        """Answer one message after the other."""
        with suppress(ClientConnectionResetError):
            while True:
                await self._answer_message(await self._waiting.get())

    async def _answer_message(self, content: bytes | _SteerPlace | None) -> None:
        """Answer a message, be it with an error, which has the request id of the log, and then its steers."""
        with self._socket.answer_oldest_message():
            if isinstance(content, _SteerPlace):
                return
            self._lane = b""
            await self._answer_turn(content)
            while self._carried:
                before = self._carried[0].response_id
                await self._answer_turn(build_successor(self._body, before, self._carried))

    async def _answer_turn(self, content: bytes | None) -> None:
        """Answer one message, or the steers of its response. `_carried` are then those of the response."""
        self._request[REQUEST_ID] = generate_request_id()
        failed, response = True, None
        try:
            response = await self._run_turn(content)
            failed = response["status"] == "failed"
        except ClientConnectionResetError:
            raise
        except Exception as failure:
            error = _convert_error(failure, self._request[REQUEST_ID])
            await self._refuse(error)
            for event in self._steering.build_failures(self._carried, "successor_creation_failed", error.message):
                await self._send_event(event)
        if failed and self._before is not None:
            self._remembered.pop(self._before, None)
        events, self._carried = self._steering.end_response(response)
        for event in events:
            await self._send_event(event)

    async def _refuse(self, error: GatewayError) -> None:
        """Answer the message with an error."""
        request_id = self._request[REQUEST_ID]
        add_log_facts(self._request, status=error.facts.status, error_code=error.code, request_id=request_id)
        await self.complain(error, request_id)

    async def complain(self, error: GatewayError, request_id: str) -> None:
        """Send an error. Its text names what to do next, and the request id."""
        text = f"{error.message} (request id: {request_id})"
        told = {"type": error.facts.type, "code": error.shown_code, "message": text, "param": error.param}
        await self._send_event({"type": "error", "status": error.facts.status, "error": told})

    async def _run_turn(self, content: bytes | None) -> Json:
        """Create a response and send its events. Return it. Raises GatewayError before the first."""
        self._before = None
        if content is None:
            raise GatewayError("invalid_json", "Send text: one JSON object a message.")
        async with self._creation.requests.admit_request(self._request) as of_handshake:
            entered = replace(of_handshake, head=_clear_repetition(of_handshake.head))
            await check_values(content, limit=entered.lane.bounds.body_values)
            body = await run_aside(partial(parse_json_object, content), content=content)
            before = body.get("previous_response_id")
            self._before = before if isinstance(before, str) else None
            self._lane = _take_lane(body)
            generates = _check_frame(body)
            if steers := self._steering.take_waiting(before):
                self._carried = steers
                body["input"] = prepend_steers(body.get("input"), steers)
            self._body = {name: value for name, value in body.items() if name != "input"}
            self._body |= {"type": CREATE, **({"stream_id": orjson.loads(self._lane)} if self._lane else {})}
            parse = partial(parse_request_body, body, needs_model=entered.core.needs_model)
            wanted = replace(await run_aside(parse, content=content), streams=True)
            answer = self._create if generates else self._prepare
            try:
                return await answer(entered, wanted, content)
            except StoreError as error:
                log.error("the store failed: %s, request id %s", error, self._request[REQUEST_ID])
                text = "The gateway's store failed, so nothing was done: its log has this request id."
                raise build_unwritten_error(error, text) from None

    async def _create(self, entered: AdmittedRequest, wanted: ResponseRequest, content: bytes) -> Json:
        creation = self._creation
        begun = await creation.begin(self._request, entered, wanted, content, local=self._remembered)
        self._carried = []
        unsteerable = find_unsteerable_reason(self._body, compacts=wanted.compacts)
        self._steering.begin_response(begun.row.id, unsteerable=unsteerable)
        with creation.hold_response(begun, streams=True):
            await self._relay(entered, begun)
        self._remember_conversation(begun)
        creation.requests.resumption.forget_answered_question(begun.run, begun.request_key)
        return begun.answer.build_resource()

    async def _prepare(self, entered: AdmittedRequest, wanted: ResponseRequest, content: bytes) -> Json:
        """Answer with an empty response, from which the next message goes on with what is new alone."""
        draft = await self._creation.prepare_response(entered, wanted, content, local=self._remembered)
        frames = draft.answer.build_stream_writer().render_without_model()
        if draft.keep is not None:
            await draft.keep()
        await self._send_all(frames)
        self._remember_conversation(draft)
        self._carried = []
        return draft.answer.build_resource()

    async def _relay(self, entered: AdmittedRequest, begun: StartedResponse) -> None:
        """Send the events of a run as they come, as `ContextLane.answer` sends them over HTTP."""
        lane, run, stream = entered.lane, begun.run, begun.answer.build_stream_writer()
        whole = False
        add_log_facts(self._request, run=run.exchange.id, request_id=run.request_id)
        lane.runs.join(run)
        try:
            await run.transcript.wait_until_open(within_s=lane.bounds.status_wait_s)
            await self._send_all(stream.build_first_frame())
            try:
                await run.transcript.read(_Listener(self, stream))
                last = stream.finish()
                if begun.keep is not None:
                    with run.convert_store_errors():
                        await begun.keep()
            except ClientConnectionResetError:
                raise
            except UntoldError as error:  # how it ends, or has ended, is on record
                add_log_facts(self._request, error_code=error.code)
                last = stream.build_error_frames(error, request_id=run.request_id)
            except Exception as failure:
                told = _convert_error(failure, run.request_id)
                add_log_facts(self._request, error_code=told.code)
                last = stream.build_error_frames(told, request_id=run.request_id)
                if begun.keep is not None:
                    with suppress(GatewayError):
                        await begun.keep()
            await self._send_all(last)
            whole = True
            if (usage := begun.answer.usage) is not None:
                add_log_facts(
                    self._request, **{name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
                )
        except GatewayError:
            whole = True
            raise
        finally:
            lane.runs.remove_client(run, whole=whole)

    def _remember_conversation(self, draft: ResponseDraft) -> None:
        """Remember the conversation up to a response that is not stored, and forget the oldest of too many."""
        resource = draft.answer.build_resource()
        if draft.keep is None and resource["status"] in ("completed", "incomplete"):
            self._remembered[draft.row.id] = [*draft.items, *resource["output"]]
            if len(self._remembered) > REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    async def _send_all(self, frames: bytes) -> None:
        for payload in extract_payloads(frames):
            await self._send(payload, lane=self._lane)

    async def _send_event(self, event: Json) -> None:
        await self._send(orjson.dumps(event), lane=self._lane)

    async def _send(self, payload: bytes, *, lane: bytes) -> None:
        """Send an event, with its lane behind its other fields."""
        if lane:
            payload = b'%b,"stream_id":%b}' % (payload[:-1], lane)
        await self._socket.send_frame(payload, WSMsgType.TEXT)


class _Listener:
    """The reader of a transcript that sends what comes, and waits until it is sent."""

    def __init__(self, connection: _Connection, stream: AnswerStream) -> None:
        self._connection = connection
        self._stream = stream
        self._owed = b""

    def take(self, chunks: Sequence[Chunk]) -> bool:
        self._owed += b"".join(map(self._stream.build_frames, chunks))
        return False

    async def wait_until_caught_up(self) -> None:
        owed, self._owed = self._owed, b""
        await self._connection._send_all(owed)


async def _check_handshake(entered: AdmittedRequest) -> None:
    """Refuse a handshake whose headers no message could be answered with. Raises GatewayError."""
    if entered.head.find_value(b"idempotency-key") is not None:
        raise GatewayError(
            "invalid_header",
            "Idempotency-Key names one request, and a WebSocket carries many: leave it out.",
            param="idempotency-key",
        )
    identity = next(iter(entered.identities.values()))
    await entered.lane.build_exchange(entered.head, {"messages": []}, identity=identity, run_id=generate_run_id())


def _clear_repetition(head: RequestHead) -> RequestHead:
    """Return the head of a handshake, not as repeated: that would hold for each message."""
    return replace(head, fields=tuple(one for one in head.fields if one.name != b"x-stainless-retry-count"))


def _convert_error(failure: Exception, request_id: str) -> GatewayError:
    """Return the error that a client gets. An error other than GatewayError is logged."""
    if isinstance(failure, GatewayError):
        return failure
    log.error("a response over a WebSocket failed, request id %s", request_id, exc_info=failure)
    return GatewayError("internal_error", "The gateway failed; its log has this request id.")


def _take_lane(body: Json) -> bytes:
    """Leave the request in a message, without its lane. Return that as JSON, b"" for none. Raises GatewayError."""
    lane = body.pop("stream_id", None)
    if lane is None:
        return b""
    if not _LANE.accepts(lane):
        refuse("stream_id", _LANE.described)
    return orjson.dumps(lane)


def _check_frame(body: Json) -> bool:
    """Leave the request in a message, without what only messages have. Return whether a model is to be called.

    Raises GatewayError.
    """
    if body.pop("type", None) != CREATE:
        text = f"The message has no known type: send one of '{CREATE}', or a '{TYPE}' of at most {STEER_BYTES} bytes."
        raise GatewayError("invalid_field", text, param="type")
    generates = body.pop("generate", None)
    if type(generates) not in (bool, NoneType):
        raise GatewayError("invalid_field", "'generate' must be true or false.", param="generate")
    if (streams := body.pop("stream", None)) is not True and streams is not None:
        text = "'stream' must be true on a WebSocket, which always sends events: leave it out."
        raise GatewayError("invalid_field", text, param="stream")
    for name in _HTTP_ONLY:
        if body.get(name) is not None:
            text = f"'{name}' belongs to HTTP: leave it out on a WebSocket."
            raise GatewayError("unsupported_parameter", text, param=name)
        body.pop(name, None)
    return generates is not False
