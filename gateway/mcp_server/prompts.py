"""The prompts that MCP clients see: workflows, and those of services."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_types import GetPromptRequestParams

from gateway.config.schema.mcp_serve import Serve
from gateway.contracts.storage.store import Json
from gateway.mcp_server.client_request import ClientRequest, get_client_request
from gateway.mcp_server.listing import AccessFilter
from gateway.mcp_server.services import ServiceOffers
from gateway.mcp_server.workflow_prompts import WorkflowPrompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPrompts:
    """The prompts of one worker. `narrowing` returns what a request may use, `serve` the settings in use."""

    services: ServiceOffers
    workflows: WorkflowPrompts
    narrowing: Callable[[ClientRequest], AccessFilter]
    serve: Callable[[], Serve]

    async def list_prompts(self, ctx: Any) -> list[Json]:
        """Return all prompts that a client may use, workflows first."""
        narrowing = self.narrowing(get_client_request(ctx))
        workflows = self.workflows.list_prompts() if self._has_workflows(narrowing) else []
        return [*workflows, *await self.services.prompts(narrowing)]

    async def get(self, ctx: Any, params: GetPromptRequestParams) -> Json:
        """Return one prompt with its arguments. Raises MCPError."""
        narrowing = self.narrowing(get_client_request(ctx))
        if self._has_workflows(narrowing) and self.workflows.has(params.name):
            return self.workflows.get(params.name, params.arguments)
        return await self.services.get_prompt(params.name, params.arguments, narrowing)

    def _has_workflows(self, narrowing: AccessFilter) -> bool:
        return narrowing.service is None and self.serve().has_workflow_prompts
