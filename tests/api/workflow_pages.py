"""The pages of workflows behind the real listener, on a real store; runs are driven by the real state machine, with a
model and tools of the test's making.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import orjson
from aiohttp import ClientSession, web
from multidict import CIMultiDictProxy

from gateway.agent.loop import AskAction, Execute, Finish
from gateway.agent.output.scanner import Prose
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.api.workflows import StartedRun, WorkflowPages, WorkflowRunRequest
from gateway.contracts.caller import Caller
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.journal import Change, StoredRun
from gateway.contracts.storage.store import Json
from gateway.contracts.templates import Values, fill_object
from gateway.contracts.tools import ToolCall
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.workflows.definition import Workflow
from tests.lanes.assembled import Lane, assembled
from tests.plugins.stores.records import approval, new, run, step

from .answering import errors
from .approval_pages import KEYS

AUTO = Verdict("auto", "whitelist", "harmless")
TRANSLATE = {
    "name": "translate",
    "category": "writing",
    "description": "Translates a text.",
    "parameters": {
        "text": {"required": True, "description": "The text."},
        "language": {"default": "English", "enum": ["English", "German"]},
        "times": {"type": "integer"},
    },
    "steps": [{"name": "said", "model": "Into {{params.language}}: {{params.text}}"}],
}
DEPLOY = {
    "name": "deploy",
    "category": "operations",
    "description": "Puts it there.",
    "steps": [{"name": "put", "tool": "risky"}, {"name": "end", "prompt": "Done: {{steps.put}}"}],
}
BREAK = {"name": "break", "description": "Fails.", "steps": [{"name": "first", "tool": "broken"}]}
ALL = {tree["name"]: Workflow.model_validate(tree) for tree in (BREAK, DEPLOY, TRANSLATE)}


@dataclass
class ServedWorkflows:
    """What a test looks at. `wanted` are the runs that were asked for."""

    store: SqliteStore
    wanted: list[WorkflowRunRequest] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    running: list["asyncio.Task[None]"] = field(default_factory=list)
    workflows: dict[str, Workflow] = field(default_factory=lambda: dict(ALL))

    def pages(self) -> WorkflowPages:
        return WorkflowPages(
            workflows=lambda: self.workflows, store=self.store, authorise=self.authorise, begin=self.begin
        )

    def authorise(self, request: web.Request, *scopes: str) -> Caller:
        caller = KEYS.get(request.headers.get("X-Gateway-Key", ""))
        if caller is None:
            raise GatewayError("missing_api_key", "No key.")
        if not caller.scopes & set(scopes):
            raise GatewayError("scope_missing", "Another key.")
        return caller

    async def begin(self, wanted: WorkflowRunRequest, request: web.Request) -> StartedRun:
        self.wanted.append(wanted)
        run_id = f"run_{len(self.wanted)}"
        caller = wanted.caller
        whose = {"caller": caller.name, "tenant": caller.tenant, "conversation": wanted.conversation}
        first = run(run_id, kind="workflow", request=orjson.dumps({"workflow": wanted.use}), **whose)
        await self.store.write(new(first))
        task = asyncio.get_running_loop().create_task(self._drive(first, wanted))
        self.running.append(task)

        async def over() -> None:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                self.gone.set()
                raise

        return StartedRun(run_id, over)

    async def _drive(self, there: StoredRun, wanted: WorkflowRunRequest) -> None:
        """To the end of the run, or to where it waits for a person."""
        script = WorkflowLoop(wanted.workflow, wanted.parameters, _plan, lambda: "call_1", there.id, _filled)
        action = script.begin()
        try:
            while not isinstance(action, Finish):
                if isinstance(action, Execute) and action.planned[0].call.tool == "risky":
                    await self.store.write(_waiting(there))
                    return
                if isinstance(action, Execute):
                    action = script.handle_results(
                        action.planned, [CallOutcome("Error: it broke", "Error: it broke", ok=False)]
                    )
                else:
                    action = script.handle_answer(await _said(action), Prose(), finish_reason="stop")
        except GatewayError as error:
            ended = replace(there, state="failed", effects=True, error_code=error.code, error=error.message)
        else:
            ended = replace(there, state="completed", answer=orjson.dumps({"content": action.text}))
        await self.store.write(Change(run=ended))


def _filled(_tool: str, arguments: Mapping[str, object], values: Values) -> Json:
    return fill_object(arguments, values)


def _plan(found: FoundCall, call_id: str) -> PlannedCall:
    return PlannedCall(ToolCall(id=call_id, tool=found.tool, arguments=found.parameters), None, AUTO)


async def _said(asked: AskAction) -> str:
    """The model repeats what it is told; what ends with `sleep` never comes back."""
    outcome: str = asked.messages[0]["content"]
    if outcome.endswith("sleep"):
        await asyncio.Event().wait()
    return f"[{outcome}]"


def _waiting(there: StoredRun) -> Change:
    known = {"run_id": there.id, "tenant": there.tenant}
    asked = approval(caller=there.caller, step=0, **known)
    requested = step(0, state="requested", approval_id=asked.id, **known)
    return Change(run=replace(there, state="awaiting_approval"), steps=(requested,), approvals=(asked,))


@dataclass
class Counter:
    """A client of the pages."""

    bureau: ServedWorkflows
    lane: Lane
    session: ClientSession

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str = "agent", **headers: str
    ) -> tuple[int, Json, CIMultiDictProxy[str]]:
        """Status, answer and headers."""
        url, sent = f"http://127.0.0.1:{self.lane.port}{path}", {"X-Gateway-Key": key, **headers}
        async with self.session.request(method, url, json=body, headers=sent) as response:
            content = await response.read()
            return response.status, (orjson.loads(content) if content else {}), response.headers

    async def run(self, name: str, parameters: Json, **more: str) -> tuple[int, Json, CIMultiDictProxy[str]]:
        return await self.ask("POST", f"/workflows/{name}/runs", {"parameters": parameters}, **more)


@asynccontextmanager
async def bureau() -> AsyncIterator[Counter]:
    store = SqliteStore(":memory:")
    await store.open()
    office = ServedWorkflows(store)
    app = web.Application(middlewares=[errors])
    for method, path, handler in office.pages().list_routes():
        app.router.add_route(method, path, handler)
    names = (*ALL, "nope", "categories", "..%2Fetc")
    paths = [b"/workflows", *(f"/workflows/{name}{end}".encode() for name in names for end in ("", "/runs"))]
    try:
        async with (
            assembled(pages=app, own_paths=paths) as lane,
            ClientSession() as session,
        ):
            yield Counter(office, lane, session)
    finally:
        for task in office.running:
            task.cancel()
        await asyncio.gather(*office.running, return_exceptions=True)
        await store.close()
