"""The bound of what a server asks: its own requests whose answers it has not taken.

The SDK starts a task for each request of a server, and its writer sends one answer after the other. A server that asks
and takes no answers would fill the memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from gateway.mcp.types import Outgoing

#: Of one connection, at a time.
REQUESTS: Final = 1000
MIB: Final = 32
#: Of the id of a request. The answer repeats it.
ID_CHARS: Final = 256
#: What is said of a request with a longer id.
ID_TOO_LONG: Final = f"the id of its request is longer than {ID_CHARS} characters"


class Requests:
    """The count of the requests of one server that wait for their answers to be taken."""

    def __init__(self) -> None:
        self._waiting = self._bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count the bytes of a request as it comes. They count until no answer waits."""
        self._bytes += size_bytes

    @contextmanager
    def answer(self) -> Iterator[None]:
        """Count an answer as waiting while its sending lasts."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._bytes = 0

    @property
    def excess(self) -> str | None:
        """Return the reason why the server is to be ended; None: there is none."""
        if self._waiting > REQUESTS:
            return f"it sent requests of its own and left more than {REQUESTS:,} answers to them waiting"
        if self._bytes > MIB << 20:
            return f"it sent more than {MIB} MiB of requests of its own and did not take the answers"
        return None


class Answers(ObjectSendStream[SessionMessage]):
    """The stream of messages to a server (`types.Outgoing`), which counts the answers that wait for `write`."""

    def __init__(self, write: Outgoing, requests: Requests) -> None:
        self._write = write
        self._requests = requests

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            with self._requests.answer():
                await self._write.send(item)
        else:
            await self._write.send(item)

    async def aclose(self) -> None:
        await self._write.aclose()


def has_long_id(request_id: object) -> bool:
    """Return whether an id is longer than it may be in a request of a server."""
    return isinstance(request_id, str) and len(request_id) > ID_CHARS
