"""A server in a thread of its own: clients that block the event loop of a test can reach it."""

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from aiohttp import web


class InThread:
    """`with` it serves what `_app` makes on `base_url` (which has no path) until it is left."""

    def __init__(self) -> None:
        self.base_url = ""
        self._stop: Future[None] = Future()
        self._address: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        self.base_url = self._address.result(timeout=10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stop.set_result(None)
        self._thread.join()

    def _app(self) -> web.Application:
        raise NotImplementedError

    async def _serve(self) -> None:
        runner = web.AppRunner(self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._address.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
            await asyncio.wrap_future(self._stop)
        finally:
            await runner.cleanup()
