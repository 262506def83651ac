"""The object graph of the endpoint for MCP clients. It imports the SDK, so `opening` imports it where it is needed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mcp_types import ReadResourceRequestParams

from gateway.config.schema.mcp_serve import Serve
from gateway.contracts.storage.store import Json
from gateway.mcp_server.changes import Changes
from gateway.mcp_server.client_request import get_client_request
from gateway.mcp_server.endpoint import McpEndpoint
from gateway.mcp_server.listing import ToolListing
from gateway.mcp_server.needs import DoorNeeds
from gateway.mcp_server.prompts import ClientPrompts, WorkflowPrompts
from gateway.mcp_server.quotas.result_backlog import UnreadResults
from gateway.mcp_server.server import build_server
from gateway.mcp_server.services import ServiceOffers
from gateway.mcp_server.tool_calls import CallHandler
from gateway.mcp_server.tools import ClientTools
from gateway.workflows.definition import Workflow

_NONE: Final[Mapping[str, Workflow]] = {}


def build_endpoint(needs: DoorNeeds, secret: bytes) -> McpEndpoint:
    """Build the endpoint. `secret` seals what clients carry from one request to the next."""
    settings, services = needs.settings, needs.mcp_servers.get_services

    def serve() -> Serve:
        found = settings().mcp.serve
        assert found is not None  # a reload neither opens nor closes the endpoint
        return found

    def list_workflow_tools() -> Mapping[str, Workflow]:
        return needs.lane().workflows if serve().has_workflow_tools else _NONE

    unread = UnreadResults()
    calling = _build_call_handler(needs, serve, unread)
    listing = ToolListing(lambda: needs.lane().catalog, services, list_workflow_tools)
    tools = ClientTools(listing=listing, calling=calling, serve=serve)
    sessions = serve().sessions
    changes = Changes(most=sessions.most)
    needs.mcp_servers.watch(changes.announce_change)
    offers = ServiceOffers(services)
    prompts = ClientPrompts(
        services=offers,
        workflows=WorkflowPrompts(lambda: needs.lane().workflows),
        narrowing=tools.get_access_filter,
        serve=serve,
    )

    async def read_resource(ctx: Any, params: ReadResourceRequestParams) -> Json:
        return await offers.read(str(params.uri), tools.get_access_filter(get_client_request(ctx)))

    build = partial(build_server, counters=needs.counters, clock=needs.clock, tracer=needs.tracer, secret=secret)
    server = build(
        tools=tools.list_definitions,
        schema=tools.find_schema,
        call=tools.call,
        prompts=prompts.list_prompts,
        get_prompt=prompts.get,
        resources=lambda ctx: offers.list_resources(tools.get_access_filter(get_client_request(ctx))),
        templates=lambda ctx: offers.list_templates(tools.get_access_filter(get_client_request(ctx))),
        read_resource=read_resource,
        changes=changes,
    )
    return McpEndpoint(
        server,
        path=serve().path,
        # Another worker would neither know them nor find their worker.
        sessions=sessions.most if settings().workers == 1 or needs.replicas.is_possible else 0,
        idle_s=sessions.idle,
        identify=needs.identify,
        challenge=needs.challenge,
        limits=lambda: (settings().limits.context_body, settings().limits.context_values),
        has_service=listing.has_service,
        calling=calling,
        changes=changes,
        unread=unread,
        replicas=needs.replicas,
        counters=needs.counters,
    )


def _build_call_handler(needs: DoorNeeds, serve: Callable[[], Serve], unread: UnreadResults) -> CallHandler:
    """Build the handler that runs calls. `serve` returns the settings in use."""
    return CallHandler(
        calls=needs.calls,
        identify=needs.identify,
        answering=lambda caller, user, asked: needs.lane().approvals.build_answer_options(caller, asked, user=user),
        wait_s=lambda: serve().wait,
        clock=needs.clock,
        unread=unread,
    )
