"""Puts the context lane of one configuration together: tools, gate, stages, chains, and what plugins are given."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway.caller import Caller
from gateway.config import ConfigError, Problem, Settings
from gateway.config.context import StageUse
from gateway.config.workflow_folder import load_workflows
from gateway.config.workflows import Workflow
from gateway.contracts import Clock, Counters, Enhancer, Host, RiskAssessor, Runs, Tools, ToolSource
from gateway.journal import StoredRun
from gateway.lanes.context import AGENT_LOOP, ContextLane
from gateway.lanes.explain import Explainer
from gateway.managed import ManagedService
from gateway.metrics import Metrics
from gateway.pipeline.agent import Agents, Crew
from gateway.pipeline.chain import Chain, Link, fold
from gateway.pipeline.model import ModelCore, Target
from gateway.pipeline.prompts import BasePrompts
from gateway.pipeline.round import Consent
from gateway.pipeline.unlooped import unlooped
from gateway.registry import Kind, PluginProblem, build_plugin
from gateway.runs.desk import Desk
from gateway.runs.keeper import Keeper
from gateway.runs.live import JOINABLE_S, Asking, LiveRuns, mismatch
from gateway.runs.tail import Tail
from gateway.store import Store, StoreError
from gateway.tools.catalog import Catalog, CatalogError, Configured, load_catalog
from gateway.tools.fleet import Fleet
from gateway.tools.gate import Gate, Policy
from gateway.tools.in_use import Equipment, InUse
from gateway.tools.judge import Judge
from gateway.tools.results import READ_RESULT, ReadsOnly, Results
from gateway.tools.runner import Runner
from gateway.upstream.pool import Pool
from gateway.wire.web import allowed_host

log = logging.getLogger("gateway")

SQLITE = "sqlite:///"
#: The plugin that makes a service of an MCP server.
MCP = "mcp"
#: The assessors of the built-in tools.
ASSESSORS = {"execute_sql": "sql", "execute_command": "command", "file_operations": "file", "http_request": "http"}
#: Where the tools of ours stand in the configuration.
BUILT_IN = frozenset(f"tools.{name}" for name in ASSESSORS)


class SystemClock:
    """The clock that everything but tests uses."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


@dataclass(slots=True)
class PluginHost:
    """What plugins are built with; `contracts.Host`. Tools and runs exist once tools are built."""

    prompts: BasePrompts
    store: Store
    counters: Counters
    clock: Clock
    tools: Tools
    runs: Runs


@dataclass(frozen=True, slots=True)
class Shared:
    """What one worker has once, whatever its configuration becomes."""

    store: Store
    runs: LiveRuns
    tail: Tail
    keeper: Keeper
    counters: Counters
    clock: Clock
    fleet: Fleet
    in_use: InUse
    results: Results


@dataclass(frozen=True, slots=True)
class Assembled:
    """The context lane of one configuration, and what its other pages show of it."""

    lane: ContextLane
    core: ModelCore
    enhancer: Enhancer | None
    prompts: BasePrompts
    explainer: Explainer
    equipment: Equipment


async def open_store(settings: Settings, *, folder: Path) -> Store:
    """The store of the configuration, ready for use. Raises ConfigError: a damaged one must not look empty."""
    url = settings.store.reveal()
    if not url.startswith(SQLITE):
        raise ConfigError(
            (Problem("configuration", "store", f"this version keeps things in SQLite: write {SQLITE}FILE"),)
        )
    store: Store = build_plugin("stores", "sqlite", {"url": database_url(url, folder)}, None)
    try:
        await store.open()
    except StoreError as error:
        raise ConfigError((Problem("configuration", "store", str(error)),)) from None
    return store


def database_url(url: str, folder: Path) -> str:
    """The URL of a database whose file, if it is a relative one, is beneath `folder`."""
    file = url.removeprefix(SQLITE)
    if file == url or file == ":memory:" or Path(file).is_absolute():
        return url
    return SQLITE + str(folder / file)


def make_fleet(store: Store, *, worker: str, counters: Counters, clock: Clock) -> Fleet:
    """The services of one worker; none until it is configured."""
    prompts = BasePrompts({}, store, clock=clock)
    host = PluginHost(prompts, store, counters, clock, Catalog(()), NoRuns())

    def build(name: str, options: Mapping[str, object]) -> ManagedService:
        try:
            service: ManagedService = build_plugin("tools", MCP, {"name": name, **options}, host)
        except PluginProblem as problem:
            raise ValueError(problem.message) from None
        return service

    return Fleet(store, build=build, worker=worker, counters=counters, clock=clock)


