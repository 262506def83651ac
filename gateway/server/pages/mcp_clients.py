"""The pages of MCP clients in a worker. Only a gateway that serves them imports this."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from gateway.api.ops_pages import Route
from gateway.context.tool_calls import ToolCalls
from gateway.mcp_server.auth.bearers import Bearers
from gateway.mcp_server.auth.protected_resource import ProtectedResource
from gateway.mcp_server.lazy_endpoint import open_endpoint
from gateway.mcp_server.needs import DoorNeeds
from gateway.server.pages.needs import Leave, PageNeeds


async def build_mcp_clients(needs: PageNeeds, closing: AsyncExitStack) -> tuple[Sequence[Route], Leave]:
    """Return the routes, and what ends the streams that are held open; `closing` ends sessions. Raises ConfigError."""
    shared = needs.shared
    bearers = Bearers(identify=needs.identify, in_use=needs.get_settings, clock=shared.clock)
    closing.push_async_callback(bearers.close)
    door = await open_endpoint(
        DoorNeeds(
            settings=needs.get_settings,
            lane=lambda: needs.current().lane,
            store=shared.store,
            mcp_servers=shared.mcp_servers,
            counters=shared.counters,
            clock=shared.clock,
            tracer=shared.tracer,
            identify=bearers.identify,
            challenge=bearers.challenge,
            calls=_build_tool_calls(needs),
            replicas=shared.replicas,
        )
    )
    needs.replica_pages.sessions = door
    closing.push_async_callback(door.close)
    return [*door.list_routes(), *ProtectedResource(in_use=needs.get_settings).list_routes()], door.end_open_streams


def _build_tool_calls(needs: PageNeeds) -> ToolCalls:
    """Build what runs the calls of clients, each by the configuration that is in use when it begins."""
    shared, current = needs.shared, needs.current
    return ToolCalls(
        lane=lambda: current().lane,
        store=shared.store,
        feed=shared.feed,
        clock=shared.clock,
        admit=needs.admit,
        check_model=lambda caller: current().core.list_candidates({"messages": []}).filter_allowed(caller),
        resume=needs.resumption.resume_if_ready,
        tracer=shared.tracer,
    )
