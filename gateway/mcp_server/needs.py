"""The services of a worker that the endpoint for MCP clients needs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gateway.auth.keyring import Identity
from gateway.config import Settings
from gateway.context.lane import ContextLane
from gateway.context.tool_calls import ToolCalls
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.contracts.tracing.tracer import Tracer
from gateway.http.request_head import RequestHead
from gateway.mcp.servers import McpServers
from gateway.upstream.replicas.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorNeeds:
    """The services of a worker that the endpoint needs. `settings` and `lane` return those of the configuration in use.

    `identify` returns the caller of a request, who may use tools. `challenge` returns the header fields of an error
    answer that tell a client how to get in. `calls` runs the tools that clients call. `replicas` are the other workers.
    """

    settings: Callable[[], Settings]
    lane: Callable[[], ContextLane]
    store: Store
    mcp_servers: McpServers
    counters: Counters
    clock: Clock
    tracer: Tracer | None
    identify: Callable[[RequestHead], Awaitable[Identity]]
    challenge: Callable[[GatewayError], Mapping[str, str]]
    calls: ToolCalls
    replicas: Replicas
