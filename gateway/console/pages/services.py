"""The page of one service (an MCP server): state, tools, definitions that changed, and the operations on it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import orjson
from aiohttp import web
from markupsafe import Markup

from gateway.console.api_client import ApiError
from gateway.console.pages.schema_table import ParameterRow, build_rows
from gateway.console.request import ADMIN, Handler, Page, Visit, see_other
from gateway.console.visible_text import DifferenceLine, render_exact_difference
from gateway.contracts.storage.store import Json

#: The word for what was done, of `gateway.console.request.DONE`, by the last segment of the API's path.
OPERATIONS: Final = {"start": "started", "stop": "stopped", "restart": "restarted"}
#: So many tools stand on one page, and so many changed ones beside what was accepted: comparing takes time.
SHOWN: Final = 100
COMPARED: Final = 20
#: The parts of a definition that are compared, in this order, with their titles.
PARTS: Final[Mapping[str, str]] = {
    "title": "Title",
    "description": "Description",
    "parameters": "Parameters",
    "output_schema": "Schema of results",
    "annotations": "Annotations",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One line of one definition; None stands beside a line that the other one has alone."""

    kind: str
    text: Markup


@dataclass(frozen=True, slots=True)
class PartComparison:
    """One part of a definition that changed, as rows of (accepted, present)."""

    title: str
    rows: Sequence[tuple[Side | None, Side | None]]


@dataclass(frozen=True, slots=True)
class ServiceToolItem:
    """One tool of a service. `compared` are the parts that changed, None where the accepted definition is unknown."""

    tool: Json
    rows: Sequence[ParameterRow]
    compared: Sequence[PartComparison] | None


class Services:
    """The pages of one service."""

    def list_pages(self) -> tuple[Page, ...]:
        one = "/services/{name}"
        operations = (Page("POST", f"{one}/{name}", self._build_operation(name), ADMIN) for name in OPERATIONS)
        return (
            Page("GET", one, self._show_service, ADMIN),
            Page("POST", f"{one}/accept", self._accept, ADMIN),
            Page("GET", f"{one}/delete", self._confirm, ADMIN),
            Page("POST", f"{one}/delete", self._delete, ADMIN),
            *operations,
        )

    async def _show_service(self, visit: Visit) -> web.Response:
        return await _render_page(visit)

    def _build_operation(self, name: str) -> Handler:
        async def operate(visit: Visit) -> web.Response:
            service = visit.match["name"]
            try:
                await visit.api.post("mcp", "services", service, name)
            except ApiError as error:
                return await _render_page(visit, error)
            return see_other("services", service, done=OPERATIONS[name])

        return operate

    async def _accept(self, visit: Visit) -> web.Response:
        """Accept the definitions that the reader saw, by their hashes."""
        chosen = [entry.partition(" ") for entry in visit.lists.get("definition", ())]
        tools = {tool: digest for digest, _, tool in chosen}
        service = visit.match["name"]
        try:
            await visit.api.post("mcp", "services", service, "accept", body={"tools": tools})
        except ApiError as error:
            return await _render_page(visit, error)
        return see_other("services", service, done="accepted")

    async def _confirm(self, visit: Visit) -> web.Response:
        service = await visit.api.get("mcp", "services", visit.match["name"])
        return await visit.render_page("service_delete.html", title="Delete the service", service=service)

    async def _delete(self, visit: Visit) -> web.Response:
        try:
            await visit.api.delete("mcp", "services", visit.match["name"])
        except ApiError as error:
            return await _render_page(visit, error)
        return see_other("tools", done="deleted")


async def _render_page(visit: Visit, error: ApiError | None = None) -> web.Response:
    """Return the page of the service, with the error of what its reader wanted of it."""
    path = ("mcp", "services", visit.match["name"])
    service, listed = await asyncio.gather(visit.api.get(*path), visit.api.get(*path, "tools"))
    tools = sorted(listed["data"], key=lambda tool: str(tool["name"]))
    changed = [tool for tool in tools if tool["changed"]]
    behind = [tool for tool in tools if not tool["changed"] and tool["name"] > visit.query.get("after", "")]
    return await visit.render_page(
        "service.html",
        title="Service",
        status=200 if error is None else error.status,
        problem=None if error is None else error.message,
        service=service,
        count=len(tools),
        changed=[
            ServiceToolItem(tool, build_rows(tool["parameters"]), compare_definitions(tool))
            for tool in changed[:COMPARED]
        ],
        changed_count=len(changed),
        tools=[ServiceToolItem(tool, build_rows(tool["parameters"]), None) for tool in behind[:SHOWN]],
        following=behind[SHOWN - 1]["name"] if len(behind) > SHOWN else None,
    )


def compare_definitions(tool: Json) -> Sequence[PartComparison] | None:
    """Return the parts of a tool's definition that differ from the accepted one; None if that is unknown."""
    accepted = tool["accepted"]
    if not isinstance(accepted, dict):
        return None
    found = (
        (title, render_exact_difference(_format_text(accepted, name), _format_text(tool, name)))
        for name, title in PARTS.items()
    )
    return [PartComparison(title, pair_lines(lines)) for title, lines in found if lines]


def pair_lines(lines: Sequence[DifferenceLine]) -> Sequence[tuple[Side | None, Side | None]]:
    """Return the lines of a difference as rows of two columns: what was removed beside what was added."""
    rows: list[tuple[Side | None, Side | None]] = []
    removed: list[Side] = []
    added: list[Side] = []

    def pair() -> None:
        rows.extend(zip_longest(removed, added))
        removed.clear()
        added.clear()

    for line in lines:
        side = Side(line.kind, line.text)
        if line.kind == "removed":
            removed.append(side)
        elif line.kind == "added":
            added.append(side)
        else:
            pair()
            rows.append((side, side))
    pair()
    return rows


def _format_text(definition: Mapping[str, object], name: str) -> str:
    """Return one part of a definition as lines: a text as it is, everything else as JSON in one order."""
    value = definition.get(name)
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
