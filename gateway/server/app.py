"""The composition root: builds pools, routes, pages and listeners. Only the processes import it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.aio.clock import SystemClock
from gateway.aio.supervise import supervise
from gateway.api.ops_pages import Readiness, Route, Site
from gateway.api.request import identify_with_scope
from gateway.approvals.webhooks import build_webhooks
from gateway.auth.keyring import Identity, LentKeys
from gateway.config import ConfigError, LoadedConfig, Problem, iterate_secret_texts, merge_configs
from gateway.config.values.addresses import Address
from gateway.context.resumption import Resumption
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.store import Store, StoreError
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import get_head
from gateway.lanes.auth_failures import WrongKeys
from gateway.lanes.connection import ClientConnection
from gateway.lanes.listener import Listener
from gateway.lanes.router import Router
from gateway.limits.counter_registry import Meters
from gateway.registry.stores import is_store_shared
from gateway.runs.live import LiveRuns
from gateway.runs.undelivered_answers import OwedAnswers
from gateway.server.console import ActiveConfig, ConsoleEntry
from gateway.server.context_lane import LaneServices, build_context_lane, build_shared, note_obstacles
from gateway.server.feature import ServingProcess
from gateway.server.lanes.passthrough import (
    ROOT_PATHS,
    build_admin_entry,
    build_replica_entry,
    build_router,
    list_operator_paths,
    list_separate_paths,
)
from gateway.server.lazy_service import FirstUse
from gateway.server.pages.lazy_pages import LaterPages
from gateway.server.pages.needs import PageNeeds
from gateway.server.pages.page_registry import PagesEntry
from gateway.server.pages.replica_services import ReplicaServices
from gateway.server.pages.replicas import PATHS as REPLICA_PATHS
from gateway.server.pages.replicas import ReplicaPages, build_sealed_site
from gateway.server.pages.runner import build_runner
from gateway.server.periodic_checks import PeriodicChecks
from gateway.server.pruning import Pruner
from gateway.server.reload_channel import accept_alone
from gateway.server.replica_port import ReplicaPort, find_replica_listen
from gateway.server.resumption import build_resumption
from gateway.server.store.clock import StoreClock
from gateway.server.store.opening import StoreWait, open_store
from gateway.server.store_gauges import Backlog
from gateway.server.webhook_service import Notices
from gateway.server.worker_services import WorkerServices
from gateway.telemetry.counters import ContextCounters
from gateway.telemetry.exposition import Exposition
from gateway.telemetry.history import History
from gateway.telemetry.logs import LogSink, build_access_record
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from gateway.api.responses.response_store import KeptResponses

log = logging.getLogger("gateway")

DATA, ADMIN, REPLICAS = "listen", "admin.listen", "replicas.listen"
#: So long a gateway that stops waits for what other workers have under way here, once its own clients are through.
REPLICAS_LEAVE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """The process of a worker: its configuration on disk, its log, its numbers, and what it shares with others."""

    load: Callable[[], LoadedConfig]
    sink: LogSink
    metrics: Metrics
    exposition: Exposition
    agree: Callable[[bool], Awaitable[bool]]
    clock: StoreClock
    started_s: float  # Unix time; of all workers
    meters: Meters | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The state of a worker from its beginning on, whatever its configuration."""

    counters: ContextCounters
    backlog: Backlog
    history: History
    wrong_keys: WrongKeys
    runs: LiveRuns
    lent: LentKeys


class _StartedParts:
    """The parts that a start builds, once."""

    console: ConsoleEntry
    notices: Notices
    resumption: Resumption
    kept: "FirstUse[KeptResponses]"
    pages: PagesEntry
    replica_pages: ReplicaPages


