"""A proxy in front of PostgreSQL that breaks connections after a number of bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CuttingProxy:
    """Passes bytes on in both directions. `cut_up` and `cut_down` bytes later, it breaks that connection, once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut_up: int | None = None
        self.cut_down: int | None = None
        #: Answers of the server that pass before a cut: a statement has one with its rows, and at first one for its
        #: description.
        self.answers: int | None = None
        self.cuts = 0
        #: Bytes that went each way.
        self.up = self.down = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, up_writer)
        self._writers.update(ends)
        pumps = [
            asyncio.create_task(self._pump(reader, up_writer, ends, is_up=True)),
            asyncio.create_task(self._pump(up_reader, writer, ends, is_up=False)),
        ]
        self._tasks.update(pumps)
        for pump in pumps:
            pump.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, ...],
        *,
        is_up: bool,
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                if not is_up and self.answers is not None:
                    if self.answers == 0:
                        self.answers = None
                        self.cuts += 1
                        break
                    self.answers -= 1
                left = self.cut_up if is_up else self.cut_down
                if left is not None and left < len(piece):
                    writer.write(piece[:left])
                    await writer.drain()
                    self.cut_up = self.cut_down = None
                    self.cuts += 1
                    break
                if is_up:
                    self.up += len(piece)
                    self.cut_up = None if self.cut_up is None else self.cut_up - len(piece)
                else:
                    self.down += len(piece)
                    self.cut_down = None if self.cut_down is None else self.cut_down - len(piece)
                writer.write(piece)
                await writer.drain()
        for end in ends:
            end.close()  # also what was sent before it arrives

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[tuple[CuttingProxy, int]]:
    """The proxy, and the port at which it listens."""
    proxy = CuttingProxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await proxy.close()
