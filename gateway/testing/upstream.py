"""A scripted raw HTTP/1.1 origin on loopback, which records its requests."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from gateway.testing.messages import Request
from gateway.testing.raw_connection import KEEP_BYTES, PATIENCE_S, PEER_LEFT, Peer
from gateway.testing.scripts import build_ok_answer, serve
from gateway.testing.streams import PlainStream, TlsStream, require_loopback

Script = Callable[[Peer], Awaitable[None]]

BACKLOG = 4096


class FakeUpstream:
    """Connection n runs script n, the last one repeats; without scripts every request is answered 200.

    When a script returns, its connection is closed. A script also ends, quietly, when the other side has gone
    (`PEER_LEFT`); anything else it raises, a TimeoutError too, is raised again on leaving the `async with`.
    """

    def __init__(
        self,
        *scripts: Script,
        ssl: ssl.SSLContext | None = None,
        rcvbuf: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.host = require_loopback(host)
        self.port = port  #: the one chosen by the kernel, once entered
        self.connections: list[Peer] = []  #: every connection accepted, in order, kept after it ended
        self.requests: list[Request] = []  #: every request read whole, over all connections, in order of arrival
        self.open_count = 0  #: connections that neither side has ended, as far as the scripts read
        self._scripts = scripts or (serve(build_ok_answer()),)
        self._ssl = ssl
        self._rcvbuf = rcvbuf
        self._keep_bytes = keep_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []
        self._changed = asyncio.Event()
        self._listener: socket.socket | None = None

    def __repr__(self) -> str:
        return f"<FakeUpstream {self.base_url}, {len(self.requests)} requests, {len(self.connections)} connections>"

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._ssl is None else 'https'}://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._rcvbuf is not None:  # on the listener, so that the handshake already advertises it
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._rcvbuf)
            listener.setblocking(False)
            listener.bind((self.host, self.port))
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.connections:
            peer.close()
        if error is not None:
            for failure in self._failures:
                error.add_note(f"and at {self!r} a script failed: {failure!r}")
        elif self._failures:
            raise self._failures[0] if len(self._failures) == 1 else ExceptionGroup("scripts failed", self._failures)

    async def wait_requests(self, n: int, *, timeout_s: float = PATIENCE_S) -> list[Request]:
        """Return the requests as soon as there are `n`."""
        await self._wait_until_done(lambda: len(self.requests) >= n, f"{n} requests", timeout_s)
        return self.requests

    async def wait_connections(self, n: int, *, timeout_s: float = PATIENCE_S) -> list[Peer]:
        """Return the connections as soon as there are `n`."""
        await self._wait_until_done(lambda: len(self.connections) >= n, f"{n} connections", timeout_s)
        return self.connections

    async def wait_open(self, n: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Return as soon as exactly `n` connections are open; 0 finds a leak."""
        await self._wait_until_done(lambda: self.open_count == n, f"{n} open connections", timeout_s)

    async def _wait_until_done(self, reached: Callable[[], bool], what: str, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not reached():
                    await self._changed.wait()
        except TimeoutError as error:
            seen = f"{len(self.connections)} connections, {self.open_count} open, {len(self.requests)} requests"
            raise TimeoutError(f"no {what} within {timeout_s} s at {self!r}: {seen}") from error

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _record(self, request: Request) -> None:
        self.requests.append(request)
        self._notify()

    def _count_end(self) -> None:
        self.open_count -= 1
        self._notify()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # out of file descriptors: the loop would call again at once, for ever
                self._failures.append(error)
                self._stop_listening()
                return
            self._open(sock)

    def _open(self, sock: socket.socket) -> None:
        plain = PlainStream(sock)
        stream = plain if self._ssl is None else TlsStream(plain, self._ssl, server_name=None)
        peer = Peer(stream, keep_bytes=self._keep_bytes, on_request=self._record, on_end=self._count_end)
        script = self._scripts[min(len(self.connections), len(self._scripts) - 1)]
        self.connections.append(peer)
        self.open_count += 1
        task = asyncio.get_running_loop().create_task(self._run(script, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._notify()

    async def _run(self, script: Script, peer: Peer) -> None:
        try:
            await peer.handshake()
            await script(peer)
        except (*PEER_LEFT, ssl.SSLError):
            pass
        except Exception as error:
            error.add_note(f"in the script of connection {self.connections.index(peer)} of {self!r}")
            self._failures.append(error)
        finally:
            peer.close()
