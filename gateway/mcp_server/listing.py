"""The tools that MCP clients see, and the tool that a name means: a tool, or a workflow as one.

A tool of a service is `service__tool` to a client, as it is to a model. On the path of its service it has its own name,
so that a client may come here in place of the server. The inside name, `service.tool`, is understood everywhere.
A workflow is named as if it were a tool of a service `workflow`. Where there is a service of this name, its tools have
the names, and no workflow is offered.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import is_not
from typing import Any, Final

from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, ToolSteering
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import encode_model_name, is_of_service
from gateway.mcp.client_view import McpSource
from gateway.tools.catalog import Catalog, CatalogEntry
from gateway.tools.client_rights import are_all_allowed
from gateway.workflows.definition import Workflow

log = logging.getLogger("gateway")

#: A server's fields of a tool beside its description and its schema, each as the protocol names it.
BESIDE: Final = ("title", "outputSchema", "annotations", "icons")
#: The service that workflows seem to be tools of.
WORKFLOW: Final = "workflow"
_NOBODY: Final = Caller("mcp", "mcp", frozenset())
_VERSIONS: Final = (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """One tool: its inside name, its service if it has one, and its definition by the era of the client.

    `own` is its name on the path of its service. `tools` are the inside names of the tools that a `workflow` calls.
    """

    inside: str
    name: str
    own: str
    service: str | None
    definitions: Mapping[str, Json]
    workflow: Workflow | None = None
    tools: tuple[str, ...] = ()

    def get_definition(self, *, version: str, plain: bool) -> Json:
        """Return the definition for a client of a protocol version; `plain`: on the path of its service."""
        definition = self.definitions[LATEST_MODERN_VERSION if version >= LATEST_MODERN_VERSION else _VERSIONS[0]]
        return {**definition, "name": self.own if plain else self.name}


@dataclass(frozen=True, slots=True)
class AccessFilter:
    """The bounds of a request: the tools that every non-empty list of names and globs means, of one service or all.

    `workflows`: also workflows, each if the request may use all tools that it calls.
    """

    lists: Sequence[Sequence[str]] = ()
    service: str | None = None
    workflows: bool = False

    def allows(self, offer: ToolOffer) -> bool:
        """Return whether the request may use a tool, or a workflow with all of its tools."""
        if self.service is not None and offer.service != self.service:
            return False
        if offer.workflow is not None and not self.workflows:
            return False
        names = (offer.inside, *offer.tools)
        return all(are_all_allowed(patterns, names) for patterns in self.lists)

    def allows_service(self, name: str) -> bool:
        """Return whether the request may use all of a service: what it has beside its tools has no other narrowing.

        It may if it may use all tools, whatever their names, not only the tools that the service happens to have.
        """
        if self.service not in (None, name):
            return False
        return all(
            any(_matches_every_suffix(pattern, f"{name}.") for pattern in patterns)
            for patterns in self.lists
            if patterns
        )


class _ToolSnapshot:
    """The tools as they were when they were looked at: what they were made of, and the tools by name."""

    __slots__ = ("by_name", "made_of", "offers")

    def __init__(self, made_of: tuple[object, ...], offers: Sequence[ToolOffer]) -> None:
        self.made_of = made_of
        self.offers = offers
        self.by_name: dict[tuple[str | None, str], ToolOffer] = {}
        for offer in offers:
            for key in ((None, offer.name), (None, offer.inside), (offer.service, offer.own)):
                self.by_name.setdefault(key, offer)


class ToolListing:
    """The tools of the configuration in use. `services` returns another object after each change of a service.

    `workflows` returns the workflows that are tools, by name.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        services: Callable[[], object],
        workflows: Callable[[], Mapping[str, Workflow]] = dict,
    ) -> None:
        self._catalog = catalog
        self._services = services
        self._workflows = workflows
        self._in_the_way: str | None = None
        self._taken: _ToolSnapshot | None = None

    def list_offers(self, narrowing: AccessFilter) -> list[ToolOffer]:
        """Return the tools that a request may use, the configured ones first."""
        return [offer for offer in self.list_every() if narrowing.allows(offer)]

    def find(self, name: str, narrowing: AccessFilter) -> ToolOffer | None:
        """Return the tool that a client means; None: there is none that this request may use."""
        self.list_every()
        assert self._taken is not None
        names = self._taken.by_name
        offer = names.get((narrowing.service, name)) or names.get((None, name))
        return offer if offer is not None and narrowing.allows(offer) else None

    def has_service(self, name: str) -> bool:
        """Return whether there is a service of this name, running or not."""
        return any(service.name == name for service in self._catalog().list_services())

    def find_absent(self, name: str, narrowing: AccessFilter) -> ToolOffer | None:
        """Return the tool that a client means, of a service that does not run. Its definitions are not known."""
        for service in self._catalog().list_services():
            prefix = "" if narrowing.service == service.name else f"{encode_model_name(service.name)}__"
            for own in (
                ()
                if service.running
                else (*service.tools, *service.known, _strip_service_prefix(name, service.name, prefix))
            ):
                inside = f"{service.name}.{own}"
                offer = ToolOffer(inside, encode_model_name(inside), own, service.name, {})
                if own and name in (inside, offer.name, prefix + own) and narrowing.allows(offer):
                    return offer
        return None

    def list_every(self) -> Sequence[ToolOffer]:
        """Return all tools: the same object until one of them changes."""
        made_of = self._catalog(), self._services(), self._workflows()
        if self._taken is None or any(map(is_not, made_of, self._taken.made_of)):
            catalog, _, workflows = made_of
            self._taken = _ToolSnapshot(
                made_of, (*_list_offers(catalog), *self._build_workflow_offers(catalog, workflows))
            )
        return self._taken.offers

    def _build_workflow_offers(self, catalog: Catalog, workflows: Mapping[str, Workflow]) -> Sequence[ToolOffer]:
        """Return workflows as tools, but none under a tool's name, which is logged once."""
        names = catalog.list_names() if workflows else ()
        before, self._in_the_way = self._in_the_way, next((one for one in names if is_of_service(one, WORKFLOW)), None)
        if self._in_the_way is None:
            exchange = Exchange(id="", body={}, caller=_NOBODY, chain="")
            return [_build_workflow_offer(catalog, workflow, exchange) for workflow in workflows.values()]
        if before is None:
            log.warning(
                "no workflow is a tool of MCP clients: %r has a name as they would; rename its service or its source",
                self._in_the_way,
            )
        return ()


