"""The command `gateway run`: starts the processes for a checked configuration, and ends them in order."""

import asyncio
import logging
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gateway.config import ConfigError, LoadedConfig, Problem, iterate_secret_texts, merge_configs
from gateway.features.limits.service_sharing import shares_limits
from gateway.limits.counter_registry import Meters
from gateway.limits.shared_memory import SharedCounters
from gateway.runs.undelivered_answers import OwedAnswers, SharedAnswers
from gateway.server.app import ADMIN, DATA, Gateway
from gateway.server.banner import iterate_banner_lines
from gateway.server.bounded_load import BoundedLoad
from gateway.server.reload_channel import Handover
from gateway.server.sockets import ListeningSockets, listen
from gateway.server.supervisor import Supervisor
from gateway.server.systemd import notify
from gateway.server.worker import HANDLED, is_told_to_end, run_worker
from gateway.telemetry.exposition import Exposition
from gateway.telemetry.logs import DirectSink, LogSink, install_sink, wants_json
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.shared_counts import SharedCounts

log = logging.getLogger("gateway")

#: How much longer than `limits.stop_delay` and `limits.drain` the processes may take to end before they are killed.
GRACE_S = 5.0
#: How long workers wait for each other at a reload, on the old configuration, and how often they look.
AGREE_S = 10.0
AGREE_LOOK_S = 0.01


@dataclass(slots=True)
class GatewayServer:
    """One `gateway run`. `load` reads the configuration for a reload; workers still vote on `proposed`."""

    loaded: LoadedConfig
    load: Callable[[], LoadedConfig]
    join: bool
    proposed: LoadedConfig | None = None
    started_s: float = field(default_factory=time.time)
    limits: SharedCounters = field(init=False)
    answers: SharedAnswers = field(init=False)
    load_again: BoundedLoad = field(init=False)

    def __post_init__(self) -> None:
        self.load_again = BoundedLoad(self.load, is_ending=is_told_to_end)

    def run(self) -> int:
        """Serve until a signal ends it. Return the exit code. Raises ListenError."""
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        settings = self.loaded.settings
        self.limits = SharedCounters(places=settings.workers, has_shares=shares_limits(settings))
        self.answers = SharedAnswers(places=settings.workers)
        addresses = {DATA: settings.listen}
        if settings.admin.listen is not None:
            addresses[ADMIN] = settings.admin.listen
        listening = {
            name: listen(address.host, address.port, workers=settings.workers, join=self.join)
            for name, address in addresses.items()
        }
        if settings.workers == 1:
            self._run_worker(0, lambda: self._announce_start(listening), listening, folder=None, load=self.load_again)
            return 0
        as_json = wants_json(settings.logging.format, sys.stderr)
        install_sink(
            DirectSink(sys.stderr, as_json=as_json, secrets=iterate_secret_texts(settings)),
            level=settings.logging.level,
        )
        folder, handover = Path(tempfile.mkdtemp(prefix="gateway-")), Handover(workers=settings.workers)
        counts = [SharedCounts() for _ in range(settings.workers)]

        def work(index: int, ready: Callable[[], None]) -> None:
            self._settle_configuration(handover)
            agree = partial(_vote_on_configuration, handover, index)
            self._run_worker(
                index, ready, listening, folder=folder, counts=counts, load=handover.read_configuration, agree=agree
            )

        try:
            return Supervisor(
                work,
                count=settings.workers,
                on_ready=lambda: self._announce_start(listening),
                on_reload=lambda: self._reload(handover),
                on_stop=lambda: _stop(listening),
                limit_s=settings.limits.stop_delay + settings.limits.drain + GRACE_S,
            ).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _reload(self, handover: Handover) -> None:
        """Read the configuration once for all workers. A restarted worker begins with the last one all accepted."""
        self._settle_configuration(handover)
        outcome: LoadedConfig | ConfigError
        try:
            outcome = self.proposed = merge_configs(self.load_again(), old=self.loaded)
        except ConfigError as error:
            outcome = error  # each worker logs and counts it
        except Exception:
            log.exception("the configuration could not be read")
            outcome = ConfigError((Problem("configuration", "", "it could not be read; the line above says why"),))
        handover.publish_configuration(outcome)

    def _settle_configuration(self, handover: Handover) -> None:
        """Make the last proposed configuration the current one, if all workers use it."""
        if self.proposed is not None and handover.close_vote():
            self.loaded = self.proposed
        self.proposed = None

    def _run_worker(
        self,
        index: int,
        ready: Callable[[], None],
        listening: dict[str, ListeningSockets],
        *,
        folder: Path | None,
        counts: Sequence[SharedCounts] = (),
        load: Callable[[], LoadedConfig],
        agree: Callable[[bool], Awaitable[bool]] | None = None,
    ) -> None:
        """Run one worker process, from opening its log to its end."""
        metrics, chosen = Metrics(), self.loaded.settings.logging
        sink = LogSink(
            sys.stderr,
            as_json=wants_json(chosen.format, sys.stderr),
            secrets=iterate_secret_texts(self.loaded.settings),
            dropped=metrics.log_line_dropped,
        )
        install_sink(sink, level=chosen.level)
        mine: dict[str, socket.socket] = {}
        for name, address in listening.items():
            for i, sock in enumerate(address.sockets):
                if i == index:
                    mine[name] = sock
                else:
                    sock.close()
        try:
            run_worker(
                lambda: Gateway(
                    self.loaded,
                    load=load,
                    sink=sink,
                    metrics=metrics,
                    exposition=Exposition(metrics, shared=counts, folder=folder, index=index),
                    agree=agree,
                    started_s=self.started_s,
                    meters=Meters(self.limits, place=index, clock=time.monotonic),
                    owed=OwedAnswers(self.answers, place=index, clock=time.monotonic),
                ),
                mine,
                shared=len(listening[DATA].sockets) if self.join else 0,
                on_ready=ready,
                flush=sink.flush,
            )
        except ConfigError as error:
            if folder is None:
                raise
            if index == 0:  # the others say the same
                print(error, file=sys.stderr)
            sys.exit(1)
        finally:
            sink.close()

    def _announce_start(self, listening: dict[str, ListeningSockets]) -> None:
        """Print the banner on standard output, and report READY to systemd."""
        admin_url = listening.get(ADMIN, listening[DATA]).url
        print("\n".join(iterate_banner_lines(self.loaded, url=listening[DATA].url, admin_url=admin_url)), flush=True)
        notify("READY=1")


async def _vote_on_configuration(handover: Handover, index: int, able: bool) -> bool:
    """Report whether this worker could build a configuration. Return whether all workers use it."""
    handover.vote_on_configuration(index, able=able)
    waited_until_s = time.monotonic() + AGREE_S
    while (is_used := handover.is_used()) is None:
        if time.monotonic() > waited_until_s:
            log.error("reload: not all workers were through with the configuration after %.0f s", AGREE_S)
            handover.close_vote()
        await asyncio.sleep(AGREE_LOOK_S)
    return is_used


def _stop(listening: dict[str, ListeningSockets]) -> None:
    """Close the listening sockets, so that none takes connections that no worker accepts."""
    notify("STOPPING=1")
    for address in listening.values():
        for sock in address.sockets:
            sock.close()
