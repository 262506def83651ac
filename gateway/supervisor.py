"""The parent of several workers: starts them, passes signals on, starts one again that died, and ends last.

It holds every worker's listening socket, so connections wait there while a worker that died comes back.
"""

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

from gateway.worker import HANDLED

log = logging.getLogger("gateway")

_PR_SET_PDEATHSIG = 1
#: A worker that dies is started again after this long, so that one which cannot live does not spin.
RESTART_S = 1.0


class Supervisor:
    """Runs `count` copies of `work(index, ready)`; `work` calls `ready` once it serves, and returns drained."""

    def __init__(
        self,
        work: Callable[[int, Callable[[], None]], None],
        *,
        count: int,
        on_ready: Callable[[], None],
        on_reload: Callable[[], None],
        on_stop: Callable[[], None],
        limit_s: float,
    ) -> None:
        self._work = work
        self._count = count
        self._on_ready = on_ready
        self._on_reload = on_reload
        self._on_stop = on_stop
        self._limit_s = limit_s
        self._workers: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._signals_seen = 0
        self._stop_by = float("inf")

    def run(self) -> int:
        """Until every worker has ended after a signal; the exit code."""
        ready, ready_end = os.pipe()
        for index in range(self._count):
            self._start(index, ready_end)
        os.close(ready_end)
        if not self._all_ready(ready):
            self._signal_all(signal.SIGKILL)
            return 1
        self._on_ready()
        while self._workers or not self._signals_seen:
            info = signal.sigtimedwait(HANDLED, 0.2)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._on_signal(info.si_signo)
            self._reap()
            self._restart()
            if time.monotonic() > self._stop_by:
                self._signal_all(signal.SIGKILL)
        return 0

    def _start(self, index: int, ready_end: int | None = None) -> None:
        parent = os.getpid()
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self._workers[pid] = index
            return
        code = 1
        try:
            # A worker does not outlive its parent, whatever ends that.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            # Ctrl-C reaches the whole group; the parent passes it on once.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if os.getppid() == parent:
                self._work(index, lambda: _tell(ready_end))
                code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _all_ready(self, ready: int) -> bool:
        """Waits until each worker serves; False if one ended before."""
        received = 0
        while received < self._count:
            data = os.read(ready, self._count)
            if not data:
                return False
            received += len(data)
            self._reap()
            if len(self._workers) < self._count:
                return False
        os.close(ready)
        return True

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._on_reload()
            self._signal_all(signal.SIGHUP)
            return
        self._signals_seen += 1
        if self._signals_seen == 1:
            self._on_stop()
            self._stop_by = time.monotonic() + self._limit_s
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for pid in self._workers:
            os.kill(pid, number)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            index = self._workers.pop(pid)
            if not self._signals_seen:
                log.error("worker %d ended unexpectedly (%s); starting it again", index, _how(status))
                self._due[index] = time.monotonic() + RESTART_S

    def _restart(self) -> None:
        for index in [index for index, due in self._due.items() if time.monotonic() >= due]:
            del self._due[index]
            if not self._signals_seen:
                self._start(index)


def _tell(ready_end: int | None) -> None:
    """Tells the parent that this worker serves; nobody waits for one that was started again."""
    if ready_end is not None:
        os.write(ready_end, b"R")


def _how(status: int) -> str:
    return (
        f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.waitstatus_to_exitcode(status)}"
    )
