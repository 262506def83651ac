"""A way to a gateway that breaks once: the first connection ends before its answer."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

_POLL_S: Final = 0.01


@contextmanager
def breaking(root: str, *, when: Callable[[], bool]) -> Iterator[str]:
    """Another base URL for `root`, whose first connection ends as soon as `when` holds."""
    parts, address, stop = urlsplit(root), Future[str](), Future[None]()
    way = _Way(parts.hostname or "", parts.port or 0, when)
    thread = threading.Thread(target=lambda: asyncio.run(way.serve(address, stop)), name="breaking")
    thread.start()
    try:
        yield parts._replace(netloc=address.result(timeout=10)).geturl()
    finally:
        stop.set_result(None)
        thread.join()


class _Way:
    def __init__(self, host: str, port: int, when: Callable[[], bool]) -> None:
        self._gateway = host, port
        self._when = when
        self._is_first = True
        self._over = asyncio.Event()
        self._carried = 0

    async def serve(self, address: Future[str], stop: Future[None]) -> None:
        async with await asyncio.start_server(self._carry, "127.0.0.1", 0) as server:
            address.set_result(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await asyncio.wrap_future(stop)
            self._over.set()
            while self._carried:
                await asyncio.sleep(_POLL_S)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        breaks, self._is_first = self._is_first, False
        self._carried += 1
        gateway_reader, gateway_writer = await asyncio.open_connection(*self._gateway)
        work: set[asyncio.Task[object]] = {
            asyncio.create_task(_pass(reader, gateway_writer)),
            asyncio.create_task(_pass(gateway_reader, writer)),
            asyncio.create_task(self._over.wait()),
        }
        if breaks:
            work.add(asyncio.create_task(self._until_broken()))
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            task.cancel()
        for side in (writer, gateway_writer):
            side.close()
        self._carried -= 1

    async def _until_broken(self) -> None:
        while not self._when():
            await asyncio.sleep(_POLL_S)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
