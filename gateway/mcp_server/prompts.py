"""The prompts that MCP clients see: those of services, and workflows.

Of a workflow these are its steps, filled with the arguments, for the model of the client to follow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, GetPromptRequestParams

from gateway.config.schema.mcp_serve import Serve
from gateway.contracts.storage.store import Json
from gateway.contracts.templates import TooLongError, render_template
from gateway.contracts.tools import encode_model_name
from gateway.mcp_server.client_request import ClientRequest, get_client_request
from gateway.mcp_server.listing import AccessFilter
from gateway.mcp_server.services import ServiceOffers
from gateway.workflows.definition import Workflow, WorkflowStep
from gateway.workflows.parameters import ParameterError, convert_parameters, validate_parameters


class WorkflowPrompts:
    """The prompts of one worker. `workflows` returns those of the configuration in use."""

    def __init__(self, workflows: Callable[[], Mapping[str, Workflow]]) -> None:
        self._workflows = workflows

    def list_prompts(self) -> list[Json]:
        """Return all workflows as entries of a list of prompts."""
        return [_build_prompt_entry(workflow) for workflow in self._workflows().values()]

    def has(self, name: str) -> bool:
        """Return whether a workflow has this name."""
        return name in self._workflows()

    def get(self, name: str, arguments: Mapping[str, str] | None) -> Json:
        """Return a workflow as a prompt. Raises MCPError for arguments that do not fit."""
        workflow = self._workflows()[name]
        schema = workflow.build_schema()
        try:
            params = validate_parameters(convert_parameters(dict(arguments or {}), schema), schema)
        except ParameterError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        try:
            text = _format_steps(workflow, params)
        except TooLongError as error:
            raise MCPError(INVALID_PARAMS, f"The prompt cannot be written: {error}.") from None
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": workflow.description, "messages": [message]}


def _build_prompt_entry(workflow: Workflow) -> Json:
    """Return a workflow as an entry of the list of prompts."""
    arguments = [
        {
            "name": name,
            "required": parameter.required,
            **({} if parameter.description is None else {"description": parameter.description}),
        }
        for name, parameter in workflow.parameters.items()
    ]
    return {"name": workflow.name, "description": workflow.description, "arguments": arguments}


def _format_steps(workflow: Workflow, params: Json) -> str:
    """Return the steps of a workflow as a text. Raises TooLongError."""
    earlier: dict[str, object] = {}
    lines = [f"{workflow.description}\n\nDo these steps in order, and use the result of each where it is named:"]
    for number, step in enumerate(workflow.steps, 1):
        lines.append(f"{number}. {_describe_step(step, {'params': params, 'steps': earlier})}")
        earlier[step.name] = f"<the result of step {number}>"
    return "\n".join(lines)


def _describe_step(step: WorkflowStep, values: Mapping[str, Mapping[str, object]]) -> str:
    """Return one step as a sentence."""
    if step.tool is not None:
        filled = render_template(dict(step.with_), values)
        return f"Call the tool {encode_model_name(step.tool)} with these arguments: {orjson.dumps(filled).decode()}"
    return str(render_template(step.model or step.prompt or "", values))


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
        return [*workflows, *await self.services.list_prompts(narrowing)]

    async def get(self, ctx: Any, params: GetPromptRequestParams) -> Json:
        """Return one prompt with its arguments. Raises MCPError."""
        narrowing = self.narrowing(get_client_request(ctx))
        if self._has_workflows(narrowing) and self.workflows.has(params.name):
            return self.workflows.get(params.name, params.arguments)
        return await self.services.get_prompt(params.name, params.arguments, narrowing)

    def _has_workflows(self, narrowing: AccessFilter) -> bool:
        return narrowing.service is None and self.serve().has_workflow_prompts
