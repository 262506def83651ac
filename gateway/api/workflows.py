"""The pages of workflows: their list, their parameters, and the start of a run."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from aiohttp import web
from msgspec import UNSET, UnsetType
from pydantic import Field

from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import Authorise, RequestBody, paginate, parse_query, read_body
from gateway.api.views import build_json_answer, build_page_answer, build_whole_run_view, list_answer
from gateway.approvals.approvals import OF_RUN
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import ENDED, Journal
from gateway.contracts.storage.store import Json, StoreError, build_unknown_outcome_error
from gateway.contracts.views import View, fill_view
from gateway.runs.run_resolution import build_not_found_error
from gateway.workflows.definition import Workflow, WorkflowStep
from gateway.workflows.invocation import build_workflow_usage, check_parameters

log = logging.getLogger("gateway")

WORKFLOWS, CATEGORIES, RUNS = "/workflows", "/workflows/categories", "/context/runs"
ID_LIMIT_CHARS = 256
#: The preference (RFC 7240) of a client that does not wait for the result.
RESPOND_ASYNC: Final = "respond-async"


class WorkflowView(View, frozen=True, kw_only=True):
    """A workflow as in a list."""

    name: str
    object: Literal["workflow"] = "workflow"
    category: str
    description: str


class WorkflowStepView(View, frozen=True):
    """A step of a workflow. Its text is its author's and left out."""

    name: str
    kind: Literal["tool", "model", "prompt"]
    tool: str | UnsetType = UNSET


class WholeWorkflowView(WorkflowView, frozen=True, kw_only=True):
    """A workflow with its steps, and the JSON Schema of its parameters."""

    parameters: Json
    steps: list[WorkflowStepView]


class WorkflowCategoryView(View, frozen=True, kw_only=True):
    """A category, and the names of its workflows."""

    name: str
    object: Literal["workflow.category"] = "workflow.category"
    workflows: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRunRequest:
    """A requested run. `parameters` are checked, with defaults; `detached`: the client does not wait for its end."""

    workflow: Workflow
    parameters: Json
    caller: Caller
    conversation: str | None
    detached: bool
    model: str | None = None  # for its model steps; None: whatever the upstream takes for it

    @property
    def use(self) -> Json:
        """Return the value for `contracts.Exchange.workflow`."""
        return build_workflow_usage(self.workflow, self.parameters)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that is in the store. `over` returns once it has ended or waits for a person, and raises its error.

    A caller that is cancelled in `over` leaves the run.
    """

    run_id: str
    over: Callable[[], Awaitable[None]]


#: Begins the run that a request starts, and returns it once it is stored. Raises GatewayError, StoreError.
Begin: TypeAlias = Callable[[WorkflowRunRequest, web.Request], Awaitable[StartedRun]]


class RunBody(RequestBody):
    """The body of a request that starts a run."""

    parameters: dict[str, Any] = Field(default_factory=dict)
    conversation: str | None = Field(default=None, min_length=1, max_length=ID_LIMIT_CHARS)
    model: str | None = Field(default=None, min_length=1, max_length=ID_LIMIT_CHARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPages:
    """The workflow pages of one worker. `workflows` returns the ones in use."""

    workflows: Callable[[], Mapping[str, Workflow]]
    store: Journal
    authorise: Authorise
    begin: Begin

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router, in this order."""
        one = WORKFLOWS + "/{name}"
        return [
            *build_readable_routes(WORKFLOWS, self._list),
            *build_readable_routes(CATEGORIES, self._list_categories),
            *build_readable_routes(one, self._serve_workflow),
            ("POST", one + "/runs", self._run),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self.authorise(request, "context")
        query = parse_query(request, "category", "after", "limit")
        category = query.get("category")
        views = [
            fill_view(WorkflowView, each) for each in self.workflows().values() if category in (None, each.category)
        ]
        page, following = paginate(views, query, key=attrgetter("name"))
        return build_page_answer(page, following=following)

    async def _list_categories(self, request: web.Request) -> web.Response:
        self.authorise(request, "context")
        parse_query(request)
        grouped: dict[str, list[str]] = {}
        for workflow in self.workflows().values():
            grouped.setdefault(workflow.category, []).append(workflow.name)
        return list_answer([WorkflowCategoryView(name=name, workflows=grouped[name]) for name in sorted(grouped)])

    async def _serve_workflow(self, request: web.Request) -> web.Response:
        self.authorise(request, "context")
        parse_query(request)
        found = self._get_workflow(request)
        steps = [_step_view(step) for step in found.steps]
        return build_json_answer(fill_view(WholeWorkflowView, found, parameters=found.build_schema(), steps=steps))

    async def _run(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, "context")
        parse_query(request)
        workflow = self._get_workflow(request)
        body = await read_body(request, RunBody, caller)
        if body.conversation is not None and not body.conversation.isprintable():
            raise GatewayError(
                "invalid_field",
                "The value of 'conversation' is not printable: leave control characters and line ends out.",
                param="conversation",
            )
        wanted = WorkflowRunRequest(
            workflow=workflow,
            parameters=check_parameters(workflow, body.parameters),
            caller=caller,
            conversation=body.conversation,
            detached=_prefers_async(request),
            model=body.model,
        )
        begun = await self.begin(wanted, request)
        if not wanted.detached:
            await begun.over()
        try:
            return await self._answer_run(begun.run_id, wanted)
        except StoreError as error:
            log.error("the store failed behind run %s: %s", begun.run_id, error)
            raise build_unknown_outcome_error(begun.run_id) from None

    async def _answer_run(self, run_id: str, wanted: WorkflowRunRequest) -> web.Response:
        """Return 200 for a run that has ended, else 202. Raises GatewayError for a failed run, StoreError."""
        store, tenant = self.store, wanted.caller.tenant
        run = await store.run(run_id, tenant=tenant)
        if run is None:
            raise build_not_found_error()
        steps = await store.list_steps(run_id, tenant=tenant)
        approvals = await store.list_approvals(tenant=tenant, run_id=run_id, limit=OF_RUN)
        content = build_whole_run_view(run, steps=steps, approvals=approvals)
        if wanted.detached or run.state not in ENDED:
            answer = build_json_answer(content, status=202)
            answer.headers["Location"] = f"{RUNS}/{run_id}"
        elif run.error_code is not None:
            error = GatewayError(run.error_code, run.error or "The run failed.")
            raise error.mark_after_effects() if run.effects else error
        else:
            answer = build_json_answer(content)
        if wanted.detached:
            answer.headers["Preference-Applied"] = RESPOND_ASYNC
        answer.headers["X-Context-Run-Id"] = run_id
        return answer

    def _get_workflow(self, request: web.Request) -> Workflow:
        workflow = self.workflows().get(request.match_info["name"])
        if workflow is None:
            raise GatewayError(
                "workflow_not_found", "The gateway has no workflow of this name: GET /workflows lists all workflows."
            )
        return workflow


def _step_view(step: WorkflowStep) -> WorkflowStepView:
    if step.tool is not None:
        return WorkflowStepView(step.name, "tool", step.tool)
    return WorkflowStepView(step.name, "model" if step.model is not None else "prompt")


def _prefers_async(request: web.Request) -> bool:
    told = ",".join(request.headers.getall("Prefer", ()))
    return any(part.partition(";")[0].strip().lower() == RESPOND_ASYNC for part in told.split(","))
