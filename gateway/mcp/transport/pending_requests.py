"""The bound of a server's own requests whose answers it has not taken.

The SDK starts a task for each request of a server, and its writer sends one answer after the other. A server that sends
requests and takes no answers would fill the memory.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import ObjectSendStream
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId

#: Of one connection, at a time.
REQUESTS: Final = 1000
MIB: Final = 32
#: Of the id of a request. The answer repeats it.
ID_CHARS: Final = 256
#: What a server sends of a request that it cancels.
CANCELLED: Final = "notifications/cancelled"
#: The note on a request with a longer id.
ID_TOO_LONG: Final = f"the id of its request is longer than {ID_CHARS} characters"


@dataclass(slots=True, eq=False)
class _ServerRequest:
    """A request of a server: its bytes, and the scope of the sending of its answer, once it began."""

    size_bytes: int
    sending: anyio.CancelScope | None = None


class Requests:
    """The count of the requests of one server whose answers it has not taken. Requests that it cancels do not count.

    The SDK interrupts what is done for a request that is cancelled, but for the sending of its answer. That is
    interrupted here, also if it begins only after `cancel`, which sees a message before the SDK does.
    """

    def __init__(self) -> None:
        self._waiting = self._bytes = 0
        self._asked: dict[RequestId, _ServerRequest] = {}
        self._cancelled: deque[RequestId] = deque(maxlen=REQUESTS)  # whose answers may begin to be sent yet

    def add(self, request_id: object, size_bytes: int) -> None:
        """Count a request as it comes. The first of two with one id counts until no answer waits."""
        self._bytes += size_bytes
        if (known := as_request_id(request_id)) is not None:
            self._asked[coerce_request_id(known)] = _ServerRequest(size_bytes)

    def cancel(self, params: object) -> None:
        """Release the room of a request that the server cancels; its answer is not sent."""
        known = as_request_id(params.get("requestId")) if isinstance(params, Mapping) else None
        if known is not None and (asked := self._asked.pop(coerce_request_id(known), None)) is not None:
            self._bytes -= asked.size_bytes
            if asked.sending is not None:
                asked.sending.cancel()
            else:
                self._cancelled.append(coerce_request_id(known))

    @contextmanager
    def answer(self, request_id: RequestId | None) -> Iterator[None]:
        """Count an answer as waiting while its sending lasts, which ends when its request is cancelled."""
        known = None if request_id is None else coerce_request_id(request_id)
        self._waiting += 1
        try:
            with anyio.CancelScope() as sending:
                if known is not None and (asked := self._asked.get(known)) is not None:
                    asked.sending = sending
                elif known in self._cancelled:
                    sending.cancel()
                yield
        finally:
            self._waiting -= 1
            if known is not None and (asked := self._asked.get(known)) is not None and asked.sending is sending:
                del self._asked[known]
                self._bytes -= asked.size_bytes
            if not self._waiting:  # also of messages that the SDK takes for no requests
                self._bytes = 0
                self._asked.clear()
                self._cancelled.clear()

    @property
    def excess(self) -> str | None:
        """Return the reason why the server is to be ended; None: there is none."""
        if self._waiting > REQUESTS:
            return f"it sent requests of its own and left more than {REQUESTS:,} answers to them waiting"
        if self._bytes > MIB << 20:
            return f"it sent more than {MIB} MiB of requests of its own and did not take the answers"
        return None


class AnswerCountingStream(ObjectSendStream[SessionMessage]):
    """The stream of messages to a server, which counts the answers that wait for `write`."""

    def __init__(self, write: ObjectSendStream[SessionMessage], requests: Requests) -> None:
        self._write = write
        self._requests = requests

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            with self._requests.answer(item.message.id):
                await self._write.send(item)
        else:
            await self._write.send(item)

    async def aclose(self) -> None:
        await self._write.aclose()


def has_long_id(request_id: object) -> bool:
    """Return whether an id is longer than it may be in a request of a server."""
    return isinstance(request_id, str) and len(request_id) > ID_CHARS
