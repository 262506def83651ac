"""The pages of one worker's context lane: each request looks up the configuration in use."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from aiohttp import web

from gateway.api.approvals import ApprovalPages
from gateway.api.asking import ContextRequests
from gateway.api.chat import ChatPages
from gateway.api.decisions import ApiContext
from gateway.api.events.pages import EventPages
from gateway.api.events.socket import SocketPages
from gateway.api.explain import ExplainPages
from gateway.api.mcp_services import ServicePages
from gateway.api.memories import MemoryPages
from gateway.api.operating.audit import AuditPages, AuditVerifier
from gateway.api.operating.keys import KeyPages
from gateway.api.operating.limits import LimitPages
from gateway.api.operating.status import StatusPages
from gateway.api.operating.tools import ToolPages
from gateway.api.operating.upstreams import UpstreamPages
from gateway.api.operating.usage import UsagePages
from gateway.api.prompts import PromptPages
from gateway.api.remembered import RememberedPages
from gateway.api.request import VIA, caller_with
from gateway.api.responses.compaction import CompactionPage
from gateway.api.responses.conversations import ConversationPages
from gateway.api.responses.counting import CountPage
from gateway.api.responses.creating import Creation
from gateway.api.responses.following import Following
from gateway.api.responses.kept import KeptResponses
from gateway.api.responses.pages import ResponsePages
from gateway.api.responses.sealing import Sealing
from gateway.api.responses.socket import SocketResponses
from gateway.api.runs import RunPages
from gateway.api.site import Route
from gateway.api.workflow_runs import WorkflowRuns
from gateway.api.workflows import WorkflowPages
from gateway.approvals.previews import Previews
from gateway.config import Settings
from gateway.context.resumption import Resumption
from gateway.contracts.caller import Caller
from gateway.description.page import description_routes
from gateway.http.request_head import RequestHead
from gateway.lanes.keys import Identify, KeyRing
from gateway.lanes.local import head_of, note
from gateway.limits.usage import Used
from gateway.mcp_server.auth.bearers import Bearers
from gateway.mcp_server.auth.protected_resource import ProtectedResource
from gateway.mcp_server.opening import DoorNeeds, open_door
from gateway.server.context_lane import Assembled, Shared
from gateway.server.lanes.limits import limiter_of
from gateway.server.status import StatusFacts


@dataclass(slots=True, kw_only=True)
class ApiPages:
    """The services that the pages need from the gateway. `held_open` closes answers that do not end by themselves."""

    shared: Shared
    resumption: Resumption
    kept: KeptResponses
    current: Callable[[], Assembled]
    identify: Identify
    admit: Callable[[], None]
    is_of_console: Callable[[RequestHead], bool]
    facts: StatusFacts
    settings: Callable[[], Settings]
    keys: Callable[[], KeyRing]
    held_open: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def of_context(self) -> Sequence[Route]:
        """Return the routes of chats, their explanation, prompts, workflows and the description of all pages."""
        current, identify, admit = self.current, self.identify, self.admit
        chat = ChatPages(self._requests())
        explain = ExplainPages(
            current=lambda: current().explainer, requests=self._requests(), creation=self._creation()
        )
        prompts = PromptPages(
            prompts=lambda: current().prompts, enhancer=lambda: current().enhancer, authorise=self._authorise
        )
        workflows = WorkflowPages(
            workflows=lambda: current().lane.workflows,
            store=self.shared.store,
            authorise=self._authorise,
            begin=WorkflowRuns(current=lambda: (current().lane, current().core), identify=identify, admit=admit),
        )
        pages = (chat, explain, prompts, workflows)
        return [*(route for page in pages for route in page.routes()), *description_routes()]

    def of_responses(self) -> Sequence[Route]:
        """Return the routes of the Responses API."""
        creation = self._creation()
        following = Following(self.kept, keepalive_s=self.current().lane.keepalive_s)
        socket = SocketResponses(creation)
        self.held_open += [following.close, socket.close]
        responses = ResponsePages(creation=creation, kept=self.kept, following=following, authorise=self._authorise)
        conversations = ConversationPages(
            kept=self.kept,
            sealing=creation.sealing,
            authorise=self._authorise,
            limits=lambda: (self.current().lane.body_bytes, self.current().lane.body_values),
        )
        pages = (CompactionPage(creation), CountPage(self._authorise), responses, socket, conversations)
        return [route for page in pages for route in page.routes()]

    def _creation(self) -> Creation:
        return Creation(self._requests(), self.kept, Sealing(self.shared.store))

    def _requests(self) -> ContextRequests:
        return ContextRequests(
            current=lambda: (self.current().lane, self.current().core),
            resumption=self.resumption,
            identify=self.identify,
            admit=self.admit,
        )

    def of_operating(self) -> Sequence[Route]:
        """Return the routes of pages that show the gateway itself, except for MCP services."""
        verifier = AuditVerifier(self.shared.store, clock=self.shared.clock)
        tools = ToolPages(catalog=lambda: self.current().equipment.judge.catalog, authorise=self._authorise)
        audit = AuditPages(verifier, authorise=self._authorise)
        status = StatusPages(self.facts.read, authorise=self._authorise)
        keys = KeyPages(
            self.shared.store,
            settings=self.settings,
            refresh=self.shared.keys.refresh,
            authorise=self._authorise,
            clock=self.shared.clock,
        )
        usage = UsagePages(
            store=self.shared.store,
            flush=self.shared.usage.flush,
            is_enabled=lambda: self.settings().usage.enabled,
            authorise=self._authorise,
            clock=self.shared.clock,
        )
        limits = LimitPages(self._used, authorise=self._authorise)
        upstreams = UpstreamPages(self.facts.upstreams, authorise=self._authorise)
        pages = (tools, audit, status, keys, usage, limits, upstreams)
        return [route for page in pages for route in page.routes()]

    def _used(self, caller: Caller) -> list[Used]:
        """Return what is used of the limits that a caller may see."""
        limiter = limiter_of(self.settings(), self.shared)
        is_admin = "admin" in caller.scopes
        return list(limiter.used(limiter.of_all(self.keys().callers()) if is_admin else limiter.of_caller(caller)))

    def of_runs(self) -> Sequence[Route]:
        """Return the routes of approvals, grants, memories, runs and their events."""
        api = ApiContext(
            approvals=lambda: self.current().lane.approvals,
            catalog=lambda: self.current().equipment.judge.catalog,
            previews=Previews(),
            store=self.shared.store,
            feed=self.shared.feed,
            authorise=self._authorise,
            resume=self.resumption.decided,
            clock=self.shared.clock,
            tracer=self.shared.tracer,
        )
        approvals, events = ApprovalPages(api), EventPages(api)
        socket = SocketPages(api, keys=lambda: self.keys().state())
        self.held_open += [approvals.close, events.close, socket.close]
        memories = MemoryPages(store=self.shared.store, authorise=self._authorise)
        pages = (approvals, RememberedPages(api), memories, RunPages(api), events, socket)
        return [route for page in pages for route in page.routes()]

    def of_services(self) -> Sequence[Route]:
        """Return the routes of MCP services, which may have an address of their own."""
        return ServicePages(mcp_servers=lambda: self.shared.mcp_servers, authorise=self._authorise).routes()

    async def of_mcp_clients(self, closing: AsyncExitStack) -> Sequence[Route]:
        """Return the routes of MCP clients, if they are served; `closing` ends their sessions. Raises ConfigError."""
        if self.settings().mcp.serve is None:
            return ()

        bearers = Bearers(identify=self.identify, in_use=self.settings, clock=self.shared.clock)
        closing.push_async_callback(bearers.close)
        door = await open_door(
            DoorNeeds(
                settings=self.settings,
                lane=lambda: self.current().lane,
                store=self.shared.store,
                feed=self.shared.feed,
                mcp_servers=self.shared.mcp_servers,
                counters=self.shared.counters,
                clock=self.shared.clock,
                tracer=self.shared.tracer,
                identify=bearers.identify,
                challenge=bearers.challenge,
                admit=self.admit,
                check_model=lambda caller: self.current().core.candidates({"messages": []}).allowed_to(caller),
                resume=self.resumption.decided,
            )
        )
        self.held_open.append(door.leave)
        closing.push_async_callback(door.close)
        return [*door.routes(), *ProtectedResource(in_use=self.settings).routes()]

    def _authorise(self, request: web.Request, *scopes: str) -> Caller:
        caller = caller_with(scopes, lambda scope: self.identify(head_of(request), True, scope).caller)
        note(request, key=caller.name)
        if self.is_of_console(head_of(request)):
            request[VIA] = "console"
        return caller
