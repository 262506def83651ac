"""The catalog of tools: the tools of configuration and plugins, by name, and the tools of services that run just now.

A name leads to one tool: one of configuration and plugins comes before one of services, and among services the first
one wins. A tool whose name is another one's, or another spelling of it, is not there.
"""

import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Generic, Literal, TypeAlias, TypeVar

import orjson

from gateway.contracts.exchange import Exchange
from gateway.contracts.service import ManagedService
from gateway.contracts.tools import (
    CheckedSource,
    Service,
    ServiceSource,
    ToolSource,
    ToolSpec,
    encode_model_name,
    is_of_service,
)
from gateway.text.confusables import compute_skeleton
from gateway.text.reserved_names import RESERVED
from gateway.tools.near_names import find_near_names

log = logging.getLogger("gateway")

SourceT = TypeVar("SourceT", bound=ToolSource, covariant=True)
#: Where a tool comes from: with the gateway, from an operator's plugin, or from an MCP server.
Origin: TypeAlias = Literal["built_in", "plugin", "mcp"]

#: The description that a model reads of a tool whose definition is not accepted: the tool's own is untrusted text.
_CHANGED = "Its description has changed and is not accepted yet; each call needs the approval of a person."


class CatalogError(ValueError):
    """The error of two tools with one name towards models, or of a tool without a name."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One tool and the source of its calls; `changed`: its definition is not the one that was accepted.

    `key`: the name of the source in the configuration. `service`: the service that the tool belongs to, if any.
    """

    spec: ToolSpec
    source: ToolSource
    model_name: str
    changed: bool = False
    key: str = ""
    origin: Origin = "plugin"
    service: Service | None = None


@dataclass(frozen=True, slots=True)
class ConfiguredSource(Generic[SourceT]):
    """A source, and the operator's additions to its definitions."""

    source: SourceT
    requires_approval: bool = False
    untrusted: bool = False
    origin: Origin = "plugin"

    def build_spec(self, spec: ToolSpec, *, name: str | None = None) -> ToolSpec:
        """Return the spec with the source's settings for approval and trust, under `name` if given."""
        return replace(
            spec,
            name=name or spec.name,
            requires_approval=spec.requires_approval or self.requires_approval,
            untrusted=spec.untrusted or self.untrusted,
        )


