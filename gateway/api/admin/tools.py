"""The page of tools: every tool of the configuration in use and of the services that run now."""

from collections.abc import Callable

from aiohttp import web

from gateway.api.ops_pages import Route, readable
from gateway.api.request import VIEWING, Authorise, paginate, parse_query
from gateway.api.views import page_answer
from gateway.contracts.storage.store import Json
from gateway.tools.catalog import Catalog, CatalogEntry

TOOLS = "/context/tools"


class ToolPages:
    """The page of one worker. `catalog` returns the one in use."""

    def __init__(self, *, catalog: Callable[[], Catalog], authorise: Authorise) -> None:
        self._catalog = catalog
        self._authorise = authorise

    def routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*readable(TOOLS, self._list)]

    async def _list(self, request: web.Request) -> web.Response:
        self._authorise(request, *VIEWING)
        query, catalog = parse_query(request, "after", "limit"), self._catalog()
        # Only the tools of this page are read: a definition may have 64 KB.
        names: list[Json] = [{"name": name} for name in catalog.in_use()]
        page, following = paginate(names, query, key="name")
        entries = (catalog.find_by_name(one["name"]) for one in page)
        return page_answer([tool_view(entry) for entry in entries if entry is not None], following=following)


def tool_view(entry: CatalogEntry) -> Json:
    """Return a tool as the catalog has it. `requires_approval` is the configured one: the gate may ask in any case."""
    spec, service = entry.spec, entry.service
    return {
        "name": spec.name,
        "object": "tool",
        "model_name": entry.model_name,
        "source": entry.origin,
        "service": None if service is None else service.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "category": spec.category,
        "keywords": [] if service is None else list(service.trigger_keywords),
        "requires_approval": spec.requires_approval,
        "untrusted": spec.untrusted,
        "idempotent": spec.idempotent,
        "changed": entry.changed,
    }
