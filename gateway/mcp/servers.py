"""The services of one worker: the configured and the registered ones, in the state that the store defines.

1. The store contains the state that an operator wants of a service. Each worker reads it there; none is notified.
2. Nothing here waits for a service: `configure` and `refresh` begin things and return.
3. The first worker that sees a tool pins its definition. Only an operator puts another in its place.
   An accepted definition is stored before its pin, so that a person can compare a later one with it.
4. A registered service never takes the name of a configured one.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.aio.clock import wait_until_set
from gateway.config.schema.mcp import McpServer
from gateway.config.values.secret import MASK, iterate_secret_texts
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.service import ManagedService, ServiceStatus
from gateway.contracts.storage.store import Json, ServiceState, Store, StoredService, StoreError, WorkerService
from gateway.contracts.tools import ServiceSource
from gateway.mcp.changed_tools import ChangedTools
from gateway.mcp.registration import SettingsError, parse_settings
from gateway.mcp.server import MOST_PINS, Build, DesiredServer, ManagedServer
from gateway.text.reserved_names import ServiceNames
from gateway.tools.catalog import ConfiguredSource

log = logging.getLogger("gateway")

#: How often a worker reports what it sees, and how old a report of another one may be.
TELL_EVERY_S, FRESH_S = 10.0, 25.0
#: Changes within so short a time are looked at together.
PAUSE_S, STORE_PAUSE_S = 0.1, 2.0
#: Others may change a service while we do; so often we look again.
_TRIES = 8
_ERROR_CHARS = 500
#: Of all accepted definitions that one answer shows. So many are read at once.
RECORDED_CHARS, _AT_ONCE = 4 << 20, 20
#: The worst first.
_STATES: Final[tuple[ServiceState, ...]] = ("error", "stopped", "starting", "running")
#: Beyond so many services all share one series, `other`.
_LABELS, _OTHER = 32, "other"
_GAUGES: Final = (
    ("gateway_mcp_server_up", "Whether an MCP server runs"),
    ("gateway_mcp_server_here", "Whether an MCP server that runs once for all gateways runs here"),
)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A service as this worker has it, and the reports of the other workers on it."""

    name: str
    wanted: DesiredServer
    service: ManagedService
    condition: ServiceStatus
    others: Sequence[WorkerService] = ()

    @property
    def state(self) -> ServiceState:
        """Return the worst state of all workers."""
        return min((self.condition.state, *(other.state for other in self.others)), key=_STATES.index)

    @property
    def error(self) -> str | None:
        """Return the last error of this worker, else one of another worker; None: there is none."""
        return next(filter(None, (self.condition.error, *(other.error for other in self.others))), None)


class _DesiredServices:
    """The services that are wanted, and how far that is applied: one change at a time."""

    __slots__ = ("configured", "generation", "is_closed", "turn")

    def __init__(self) -> None:
        self.configured: Mapping[str, McpServer] = {}
        self.generation: int | None = None  # of the store, as it was applied
        self.turn = asyncio.Lock()
        self.is_closed = False


class _ReportedFacts:
    """The facts of services that this worker has reported last."""

    __slots__ = ("at_s", "restarts", "services")

    def __init__(self) -> None:
        self.services: Sequence[tuple[str, ServiceState, str | None]] = ()
        self.at_s = float("-inf")
        self.restarts: Mapping[str, int] = {}