#: Returns the services that there are now: another sequence after each change of one of them.
Services: TypeAlias = Callable[[], Sequence[ConfiguredSource[ServiceSource]]]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The services of one moment, of two with one name the first; and the running ones' tools, as models name them.

    `offered` are the tools of services that requests have named so far, each with the definition for models. `entries`
    are the tools that were looked up so far, each with the definition of its source that it was made of.
    """

    services: Sequence[tuple[Service, ConfiguredSource[ServiceSource]]]
    tools: Mapping[str, tuple[str, Service, ConfiguredSource[ServiceSource]]]
    offered: dict[str, Sequence[tuple[CatalogEntry, ToolSpec]]] = field(default_factory=dict)
    entries: dict[str, tuple[ToolSpec, CatalogEntry]] = field(default_factory=dict)


class Catalog:
    """The tools of one configuration; tools of services are looked up in a snapshot of them.

    `further` services come and go, whatever the configuration; the configuration's own come before them. Tools `beside`
    are offered while any of these exist.
    """

    def __init__(
        self,
        entries: Sequence[CatalogEntry],
        services: Sequence[ConfiguredSource[ServiceSource]] = (),
        *,
        further: Services = tuple,
        beside: Sequence[CatalogEntry] = (),
    ) -> None:
        self._services = services
        self._further = further
        alone, together = entries, (*entries, *beside)
        self._versions = _hash_definitions(alone), _hash_definitions(together)
        self._offered = _build_model_specs(alone), _build_model_specs(together)
        self._entries = {entry.spec.name: entry for entry in together}
        self._by_model_name = {entry.model_name: entry for entry in together}
        self._own = {**RESERVED, **{compute_skeleton(name): name for name in self._entries}}
        self._left_out: Mapping[tuple[str, str], str] = {}
        self._taken: tuple[Sequence[ConfiguredSource[ServiceSource]], _Snapshot] | None = None

    @property
    def version(self) -> str:
        return self._versions[bool(self._further())]

    def get_offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        """Return the tools that this request may use, named as the model is to name them."""
        offered = self._offered[bool(self._further())]
        if not (exchange.steering.only_tools or exchange.steering.no_tools or exchange.steering.services):
            return tuple(offered.values())
        own = [spec for name, spec in offered.items() if exchange.steering.allows(name)]
        return [*own, *(spec for _, spec in self._iterate_requested_service_tools(exchange))]

    def get_entries(self, exchange: Exchange) -> Sequence[CatalogEntry]:
        """Return the entries of the offered tools, with changed definitions left out."""
        own = [self._entries[name] for name in self._offered[bool(self._further())] if exchange.steering.allows(name)]
        return [*own, *(entry for entry, _ in self._iterate_requested_service_tools(exchange))]

    def list_services(self) -> Sequence[Service]:
        """Return the services as they are now."""
        return [facts for facts, _ in self._get_snapshot().services]

    def get_intended(self, exchange: Exchange) -> Sequence[ToolSpec]:
        """Return the tools of services that the user's intent is about, named as the model is to name them."""
        intent = exchange.intent
        names = intent.tools if intent is not None and intent.kind == "mcp" else ()
        found = (self.find(name, exchange) for name in names)
        return [_get_model_spec(entry) for entry in found if entry is not None]

    def find_stopped_service(self, name: str) -> str | None:
        """Return the service that a tool of this name would belong to, if it does not run; else None."""
        return next(
            (one.name for one in self.list_services() if not one.running and is_of_service(name, one.name)), None
        )

    def is_starting(self, name: str) -> bool:
        """Return whether a tool of this name would belong to a service that is about to run."""
        return any(
            isinstance(configured.source, ManagedService)
            and configured.source.get_condition().state == "starting"
            and is_of_service(name, facts.name)
            for facts, configured in self._get_snapshot().services
        )

    def find(self, wanted: str, exchange: Exchange) -> CatalogEntry | None:
        """Return the tool that the model means, if this request may use it; else None."""
        entry = (
            self._find_by_model_name(wanted) or self.find_by_name(wanted) or self._find_by_bare_name(wanted, exchange)
        )
        return entry if entry is not None and exchange.steering.allows(entry.spec.name) else None

    def _find_by_bare_name(self, wanted: str, exchange: Exchange) -> CatalogEntry | None:
        """Return the only offered service tool with this name inside its service, or None."""
        names = exchange.intent.tools if exchange.intent is not None and exchange.intent.kind == "mcp" else ()
        inside = {entry.spec.name for entry, _ in self._iterate_requested_service_tools(exchange)}.union(
            filter(exchange.steering.allows, names)
        )
        meant = [name for name in inside if (service := self.find_service_name(name)) and name == f"{service}.{wanted}"]
        return self.find_by_name(meant[0]) if len(meant) == 1 else None

    def find_by_name(self, name: str) -> CatalogEntry | None:
        """Return the tool of this inside name; None: there is none."""
        entry = self._entries.get(name) or self._find_by_model_name(encode_model_name(name))
        return entry if entry is not None and entry.spec.name == name else None

    def find_service_name(self, name: str) -> str | None:
        """Return the service that a tool of this name, inside or towards models, belongs to; None: to none.

        The service need not run.
        """
        if name in self._entries or name in self._by_model_name:
            return None
        found = (service.name for service in self.list_services() if is_of_service(name, service.name))
        return max(found, key=len, default=None)

    def list_own_names(self) -> Sequence[str]:
        """Return the inside names of the tools that belong to no service."""
        return list(self._entries)

    def list_names(self) -> Sequence[str]:
        """Return all inside names as they are now; `service.*` for the tools of a service that does not run."""
        found = list(self._entries)
        for facts, _ in self._get_snapshot().services:
            found += [f"{facts.name}.{tool}" for tool in facts.tools] if facts.running else [f"{facts.name}.*"]
        return found

    def list_callable_tools(self) -> Mapping[str, str]:
        """Return the tools that can be called now: their names towards models, by their inside names.

        The order is by inside name, so that all workers have the same.
        """
        found = {name: encode_model_name(name) for name in self._offered[bool(self._further())]}
        for towards, (tool, facts, _) in self._get_snapshot().tools.items():
            if towards not in self._by_model_name:
                found[f"{facts.name}.{tool}"] = towards
        return dict(sorted(found.items()))

    def map_names_by_source(self) -> Mapping[str, Sequence[str]]:
        """Return the inside names of the tools of each source, by its name in the configuration."""
        found: dict[str, list[str]] = {}
        for entry in self._entries.values():
            found.setdefault(entry.key, []).append(entry.spec.name)
        return found

    def find_nearest(self, name: str, exchange: Exchange) -> list[str]:
        """Return up to 3 names that the model may have meant, with tools of running services.

        The model may have left out the name of the service.
        """
        names = [spec.name for spec in self.get_offered(exchange)]
        names += [towards for towards in self._get_snapshot().tools if self.find(towards, exchange) is not None]
        alike = [towards for towards in names if towards.partition("__")[2] == name.rpartition(".")[2]]
        return list(dict.fromkeys([*alike, *find_near_names(name, names, most=3)]))[:3]

    @property
    def sources(self) -> Sequence[ToolSource]:
        """Return the sources of this configuration: `further` services are not its own."""
        sources = [entry.source for entry in self._entries.values()] + [each.source for each in self._services]
        return list({id(source): source for source in sources}.values())

    def _iterate_requested_service_tools(self, exchange: Exchange) -> Iterator[tuple[CatalogEntry, ToolSpec]]:
        """Yield the tools that the request may use of the services that it names, with their definitions for models."""
        for name in exchange.steering.services:
            for entry, spec in self._list_service_tools(name):
                if exchange.steering.allows(entry.spec.name):
                    yield entry, spec

    def _list_service_tools(self, name: str) -> Sequence[tuple[CatalogEntry, ToolSpec]]:
        """Return the tools of a running service: the same objects until a service changes."""
        current = self._get_snapshot()
        if (known := current.offered.get(name)) is not None:
            return known
        service = next((facts for facts, _ in current.services if facts.name == name and facts.running), None)
        named = (self.find_by_name(f"{name}.{tool}") for tool in (() if service is None else service.tools))
        of_service = (entry for entry in named if entry is not None and entry.service is not None)
        found = [(_drop_definition(entry), _get_model_spec(entry)) for entry in of_service]
        current.offered[name] = found
        return found

    def _get_snapshot(self) -> _Snapshot:
        """Return the snapshot of all services, made anew if a service may have changed."""
        further = self._further()
        if self._taken is None or self._taken[0] is not further or self._services:
            self._taken = further, self._build_snapshot((*self._services, *further))
        return self._taken[1]

    def _build_snapshot(self, sources: Sequence[ConfiguredSource[ServiceSource]]) -> _Snapshot:
        """Return the present services and tools, leaving out tools whose names look like others."""
        services: dict[str, tuple[Service, ConfiguredSource[ServiceSource]]] = {}
        tools: dict[str, tuple[str, Service, ConfiguredSource[ServiceSource]]] = {}
        spelled, left_out = dict(self._own), dict[tuple[str, str], str]()
        for configured in sources:
            facts = configured.source.get_service()
            if facts.name in services:
                continue
            names = _build_names(facts.name, tuple(facts.tools))
            alike = {tool: spelled[form] for tool, form in names.forms.items() if form in spelled}
            if alike:
                left_out.update(((facts.name, tool), other) for tool, other in alike.items())
                facts = replace(facts, tools={tool: line for tool, line in facts.tools.items() if tool not in alike})
            services[facts.name] = facts, configured
            spelled.update((form, f"{facts.name}.{tool}") for tool, form in names.forms.items() if tool not in alike)
            if facts.running:
                for towards, tool in names.towards_models.items():
                    if tool not in alike:
                        tools.setdefault(towards, (tool, facts, configured))
        self._log_left_out(left_out)
        return _Snapshot(tuple(services.values()), tools)

    def _log_left_out(self, left_out: Mapping[tuple[str, str], str]) -> None:
        """Log the tools that are left out, each with the one that it imitates, unless they were before."""
        before, self._left_out = self._left_out, left_out
        for service, tool in left_out.keys() - before.keys():
            log.warning(
                "service %r: the tool %r is left out: its name imitates that of the tool %r",
                service,
                tool,
                left_out[service, tool],
            )

    def _find_by_model_name(self, wanted: str) -> CatalogEntry | None:
        """Return the tool that has this name towards models; None: there is none."""
        if (entry := self._by_model_name.get(wanted)) is not None:
            return entry
        current = self._get_snapshot()
        if (found := current.tools.get(wanted)) is None:
            return None
        tool, facts, configured = found
        if (own := configured.source.find_spec(tool)) is None:
            self._taken = None  # the service has just ended, and is about to report that
            return None
        made_of, entry = current.entries.get(wanted, (None, None))
        if entry is None or made_of is not own:
            spec = configured.build_spec(own, name=f"{facts.name}.{tool}")
            entry = CatalogEntry(
                spec, configured.source, wanted, tool in facts.changed, origin=configured.origin, service=facts
            )
            current.entries[wanted] = own, entry
        return entry


