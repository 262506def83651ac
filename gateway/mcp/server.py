"""One service of a worker: built from its settings, and brought to its desired state, one step after the other.

1. No caller waits here: the desired state is stored, and a task applies it. States in between are left out.
2. Settings that stay the same are the same service; other ones are another, which starts once the old one is gone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gateway.config.schema.mcp import McpServer
from gateway.contracts.plugin import Clock
from gateway.contracts.service import ManagedService
from gateway.contracts.storage.store import StoredService
from gateway.mcp.broken_server import BrokenServer
from gateway.mcp.registration import build_options

log = logging.getLogger("gateway")

Source: TypeAlias = Literal["configured", "registered"]
#: (name, options): raises ValueError with their problem.
Build: TypeAlias = Callable[[str, Mapping[str, object]], ManagedService]

#: Of one service. A server has a few hundred tools at most; one that names ever new ones has no more of them trusted.
MOST_PINS: Final = 2000
#: A pin that no definition has.
_NONE = ""


@dataclass(frozen=True, slots=True)
class DesiredServer:
    """The desired state of a service. `server` None: its settings cannot be read, for the reason `error`."""

    source: Source
    server: McpServer | None
    record: StoredService
    error: str = ""

    @property
    def is_enabled(self) -> bool:
        """Return whether its settings let it run at all."""
        return self.server is None or self.server.enabled

    @property
    def may_run(self) -> bool:
        return self.is_enabled and not self.record.stopped


@dataclass(frozen=True, slots=True)
class _AppliedState:
    """The applied state: the service, whether it was started, and how often it had been restarted by then."""

    service: ManagedService
    running: bool
    restarts: int


class ManagedServer:
    """One service and its desired state. `noticed` is called whenever the service or its pins change."""

    def __init__(
        self, name: str, wanted: DesiredServer, *, build: Build, noticed: Callable[[], None], clock: Clock
    ) -> None:
        self.name = name
        self.wanted = wanted
        self._build = build
        self._noticed = noticed
        self._clock = clock
        self._options = _choose_options(wanted)
        self.service = self._build_watched()
        self._reached = _AppliedState(self.service, running=False, restarts=wanted.record.restarts)
        self._retired: list[ManagedService] = []
        self._pins: Mapping[str, str] = {}
        self._leaving = False
        self._task: asyncio.Task[None] | None = None
        self._start_reconciling()

    def set_desired_state(self, wanted: DesiredServer) -> None:
        """Set the desired state from now on."""
        options, self.wanted = _choose_options(wanted), wanted
        if options != self._options:
            self._options = options
            self._retired.append(self.service)
            self.service = self._build_watched()
        self._start_reconciling()

    def apply_pins(self) -> None:
        """Pass the accepted definitions to the service."""
        pins = self.wanted.record.pins
        if len(pins) >= MOST_PINS:
            pins = {**dict.fromkeys(self.service.list_definitions(), _NONE), **pins}
        self.service.accept(pins)
        if pins != self._pins:
            self._pins = pins
            self._noticed()

    @property
    def is_pinned_by_names(self) -> bool:
        """Return whether a tool needs approval until its name is accepted, whatever its definition."""
        return self.wanted.server is not None and self.wanted.server.pin == "names"

    @property
    def runs_once(self) -> bool:
        """Return whether one worker of all gateways runs the server."""
        return self.wanted.server is not None and self.wanted.server.run == "one"

    async def wait_until_applied(self) -> None:
        """Wait until the desired state is applied: the service is stopped, or its start has begun."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Close the service, and return once nothing of it runs any more."""
        self._leaving = True
        self._start_reconciling()
        await self.wait_until_applied()
        await _await_ending(self.service.close, self.name)

    @property
    def _may_run(self) -> bool:
        return self.wanted.may_run and not self._leaving

    def _build_watched(self) -> ManagedService:
        service = self._build_service()
        service.watch(self._noticed)
        return service

    def _build_service(self) -> ManagedService:
        """Return the service of the present settings, or a broken one if it cannot be made."""
        error = self.wanted.error
        if self._options is not None:
            try:
                return self._build(self.name, self._options)
            except Exception as failure:  # a service that cannot be built must not take others with it
                error = str(failure) if isinstance(failure, ValueError) else f"{type(failure).__name__}: {failure}"
        log.error("the service %r cannot be built: %s", self.name, error)
        transport: Literal["stdio", "http"] = "http" if self._options and "url" in self._options else "stdio"
        return BrokenServer(self.name, error=error, transport=transport, since_s=self._clock.time())

    def _start_reconciling(self) -> None:
        self.apply_pins()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._reconcile_state())

    async def _reconcile_state(self) -> None:
        """Apply changes until the service has its desired state."""
        while True:
            before, wanted = self._reached, _AppliedState(self.service, self._may_run, self.wanted.record.restarts)
            if before == wanted and not self._retired:
                return
            while self._retired:
                await _await_ending(self._retired.pop(0).close, self.name)
            if before.running and before.service is wanted.service:
                await _await_ending(wanted.service.stop, self.name)
            if wanted.running and self.service is wanted.service and self._may_run:
                wanted.service.start()
            self._reached = wanted


def _choose_options(wanted: DesiredServer) -> Mapping[str, object] | None:
    return None if wanted.server is None else build_options(wanted.server)


async def _await_ending(ending: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await ending()
    except Exception:
        log.exception("the service %r did not end as it should", name)
