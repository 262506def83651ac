"""Which tools there are: those of configuration and plugins, by name, and those of services that run just now."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

import orjson

from gateway.contracts import Exchange, Service, ServiceSource, ToolSource, ToolSpec
from gateway.wire.intent_names import model_name


class CatalogError(ValueError):
    """Two tools with one name towards models, or a tool without any."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool and where its calls go."""

    spec: ToolSpec
    source: ToolSource
    model_name: str


@dataclass(frozen=True, slots=True)
class Configured:
    """A source, and what the operator adds to what its definitions say of themselves."""

    source: ToolSource
    requires_approval: bool = False
    untrusted: bool = False

    def spec(self, spec: ToolSpec, *, name: str | None = None) -> ToolSpec:
        return replace(
            spec,
            name=name or spec.name,
            requires_approval=spec.requires_approval or self.requires_approval,
            untrusted=spec.untrusted or self.untrusted,
        )


class Catalog:
    """The tools of one configuration; those of services are looked up whenever they are asked for."""

    def __init__(self, entries: Sequence[Entry], services: Sequence[Configured] = ()) -> None:
        self._services = services
        self._entries = {entry.spec.name: entry for entry in entries}
        self._by_model_name = {entry.model_name: entry for entry in entries}
        definitions = orjson.dumps([asdict(entry.spec) for entry in entries], option=orjson.OPT_SORT_KEYS)
        self.version = hashlib.sha256(definitions).hexdigest()

    def offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        """Those that this request may use, named as the model is to name them."""
        only = exchange.only_tools
        return [
            replace(entry.spec, name=entry.model_name)
            for entry in self._entries.values()
            if not only or any(fnmatchcase(entry.spec.name, pattern) for pattern in only)
        ]

    def services(self) -> Sequence[Service]:
        """As they are now."""
        return [service.service() for service, _ in self._service_sources()]

    def intended(self, exchange: Exchange) -> Sequence[ToolSpec]:
        """The tools of services that the user's intent is about, named as the model is to name them."""
        intent = exchange.intent
        names = intent.tools if intent is not None and intent.kind == "mcp" else ()
        found = (self.find(name, exchange) for name in names)
        return [replace(entry.spec, name=entry.model_name) for entry in found if entry is not None]

    def not_running(self, name: str) -> str | None:
        """The service that a tool of this name would be of, if it does not run."""
        for service in self.services():
            if not service.running and name.startswith((f"{service.name}.", f"{model_name(service.name)}__")):
                return service.name
        return None

    def find(self, wanted: str, exchange: Exchange) -> Entry | None:
        """The tool that the model means, if this request may use it."""
        entry = self._by_model_name.get(wanted) or self.named(wanted) or self._of_services(wanted)
        only = exchange.only_tools
        if entry is None or (only and not any(fnmatchcase(entry.spec.name, pattern) for pattern in only)):
            return None
        return entry

    def named(self, name: str) -> Entry | None:
        """The tool of this inside name."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        service_name, dot, tool = name.partition(".")
        for service, configured in self._service_sources():
            if dot and service.service().name == service_name:
                return _entry_of(service, configured, tool)
        return None

    def nearest(self, name: str, exchange: Exchange) -> list[str]:
        """Names that the model may have meant."""
        return get_close_matches(name, [spec.name for spec in self.offered(exchange)], n=3, cutoff=0.5)

    @property
    def sources(self) -> Sequence[ToolSource]:
        sources = [entry.source for entry in self._entries.values()] + [each.source for each in self._services]
        return list({id(source): source for source in sources}.values())

    def _service_sources(self) -> Iterator[tuple[ServiceSource, Configured]]:
        for configured in self._services:
            if isinstance(configured.source, ServiceSource):
                yield configured.source, configured

    def _of_services(self, wanted: str) -> Entry | None:
        """The tool of a service that has this name towards models."""
        for service, configured in self._service_sources():
            facts = service.service()
            for tool in facts.tools if facts.running else ():
                if model_name(f"{facts.name}.{tool}") == wanted:
                    return _entry_of(service, configured, tool)
        return None


def _entry_of(service: ServiceSource, configured: Configured, tool: str) -> Entry | None:
    spec = service.spec(tool)
    if spec is None:
        return None
    inside = f"{service.service().name}.{tool}"
    return Entry(configured.spec(spec, name=inside), service, model_name(inside))


async def load_catalog(sources: Mapping[str, Configured]) -> Catalog:
    """Asks each source, by its name in the configuration, for its tools. Raises CatalogError."""
    entries: dict[str, Entry] = {}
    services: dict[str, Configured] = {}
    taken: set[str] = set()
    for name, configured in sources.items():
        if isinstance(configured.source, ServiceSource):
            service = configured.source.service().name
            if service in services:
                raise CatalogError(f"tools.{name}: there is another service named {service!r}: leave one of them out")
            services[service] = configured
            continue
        for spec in await configured.source.list_tools():
            if not spec.name:
                raise CatalogError(f"tools.{name}: a tool has no name")
            towards_model = model_name(spec.name)
            if towards_model in taken:
                raise CatalogError(
                    f"tools.{name}: there is another tool named {spec.name!r} ({towards_model!r} to a model): "
                    "leave one of them out"
                )
            taken.add(towards_model)
            entries[spec.name] = Entry(configured.spec(spec), configured.source, towards_model)
    return Catalog(list(entries.values()), list(services.values()))
