"""The pages of a worker but for chats. The first request that needs one of them imports this."""

from collections.abc import Sequence

from gateway.api.admin.audit import AuditPages, AuditVerifier
from gateway.api.admin.keys import KeyPages
from gateway.api.admin.status import StatusPages
from gateway.api.admin.tools import ToolPages
from gateway.api.admin.upstreams import UpstreamPages
from gateway.api.approvals import ApprovalPages
from gateway.api.decisions import ApiContext
from gateway.api.events.pages import EventPages
from gateway.api.events.socket import SocketPages
from gateway.api.explain import ExplainPages
from gateway.api.grants import RememberedPages
from gateway.api.mcp_services import ServicePages
from gateway.api.memories import MemoryPages
from gateway.api.message_tokens import TokenCountPage
from gateway.api.openapi.page import list_description_routes
from gateway.api.ops_pages import Route
from gateway.api.prompts import PromptPages
from gateway.api.responses.background_stream import ResponseStreams
from gateway.api.responses.compaction import CompactionPage
from gateway.api.responses.compaction_seal import SealFactory
from gateway.api.responses.conversations import ConversationPages
from gateway.api.responses.counting import CountPage
from gateway.api.responses.creating import Creation
from gateway.api.responses.pages import ResponsePages
from gateway.api.responses.response_store import KeptResponses
from gateway.api.responses.socket import SocketResponses
from gateway.api.runs import RunPages
from gateway.api.workflow_runs import WorkflowRuns
from gateway.api.workflows import WorkflowPages
from gateway.approvals.previews import Previews
from gateway.features.registry import load_parts
from gateway.server.pages.needs import Leave, PageNeeds
from gateway.server.pages.status import StatusFacts


class ApiPages:
    """The pages. `held_open` ends answers that do not end by themselves."""

    def __init__(self, needs: PageNeeds, kept: KeptResponses) -> None:
        self._needs = needs
        self._shared = needs.shared
        self._kept = kept
        self._creation = Creation(needs.build_requests(), kept, SealFactory(needs.shared.store))
        self.held_open: list[Leave] = []

    def list_routes(self) -> Sequence[Route]:
        """Return the routes of all pages, except for the MCP services' routes."""
        core = [
            *self.list_context_routes(),
            *self.list_responses_routes(),
            *self.list_run_routes(),
            *self.list_operating_routes(),
        ]
        return [*core, *collect_routes(self._needs)]

    def list_context_routes(self) -> Sequence[Route]:
        """Return the routes of explanations, prompts, workflows and the description of all pages."""
        needs, current = self._needs, self._needs.current
        explain = ExplainPages(
            current=lambda: current().explainer, requests=needs.build_requests(), creation=self._creation
        )
        prompts = PromptPages(
            prompts=lambda: current().prompts, enhancer=lambda: current().enhancer, authorise=needs.authorise
        )
        begin = WorkflowRuns(
            current=lambda: (current().lane, current().core), identify=needs.identify, admit=needs.admit
        )
        workflows = WorkflowPages(
            workflows=lambda: current().lane.workflows,
            store=self._shared.store,
            authorise=needs.authorise,
            begin=begin,
        )
        counts = TokenCountPage(current=lambda: current().explainer, requests=needs.build_requests())
        return [
            *explain.list_routes(),
            *counts.list_routes(),
            *prompts.list_routes(),
            *workflows.list_routes(),
            *list_description_routes(),
        ]

    def list_responses_routes(self) -> Sequence[Route]:
        """Return the routes of the Responses API."""
        kept, creation, authorise = self._kept, self._creation, self._needs.authorise
        following = ResponseStreams(kept, keepalive_s=lambda: self._needs.current().lane.bounds.keepalive_s)
        socket = SocketResponses(creation)
        self.held_open += [following.close, socket.close]
        responses = ResponsePages(creation=creation, kept=kept, following=following, authorise=authorise)
        conversations = ConversationPages(
            kept=kept, sealing=creation.sealing, authorise=authorise, limits=self._build_body_limits
        )
        pages = (CompactionPage(creation), CountPage(authorise), responses, socket, conversations)
        return [route for page in pages for route in page.list_routes()]

    def _build_body_limits(self) -> tuple[int, int]:
        lane = self._needs.current().lane
        return lane.bounds.body_bytes, lane.bounds.body_values

    def list_operating_routes(self) -> Sequence[Route]:
        """Return the routes of pages that show the gateway itself, except for MCP services."""
        needs, store, authorise, clock = self._needs, self._shared.store, self._needs.authorise, self._shared.clock
        facts = StatusFacts(
            needs.loaded, needs.current, needs.exposition, needs.history, clock, needs.started_s, needs.demo_url
        )
        keys = KeyPages(
            store, settings=needs.get_settings, refresh=self._shared.keys.refresh, authorise=authorise, clock=clock
        )
        pages = (
            ToolPages(catalog=lambda: needs.current().equipment.judge.catalog, authorise=authorise),
            AuditPages(AuditVerifier(store, clock=clock), authorise=authorise),
            StatusPages(facts.read, authorise=authorise),
            keys,
            UpstreamPages(facts.list_upstreams, authorise=authorise),
        )
        return [route for page in pages for route in page.list_routes()]

    def list_run_routes(self) -> Sequence[Route]:
        """Return the routes of approvals, grants, memories, runs and their events."""
        needs, shared = self._needs, self._shared
        api = ApiContext(
            approvals=lambda: needs.current().lane.approvals,
            catalog=lambda: needs.current().equipment.judge.catalog,
            previews=Previews(),
            store=shared.store,
            feed=shared.feed,
            authorise=needs.authorise,
            resume=needs.resumption.resume_if_ready,
            clock=shared.clock,
            tracer=shared.tracer,
        )
        approvals, events = ApprovalPages(api), EventPages(api)
        socket = SocketPages(api, keys=lambda: needs.keys().build_state())
        self.held_open += [approvals.close, events.close, socket.close]
        memories = MemoryPages(store=shared.store, authorise=needs.authorise)
        pages = (approvals, RememberedPages(api), memories, RunPages(api), events, socket)
        return [route for page in pages for route in page.list_routes()]

    def list_service_routes(self) -> Sequence[Route]:
        """Return the routes of MCP services, which may have an address of their own."""
        return ServicePages(mcp_servers=lambda: self._shared.mcp_servers, authorise=self._needs.authorise).list_routes()


def collect_routes(needs: PageNeeds) -> Sequence[Route]:
    """Return the routes of the pages of features."""
    found: list[Route] = []
    for part in load_parts("routes"):
        found += part.build_routes(needs)
    return found