def _strip_service_prefix(name: str, service: str, prefix: str) -> str:
    """Return a tool's name without its service's prefix on the path of the service, or an empty text."""
    return next((name.removeprefix(head) for head in (f"{service}.", prefix) if name.startswith(head)), "")


def _list_offers(catalog: Catalog) -> Sequence[ToolOffer]:
    running = tuple(service.name for service in catalog.list_services() if service.running)
    exchange = Exchange(id="", body={}, caller=_NOBODY, chain="", steering=ToolSteering(services=running))
    return [_build_offer(entry) for entry in catalog.get_entries(exchange)]


def _build_workflow_offer(catalog: Catalog, workflow: Workflow, exchange: Exchange) -> ToolOffer:
    """Return a workflow as a tool."""
    inside = f"{WORKFLOW}.{workflow.name}"
    found = [(tool, catalog.find(tool, exchange)) for tool in workflow.tools]
    tools = tuple(dict.fromkeys(name if entry is None else entry.spec.name for name, entry in found))
    definition: Json = {"description": workflow.description, "inputSchema": workflow.build_schema()}
    name = encode_model_name(inside)
    return ToolOffer(inside, name, name, None, dict.fromkeys(_VERSIONS, definition), workflow=workflow, tools=tools)


def _build_offer(entry: CatalogEntry) -> ToolOffer:
    """Return a tool of the catalog with its definition for each version of the protocol."""
    inside = entry.spec.name
    definition: Json = {"description": entry.spec.description, "inputSchema": entry.spec.parameters}
    if entry.service is None:
        return ToolOffer(inside, entry.model_name, entry.model_name, None, dict.fromkeys(_VERSIONS, definition))
    own = inside.removeprefix(f"{entry.service.name}.")
    whole = definition
    if isinstance(entry.source, McpSource) and not entry.changed:
        whole = {**definition, **entry.source.get_client_fields(own)}
    definitions = {version: _fit_definition(whole, version) for version in _VERSIONS}
    return ToolOffer(inside, entry.model_name, own, entry.service.name, definitions)


def _fit_definition(definition: Json, version: str) -> Json:
    """Return a definition without the parts that clients of this version could not read."""
    parts = [key for key in BESIDE if key in definition]
    for part in parts:
        only = {key: value for key, value in definition.items() if key == part or key not in BESIDE}
        if not _is_valid(only, version):
            definition = {key: value for key, value in definition.items() if key != part}
    return definition


def _is_valid(definition: Json, version: str) -> bool:
    """Return whether a definition is valid in this version of the protocol."""
    page: dict[str, Any] = {"tools": [{"name": "x", **definition}], "resultType": "complete"}
    try:
        validate_server_result("tools/list", version, {**page, "ttlMs": 0, "cacheScope": "private"})
    except ValidationError:
        return False
    return True


def _matches_every_suffix(pattern: str, prefix: str) -> bool:
    """Return whether a glob means each name with a prefix: a part of the prefix fits, and then anything does."""
    stem = pattern.rstrip("*")
    return stem != pattern and any(fnmatchcase(prefix[:end], stem) for end in range(len(prefix) + 1))
