"""One worker process on its event loop: it listens, reloads, drains and ends."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable

import uvloop

from gateway.aio.clock import wait_until_set
from gateway.server.app import ADMIN, DATA, Gateway
from gateway.server.sockets import steer_to_successor, stop_steering
from gateway.server.store.opening import StartEndedError, StoreWait
from gateway.server.store.startup_pages import StartupPages
from gateway.server.systemd import notify

log = logging.getLogger("gateway")

#: Blocked from the start of a process until its handlers are there: none of them must end it unhandled.
HANDLED = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD))

#: How long half-done handshakes may take to end before a socket that is shared with another gateway is closed.
HAND_OVER_S = 0.25
#: How often a gateway that joined a port ends what steering its predecessor left behind.
SPREAD_S = 10.0
#: How long a process may take to end once its closing began. Plugins can hold it up in many ways: a task that goes on
#: in spite of its cancellation, a thread that waits, an event loop that stands still.
CLOSES_S = 20.0
#: So many new objects before the collector looks for cycles among them: requests leave none (docs/decisions/0014), and
#: each look at what is under way costs more than it finds.
YOUNG_OBJECTS = 50_000
#: Pending connections that the kernel keeps for us.
BACKLOG = 4096


class Worker:
    """A process that runs a Gateway on listening sockets until a signal. It calls `on_ready` once it serves.

    `shared`: the number of our sockets on each port, if another gateway may listen there too; else 0. `flush` writes
    the log's last lines where the process is ended by force.
    """

    def __init__(
        self,
        gateway: Gateway,
        sockets: dict[str, socket.socket],
        *,
        shared: int,
        on_ready: Callable[[], None],
        flush: Callable[[], None],
    ) -> None:
        self._flush = flush
        self._shared = shared
        self._gateway = gateway
        self._sockets = sockets
        self._on_ready = on_ready
        self._stopping = asyncio.Event()
        self._stop_fast = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        # Tools try at the start what they need of the machine, with processes whose ends the loop has to hear of.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        try:
            await self._start_gateway()
        except StartEndedError:
            log.info("a signal ended the start")
            await self._gateway.close()
            return
        servers = []
        for name, sock in self._sockets.items():
            # A copy keeps the socket open past the server's end, so that what it had not accepted yet is not reset.
            spare = sock.dup()
            factory = self._gateway.get_connection_factory(name)
            servers.append((await loop.create_server(factory, sock=sock, backlog=BACKLOG), spare, factory))
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a supervisor passes Ctrl-C on
            loop.add_signal_handler(signal.SIGINT, self._terminate)
        loop.add_signal_handler(signal.SIGHUP, self._gateway.reload_soon)
        # What was built for the start lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        _return_memory()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        self._on_ready()
        if self._shared:
            await self._hand_over_port([spare for _, spare, _ in servers])
        else:
            await self._stopping.wait()
            await wait_until_set(self._stop_fast, self._gateway.begin_drain())
        for server, spare, factory in servers:
            server.close()
            await _accept_rest(loop, spare, factory)
        drained = asyncio.ensure_future(self._gateway.drain())
        stopped = asyncio.ensure_future(self._stop_fast.wait())
        await asyncio.wait({drained, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, stopped):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        end_within(CLOSES_S, flush=self._flush)
        await self._gateway.close()

    async def _start_gateway(self) -> None:
        """Start the gateway. Health pages answer meanwhile if the store is away.

        They are at `admin.listen`, where that is set: balancers send no requests to an address that refuses
        connections. Nothing answers where another gateway has the port, too.
        """
        pages = StartupPages(None if self._shared else self._sockets.get(ADMIN, self._sockets[DATA]))
        try:
            await self._gateway.start(StoreWait(begin=pages.open, is_ending=is_told_to_end))
        finally:
            await pages.close()

    async def _hand_over_port(self, sockets: list[socket.socket]) -> None:
        """Wait for the stop; then steer connections to the successor, and accept waiting ones for `HAND_OVER_S`."""
        while not self._stopping.is_set():
            for sock in sockets:
                stop_steering(sock)
            await wait_until_set(self._stopping, SPREAD_S)
        for sock in sockets:
            steer_to_successor(sock, ours=self._shared)
        await asyncio.sleep(HAND_OVER_S)

    def _terminate(self) -> None:
        """Drain on the first signal, end at once on the second."""
        if self._stopping.is_set():
            self._stop_fast.set()
        else:
            notify("STOPPING=1")
            log.info("draining: no new connections, requests under way go on")
            self._stopping.set()


def is_told_to_end() -> bool:
    """Return whether a signal to end waits in a process that blocks it meanwhile."""
    return bool(signal.sigpending() & {signal.SIGTERM, signal.SIGINT})


def end_within(limit_s: float, *, flush: Callable[[], None]) -> None:
    """End this process after so long, from a thread, unless it has ended by itself."""

    def end() -> None:
        log.error("the gateway has not ended %g s after it began to close: its process ends now", limit_s)
        flush()
        os._exit(1)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()


def _return_memory() -> None:
    """Return freed memory of the start to the system (0.9 MB). Only the GNU C library supports it."""
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


async def _accept_rest(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, factory: Callable[[], asyncio.Protocol]
) -> None:
    """Serve the connections that the kernel had queued, then close the socket."""
    sock.setblocking(False)
    accepted: list[socket.socket] = []
    with contextlib.suppress(OSError):
        while len(accepted) < BACKLOG:
            accepted.append(sock.accept()[0])
    sock.close()
    for connection in accepted:
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(factory, connection)


def run_worker(
    make: Callable[[], Gateway],
    sockets: dict[str, socket.socket],
    *,
    shared: int,
    on_ready: Callable[[], None],
    flush: Callable[[], None],
) -> None:
    """Run one worker to its end on a uvloop event loop."""
    raise_file_limit()

    async def main() -> None:
        await Worker(make(), sockets, shared=shared, on_ready=on_ready, flush=flush).run()

    uvloop.run(main())


def raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum, and forbid core dumps: they would hold keys."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
