"""Puts the context lane of one configuration together: tools, gate, stages, chains, and what plugins are given."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.caller import Caller
from gateway.config import ConfigError, Problem, Settings
from gateway.config.context import StageUse
from gateway.contracts import (
    Clock,
    Counters,
    Enhancer,
    Host,
    RiskAssessor,
    Runs,
    Store,
    StoredRun,
    StoreError,
    Tools,
    ToolSource,
)
from gateway.errors import GatewayError
from gateway.lanes.context import ContextLane
from gateway.lanes.explain import Explainer
from gateway.lanes.render import Completion, Turn
from gateway.metrics import Metrics
from gateway.pipeline.agent import Agents
from gateway.pipeline.chain import Chain, Link, fold
from gateway.pipeline.model import ModelCore, Target
from gateway.pipeline.prompts import BasePrompts
from gateway.registry import Kind, PluginProblem, build_plugin
from gateway.runs.live import JOINABLE_S, Asking, LiveRun, LiveRuns, mismatch
from gateway.tools.catalog import Catalog, CatalogError, load_catalog
from gateway.tools.gate import Gate, Policy
from gateway.tools.results import READ_RESULT, ReadsOnly, Results
from gateway.tools.runner import Runner
from gateway.upstream.pool import Pool

log = logging.getLogger("gateway")

SQLITE = "sqlite:///"
#: The assessors of the built-in tools.
ASSESSORS = {"execute_sql": "sql", "execute_command": "command", "file_operations": "file", "http_request": "http"}


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
class Assembled:
    """The context lane of one configuration, and what its other pages show of it."""

    lane: ContextLane
    core: ModelCore
    enhancer: Enhancer | None
    prompts: BasePrompts
    explainer: Explainer


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


async def assemble_context(
    settings: Settings,
    *,
    folder: Path,
    pools: Sequence[Pool],
    metrics: Metrics,
    store: Store,
    runs: LiveRuns,
    counters: Counters,
    clock: Clock,
) -> Assembled:
    """Builds everything, or raises ConfigError with everything that cannot be built."""
    problems: list[Problem] = []
    prompts = BasePrompts(_prompt_texts(settings, problems), store, clock=clock)
    nothing = Catalog(())
    results = Results()
    host = PluginHost(prompts, store, counters, clock, nothing, NoRuns())
    catalog = await _catalog(settings, folder, host, results, problems)
    gate = Gate(
        Policy(trust_llm=settings.risk.trust_llm, default=settings.risk.default), assessors_of(settings, host, problems)
    )
    host.tools = catalog
    host.runs = Agents(
        catalog, gate, Runner(results, counters=counters, clock=clock), store=store, counters=counters, clock=clock
    )
    core = ModelCore(
        _targets(settings, pools, metrics),
        fixed=settings.context.upstream,
        model=settings.context.model,
        clock=clock.monotonic,
    )
    chains: dict[str, Chain] = {}
    for name, uses in settings.chains.items():
        links = _links(name, uses, host, problems)
        chains[name] = fold(name, links, core, counters=counters, clock=clock)

    async def close() -> None:
        for source in catalog.sources:
            await source.close()

    if problems:
        await close()
        raise ConfigError(tuple(problems))
    lane = ContextLane(
        chains=chains,
        chain=settings.context.chain,
        prompt=settings.context.prompt,
        prompt_text=prompts.text,
        keepalive_s=settings.context.stream.keepalive,
        body_bytes=settings.limits.context_body,
        runs=runs,
        note=_noting(store, clock),
        earlier=_earlier(store, clock),
        close=close,
    )
    shows = (link.stage for link in chains[settings.context.chain].links if isinstance(link.stage, Enhancer))
    explainer = Explainer(
        lane=lane, core=core, model=settings.context.model, catalog=catalog, gate=gate, counters=counters, clock=clock
    )
    return Assembled(lane, core, next(shows, None), prompts, explainer)


def _noting(store: Store, clock: Clock) -> Callable[[LiveRun], Awaitable[None]]:
    async def note(run: LiveRun) -> None:
        """Written before the first effect and at the end: whoever finds the run later knows what became of it."""
        exchange, asking = run.exchange, run.asking
        answer = None
        if run.state == "completed":
            turn = Turn.of(exchange.id, exchange.body, created_s=run.created_s)
            completion = Completion(turn)
            for chunk in run.chunks:
                completion.add(chunk)
            answer = completion.body()
        stored = StoredRun(
            id=exchange.id,
            tenant=exchange.caller.tenant,
            caller=exchange.caller.name,
            chain=exchange.chain,
            fingerprint=asking.fingerprint,
            idempotency_key=asking.idempotency_key and asking.idempotency_key[2],
            state=run.state,
            effects=True,
            created_s=run.created_s,
            updated_s=clock.time(),
            answer=answer,
            error_code=run.error.code if isinstance(run.error, GatewayError) else None,
        )
        try:
            await store.put_run(stored)
        except StoreError as error:
            log.error("run %s cannot be written down: %s", exchange.id, error)
            if not run.done:
                raise GatewayError(
                    "store_full", "The gateway cannot write down what it is about to do, so it does nothing."
                ) from None

    return note


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


def _prompt_texts(settings: Settings, problems: list[Problem]) -> dict[str, str]:
    texts = {}
    for prompt_id, prompt in settings.prompts.items():
        try:
            texts[prompt_id] = Path(prompt.file).read_text(encoding="utf-8") if prompt.file else prompt.text or ""
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            problems.append(Problem("configuration", f"prompts.{prompt_id}.file", f"cannot be read: {reason}"))
    return texts


async def _catalog(settings: Settings, folder: Path, host: Host, results: Results, problems: list[Problem]) -> Catalog:
    sources: dict[str, tuple[ToolSource, bool, bool]] = {}
    for name, (plugin, options, requires_approval, untrusted) in _tools(settings, folder).items():
        source = _built("tools", plugin, options, host, f"tools.{name}", problems)
        if source is not None:
            sources[name] = source, requires_approval, untrusted
    if sources:
        sources[f"{READ_RESULT} (built in)"] = results, False, False
    try:
        return await load_catalog(sources)
    except CatalogError as error:
        problems.append(Problem("configuration", "", str(error)))
        for source, _, _ in sources.values():
            await source.close()
        return Catalog(())


def _tools(settings: Settings, folder: Path) -> dict[str, tuple[str, Mapping[str, object], bool, bool]]:
    """Name -> plugin, its configuration, and the operator's two flags."""
    tools = settings.tools
    found: dict[str, tuple[str, Mapping[str, object], bool, bool]] = {}
    if (files := tools.file_operations) is not None:
        options: dict[str, object] = {"roots": [str(root) for root in files.roots], "write": files.write}
        found["file_operations"] = "file_operations", options, files.requires_approval, files.untrusted
    if (http := tools.http_request) is not None:
        options = {"private_networks": http.private_networks, "hosts": list(http.hosts)}
        found["http_request"] = "http_request", options, http.requires_approval, http.untrusted
    if (sql := tools.execute_sql) is not None:
        options = {"url": database_url(sql.url.reveal(), folder), "read_only": sql.read_only}
        found["execute_sql"] = "execute_sql", options, sql.requires_approval, sql.untrusted
    if (command := tools.execute_command) is not None:
        options = {"cwd": str(command.cwd), "timeout": command.timeout, "sandbox": command.sandbox}
        found["execute_command"] = "execute_command", options, command.requires_approval, command.untrusted
    for name, plugin in tools.plugins.items():
        found[name] = plugin.use or name, plugin.with_, plugin.requires_approval, plugin.untrusted
    return found


