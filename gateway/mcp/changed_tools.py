"""The log lines about tools that are not as they were accepted: the operator reads them before any approval."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from gateway.contracts.storage.store import Json
from gateway.mcp.schemas.differences import describe_differences
from gateway.mcp.server import ManagedServer
from gateway.mcp.server_text import format_one_line

log = logging.getLogger("gateway")

#: So many changed tools of one service are logged at a time, and so many differences of each.
_MOST_LOGGED: Final = 20
_DIFFERENCES: Final = 3
#: Returns the stored definitions that have these hashes. Raises StoreError.
Recorded: TypeAlias = Callable[[Sequence[str]], Awaitable[Mapping[str, Json]]]


class ChangedTools:
    """The changed tools of one worker's services, as far as they were logged."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._logged: dict[str, frozenset[str]] = {}

    async def report(self, server: ManagedServer) -> None:
        """Log each tool of a service that is not as it was accepted, once, with what differs. Raises StoreError."""
        changed = server.service.get_service().changed
        new, self._logged[server.name] = changed - self._logged.get(server.name, frozenset()), changed
        tools = sorted(new)[:_MOST_LOGGED]
        if not tools:
            return
        pins = server.wanted.record.pins
        recorded = await self._recorded([pins[tool] for tool in tools if tool in pins])
        for tool in tools:
            if server.is_pinned_by_names:
                log.warning(
                    "service %r: the tool %r is new, so each call asks a person until `gateway mcp accept`",
                    server.name,
                    tool,
                )
                continue
            accepted, present = recorded.get(pins.get(tool, "")), server.service.find_document(tool)
            log.warning(
                "service %r: the tool %r is not as it was accepted, so each call asks a person%s; compare by `gateway "
                "mcp tools`, then `gateway mcp accept`; for a server that changes at each start, set `pin: names`",
                server.name,
                tool,
                "" if accepted is None or present is None else f" ({_summarise_differences(accepted, present)})",
            )

    def forget(self, name: str) -> None:
        """Forget a service that is gone."""
        self._logged.pop(name, None)


def _summarise_differences(accepted: Json, present: Json) -> str:
    """Return the first differences between two definitions, on one line."""
    found = describe_differences(accepted, present)
    told = [
        f"{format_one_line(one.place)} was {format_one_line(one.accepted)}, is {format_one_line(one.present)}"
        for one in found[:_DIFFERENCES]
    ]
    if len(found) > _DIFFERENCES:
        told.append(f"and {len(found) - _DIFFERENCES} more")
    return "; ".join(told) or "what differs does not show"
