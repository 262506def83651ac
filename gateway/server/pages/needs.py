"""The services of a gateway that its own pages need."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from gateway.agent.hidden.taint_marks import ForeignAnswers
from gateway.api.context_request import ContextRequests
from gateway.api.request import VIA, identify_with_scope
from gateway.auth.keyring import Identify, KeyRing
from gateway.config import LoadedConfig, Settings
from gateway.context.resumption import Resumption
from gateway.contracts.caller import Caller
from gateway.http.request_head import RequestHead
from gateway.lanes.aiohttp_adapter import add_log_facts, get_head
from gateway.server.context_lane import LaneServices
from gateway.server.lazy_service import FirstUse
from gateway.server.pages.replicas import ReplicaPages
from gateway.server.worker_services import WorkerServices
from gateway.telemetry.exposition import Exposition
from gateway.telemetry.history import History

if TYPE_CHECKING:
    from gateway.api.responses.response_store import KeptResponses

#: Ends the answers of some pages that do not end by themselves. Idempotent.
Leave: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageNeeds:
    """The services that the pages need from the gateway. Each request looks up the configuration in use.

    `started_s` (Unix) is the start of all workers; `demo_url` is the address of the demo model, for a configuration
    without upstreams.
    """

    shared: WorkerServices
    resumption: Resumption
    kept: FirstUse["KeptResponses"]
    current: Callable[[], LaneServices]
    identify: Identify
    admit: Callable[[], None]
    is_of_console: Callable[[RequestHead], bool]
    loaded: Callable[[], LoadedConfig]
    keys: Callable[[], KeyRing]
    exposition: Exposition
    history: History
    started_s: float
    demo_url: str | None
    replica_pages: ReplicaPages

    def get_settings(self) -> Settings:
        return self.loaded().settings

    def build_requests(self) -> ContextRequests:
        return ContextRequests(
            current=lambda: (self.current().lane, self.current().core),
            resumption=self.resumption,
            identify=self.identify,
            admit=self.admit,
            mark_foreign=ForeignAnswers(self.shared.store, self.shared.clock).mark,
        )

    def authorise(self, request: web.Request, *scopes: str) -> Caller:
        caller = identify_with_scope(scopes, lambda scope: self.identify(get_head(request), True, scope).caller)
        add_log_facts(request, key=caller.name)
        if self.is_of_console(get_head(request)):
            request[VIA] = "console"
        return caller
