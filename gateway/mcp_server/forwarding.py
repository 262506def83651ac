"""Requests in sessions of other workers: each goes to the worker that has its session, and its answer comes back.

1. The id of a session names its worker, so no store is needed to find it. A worker that is gone has taken its sessions
   along: their requests get 404, after which clients begin a new session, as the protocol has it.
2. The worker of a session checks a request as any other: key, end user, session. Only the address of the client comes
   from here, and is sealed.
3. A request is passed on once. If the other worker goes away before its answer, the answer says that the outcome is
   not known.
4. A result counts as received once it has left here for the client. The worker of the session is told then.
"""

import asyncio
import re
from collections.abc import AsyncIterator, MutableMapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import orjson

from gateway.contracts.plugin import Counters
from gateway.mcp_server.bridge import Application, Receive
from gateway.mcp_server.client_request import SCOPE_KEY, ClientRequest
from gateway.mcp_server.errors import build_no_session_refusal
from gateway.mcp_server.media import Send
from gateway.mcp_server.results import find_run_marks
from gateway.upstream.replicas.client import LostReplicaError, NotReachedError, ReplicaAnswer
from gateway.upstream.replicas.replicas import Replicas
from gateway.upstream.replicas.seals import SEAL_FIELD

#: The pages for other workers: requests in sessions of this one, and results that have left for their clients.
FORWARDED: Final = "/replica/mcp"
DELIVERED: Final = "/replica/delivered"
_SESSION: Final = b"mcp-session-id"
_SESSION_ID: Final = re.compile(r"[0-9a-f]{32}-(worker_[0-9a-f]{16})")
#: Fields of a request that belong to its connection, or that the first worker has acted on.
_NOT_FORWARDED: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"content-encoding", b"content-length", b"expect", b"host"),
        *(b"cookie", b"origin", b"referer", b"sec-fetch-dest", b"sec-fetch-mode", b"sec-fetch-site"),
        SEAL_FIELD,
    )
)
_NOT_RETURNED: Final = frozenset((b"date", b"server"))
_EVENTS: Final = b"text/event-stream"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class OwnedSessionIds:
    """The application of the SDK, with ids of sessions that name the worker `owner`."""

    def __init__(self, app: Application, *, owner: str) -> None:
        self._app = app
        self._ending = f"-{owner}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a request with the SDK's own id, and add the owner to the id in the answer."""

        async def send_with_owner(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                fields = [(name, self._extend(name, value)) for name, value in message["headers"]]
                message = {**message, "headers": fields}
            await send(message)

        fields = [
            (name, value.removesuffix(self._ending) if name == _SESSION else value) for name, value in scope["headers"]
        ]
        await self._app({**scope, "headers": fields}, receive, send_with_owner)

    def _extend(self, name: bytes, value: bytes) -> bytes:
        return value + self._ending if name == _SESSION else value


class SessionForwarder:
    """The application in front of the sessions of a worker, which passes on requests in sessions of others."""

    def __init__(self, app: Application, replicas: Replicas, *, counters: Counters) -> None:
        self._app = app
        self._replicas = replicas
        self._counters = counters
        self._reporting: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a request without a session, or in one of this worker; pass any other on to its worker."""
        visit: ClientRequest = scope[SCOPE_KEY]
        worker = _find_worker_name(visit)
        if worker is None or worker == self._replicas.owner:
            await self._app(scope, receive, send)
        elif not worker or visit.is_forwarded:
            await _refuse_session(send)
        else:
            await self._forward(worker, scope, receive, send)

    def is_elsewhere(self, visit: ClientRequest) -> bool:
        """Return whether a request is in a session of another worker, or in one that never was."""
        worker = _find_worker_name(visit)
        return worker is not None and worker != self._replicas.owner

    async def open(self) -> None:
        """Let other workers find the sessions of this one. Raises StoreError, and OSError if it cannot listen."""
        await self._replicas.open()

    async def close(self) -> None:
        """Wait until other workers know which results were received. Idempotent."""
        while self._reporting:
            await asyncio.wait(self._reporting)

    async def _forward(self, worker: str, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back, until the client leaves."""
        body = (await receive())["body"]
        loop = asyncio.get_running_loop()
        relaying = loop.create_task(self._relay(worker, scope[SCOPE_KEY], body, send))
        leaving = loop.create_task(_wait_for_departure(receive))
        try:
            await asyncio.wait({relaying, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if relaying.done():
                await relaying
        finally:
            for task in (relaying, leaving):
                task.cancel()
            await asyncio.gather(relaying, leaving, return_exceptions=True)

    async def _relay(self, worker: str, visit: ClientRequest, body: bytes, send: Send) -> None:
        """Send a request to the worker of its session, and pass the answer on as it comes."""
        outcome = "cancelled"
        answer: ReplicaAnswer | None = None
        try:
            await self._replicas.directory.find_worker(worker)
            answer = await self._replicas.send(
                worker,
                visit.request.method.encode(),
                _build_target(visit),
                fields=_list_forwarded_fields(visit),
                body=body,
                client=visit.head.peer,
            )
            await self._relay_answer(answer, visit, send)
            outcome = "answered"
        except NotReachedError:
            outcome = "gone"
            await _refuse_session(send)
        except LostReplicaError:
            outcome = "lost"
            await _end_lost_answer(answer, visit, send)
        finally:
            if answer is not None:
                answer.close()
            self._counters.count("mcp_forwards", kind="session", outcome=outcome)

    async def _relay_answer(self, answer: ReplicaAnswer, visit: ClientRequest, send: Send) -> None:
        """Send head and body of an answer, a stream of events event by event. Raises LostReplicaError."""
        fields = [field for field in answer.fields if field[0] not in _NOT_RETURNED]
        start = {"type": "http.response.start", "status": answer.status, "headers": fields}
        if not any(name == b"content-type" and value.startswith(_EVENTS) for name, value in fields):
            body = b"".join([piece async for piece in _read_pieces(answer)])
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})
            return
        await send(start)
        async for event in _read_events(answer):
            for mark in find_run_marks(event):
                visit.owed[mark] = partial(self._report_delivery_soon, answer.worker, mark)
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _report_delivery_soon(self, worker: str, mark: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._report_delivery(worker, mark))
        self._reporting.add(task)
        task.add_done_callback(self._reporting.discard)

    async def _report_delivery(self, worker: str, mark: bytes) -> None:
        """Report to the worker of a call that its result has left for the client; else the same call gets it again."""
        fields = [(b"Content-Type", b"application/json")]
        body = orjson.dumps([mark.decode()])
        try:
            answer = await self._replicas.send(worker, b"POST", DELIVERED.encode(), fields=fields, body=body)
        except (NotReachedError, LostReplicaError):
            return
        answer.close()


def _find_worker_name(visit: ClientRequest) -> str | None:
    """Return the worker of a request's session; "": no worker has given it this id. None: it is in no session."""
    if visit.session_id is None or not visit.is_of_older_era:
        return None
    named = _SESSION_ID.fullmatch(visit.session_id)
    return "" if named is None else named[1]


async def _wait_for_departure(receive: Receive) -> None:
    await receive()


def _build_target(visit: ClientRequest) -> bytes:
    service = "" if visit.service is None else "/" + quote(visit.service, safe="")
    return (FORWARDED + service).encode()


def _list_forwarded_fields(visit: ClientRequest) -> Sequence[tuple[bytes, bytes]]:
    return [(field.name, field.value) for field in visit.head.fields if field.name not in _NOT_FORWARDED]


async def _read_pieces(answer: ReplicaAnswer) -> AsyncIterator[bytes]:
    """Yield the body of an answer. Raises LostReplicaError."""
    while piece := await answer.read_more():
        yield piece


async def _read_events(answer: ReplicaAnswer) -> AsyncIterator[bytes]:
    """Yield the events of an answer, each whole. Raises LostReplicaError."""
    pieces: list[bytes] = []
    async for piece in _read_pieces(answer):
        pieces.append(piece)
        if not piece.endswith((b"\n", b"\r")):
            continue  # an event ends with its line: a long one is not joined again for each piece
        data, pieces = b"".join(pieces), []
        begin = 0
        for end in _EVENT_END.finditer(data):
            yield data[begin : end.end()]
            begin = end.end()
        if begin < len(data):
            pieces.append(data[begin:])
    if rest := b"".join(pieces):
        yield rest


async def _refuse_session(send: Send) -> None:
    """Answer that there is no such session, so that the client begins a new one."""
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(build_no_session_refusal()), "more_body": False})


async def _end_lost_answer(answer: ReplicaAnswer | None, visit: ClientRequest, send: Send) -> None:
    """End the answer of a worker that went away. The bridge adds that the outcome of a request is not known."""
    if answer is None:
        if not visit.is_request:
            await _refuse_session(send)
            return
        headers = [(b"content-type", _EVENTS), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