class McpServers:
    """The services of one worker; `worker` is its name to the others."""

    def __init__(self, store: Store, *, build: Build, worker: str, counters: Counters, clock: Clock) -> None:
        self.worker = worker
        self._store = store
        self._build = build
        self._counters = counters
        self._clock = clock
        self._wanted = _DesiredServices()
        self._members: dict[str, ManagedServer] = {}
        self._snapshot: Sequence[ConfiguredSource[ServiceSource]] | None = ()  # None: something has changed
        self._leaving: set[asyncio.Task[None]] = set()
        self._noticed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reported = _ReportedFacts()
        self._changed = ChangedTools(self.load_definitions)
        self._recorded: dict[str, frozenset[str]] = {}  # hashes of definitions, by service
        self._watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of a service."""
        self._watchers.append(changed)

    def configure(self, servers: Mapping[str, McpServer]) -> None:
        """Set the services of the configuration, from the next `refresh` on."""
        self._wanted.configured = dict(servers)
        self._wanted.generation = None

    def get_services(self) -> Sequence[ConfiguredSource[ServiceSource]]:
        """Return all services as of now: the configured ones in their order, then the others by name.

        It is the same tuple as long as nothing about any of them changes.
        """
        if self._snapshot is None:
            members = self._members.values()
            self._snapshot = tuple(ConfiguredSource(one.service, untrusted=True, origin="mcp") for one in members)
        return self._snapshot

    def find_url(self, name: str) -> str | None:
        """Return the URL of a service, with its secrets; None: it has none, or the service does not exist."""
        member = self._members.get(name)
        server = None if member is None else member.wanted.server
        return None if server is None or server.url is None else server.url.reveal()

    async def refresh(self) -> None:
        """Apply the changes of the store and the configuration, if there are any. Raises StoreError."""
        async with self._wanted.turn:
            generation = await self._store.get_generation()
            if generation == self._wanted.generation or self._wanted.is_closed:
                return
            configured = self._wanted.configured
            records = {record.name: record for record in await self._store.list_services()}
            self._reconcile(configured, records)
            self._wanted.generation = generation if configured is self._wanted.configured else None

    async def list_services(self) -> Sequence[ServerStatus]:
        """Return every service, as of now. Raises StoreError."""
        await self.refresh()
        told: dict[str, list[WorkerService]] = {}
        for other in await self._store.list_reported_services(since_s=self._clock.time() - FRESH_S):
            if other.worker != self.worker:
                told.setdefault(other.name, []).append(other)
        return [_build_status(server, told.get(server.name, ())) for server in self._members.values()]

    async def change(self, name: str, change: Callable[[StoredService], StoredService]) -> None:
        """Write the record that `change` returns for the stored one (version 0: there is none), and apply it here.

        `change` may be called more than once, and may raise. Raises StoreError.
        """
        for _ in range(_TRIES):
            kept = next((s for s in await self._store.list_services() if s.name == name), StoredService(name=name))
            wanted = change(kept)
            if wanted == kept:
                return
            wanted = replace(wanted, updated_s=self._clock.time())
            if await self._store.put_service(wanted, expected=kept.version):
                await self._refresh_after_write()
                return
        raise StoreError(f"the service {name!r} is changed by others all the time")

    async def record(self, name: str, accepted: Mapping[str, str]) -> None:
        """Store the definitions of a service's tools that have just these hashes, as far as they are not yet stored.

        Raises StoreError.
        """
        if (server := self._members.get(name)) is None:
            return
        known, present = self._recorded.get(name, frozenset()), server.service.list_definitions()
        new = {
            digest: write_canonical(document)
            for tool, digest in accepted.items()
            if digest not in known and present.get(tool) == digest
            if (document := server.service.find_document(tool)) is not None
        }
        if new:
            await self._store.put_definitions(new)
        self._recorded[name] = frozenset(accepted.values())

    async def load_definitions(self, sha256s: Sequence[str]) -> Mapping[str, Json]:
        """Return the stored definitions that have these hashes, `RECORDED_CHARS` characters of them or so.

        Raises StoreError.
        """
        found: dict[str, Json] = {}
        room = RECORDED_CHARS
        for begin in range(0, len(sha256s), _AT_ONCE):
            texts = await self._store.find_definitions(sha256s[begin : begin + _AT_ONCE])
            for digest, text in texts.items():
                room -= len(text)
                if (document := _parse_object(text)) is not None:
                    found[digest] = document
            if room < 0:
                break
        return found

    async def delete(self, name: str) -> bool:
        """Delete a service; return whether there was one. Raises StoreError."""
        deleted = await self._store.delete_service(name)
        await self._refresh_after_write()
        return deleted

    async def _refresh_after_write(self) -> None:
        """Apply stored changes now; log a failure of the store, after which the next refresh applies them."""
        try:
            await self.refresh()
        except StoreError as error:
            log.error("the store failed behind a change of the services, which stands: %s", error)

    async def wait_until_applied(self, name: str) -> None:
        """Wait until the desired state is applied here: the service is stopped, or its start has begun."""
        server = self._members.get(name)
        if server is not None:
            await server.wait_until_applied()

    def collect_families(self) -> Iterator[Metric]:
        """Yield the metrics of the services: whether each runs, and whether one that runs once does so here."""
        up, here = (GaugeMetricFamily(name, text, labels=["server"]) for name, text in _GAUGES)
        runs: dict[str, int] = {}
        for i, (name, server) in enumerate(self._members.items()):
            label, get_condition = name if i < _LABELS else _OTHER, server.service.get_condition()
            is_running = get_condition.state == "running"
            runs[label] = min(runs.get(label, 1), int(is_running))
            if server.runs_once and i < _LABELS:
                here.add_metric([label], int(is_running and get_condition.is_here))
        for label, value in runs.items():
            up.add_metric([label], value)
        yield from (family for family in (up, here) if family.samples)

    async def close(self) -> None:
        """Close all services, and return once nothing of them runs any more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        async with self._wanted.turn:
            self._wanted.is_closed = True
            self._reconcile({}, {})
        if self._leaving:
            await asyncio.wait(self._leaving)
        if self._reported.services:
            self._reported.services = ()
            try:
                await self._store.report_services(self.worker, ())
            except StoreError as error:
                log.error("the store failed: %s", error)

    def _reconcile(self, configured: Mapping[str, McpServer], records: Mapping[str, StoredService]) -> None:
        """Start, change and close services, until they are the configured and registered ones."""
        wanted = _build_desired_state(configured, records)
        for name in self._members.keys() - wanted.keys():
            task = asyncio.get_running_loop().create_task(self._members.pop(name).close())
            self._leaving.add(task)
            self._recorded.pop(name, None)
            self._changed.forget(name)
            task.add_done_callback(self._leaving.discard)
        before, self._members = self._members, {}
        for name, one in wanted.items():
            server = self._members[name] = before.get(name) or self._build_server(name, one)
            if name in before:
                server.set_desired_state(one)
        if self._members and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._maintain_services())
        self._refresh_snapshot()

    def _refresh_snapshot(self) -> None:
        """Discard the cached snapshot, and wake the maintenance task and the watchers."""
        self._snapshot = None
        self._noticed.set()
        for changed in self._watchers:
            changed()

    def _build_server(self, name: str, wanted: DesiredServer) -> ManagedServer:
        return ManagedServer(name, wanted, build=self._build, noticed=self._refresh_snapshot, clock=self._clock)

    async def _maintain_services(self) -> None:
        """Pin definitions that are seen for the first time, and report the services to the store."""
        while True:
            pause_s = PAUSE_S
            await wait_until_set(self._noticed, TELL_EVERY_S)
            self._noticed.clear()
            try:
                for server in list(self._members.values()):
                    await self._pin_definitions(server)
                self._count_restarts()
                await self._report_services()
            except StoreError as error:
                log.error("the store failed: %s", error)
                self._noticed.set()
                pause_s = STORE_PAUSE_S
            except Exception:  # of one service: the others are still to be looked after
                log.exception("a service could not be looked after")
            await asyncio.sleep(pause_s)

    def _count_restarts(self) -> None:
        """Count the restarts of each service since its start by an operator."""
        now = {server.name: server.service.get_condition().restarts for server in self._members.values()}
        before, self._reported.restarts = self._reported.restarts, now
        for name, restarts in now.items():
            for _ in range(before.get(name, 0), restarts):
                self._counters.count("mcp_server_restarts", server=name)

    async def _pin_definitions(self, server: ManagedServer) -> None:
        """Accept definitions that are new, store them, and report changed ones. Raises StoreError."""
        definitions = dict(server.service.list_definitions())

        def pin(kept: StoredService) -> StoredService:
            if kept.config is None and server.wanted.source == "registered":
                return kept  # it was deleted meanwhile
            if kept.pins and server.is_pinned_by_names:
                return kept  # a further name is accepted by a person only
            room = max(0, MOST_PINS - len(kept.pins))
            new = [(tool, digest) for tool, digest in definitions.items() if tool not in kept.pins][:room]
            return replace(kept, pins={**kept.pins, **dict(new)}) if new else kept

        record = server.wanted.record
        pinned = pin(record)
        # Definitions that were never accepted are left out: a server with ever new tools would fill the store with
        # them.
        await self.record(server.name, {tool: had for tool, had in definitions.items() if pinned.pins.get(tool) == had})
        if pinned != record:
            await self.change(server.name, pin)
        server.apply_pins()
        await self._changed.report(server)

    async def _report_services(self) -> None:
        """Store the state of this worker's services, if it changed or some time has passed."""
        now_s = self._clock.time()
        seen = [_build_status(server) for server in self._members.values()]
        told = [(one.name, one.condition.state, one.condition.error) for one in seen]
        if told == self._reported.services and (
            not told or self._clock.monotonic() - self._reported.at_s < TELL_EVERY_S
        ):
            return
        rows = [
            WorkerService(worker=self.worker, name=name, state=state, error=error, updated_s=now_s)
            for name, state, error in told
        ]
        await self._store.report_services(self.worker, rows)
        self._reported.services, self._reported.at_s = told, self._clock.monotonic()


