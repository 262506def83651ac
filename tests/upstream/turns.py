"""A pool of one scripted upstream, and a turn that only notes what it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.testing.clock import ManualClock
from gateway.testing.upstream import FakeUpstream, Script
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import Pool


class NotingTurn:
    """A turn that notes the bytes it got, and its end."""

    def __init__(self, *, keeps_half_open: bool = False) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.error: Exception | None = None
        self._keeps_half_open = keeps_half_open
        self._changed = asyncio.Event()

    def on_response_bytes(self, data: bytes) -> None:
        self.received += data
        self._note("data")

    def on_upstream_eof(self) -> bool:
        self._note("eof")
        return self._keeps_half_open

    def on_upstream_lost(self, error: Exception | None) -> None:
        self.error = error
        self._note("lost")

    def on_upstream_full(self) -> None:
        self._note("full")

    def on_upstream_drained(self) -> None:
        self._note("drained")

    async def until(self, event: str) -> None:
        async with asyncio.timeout(120):
            while event not in self.events:
                self._changed.clear()
                await self._changed.wait()

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()


def endpoint(port: int, **more: object) -> Endpoint:
    facts: dict[str, object] = {"name": "up", "host": "127.0.0.1", "port": port, "authority": b"up", **more}
    return Endpoint(**facts)  # type: ignore[arg-type]


@asynccontextmanager
async def pooled(
    *scripts: Script, rcvbuf: int | None = None, **facts: object
) -> AsyncIterator[tuple[Pool, FakeUpstream, ManualClock]]:
    """The pool's clock is the test's."""
    clock = ManualClock(1000.0)
    async with FakeUpstream(*scripts, rcvbuf=rcvbuf) as upstream:
        pool = Pool(endpoint(upstream.port, **facts), clock=clock)
        yield pool, upstream, clock
        for connection in list(pool.open):
            connection.abort()
        while pool.open:
            await asyncio.sleep(0)


async def connected(pool: Pool, turn: NotingTurn | None = None) -> UpstreamConnection:
    connection = await pool.connect()
    connection.turn = turn
    return connection
