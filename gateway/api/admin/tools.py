"""The page of tools: every tool of the configuration in use and of the services that run now."""

from collections.abc import Callable, Sequence
from typing import Literal

from aiohttp import web
from msgspec import field

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import VIEWING, Authorise, paginate, parse_query
from gateway.api.views import build_page_answer
from gateway.contracts.storage.store import Json
from gateway.contracts.views import View, fill_view
from gateway.tools.catalog import Catalog, CatalogEntry, Origin

TOOLS = "/context/tools"


class ToolView(View, frozen=True, kw_only=True):
    """A tool as the catalog has it. `requires_approval` is the configured one: the gate may ask in any case."""

    name: str
    object: Literal["tool"] = "tool"
    model_name: str
    origin: Origin = field(name="source")
    service: str | None
    description: str
    parameters: Json
    category: str
    keywords: Sequence[str]
    requires_approval: bool
    untrusted: bool
    idempotent: bool
    changed: bool


class ToolPages:
    """The page of one worker. `catalog` returns the one in use."""

    def __init__(self, *, catalog: Callable[[], Catalog], authorise: Authorise) -> None:
        self._catalog = catalog
        self._authorise = authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        return [*build_readable_routes(TOOLS, self._list)]

    async def _list(self, request: web.Request) -> web.Response:
        self._authorise(request, *VIEWING)
        query, catalog = parse_query(request, "after", "limit"), self._catalog()
        # Only the tools of this page are read: a definition may have 64 KB.
        page, following = paginate(list(catalog.list_callable_tools()), query, key=str)
        entries = map(catalog.find_by_name, page)
        return build_page_answer([_build_view(entry) for entry in entries if entry is not None], following=following)


def _build_view(entry: CatalogEntry) -> ToolView:
    service = entry.service
    return fill_view(
        ToolView,
        entry.spec,
        model_name=entry.model_name,
        origin=entry.origin,
        service=None if service is None else service.name,
        keywords=() if service is None else service.trigger_keywords,
        changed=entry.changed,
    )