class Gateway:
    """The object graph of one worker. `load` reads the configuration anew; `exposition` covers all workers.

    `started_s` (Unix time) is the start of all of them. Without `meters` and `owed`, this process shares nothing.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        load: Callable[[], LoadedConfig],
        sink: LogSink,
        metrics: Metrics,
        exposition: Exposition | None = None,
        agree: Callable[[bool], Awaitable[bool]] | None = None,
        clock: Clock | None = None,
        started_s: float | None = None,
        meters: Meters | None = None,
        owed: OwedAnswers | None = None,
    ) -> None:
        store_clock, exposition = StoreClock(clock or SystemClock()), exposition or Exposition(metrics)
        self._loaded = loaded
        self._process = _Process(
            load=load,
            sink=sink,
            metrics=metrics,
            exposition=exposition,
            agree=agree or accept_alone,
            clock=store_clock,
            started_s=store_clock.time() if started_s is None else started_s,
            meters=meters,
        )
        backlog = Backlog(store_clock)
        self._state = _State(
            counters=ContextCounters(),
            backlog=backlog,
            history=History(exposition.read_counts, backlog.count_pending, clock=store_clock),
            wrong_keys=WrongKeys(clock=store_clock.monotonic),
            runs=LiveRuns(clock=store_clock, owed=owed),
            lent=LentKeys(),
        )
        self._stack = AsyncExitStack()
        self._listeners: dict[str, Listener] = {}
        self._demo_url: str | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # `start` builds these; nothing here is used before.
        self._shared: WorkerServices
        self._built = _StartedParts()
        self._context: LaneServices
        self._reloading: asyncio.Task[None] | None = None
        self._reloads_due = 0

    async def start(self, wait: StoreWait | None = None) -> None:
        """Build all objects. Afterwards `get_connection_factory` accepts connections.

        `wait` is what happens while the store is away. Raises ConfigError, StartEndedError.
        """
        settings = self._loaded.settings
        if not settings.upstreams:
            await self._start_demo()
        await self._process.exposition.start()
        self._stack.push_async_callback(self._process.exposition.close)
        clock = self._process.clock
        store = await open_store(settings, folder=self._loaded.folder, clock=clock, wait=wait or StoreWait())
        self._stack.push_async_callback(store.close)
        self._build_shared_services(store)
        features = self._shared.features
        self._process.metrics.late.append(features.catch_up)
        await self._shared.keys.refresh()
        features.apply_settings(settings)
        await self._follow_services()
        router = self._build_lane_router()
        self._context = await self._assemble_lanes(self._loaded, router)
        self._stack.push_async_callback(lambda: self._context.lane.retire())
        self._built.console = self._build_console_entry()
        self._stack.push_async_callback(self._built.console.close)
        admin = settings.admin.listen
        self._built.pages = self._build_pages_entry(services_apart=admin is not None)
        self._stack.push_async_callback(self._built.pages.close)
        await self._listen_for_replicas()
        await self._built.pages.open_mcp_clients(self._stack)
        later = LaterPages(self._built.pages.list_other_routes)
        self._listeners[DATA] = listener = await self._build_listener(
            router, self._built.pages.list_start_routes(), later
        )
        state, servers = self._state, self._shared.mcp_servers
        further = (
            state.wrong_keys.collect_families,
            state.backlog.collect_families,
            servers.collect_families,
            features.collect_families,
        )
        self._process.metrics.sources += [listener.collect_families, *further]
        self._process.metrics.further += [state.counters.collect_counts, features.collect_counts]
        if admin is not None:
            entry = build_admin_entry(settings, metrics=self._process.metrics)
            self._listeners[ADMIN] = await self._build_listener(
                entry, (), LaterPages(self._built.pages.list_service_routes)
            )
        for listener in self._listeners.values():
            listener.start()
        await self._built.notices.apply_settings(self._loaded.settings)
        self._start_background_work(store)
        await features.prepare()
        self._shared.keys.changed = features.refresh
        self._process.metrics.last_reload_success_s = self._process.clock.time()

    async def _start_demo(self) -> None:
        """Start the demo model, which answers where there is no upstream."""
        # Imported here because nothing else needs the demo model, and it costs start-up time.
        from gateway.demo.app import start_demo

        demo = await start_demo()
        self._stack.push_async_callback(demo.close)
        self._demo_url = demo.base_url

    def _start_background_work(self, store: Store) -> None:
        """Start what goes on beside requests until the gateway is closed."""
        settings, clock, shared = self._loaded.settings, self._process.clock, self._shared
        pruner = Pruner(store, owner=shared.leases.owner, clock=clock)
        house = PeriodicChecks(
            shared=shared,
            current=self._get_current,
            history=self._state.history,
            backlog=self._state.backlog,
            has_others=settings.workers > 1 or is_store_shared(settings),  # neither changes without a restart
        )
        following: Callable[[], Awaitable[None]] = partial(clock.follow, store)
        going_on = (house.run, shared.leases.run, shared.keys.run, pruner.run, *shared.features.list_tasks())
        self._tasks += [asyncio.create_task(supervise(work)) for work in (following, *going_on)]

    async def _listen_for_replicas(self) -> None:
        """Build the listener for other workers. It opens its port once something needs it."""
        self._listeners[REPLICAS] = await self._build_listener(
            build_replica_entry(self._loaded.settings, metrics=self._process.metrics, paths=REPLICA_PATHS),
            self._built.replica_pages.list_routes(),
            None,
        )

    async def _open_replica_port(self, address: Address) -> str:
        """Open the port for other workers, and return the address for them. Raises OSError."""
        port = ReplicaPort(address, self._loaded.settings, self.get_connection_factory(REPLICAS))
        self._stack.push_async_callback(port.close)
        return await port.listen()

    def _build_shared_services(self, store: Store) -> None:
        """Build the services that requests of all configurations share."""
        address = find_replica_listen(self._loaded.settings, self._loaded.folder)
        self._shared = shared = build_shared(
            store,
            runs=self._state.runs,
            counters=self._state.counters,
            clock=self._process.clock,
            resume=lambda run: self._built.resumption.resume_run(run),
            equipment=lambda: self._get_current().equipment,
            room=lambda: self._listeners[DATA].room,
            settings=lambda: self._loaded.settings,
            callers=lambda: self._listeners[DATA].router.keys.list_callers(),
            process=ServingProcess(sink=self._process.sink, meters=self._process.meters),
            listen=None if address is None else partial(self._open_replica_port, address),
        )
        self._built.replica_pages = ReplicaPages(shared.replicas, ReplicaServices(shared.places.find_server))
        self._stack.push_async_callback(shared.features.close)
        self._built.resumption, self._built.kept = build_resumption(
            shared, lane=lambda: self._get_current().lane, core=lambda: self._get_current().core
        )
        self._built.notices = Notices(shared)
        for close in (
            shared.replicas.close,
            shared.keys.close,
            shared.mcp_servers.close,
            shared.feed.close,
            self._built.notices.close,
            shared.leases.close,
            self._built.kept.close,
            self._state.runs.close,
        ):
            self._stack.push_async_callback(close)

    def get_connection_factory(self, name: str) -> Callable[[], ClientConnection]:
        return self._listeners[name].build_connection

    def reload_soon(self) -> None:
        """Start a reload. A reload that is requested during another one follows it."""
        self._reloads_due += 1
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reload_until_done())

    def begin_drain(self) -> float:
        """Answer 503 at `/health/ready`, and end each connection with its next answer. Return `limits.stop_delay`."""
        for listener in self._listeners.values():
            listener.draining = True
        return self._loaded.settings.limits.stop_delay

    async def drain(self) -> None:
        """Wait for requests under way, at most `limits.drain`; close event streams at once.

        A stream that is held for a person ends as a turn that explains how to answer. Its run waits.
        """
        self._shared.feed.announce_stop()
        await asyncio.gather(
            *(leave() for leave in (*self._built.pages.begin_shutdown(), self._built.console.end_open_streams))
        )
        limit_s = self._loaded.settings.limits.drain
        ending = self._state.runs.end_answers
        for_clients = [one for name, one in self._listeners.items() if name != REPLICAS]
        await asyncio.gather(*(one.drain(limit_s, end_answers=ending) for one in for_clients))
        # Calls of clients may use what other workers use here, and these may be about to call it.
        await self._built.replica_pages.services.leave(REPLICAS_LEAVE_S)
        await self._listeners[REPLICAS].drain(REPLICAS_LEAVE_S)

    async def close(self) -> None:
        """End all tasks, connections and services at once. Idempotent."""
        for listener in self._listeners.values():
            listener.stop()
        ending = tuple(self._tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)  # a check of the sandbox ends its process first
        await self._state.runs.close()  # before the tools that they use
        await self._stack.aclose()

    async def reload(self) -> None:
        """Read the configuration and switch to it. On any error the old one stays in use."""
        try:
            loaded = merge_configs(await asyncio.to_thread(self._process.load), old=self._loaded)
            if not loaded.settings.upstreams and self._demo_url is None:
                log.warning("reload: no upstreams are left; the demo model starts only at start-up")
            router, context = await self._prepare_config(loaded)
            self._listeners[DATA].swap_router(router)
            if ADMIN in self._listeners:
                self._listeners[ADMIN].swap_router(build_admin_entry(loaded.settings, metrics=self._process.metrics))
            retired, self._context = self._context, context
        except ConfigError as error:
            self._process.metrics.reloads["failure"] += 1
            log.error("reload failed, the old configuration stays in use: %s", error)
        except Exception:
            self._process.metrics.reloads["failure"] += 1
            log.exception("reload failed, the old configuration stays in use")
        else:
            self._process.metrics.reloads["success"] += 1
            self._process.metrics.last_reload_success_s = self._process.clock.time()
            self._process.sink.secrets = tuple(iterate_secret_texts(loaded.settings))
            for listener in self._listeners.values():
                listener.access_log = self._log_access if loaded.settings.logging.access else None
            logging.getLogger().setLevel(loaded.settings.logging.level.upper())
            log.info("configuration reloaded")
            await self._follow_reload(retired)

    async def _follow_reload(self, retired: LaneServices) -> None:
        """Update features, webhooks and services, and retire the old lane. A failure is logged, and undoes nothing."""
        try:
            self._shared.features.apply_settings(self._loaded.settings)
            await self._shared.features.refresh()
            await retired.lane.retire()
            await self._built.notices.apply_settings(self._loaded.settings)
            await self._follow_services()
        except Exception:
            log.exception("the new configuration is in use, but not all that follows from it was done")

    async def _prepare_config(self, loaded: LoadedConfig) -> tuple[Router, LaneServices]:
        """Return the router and the context lane of a configuration that every worker could build.

        Raises ConfigError, or the error of the build. Then no worker has changed anything.
        """
        old, self._loaded = self._loaded, loaded
        able = False
        try:
            build_webhooks(loaded.settings.approvals.notify)
            await self._shared.keys.refresh()
            router = self._build_lane_router()
            context = await self._assemble_lanes(loaded, router)
            able = True
        finally:
            used = await self._process.agree(able)
            if not used:
                self._loaded = old
        if not used:
            router.close()
            await context.lane.retire()
            why = "not every worker could use it: their lines say why; if one was starting, send SIGHUP again"
            raise ConfigError((Problem("configuration", "", why),))
        return router, context

    async def _follow_services(self) -> None:
        """Apply the configured MCP servers. If the store fails now, `Housekeeping` tries again."""
        self._shared.mcp_servers.configure(self._loaded.settings.mcp.servers)
        try:
            await self._shared.mcp_servers.refresh()
        except StoreError as error:
            log.error("the store failed: %s", error)

    async def _reload_until_done(self) -> None:
        while self._reloads_due:
            self._reloads_due = 0
            await self.reload()

    def _build_lane_router(self) -> Router:
        settings = self._loaded.settings
        return build_router(
            settings,
            metrics=self._process.metrics,
            clock=asyncio.get_running_loop().time,
            demo_url=self._demo_url,
            own_paths=ROOT_PATHS | (frozenset() if settings.admin.listen else list_operator_paths(settings)),
            lent=self._state.lent,
            stored=self._shared.keys.accepted,
            features=self._shared.features.build_observers(settings),
            now_s=self._process.clock.time,
            tracer=self._shared.tracer,
        )

    async def _assemble_lanes(self, loaded: LoadedConfig, router: Router) -> LaneServices:
        assembled = await build_context_lane(
            loaded.settings, groups=router.groups, keys=router.keys, shared=self._shared
        )
        await note_obstacles(assembled)
        return assembled

    def _get_current(self) -> LaneServices:
        return self._context

    def _build_pages_entry(self, *, services_apart: bool) -> PagesEntry:
        needs = PageNeeds(
            shared=self._shared,
            resumption=self._built.resumption,
            kept=self._built.kept,
            current=self._get_current,
            identify=self._identify,
            admit=lambda: self._listeners[DATA].admit_own(),
            is_of_console=self._state.lent.has_sent,
            loaded=lambda: self._loaded,
            keys=lambda: self._listeners[DATA].router.keys,
            exposition=self._process.exposition,
            history=self._state.history,
            started_s=self._process.started_s,
            demo_url=self._demo_url,
            replica_pages=self._built.replica_pages,
        )
        return PagesEntry(needs, services_apart=services_apart)

    def _build_console_entry(self) -> ConsoleEntry:
        return ConsoleEntry(
            self._shared,
            lent=self._state.lent,
            in_use=lambda: ActiveConfig(self._loaded.settings, self._listeners[DATA].router.keys, self._context.lane),
            resume=self._built.resumption.resume_if_ready,
            wrong_keys=self._state.wrong_keys,
            listeners=lambda: {
                name: listener.build_inner_connection
                for name, listener in self._listeners.items()
                if name != REPLICAS  # its pages are for other workers alone
            },
        )

    def _identify(self, head: RequestHead, has_key: bool, scope: str) -> Identity:
        """Identify a caller by the keys of the configuration in use, on either address."""
        return self._listeners[DATA].router.identify(head, upstream_has_key=has_key, scope=scope)

    async def _build_listener(self, router: Router, further: Sequence[Route], later: LaterPages | None) -> Listener:
        """Build a listener. Without `later` it serves `further` alone, whose pages know their callers by themselves."""
        if later is None:
            return await self._build_site_listener(router, build_sealed_site(further, self._state.wrong_keys))
        pages = Site(
            exposition=self._process.exposition.build_page if self._loaded.settings.metrics.enabled else None,
            ready=self._report_ready,
            door=lambda: self._listeners[DATA].router.door,
            recognise=self._recognise,
            read_metrics=self._read_metrics,
            wrong_keys=self._state.wrong_keys,
            console=lambda request: self._built.console.answer_request(request),
            further=further,
            later=later,
            apart=list_separate_paths(self._loaded.settings),
        )
        return await self._build_site_listener(router, pages)

    async def _build_site_listener(self, router: Router, pages: Site) -> Listener:
        runner = await build_runner(pages)
        self._stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        return Listener(
            loop=asyncio.get_running_loop(),
            router=router,
            metrics=self._process.metrics,
            new_handler=runner.server,
            wrong_keys=self._state.wrong_keys,
            access_log=self._log_access if self._loaded.settings.logging.access else None,
            beside=lambda: self._state.runs.unattended_count,
        )

    def _recognise(self, request: web.Request) -> None:
        self._listeners[DATA].router.recognise(get_head(request))

    def _read_metrics(self, request: web.Request) -> None:
        if not self._loaded.settings.metrics.public:
            head = get_head(request)
            identify_with_scope(("metrics", "admin"), lambda scope: self._identify(head, True, scope).caller)

    async def _report_ready(self) -> Readiness:
        if any(listener.draining for listener in self._listeners.values()):
            return "draining"
        return "ready" if await self._shared.store.find_loss_reason() is None else "store_lost"

    def _log_access(self, **facts: object) -> None:
        self._process.sink.put(build_access_record(facts))
