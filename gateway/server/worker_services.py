"""The services that one worker has once, for all its configurations."""

from dataclasses import dataclass, field

from gateway.auth.active_keys import KeysInUse
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.contracts.tracing.tracer import Tracer
from gateway.lanes.passthrough.observers.usage_batch import UsageBatch
from gateway.limits.budgets import Budgets
from gateway.limits.counter_registry import Meters
from gateway.mcp.servers import McpServers
from gateway.runs.event_feed import EventFeed
from gateway.runs.leases import Leases
from gateway.runs.live import LiveRuns
from gateway.tools.active_config import ActiveEquipment
from gateway.tools.results import Results
from gateway.usage.ledger import Ledger


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
    usage: Ledger
    keys: KeysInUse
    meters: Meters
    budgets: Budgets
    tracer: Tracer | None = None
    usage_batch: UsageBatch = field(default_factory=UsageBatch)
