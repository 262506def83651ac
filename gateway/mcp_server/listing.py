"""The tools that MCP clients see, and the tool that a name means.

A tool of a service is `service__tool` to a client, as it is to a model. On the path of its service it has its own name,
so that a client may come here in place of the server. The inside name, `service.tool`, is understood everywhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange
from gateway.contracts.store import Json
from gateway.contracts.tools import model_name
from gateway.mcp.facing import Facing
from gateway.tools.catalog import Catalog, CatalogEntry

#: What a server says of a tool beside its description and its schema, each as the protocol names it.
BESIDE: Final = ("title", "outputSchema", "annotations", "icons")
_NOBODY: Final = Caller("mcp", "mcp", frozenset())
_VERSIONS: Final = (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool: its inside name, its service if it has one, and its definition by the era of the client.

    `own` is its name on the path of its service.
    """

    inside: str
    name: str
    own: str
    service: str | None
    definitions: Mapping[str, Json]

    def shown(self, *, version: str, plain: bool) -> Json:
        """Return the definition for a client of a protocol version; `plain`: on the path of its service."""
        definition = self.definitions[LATEST_MODERN_VERSION if version >= LATEST_MODERN_VERSION else _VERSIONS[0]]
        return {**definition, "name": self.own if plain else self.name}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The bounds of a request: the tools that every non-empty list of names and globs means, of one service or all."""

    lists: Sequence[Sequence[str]] = ()
    service: str | None = None

    def allows(self, offer: Offer) -> bool:
        if self.service is not None and offer.service != self.service:
            return False
        return all(_means(patterns, offer.inside) for patterns in self.lists if patterns)

    def allows_service(self, name: str) -> bool:
        """Return whether the request may use all of a service: what it has beside its tools has no other narrowing.

        It may if it may use all tools, whatever their names, not only those that the service happens to have.
        """
        if self.service not in (None, name):
            return False
        return all(any(_means_all(pattern, f"{name}.") for pattern in patterns) for patterns in self.lists if patterns)


class _Taken:
    """The tools as they were when they were looked at: the catalog and the services of then, and the tools by name."""

    __slots__ = ("by_name", "catalog", "offers", "services")

    def __init__(self, catalog: Catalog, services: object, offers: Sequence[Offer]) -> None:
        self.catalog = catalog
        self.services = services
        self.offers = offers
        self.by_name: dict[tuple[str | None, str], Offer] = {}
        for offer in offers:
            for key in ((None, offer.name), (None, offer.inside), (offer.service, offer.own)):
                self.by_name.setdefault(key, offer)


class Listing:
    """The tools of the configuration in use. `services` returns another object after each change of a service."""

    def __init__(self, catalog: Callable[[], Catalog], services: Callable[[], object]) -> None:
        self._catalog = catalog
        self._services = services
        self._taken: _Taken | None = None

    def offers(self, narrowing: Narrowing) -> list[Offer]:
        """Return the tools that a request may use, those of the configuration first."""
        return [offer for offer in self.every() if narrowing.allows(offer)]

    def find(self, name: str, narrowing: Narrowing) -> Offer | None:
        """Return the tool that a client means; None: there is none that this request may use."""
        self.every()
        assert self._taken is not None
        names = self._taken.by_name
        offer = names.get((narrowing.service, name)) or names.get((None, name))
        return offer if offer is not None and narrowing.allows(offer) else None

    def absent(self, name: str, narrowing: Narrowing) -> Offer | None:
        """Return the tool that a client means, of a service that does not run. Its definitions are not known."""
        for service in self._catalog().services():
            prefix = "" if narrowing.service == service.name else f"{model_name(service.name)}__"
            for own in () if service.running else (*service.tools, *service.known, _own(name, service.name, prefix)):
                inside = f"{service.name}.{own}"
                offer = Offer(inside, model_name(inside), own, service.name, {})
                if own and name in (inside, offer.name, prefix + own) and narrowing.allows(offer):
                    return offer
        return None

    def every(self) -> Sequence[Offer]:
        """Return all tools: the same object until one of them changes."""
        catalog, services = self._catalog(), self._services()
        if self._taken is None or self._taken.catalog is not catalog or self._taken.services is not services:
            self._taken = _Taken(catalog, services, _offers(catalog))
        return self._taken.offers


def _own(name: str, service: str, prefix: str) -> str:
    """Return a tool's own name on the path of its service, if the name begins as those of its tools do; else ""."""
    return next((name.removeprefix(head) for head in (f"{service}.", prefix) if name.startswith(head)), "")


def _offers(catalog: Catalog) -> Sequence[Offer]:
    running = tuple(service.name for service in catalog.services() if service.running)
    exchange = Exchange(id="", body={}, caller=_NOBODY, chain="", services=running)
    return [_offer(entry) for entry in catalog.listed(exchange)]


def _offer(entry: CatalogEntry) -> Offer:
    inside = entry.spec.name
    definition: Json = {"description": entry.spec.description, "inputSchema": entry.spec.parameters}
    if entry.service is None:
        return Offer(inside, entry.model_name, entry.model_name, None, dict.fromkeys(_VERSIONS, definition))
    own = inside.removeprefix(f"{entry.service.name}.")
    whole = definition
    if isinstance(entry.source, Facing) and not entry.changed:
        whole = {**definition, **entry.source.facing(own)}
    definitions = {version: _fitting(whole, version) for version in _VERSIONS}
    return Offer(inside, entry.model_name, own, entry.service.name, definitions)


def _fitting(definition: Json, version: str) -> Json:
    """Return a definition without the parts that clients of this version could not read."""
    parts = [key for key in BESIDE if key in definition]
    for part in parts:
        only = {key: value for key, value in definition.items() if key == part or key not in BESIDE}
        if not _is_valid(only, version):
            definition = {key: value for key, value in definition.items() if key != part}
    return definition


def _is_valid(definition: Json, version: str) -> bool:
    page: dict[str, Any] = {"tools": [{"name": "x", **definition}], "resultType": "complete"}
    try:
        validate_server_result("tools/list", version, {**page, "ttlMs": 0, "cacheScope": "private"})
    except ValidationError:
        return False
    return True


def _means(patterns: Sequence[str], name: str) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _means_all(pattern: str, prefix: str) -> bool:
    """Return whether a glob means each name with a prefix: a part of the prefix fits, and then anything does."""
    stem = pattern.rstrip("*")
    return stem != pattern and any(fnmatchcase(prefix[:end], stem) for end in range(len(prefix) + 1))
