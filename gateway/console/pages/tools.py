"""The page of tools: all that a model may call, by where they come from, and for operators the services."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from aiohttp import web

from gateway.console.pages.schema_table import ParameterRow, build_rows
from gateway.console.request import ADMIN, VIEWING, Page, Visit
from gateway.console.sorting import Key, sort_rows
from gateway.contracts.storage.store import Json

#: So many tools stand on one page.
SHOWN: Final = 100
#: Words for where a tool comes from, from `gateway.api.tools`.
SOURCES: Final = {"built_in": "Built in", "plugin": "Plugin", "mcp": "Service"}

#: What the services of a page can be sorted by.
COLUMNS: Final[Mapping[str, Key]] = {
    name: itemgetter(name) for name in ("name", "state", "since", "transport", "tools", "restarts")
}


@dataclass(frozen=True, slots=True)
class ToolItem:
    """One tool and its parameters as rows."""

    tool: Json
    rows: Sequence[ParameterRow]


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """The tools of one source; `service` is the name of the service, None for other sources."""

    source: str
    service: str | None
    tools: Sequence[ToolItem]


class ToolsPage:
    """The pages of tools and the list of services."""

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/tools", self._show_tools, VIEWING),
            Page("GET", "/services", self._show_services, ADMIN),
        )

    async def _show_tools(self, visit: Visit) -> web.Response:
        after = visit.query.get("after")
        listed, services = await asyncio.gather(
            visit.api.get("context", "tools", limit=SHOWN, after=after),
            _get_services(visit) if after is None and visit.may("admin") else _return_nothing(),
        )
        return await visit.render_page(
            "tools.html",
            title="Tools",
            groups=group_tools(listed["data"]),
            following=listed["next"],
            services=services and {**services, "data": _sort_services(services["data"], visit)},
            sources=SOURCES,
        )

    async def _show_services(self, visit: Visit) -> web.Response:
        listed = await visit.api.get("mcp", "services", limit=SHOWN, after=visit.query.get("after"))
        services = _sort_services(listed["data"], visit)
        return await visit.render_page("services.html", title="Services", services=services, following=listed["next"])


def _sort_services(services: Sequence[Json], visit: Visit) -> Sequence[Json]:
    return sort_rows(services, visit.query.get("sort"), COLUMNS)


async def _get_services(visit: Visit) -> Json:
    return await visit.api.get("mcp", "services", limit=SHOWN)


async def _return_nothing() -> None:
    return None


def group_tools(tools: Sequence[Json]) -> Sequence[ToolGroup]:
    """Return the tools by their source: the gateway's own first, then the plugins', then each service's."""
    order = list(SOURCES)

    def get_sort_key(tool: Json) -> tuple[int, str, str]:
        source = tool["source"]
        return order.index(source) if source in order else len(order), source, tool["service"] or ""

    return [
        ToolGroup(source, service or None, [ToolItem(tool, build_rows(tool["parameters"])) for tool in found])
        for (_, source, service), found in groupby(sorted(tools, key=get_sort_key), key=get_sort_key)
    ]