def assessors_of(settings: Settings, host: Host, problems: list[Problem]) -> dict[str, RiskAssessor]:
    assessors: dict[str, RiskAssessor] = {READ_RESULT: ReadsOnly()}
    for tool, name in ASSESSORS.items():
        options: dict[str, object] = {"profile": settings.risk.profile}
        if tool == "http_request" and (http := settings.tools.http_request) is not None:
            options |= {"private_networks": http.private_networks, "hosts": list(http.hosts)}
        assessors[tool] = _built("assessors", name, options, host, f"risk.assessors.{tool}", problems)
    for tool, use in settings.risk.assessors.items():
        assessors[tool] = _built("assessors", use.use, use.with_, host, f"risk.assessors.{tool}", problems)
    return assessors


def _links(chain: str, uses: Sequence[StageUse], host: Host, problems: list[Problem]) -> list[Link]:
    return [
        Link(use.use, _built("stages", use.use, use.with_, host, f"chains.{chain}[{i}]", problems), use.on_error)
        for i, use in enumerate(uses)
    ]


def _built(
    kind: Kind, name: str, options: Mapping[str, object], host: Host, place: str, problems: list[Problem]
) -> Any:
    try:
        return build_plugin(kind, name, options, host)
    except PluginProblem as problem:
        path = ".".join([place, *map(str, problem.path)])
        problems.append(Problem("configuration", path, problem.message))
        return None


def _targets(settings: Settings, pools: Sequence[Pool], metrics: Metrics) -> list[Target]:
    models = {upstream.name: upstream.models for upstream in settings.upstreams}
    return [Target(p, tuple(models.get(p.endpoint.name, ())), metrics.upstream(p.endpoint.name)) for p in pools]
