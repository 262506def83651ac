"""The services that one worker has once, for all its configurations."""

from dataclasses import dataclass

from gateway.auth.active_keys import KeysInUse
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.contracts.tracing.tracer import Tracer
from gateway.mcp.placement import ServerPlaces
from gateway.mcp.servers import McpServers
from gateway.runs.event_feed import EventFeed
from gateway.runs.leases import Leases
from gateway.runs.live import LiveRuns
from gateway.server.feature import WorkerFeatures
from gateway.tools.active_config import ActiveEquipment
from gateway.tools.results import Results
from gateway.upstream.replicas.replicas import Replicas


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """The services that one worker has once, for all its configurations."""

    store: Store
    runs: LiveRuns
    feed: EventFeed
    leases: Leases
    counters: Counters
    clock: Clock
    mcp_servers: McpServers
    in_use: ActiveEquipment
    results: Results
    keys: KeysInUse
    features: WorkerFeatures
    replicas: Replicas
    places: ServerPlaces

    @property
    def tracer(self) -> Tracer | None:
        """Return the maker of traces; None: there are none."""
        return self.features.tracer
