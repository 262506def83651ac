"""The bound of large results that clients have not read yet, of each key and of all in one worker.

A result is in memory until the kernel has all of it. Without a bound one client that opens connections and reads
nothing fills the memory, until each of them has been idle for too long. Small results do not count, and no other answer
is large (`gateway.mcp.blocks.EVENT_BYTES`): the kernel takes it.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

import orjson

from gateway.contracts.tools import ToolResult
from gateway.mcp_server.client_request import ClientRequest
from gateway.mcp_server.quotas.sessions import compute_share, get_owner

#: Of all keys. One key may have a quarter.
MIB: Final = 128
#: Results of fewer bytes are small.
LARGE_BYTES: Final = 256 << 10


class UnreadResults:
    """The bytes of large results on their way, by their requests, and the requests that wait to be next."""

    def __init__(self, most_bytes: int = MIB << 20) -> None:
        self._most_bytes = most_bytes
        self._taken: Counter[ClientRequest] = Counter()
        self._owned: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[asyncio.Future[None], tuple[ClientRequest, int]] = {}

    def take(self, visit: ClientRequest, size_bytes: int) -> bool:
        """Count a result of this size if it is large. Return whether it may be sent: there is room for it."""
        if size_bytes < LARGE_BYTES or visit.gone.is_set():  # what is sent to a client that left is dropped
            return True
        if not self._has_room(visit, size_bytes):
            return False
        self._taken[visit] += size_bytes
        self._owned[get_owner(visit)] += size_bytes
        return True

    async def wait_for_room(self, visit: ClientRequest, size_bytes: int) -> None:
        """Wait until there is room for a result, and count it; return if its client leaves."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = visit, size_bytes
        self._admit_waiting()
        leaving = asyncio.create_task(visit.gone.wait())
        try:
            await asyncio.wait((turn, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.pop(turn, None)
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    def release(self, visit: ClientRequest) -> None:
        """Give back what the result of a request has taken: it was read, or its client has left. Idempotent."""
        if size_bytes := self._taken.pop(visit, 0):
            owner = get_owner(visit)
            self._owned[owner] -= size_bytes
            if not self._owned[owner]:
                del self._owned[owner]
            self._admit_waiting()

    def _has_room(self, visit: ClientRequest, size_bytes: int) -> bool:
        """Return whether there is room. One that is larger than a share is alone in it."""
        owned = self._owned[get_owner(visit)]
        return (not owned or owned + size_bytes <= compute_share(self._most_bytes)) and (
            not self._taken or self._owned.total() + size_bytes <= self._most_bytes
        )

    def _admit_waiting(self) -> None:
        """Give room to the waiting callers, in their order; a key without room keeps no other one waiting."""
        for turn, (visit, size_bytes) in list(self._waiting.items()):
            if not turn.done() and self.take(visit, size_bytes):
                del self._waiting[turn]
                turn.set_result(None)


def estimate_result_bytes(result: ToolResult) -> int:
    """Return about how many bytes the result of a call has on its way to a client."""
    if result.parts is None and result.structured is None:
        return len(result.content)
    return len(orjson.dumps([result.parts or result.content, result.structured]))
