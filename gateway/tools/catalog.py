"""Which tools there are: those of configuration and plugins, by name, with what the operator says about each."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

import orjson

from gateway.contracts import Exchange, Service, ToolSource, ToolSpec
from gateway.wire.intent_names import model_name


class CatalogError(ValueError):
    """Two tools with one name towards models, or a tool without any."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool and where its calls go."""

    spec: ToolSpec
    source: ToolSource
    model_name: str


class Catalog:
    """The tools of one configuration, frozen once they are loaded."""

    def __init__(self, entries: Sequence[Entry]) -> None:
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
        """There are none without MCP servers."""
        return ()

    def find(self, model_name: str, exchange: Exchange) -> Entry | None:
        """The tool that the model means, if this request may use it."""
        entry = self._by_model_name.get(model_name) or self._entries.get(model_name)
        only = exchange.only_tools
        if entry is None or (only and not any(fnmatchcase(entry.spec.name, pattern) for pattern in only)):
            return None
        return entry

    def named(self, name: str) -> Entry | None:
        """The tool of this inside name."""
        return self._entries.get(name)

    def nearest(self, name: str, exchange: Exchange) -> list[str]:
        """Names that the model may have meant."""
        return get_close_matches(name, [spec.name for spec in self.offered(exchange)], n=3, cutoff=0.5)

    @property
    def sources(self) -> Sequence[ToolSource]:
        return list({id(entry.source): entry.source for entry in self._entries.values()}.values())


async def load_catalog(sources: Mapping[str, tuple[ToolSource, bool, bool]]) -> Catalog:
    """Asks each source, by its name in the configuration, for its tools. Raises CatalogError.

    The two flags are the operator's `requires_approval` and `untrusted`; they add to what a definition says itself.
    """
    entries: dict[str, Entry] = {}
    taken: set[str] = set()
    for configured, (source, requires_approval, untrusted) in sources.items():
        for spec in await source.list_tools():
            if not spec.name:
                raise CatalogError(f"tools.{configured}: a tool has no name")
            towards_model = model_name(spec.name)
            if towards_model in taken:
                raise CatalogError(
                    f"tools.{configured}: there is another tool named {spec.name!r} ({towards_model!r} to a model): "
                    "leave one of them out"
                )
            taken.add(towards_model)
            known = replace(
                spec,
                requires_approval=spec.requires_approval or requires_approval,
                untrusted=spec.untrusted or untrusted,
            )
            entries[spec.name] = Entry(known, source, towards_model)
    return Catalog(list(entries.values()))