async def assemble_context(
    settings: Settings, *, folder: Path, pools: Sequence[Pool], metrics: Metrics, shared: Shared
) -> Assembled:
    """Builds everything, or raises ConfigError with everything that cannot be built."""
    problems: list[Problem] = []
    store, counters, clock = shared.store, shared.counters, shared.clock
    prompts = BasePrompts(_prompt_texts(settings, problems), store, clock=clock)
    host = PluginHost(prompts, store, counters, clock, Catalog(()), NoRuns())
    catalog = await _catalog(settings, folder, host, shared.results, problems, fleet=shared.fleet)
    gate = gate_of(settings, host, problems, at_hand=True)
    host.tools = catalog
    judge, runner = Judge(catalog, gate), Runner(shared.results, counters=counters, clock=clock)
    crew = _crew(settings, shared)
    host.runs = Agents(crew)
    core = ModelCore(
        _targets(settings, pools, metrics),
        fixed=settings.context.upstream,
        model=settings.context.model,
        clock=clock.monotonic,
    )
    chains: dict[str, Chain] = {}
    for name, uses in settings.chains.items():
        links = _links(name, uses, host, problems, folder=settings.plugins.folder)
        answering = core if any(link.name == AGENT_LOOP for link in links) else unlooped(core)
        chains[name] = fold(name, links, answering, counters=counters, clock=clock)

    async def close() -> None:
        for source in catalog.sources:
            await source.close()

    workflows = _workflows(settings, problems)
    if problems:
        await close()
        raise ConfigError(tuple(problems))
    lane = ContextLane(
        chains=chains,
        chain=settings.context.chain,
        prompt=settings.context.prompt,
        prompt_text=lambda prompt_id, tenant: prompts.text(prompt_id, tenant=tenant),
        keepalive_s=settings.context.stream.keepalive,
        body_bytes=settings.limits.context_body,
        approvals=settings.approvals.mode,
        desk=crew.desk,
        tool_names=catalog.names,
        runs=shared.runs,
        earlier=_earlier(store, clock),
        close=close,
        plain=core,
        tasks=settings.context.tasks,
        workflows=workflows,
    )
    try:
        await prompts.refresh()  # a first look later would drop what was enhanced by then
    except StoreError as error:
        log.error("the store failed: %s", error)
    shows = (link.stage for link in chains[settings.context.chain].links if isinstance(link.stage, Enhancer))
    explainer = Explainer(
        lane=lane, core=core, model=settings.context.model, judge=judge, counters=counters, clock=clock
    )
    return Assembled(lane, core, next(shows, None), prompts, explainer, Equipment(judge, runner, lane.hold))


def _crew(settings: Settings, shared: Shared) -> Crew:
    """Who runs what models ask for, and asks people about it."""
    asking = settings.approvals
    desk = Desk(
        shared.store,
        shared.tail,
        shared.in_use,
        counters=shared.counters,
        clock=shared.clock,
        expires_s=asking.expires,
        on_reject=asking.on_reject,
        remembered_s=asking.remembered,
    )
    return Crew(
        in_use=shared.in_use,
        desk=desk,
        tail=shared.tail,
        keeper=shared.keeper,
        consent=Consent(inline_wait_s=asking.inline_wait, on_reject=asking.on_reject),
        store=shared.store,
        counters=shared.counters,
        clock=shared.clock,
    )


def _earlier(store: Store, clock: Clock) -> Callable[[Asking, Caller], Awaitable[StoredRun | None]]:
    async def earlier(asking: Asking, caller: Caller) -> StoredRun | None:
        """The newest run on record that a request repeats, if it says that it repeats one."""
        if asking.idempotency_key is not None:
            key = asking.idempotency_key[2]
            found = await store.runs_with_key(key, tenant=caller.tenant, caller=caller.name)
            if any(run.fingerprint != asking.fingerprint for run in found):
                raise mismatch()
            return next(iter(found), None)
        if not asking.repeats:
            return None
        since_s = clock.time() - JOINABLE_S
        return next(iter(await store.runs_like(asking.fingerprint, tenant=caller.tenant, since_s=since_s)), None)

    return earlier


class NoRuns:
    """While tools are built there is nothing to run them."""

    def stage(self, limits: object) -> Any:
        raise ValueError(f"a tool cannot run agent loops ({limits!r})")


def _workflows(settings: Settings, problems: list[Problem]) -> Mapping[str, Workflow]:
    try:
        found = load_workflows(settings.workflows)
    except ConfigError as error:
        problems += error.problems
        return {}
    for warning in found.warnings:
        log.warning("%s", warning)
    return found.workflows


def _prompt_texts(settings: Settings, problems: list[Problem]) -> dict[str, str]:
    texts = {}
    for prompt_id, prompt in settings.prompts.items():
        try:
            texts[prompt_id] = Path(prompt.file).read_text(encoding="utf-8") if prompt.file else prompt.text or ""
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            problems.append(Problem("configuration", f"prompts.{prompt_id}.file", f"cannot be read: {reason}"))
    return texts