def _parse_object(text: str) -> Json | None:
    """Return a JSON object; None for any other text, which another program has written."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _build_desired_state(
    configured: Mapping[str, McpServer], records: Mapping[str, StoredService]
) -> dict[str, DesiredServer]:
    """Return the desired state of each configured and registered service, by name."""
    wanted = {
        name: DesiredServer("configured", server, records.get(name, StoredService(name=name)))
        for name, server in configured.items()
    }
    taken = ServiceNames()
    for name in configured:
        taken.add(name)
    for name, record in records.items():
        if record.config is not None and name not in wanted:
            wanted[name] = _build_registered(record, record.config, beside=taken)
            if wanted[name].server is not None:
                taken.add(name)
    return wanted


def _build_registered(record: StoredService, config: bytes, *, beside: ServiceNames) -> DesiredServer:
    """Return the desired state of a registered service; its record may be of another version than this program's."""
    if (problem := beside.find_problem(record.name)) is not None:
        error = f"{problem}: remove the service, and register it under another name"
        return DesiredServer("registered", None, record, error)
    try:
        settings: Json = json.loads(config)
        return DesiredServer("registered", parse_settings(settings), record)
    except ValueError as error:
        at = f"{error.param}: " if isinstance(error, SettingsError) and error.param else ""
        return DesiredServer("registered", None, record, f"its settings do not fit this version: {at}{error}")


def _build_status(server: ManagedServer, others: Sequence[WorkerService] = ()) -> ServerStatus:
    """Return the status of a service without the secrets of its settings, which a server may have printed."""
    condition = server.service.get_condition()
    secrets = () if server.wanted.server is None else tuple(iterate_secret_texts(server.wanted.server))

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, MASK)
        return text

    error = None if condition.error is None else clean(condition.error)[:_ERROR_CHARS]
    condition = replace(condition, error=error, stderr=tuple(clean(line) for line in condition.stderr))
    return ServerStatus(server.name, server.wanted, server.service, condition, others)
