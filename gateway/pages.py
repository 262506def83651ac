"""The pages of one worker's context lane, put together: each request looks up the configuration in use."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from gateway.assemble import Assembled, Shared
from gateway.caller import Caller
from gateway.lanes.admin import Route
from gateway.lanes.approvals import ApprovalPages
from gateway.lanes.asked import caller_with
from gateway.lanes.chat import ChatPages, Identify, head_of
from gateway.lanes.description import description_routes
from gateway.lanes.events import EventPages
from gateway.lanes.explain import ExplainPages
from gateway.lanes.memories import MemoryPages
from gateway.lanes.own import note
from gateway.lanes.prompts import PromptPages
from gateway.lanes.remembered import RememberedPages
from gateway.lanes.resumption import Resumption
from gateway.lanes.runs import RunPages
from gateway.lanes.services import ServicePages
from gateway.lanes.socket import SocketPages
from gateway.lanes.workflow_runs import WorkflowRuns
from gateway.lanes.workflows import WorkflowPages
from gateway.runs.desk import Desk


@dataclass(slots=True, kw_only=True)
class Rooms:
    """What pages need of the gateway. `held_open` end the answers that would never end by themselves."""

    shared: Shared
    resumption: Resumption
    current: Callable[[], Assembled]
    identify: Identify
    admit: Callable[[], None]
    held_open: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def of_context(self) -> Sequence[Route]:
        """Chat, its explanation, prompts and workflows, and the description of all pages."""
        current, identify, admit = self.current, self.identify, self.admit
        chat = ChatPages(
            current=lambda: (current().lane, current().core),
            resumption=self.resumption,
            identify=identify,
            admit=admit,
        )
        explain = ExplainPages(current=lambda: current().explainer, identify=identify, admit=admit)
        prompts = PromptPages(
            prompts=lambda: current().prompts, enhancer=lambda: current().enhancer, authorise=self._authorise
        )
        workflows = WorkflowPages(
            workflows=lambda: current().lane.workflows,
            store=self.shared.store,
            authorise=self._authorise,
            begin=WorkflowRuns(current=lambda: (current().lane, current().core), identify=identify, admit=admit),
        )
        return [*chat.routes(), *explain.routes(), *prompts.routes(), *workflows.routes(), *description_routes()]

    def of_runs(self) -> Sequence[Route]:
        """Approvals, runs and what happens to them."""
        shared, resume, authorise = self.shared, self.resumption.decided, self._authorise

        def desk() -> Desk:
            return self.current().lane.desk

        store, tail, clock = shared.store, shared.tail, shared.clock
        approvals = ApprovalPages(desk=desk, store=store, tail=tail, authorise=authorise, resume=resume, clock=clock)
        runs = RunPages(store=store, tail=tail, authorise=authorise, resume=resume, clock=clock)
        remembered = RememberedPages(remembered=lambda: desk().remembered, authorise=authorise)
        events = EventPages(store=store, tail=tail, authorise=authorise)
        socket = SocketPages(desk=desk, store=store, tail=tail, authorise=authorise, resume=resume, in_use=self.current)
        self.held_open += [approvals.close, events.close, socket.close]
        memories = MemoryPages(store=store, authorise=authorise)
        return [
            *approvals.routes(),
            *remembered.routes(),
            *memories.routes(),
            *runs.routes(),
            *events.routes(),
            *socket.routes(),
        ]

    def of_services(self) -> Sequence[Route]:
        """MCP services, which may have an address of their own."""
        return ServicePages(fleet=lambda: self.shared.fleet, authorise=self._authorise).routes()

    def _authorise(self, request: web.Request, *scopes: str) -> Caller:
        caller = caller_with(scopes, lambda scope: self.identify(head_of(request), True, scope).caller)
        note(request, key=caller.name)
        return caller
