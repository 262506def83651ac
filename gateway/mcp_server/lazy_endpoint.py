"""The way to the endpoint for MCP clients: it is built, and the SDK imported, only where `mcp.serve` is configured."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.auth.keyring import Identity
from gateway.config import ConfigError, Problem, Settings
from gateway.context.lane import ContextLane
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.http.request_head import RequestHead
from gateway.mcp.sdk_import import IMPORTING, MISSING_SDK
from gateway.mcp.servers import McpServers
from gateway.runs.event_feed import EventFeed
from gateway.telemetry.tracing.tracer import Tracer

if TYPE_CHECKING:
    from gateway.mcp_server.endpoint import McpEndpoint

#: The secret of the store that seals what clients carry from an answer to their next request.
SECRET: Final = "mcp"  # noqa: S105 - its name


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorNeeds:
    """The services of a worker that the endpoint needs. `settings` and `lane` return those of the configuration in use.

    `identify` returns the caller of a request, who may use tools. `challenge` returns the header fields of an error
    answer that tell a client how to get in. `admit` raises when the gateway is full, and `check_model` when a caller
    may not ask a model. `resume` continues a run.
    """

    settings: Callable[[], Settings]
    lane: Callable[[], ContextLane]
    store: Store
    feed: EventFeed
    mcp_servers: McpServers
    counters: Counters
    clock: Clock
    tracer: Tracer | None
    identify: Callable[[RequestHead], Awaitable[Identity]]
    challenge: Callable[[GatewayError], Mapping[str, str]]
    admit: Callable[[], None]
    check_model: Callable[[Caller], object]
    resume: Callable[[str], Awaitable[None]]


async def open_door(needs: DoorNeeds) -> "McpEndpoint":
    """Build the endpoint and let it accept requests. Raises ConfigError where the SDK is missing, and StoreError."""
    try:
        build = await asyncio.to_thread(_load)
    except ImportError:
        raise ConfigError((Problem("configuration", "mcp.serve", MISSING_SDK),)) from None
    door = build(needs, await needs.store.secret(SECRET))
    await door.start()
    return door


def _load() -> "Callable[[DoorNeeds, bytes], McpEndpoint]":
    # Imported here because a gateway that serves no MCP clients needs neither the SDK nor what that needs.
    with IMPORTING:
        from gateway.mcp_server.assembly import build_door

    return build_door
