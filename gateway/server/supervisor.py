"""The parent of several workers: starts them, passes signals on, restarts one that died, and ends last.

1. It has every worker's listening socket open, so connections wait there while a dead worker restarts.
2. It waits for no worker: it handles signals and deaths at any moment, also while workers start.
3. A worker that exits with an error before all were ready once ends the start. A killed worker is started again.
"""

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

from gateway.server.worker import HANDLED

log = logging.getLogger("gateway")

_PR_SET_PDEATHSIG = 1
#: A worker that dies is started again after this long, so that one which cannot live does not spin.
RESTART_S = 1.0
#: How long a worker may take to get ready before that is logged: it may have a large store to look through.
SLOW_START_S = 30.0
#: How long the others may take to end by themselves where one cannot start.
SAYS_WHY_S = 5.0
#: How long workers may take to end at once, on a second signal, before they are killed.
AT_ONCE_S = 5.0


class Supervisor:
    """The parent of `count` processes that run `work(index, ready)`. `work` calls `ready` once it serves."""

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
        #: Of each worker that is not ready yet: where it reports that, and since when it is late.
        self._starting: dict[int, tuple[int, float]] = {}
        self._is_announced = False
        self._give_up_by: float | None = None
        self._signals_seen = 0
        self._stop_by = float("inf")

    def run(self) -> int:
        """Run until every worker has ended after a signal. Return the exit code."""
        for index in range(self._count):
            self._start(index)
        while self._workers or not self._signals_seen:
            info = signal.sigtimedwait(HANDLED, 0.2 if self._is_announced else 0.02)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._on_signal(info.si_signo)
            self._read_ready()
            self._reap_workers()
            if self._give_up_by is not None and (not self._starting or time.monotonic() > self._give_up_by):
                self._signal_all(signal.SIGKILL)
                return 1
            self._restart_worker()
            if time.monotonic() > self._stop_by:
                self._signal_all(signal.SIGKILL)
        return 0

    def _start(self, index: int) -> None:
        parent = os.getpid()
        sys.stdout.flush()
        ready, ready_end = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:  # no memory, too many processes: that passes
            os.close(ready)
            os.close(ready_end)
            log.error("worker %d cannot be started (%s); trying again", index, error)
            self._due[index] = time.monotonic() + RESTART_S
            return
        if pid:
            os.close(ready_end)
            os.set_blocking(ready, False)
            self._workers[pid] = index
            self._starting[index] = (ready, time.monotonic() + SLOW_START_S)
            return
        code = 1
        try:
            # A worker does not outlive its parent, whatever ends that.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            # Ctrl-C reaches the whole group; the parent passes it on once.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for descriptor, _ in self._starting.values():
                os.close(descriptor)
            os.close(ready)
            if os.getppid() == parent:
                self._work(index, lambda: _report_ready(ready_end))
                code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _read_ready(self) -> None:
        """Read which workers are ready, and log the slow ones."""
        now_s = time.monotonic()
        for index, (ready, late_s) in list(self._starting.items()):
            try:
                is_ready = os.read(ready, 1) != b""
            except BlockingIOError:
                if now_s > late_s:
                    log.warning("worker %d is not ready after %.0f s; still waiting for it", index, SLOW_START_S)
                    self._starting[index] = (ready, float("inf"))
                continue
            if is_ready:
                del self._starting[index]
                os.close(ready)
        if not (self._is_announced or self._starting or self._due or self._signals_seen):
            self._is_announced = True
            self._on_ready()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._on_reload()
            self._signal_all(signal.SIGHUP)
            return
        self._signals_seen += 1
        if self._signals_seen == 1:
            self._on_stop()
        self._stop_by = min(self._stop_by, time.monotonic() + (self._limit_s if self._signals_seen == 1 else AT_ONCE_S))
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for pid in self._workers:
            os.kill(pid, number)

    def _reap_workers(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            index = self._workers.pop(pid, None)
            if index is None:
                continue  # of a worker that died: they come to the first process of a container
            if index in self._starting:
                os.close(self._starting.pop(index)[0])
            if self._signals_seen:
                continue
            if not self._is_announced and os.WIFEXITED(status) and os.WEXITSTATUS(status):
                # It has logged why, or another one does, which is as far in a moment.
                self._give_up_by = time.monotonic() + SAYS_WHY_S
            else:
                log.error("worker %d ended unexpectedly (%s); starting it again", index, _describe_exit(status))
                self._due[index] = time.monotonic() + RESTART_S

    def _restart_worker(self) -> None:
        for index in [index for index, due in self._due.items() if time.monotonic() >= due]:
            del self._due[index]
            if not self._signals_seen:
                self._start(index)


def _report_ready(ready_end: int) -> None:
    """Report to the parent that this worker serves."""
    os.write(ready_end, b"R")
    os.close(ready_end)


def _describe_exit(status: int) -> str:
    return (
        f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.waitstatus_to_exitcode(status)}"
    )
