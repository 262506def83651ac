"""The services of a worker that the endpoint for MCP clients needs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway.auth.keyring import Identity
from gateway.config import Settings
from gateway.context.lane import ContextLane
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.contracts.tracer import Tracer
from gateway.http.request_head import RequestHead
from gateway.mcp.servers import McpServers
from gateway.runs.event_feed import EventFeed


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