async def _catalog(
    settings: Settings, folder: Path, host: Host, results: Results, problems: list[Problem], *, fleet: Fleet
) -> Catalog:
    sources: dict[str, Configured[ToolSource]] = {}
    for name, (plugin, options, requires_approval, untrusted) in _tools(settings, folder).items():
        source = _built("tools", plugin, options, host, f"tools.{name}", problems, folder=settings.plugins.folder)
        if isinstance(source, ManagedService):  # nobody here would start it
            problems.append(Problem("configuration", f"tools.{name}", "this is a service: name it under 'mcp.servers'"))
        elif source is not None:
            sources[name] = Configured(source, requires_approval, untrusted)
    reading: dict[str, Configured[ToolSource]] = {f"{READ_RESULT} (built in)": Configured(results)}
    try:
        if sources:
            return await load_catalog(sources | reading, further=fleet.services)
        return await load_catalog({}, further=fleet.services, beside=reading)
    except CatalogError as error:
        problems.append(Problem("configuration", "", str(error)))
        for configured in sources.values():
            await configured.source.close()
        return Catalog(())


def _tools(settings: Settings, folder: Path) -> dict[str, tuple[str, Mapping[str, object], bool, bool]]:
    """Name -> plugin, its configuration, and the operator's two flags."""
    found: dict[str, tuple[str, Mapping[str, object], bool, bool]] = {}
    for name, tool in settings.tools.built_in.items():
        options = tool.options()
        if tool is settings.tools.execute_sql:
            options["url"] = database_url(str(options["url"]), folder)
        found[name] = name, options, tool.requires_approval, tool.untrusted
    for name, plugin in settings.tools.plugins.items():
        found[name] = plugin.use or name, plugin.with_, plugin.requires_approval, plugin.untrusted
    return found


def gate_of(settings: Settings, host: Host, problems: list[Problem], *, at_hand: bool = False) -> Gate:
    """The gate, as far as its assessors can be built.

    `at_hand`: its tools are there and examine what it lets run. Only those that are enabled have assessors then: the
    programs that are known to the one of commands alone cost 60 ms of each start.
    """
    risk, http = settings.risk, settings.tools.http_request
    uses: dict[str, tuple[str, dict[str, object]]] = {
        tool: (name, {"profile": risk.profile})
        for tool, name in ASSESSORS.items()
        if not at_hand or tool in settings.tools.built_in or tool in settings.tools.plugins
    }
    if http is not None:
        hosts = [allowed_host(host)[0] for host in http.hosts]  # the port of one is the tool's business
        uses["http_request"][1].update(private_networks=http.private_networks, hosts=hosts)
    if at_hand and settings.tools.execute_sql is not None:
        url = str(settings.tools.execute_sql.options()["url"])
        uses["execute_sql"][1].update(dialect="sqlite" if url.startswith(SQLITE) else "postgresql")
    uses |= {tool: (use.use, dict(use.with_)) for tool, use in risk.assessors.items()}
    assessors: dict[str, RiskAssessor] = {READ_RESULT: ReadsOnly()}
    folder = settings.plugins.folder
    for tool, (name, options) in uses.items():
        place = f"risk.assessors.{tool}"
        assessors[tool] = _built("assessors", name, options, host, place, problems, folder=folder)
    return Gate(
        Policy(trust_llm=risk.trust_llm, default=risk.default),
        assessors,
        rules=risk.rules,
        configured={tool: orjson.dumps(use, option=orjson.OPT_SORT_KEYS).decode() for tool, use in uses.items()},
    )


def _links(chain: str, uses: Sequence[StageUse], host: Host, problems: list[Problem], *, folder: Path) -> list[Link]:
    links = []
    for i, use in enumerate(uses):
        stage = _built("stages", use.use, use.with_, host, f"chains.{chain}[{i}]", problems, folder=folder)
        links.append(Link(use.use, stage, use.on_error))
    return links


def _built(
    kind: Kind,
    name: str,
    options: Mapping[str, object],
    host: Host,
    place: str,
    problems: list[Problem],
    *,
    folder: Path,
) -> Any:
    """`folder`: the operator's own plugins."""
    try:
        return build_plugin(kind, name, options, host, folder=folder)
    except PluginProblem as problem:
        # A tool of ours has no `use:` and `with:` of its own.
        below = problem.path[1:] if place in BUILT_IN else problem.path
        path = ".".join([place, *map(str, below)])
        problems.append(Problem("configuration", path, problem.message))
        return None


def _targets(settings: Settings, pools: Sequence[Pool], metrics: Metrics) -> list[Target]:
    models = {upstream.name: upstream.models for upstream in settings.upstreams}
    return [Target(p, tuple(models.get(p.endpoint.name, ())), metrics.upstream(p.endpoint.name)) for p in pools]
