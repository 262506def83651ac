"""The context lane of one configuration: its tools, gate, stages and chains, and the services for plugins."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gateway.agent.agent_services import AgentParts, ApprovalSettings
from gateway.agent.output.passthrough_answer_filter import with_safe_answers
from gateway.agent.stage import AgentLoops
from gateway.approvals.approvals import Approvals
from gateway.auth.active_keys import KeysInUse
from gateway.auth.keyring import KeyRing, StoredKeys
from gateway.config import ConfigError, Problem, Settings
from gateway.config.prompts import read_prompt_texts
from gateway.config.schema.context import StageUse
from gateway.context.approval_mode import ApprovalModes
from gateway.context.chain import Chain, Link, fold
from gateway.context.explain import Explainer
from gateway.context.lane import ContextLane, Handlers, LaneBounds, RequestRules
from gateway.context.prompts import BasePrompts
from gateway.context.traced_runs import trace_run
from gateway.contracts.caller import Caller
from gateway.contracts.errors import contained
from gateway.contracts.exchange import Exchange, Handler, Reply
from gateway.contracts.plugin import Clock, Counters, Enhancer, Host, LoopLimits, Runs, ToolCatalog
from gateway.contracts.service import ManagedService
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import Store, StoreError
from gateway.contracts.tracing.tracer import Tracer
from gateway.mcp.placement import ServerPlaces
from gateway.mcp.servers import McpServers
from gateway.model.call import ModelCall
from gateway.model.candidates import ModelTable
from gateway.model.hooks import ContextHook
from gateway.model.traced import trace_model_calls
from gateway.model.upstream_client import ModelUpstream
from gateway.registry.loader import PluginProblem, build_plugin, find_plugin
from gateway.runs.event_feed import EventFeed
from gateway.runs.idempotency_key import RequestKey, build_mismatch_error
from gateway.runs.leases import Leases
from gateway.runs.live import LiveRuns
from gateway.runs.undelivered_answers import JOINABLE_S
from gateway.server.feature import FeatureNeeds, ServingProcess, WorkerFeatures
from gateway.server.lanes.context_tools import build_gate, load_tools, try_build_plugin
from gateway.server.lanes.rights import build_client_refusal, build_decision_rules
from gateway.server.worker_services import WorkerServices
from gateway.tools.active_config import ActiveEquipment, Equipment
from gateway.tools.call_evaluator import Judge
from gateway.tools.catalog import Catalog, find_obstacles
from gateway.tools.results import Results
from gateway.tools.runner import Runner
from gateway.upstream.group import Group
from gateway.upstream.replicas.replicas import Replicas
from gateway.workflows.definition import Workflow
from gateway.workflows.folder import load_offered_workflows

log = logging.getLogger("gateway")

#: How long a start or a reload waits until tools have tried what they need of the machine, in place of a first call.
TRIALS_S = 10.0

#: The plugin that makes a service of an MCP server.
MCP = "mcp"


class NoRuns:
    """The placeholder for runs while tools are built: no agent loop exists yet."""

    def build_stage(self, limits: object) -> Any:
        raise ValueError(f"a tool cannot run agent loops ({limits!r})")


@dataclass(slots=True)
class PluginHost:
    """The services that plugins are built with (`contracts.Host`). Tools and runs exist once tools are built."""

    prompts: BasePrompts
    store: Store
    counters: Counters
    clock: Clock
    tools: ToolCatalog = field(default_factory=lambda: Catalog(()))
    runs: Runs = field(default_factory=NoRuns)
    places: ServerPlaces | None = None


@dataclass(frozen=True, slots=True)
class LaneServices:
    """The context lane of one configuration, and the objects that its other pages show.

    `obstacles`: why tools cannot run on this machine, as far as that is known by now.
    """

    lane: ContextLane
    core: ModelCall
    enhancer: Enhancer | None
    prompts: BasePrompts
    explainer: Explainer
    equipment: Equipment
    obstacles: list[str] = field(default_factory=list)


def build_shared(
    store: Store,
    *,
    runs: LiveRuns,
    counters: Counters,
    clock: Clock,
    resume: Callable[[StoredRun], Awaitable[None]],
    equipment: Callable[[], Equipment],
    room: Callable[[], int | None] = lambda: None,
    settings: Callable[[], Settings],
    callers: Callable[[], Iterable[Caller]] = tuple,
    process: ServingProcess | None = None,
    listen: Callable[[], Awaitable[str]] | None = None,
) -> WorkerServices:
    """Build the services that requests of all configurations share. Raises ConfigError.

    `room`: see `Leases`. `listen`: see `Replicas`. `settings`, `callers` and `process`: see `FeatureNeeds`.
    """
    leases = Leases(store, clock=clock, resume=resume, room=room)
    keys = KeysInUse(store, StoredKeys(), is_on=lambda: settings().runtime_keys.enabled, clock=clock)
    replicas = Replicas(store, owner=leases.owner, clock=clock, listen=listen)
    places = ServerPlaces(replicas)
    servers = make_servers(store, worker=leases.owner, counters=counters, clock=clock, places=places)
    needs = FeatureNeeds(
        store=store,
        clock=clock,
        counters=counters,
        writer=leases.owner,
        settings=settings,
        callers=callers,
        process=process,
    )
    features = WorkerFeatures(needs)
    once = (leases, counters, clock, servers, ActiveEquipment(equipment), Results(), keys, features, replicas, places)
    return WorkerServices(store, runs, EventFeed(store), *once)


def make_servers(
    store: Store, *, worker: str, counters: Counters, clock: Clock, places: ServerPlaces | None = None
) -> McpServers:
    """Build the MCP services of one worker. It has none until it is configured. Without `places` it runs all."""
    host = PluginHost(BasePrompts({}, store, clock=clock), store, counters, clock, places=places)

    def build(name: str, options: Mapping[str, object]) -> ManagedService:
        try:
            service: ManagedService = build_plugin("tools", MCP, {"name": name, **options}, host)
        except PluginProblem as problem:
            raise ValueError(problem.message) from None
        return service

    return McpServers(store, build=build, worker=worker, counters=counters, clock=clock)


async def build_context_lane(
    settings: Settings, *, groups: Sequence[Group], keys: KeyRing, shared: WorkerServices
) -> LaneServices:
    """Build the lane and its services. Raises ConfigError with every problem that was found."""
    problems: list[Problem] = []
    store, counters, clock, tracer = shared.store, shared.counters, shared.clock, shared.tracer
    prompts = BasePrompts(_load_prompt_texts(settings, problems), store, clock=clock)
    host = PluginHost(prompts, store, counters, clock)
    catalog = await load_tools(settings, host, shared.results, problems, services=shared.mcp_servers.get_services)
    gate = build_gate(settings, host, problems, at_hand=True, names=catalog.map_names_by_source())
    host.tools = catalog
    judge = Judge(catalog, gate, barred=build_client_refusal(settings, keys), rules=build_decision_rules(settings))
    runner = Runner(shared.results, counters=counters, clock=clock, tracer=tracer)
    parts = _build_parts(settings, keys, shared)
    host.runs = AgentLoops(parts)
    hooks = shared.features.build_hooks(settings)
    core = _build_core(settings, _build_upstreams(settings, groups), shared, hooks)
    model = core if tracer is None else trace_model_calls(core, tracer, provider_of=core.get_provider)
    chains = _build_chains(settings, host, model, problems, tracer=tracer)
    workflows, context, limits = _load_workflows(settings, problems), settings.context, settings.limits
    if problems:
        await _close(catalog)
        raise ConfigError(tuple(problems))
    lane = ContextLane(
        chains=chains,
        rules=_build_request_rules(settings, prompts, shared),
        bounds=LaneBounds(
            body_bytes=limits.context_body,
            body_values=limits.context_values,
            keepalive_s=context.stream.keepalive,
            status_wait_s=context.stream.status_wait,
        ),
        handlers=Handlers(
            plain=with_safe_answers(model),
            calling=chains[context.chain].find_loop_handler() or _build_bare_handler(host.runs),
            traced=None if tracer is None else partial(trace_run, tracer=tracer),
        ),
        approvals=parts.approvals,
        catalog=catalog,
        runs=shared.runs,
        earlier=_build_earlier_finder(store, clock),
        close=partial(_close, catalog),
        workflows=workflows,
        hooks=hooks,
    )
    try:
        await prompts.refresh()  # a first look later would drop what was enhanced by then
    except StoreError as error:
        log.error("the store failed: %s", error)
    shows = (link.stage for link in chains[context.chain].links if isinstance(link.stage, Enhancer))
    explainer = Explainer(lane=lane, core=core, model=context.model, judge=judge, counters=counters, clock=clock)
    return LaneServices(lane, core, next(shows, None), prompts, explainer, Equipment(judge, runner, lane.begin_use))


async def note_obstacles(assembled: LaneServices) -> None:
    """Find why tools of this configuration cannot run on this machine, and log it. A start waits at most TRIALS_S."""
    try:
        async with asyncio.timeout(TRIALS_S):
            async for obstacle in find_obstacles(assembled.explainer.judge.catalog.sources):
                assembled.obstacles.append(obstacle)
                log.warning("%s", obstacle)
    except Exception as error:  # TimeoutError, too
        log.warning("what the tools need of this machine was not found out: %s", type(error).__name__)


def _build_request_rules(settings: Settings, prompts: BasePrompts, shared: WorkerServices) -> RequestRules:
    """Return the rules by which requests are read."""
    return RequestRules(
        chain=settings.context.chain,
        prompt=settings.context.prompt,
        prompt_text=lambda prompt_id, tenant: prompts.read_text(prompt_id, tenant=tenant),
        prompt_names=lambda tenant: prompts.list_names(tenant=tenant),
        approval_modes=ApprovalModes(settings.approvals.mode, settings.approvals.chains),
        service_url=shared.mcp_servers.find_url,
        tasks=settings.context.tasks,
    )


def _build_chains(
    settings: Settings, host: PluginHost, model: Handler, problems: list[Problem], *, tracer: Tracer | None
) -> dict[str, Chain]:
    """Build the configured chains around the model."""
    chains: dict[str, Chain] = {}
    for name, uses in settings.chains.items():
        links = _build_links(name, uses, host, problems, folder=settings.plugins.folder)
        answering = model if any(link.runs_tools for link in links) else with_safe_answers(model)
        chains[name] = fold(name, links, answering, counters=host.counters, clock=host.clock, tracer=tracer)
    return chains


def _build_bare_handler(runs: Runs) -> Handler:
    """Return the handler of tool calls for a default chain without an agent loop, which has no limits for them."""
    stage = runs.build_stage(LoopLimits())

    async def refuse_model(exchange: Exchange) -> Reply:
        raise AssertionError(f"the tool call {exchange.id} would call a model")

    async def handle(exchange: Exchange) -> Reply:
        return await stage(exchange, refuse_model)

    return handle


def _build_parts(settings: Settings, keys: KeyRing, shared: WorkerServices) -> AgentParts:
    """Build the services that the agent loop needs."""
    request_key = settings.approvals
    approvals = Approvals(
        shared.store,
        shared.feed,
        shared.in_use,
        counters=shared.counters,
        clock=shared.clock,
        expires_s=request_key.expires,
        on_reject=request_key.on_reject,
        remembered_s=request_key.remembered,
        deciders=keys.list_deciders,
        console_url=settings.console_url,
    )
    return AgentParts(
        in_use=shared.in_use,
        approvals=approvals,
        feed=shared.feed,
        leases=shared.leases,
        settings=ApprovalSettings(inline_wait_s=request_key.inline_wait, on_reject=request_key.on_reject),
        store=shared.store,
        counters=shared.counters,
        clock=shared.clock,
        tracer=shared.tracer,
    )


async def _close(catalog: Catalog) -> None:
    """Close all tools. A failure of one is logged: it stops neither the others nor a reload."""
    for source in catalog.sources:
        try:
            with contained(f"closing {type(source).__name__}"):
                await source.close()
        except Exception:
            log.exception("tools of %s could not be closed", type(source).__name__)


def _build_core(
    settings: Settings,
    upstreams: Sequence[ModelUpstream],
    shared: WorkerServices,
    hooks: Sequence[ContextHook],
) -> ModelCall:
    chosen = settings.context
    aliases = {name: [(use.model, use.upstream) for use in alias.use] for name, alias in settings.models.items()}
    table = ModelTable(upstreams, fixed=chosen.upstream, model=chosen.model, aliases=aliases)
    merged = chosen.models == "merged"
    return ModelCall(
        table,
        clock=shared.clock.monotonic,
        lists_all=merged,
        counters=shared.counters,
        hooks=hooks,
        tracer=shared.tracer,
    )


def _build_earlier_finder(store: Store, clock: Clock) -> Callable[[RequestKey, Caller], Awaitable[StoredRun | None]]:
    async def find_earlier(request_key: RequestKey, caller: Caller) -> StoredRun | None:
        """Return the newest stored run that a request repeats, if the client marks it as a repeat; else None.

        Raises GatewayError (idempotency_mismatch) for another request with the same key.
        """
        if request_key.idempotency_key is not None:
            key = request_key.idempotency_key[2]
            found = await store.list_runs_with_key(key, tenant=caller.tenant, caller=caller.name)
            if any(run.fingerprint != request_key.fingerprint for run in found):
                raise build_mismatch_error()
            return next(iter(found), None)
        if not request_key.repeats:
            return None
        since_s = clock.time() - JOINABLE_S
        return next(
            iter(await store.list_runs_by_fingerprint(request_key.fingerprint, tenant=caller.tenant, since_s=since_s)),
            None,
        )

    return find_earlier


def _load_workflows(settings: Settings, problems: list[Problem]) -> Mapping[str, Workflow]:
    try:
        found = load_offered_workflows(settings)
    except ConfigError as error:
        problems += error.problems
        return {}
    for warning in found.warnings:
        log.warning("%s", warning)
    return found.workflows


def _load_prompt_texts(settings: Settings, problems: list[Problem]) -> Mapping[str, str]:
    try:
        return read_prompt_texts(settings.prompts)
    except ConfigError as error:
        problems += error.problems
        return {}


def _build_links(
    chain: str, uses: Sequence[StageUse], host: Host, problems: list[Problem], *, folder: Path
) -> list[Link]:
    links = []
    for i, use in enumerate(uses):
        stage = try_build_plugin("stages", use.use, use.with_, host, f"chains.{chain}[{i}]", problems, folder=folder)
        if stage is not None:
            plugin = find_plugin("stages", use.use, folder=folder)
            declared = (plugin.runs_tools, plugin.only_adds, plugin.guards_answers)
            links.append(Link(use.use, stage, use.on_error, *declared))
    return links


def _build_upstreams(settings: Settings, groups: Sequence[Group]) -> list[ModelUpstream]:
    models = {upstream.name: upstream.models for upstream in settings.upstreams}
    return [ModelUpstream(group, tuple(models.get(group.name, ()))) for group in groups]