def _get_model_spec(entry: CatalogEntry) -> ToolSpec:
    """Return a tool of a service as the model sees it."""
    return replace(_drop_definition(entry).spec, name=entry.model_name)


def _drop_definition(entry: CatalogEntry) -> CatalogEntry:
    """Return the tool without its definition, which is not accepted yet."""
    if not entry.changed:
        return entry
    return replace(entry, spec=replace(entry.spec, description=_CHANGED, parameters={"type": "object"}))


def _build_model_specs(entries: Sequence[CatalogEntry]) -> Mapping[str, ToolSpec]:
    """Return the tools as models see them, by their inside names."""
    return {entry.spec.name: replace(entry.spec, name=entry.model_name) for entry in entries}


def _hash_definitions(entries: Sequence[CatalogEntry]) -> str:
    definitions = orjson.dumps([asdict(entry.spec) for entry in entries], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(definitions).hexdigest()


@dataclass(frozen=True, slots=True)
class _Names:
    """The tools of a service by their names towards models, of two with one name the first; and the form of each."""

    towards_models: Mapping[str, str]
    forms: Mapping[str, str]


@lru_cache(maxsize=128)
def _build_names(service: str, tools: tuple[str, ...]) -> _Names:
    inside = {tool: f"{service}.{tool}" for tool in tools}
    towards_models = {encode_model_name(name): tool for tool, name in reversed(inside.items())}
    return _Names(towards_models, {tool: compute_skeleton(name) for tool, name in inside.items()})


async def load_catalog(
    sources: Mapping[str, ConfiguredSource[ToolSource]],
    *,
    further: Services = tuple,
    beside: Mapping[str, ConfiguredSource[ToolSource]] | None = None,
) -> Catalog:
    """List the tools of each source, by its name in the configuration, and build the catalog. Raises CatalogError.

    `further` are services that are none of these sources; tools `beside` are offered while there are any.
    """
    services: dict[str, ConfiguredSource[ServiceSource]] = {}
    tools: dict[str, ConfiguredSource[ToolSource]] = {}
    for name, configured in sources.items():
        if not isinstance(source := configured.source, ServiceSource):
            tools[name] = configured
            continue
        service = source.get_service().name
        if service in services:
            raise CatalogError(f"tools.{name}: there is another service named {service!r}: leave one of them out")
        services[service] = ConfiguredSource(
            source, configured.requires_approval, configured.untrusted, configured.origin
        )
    taken: set[str] = set()
    entries = await _build_entries(tools, taken)
    return Catalog(entries, list(services.values()), further=further, beside=await _build_entries(beside or {}, taken))


async def _build_entries(
    sources: Mapping[str, ConfiguredSource[ToolSource]], taken: set[str]
) -> Sequence[CatalogEntry]:
    """Return the entries of these sources. Raises CatalogError.

    `taken` are the names towards models that are already in use; the new ones are added to it.
    """
    entries = []
    for name, configured in sources.items():
        for spec in await configured.source.list_tools():
            if not spec.name:
                raise CatalogError(f"tools.{name}: a tool has no name")
            towards_model = encode_model_name(spec.name)
            if towards_model in taken:
                raise CatalogError(
                    f"tools.{name}: there is another tool named {spec.name!r} ({towards_model!r} to a model): "
                    "leave one of them out"
                )
            taken.add(towards_model)
            entry = CatalogEntry(configured.build_spec(spec), configured.source, towards_model)
            entries.append(replace(entry, key=name, origin=configured.origin))
    return entries


async def find_obstacles(sources: Iterable[ToolSource]) -> AsyncIterator[str]:
    """Yield, for each source whose calls fail or need approval on this machine, the reason."""
    for source in sources:
        if isinstance(source, CheckedSource) and (obstacle := await source.obstacle()) is not None:
            yield obstacle
