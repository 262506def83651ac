"""The parts that an agent loop works with."""

from dataclasses import dataclass, field
from typing import Literal

from gateway.agent.output.malformed import MalformedLog
from gateway.approvals.approvals import Approvals
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.store import Store
from gateway.runs.event_feed import EventFeed
from gateway.runs.leases import Leases
from gateway.tools.in_use import InUse


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """How people are asked (config: approvals)."""

    inline_wait_s: float
    on_reject: Literal["abort", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """Whoever judges, runs, asks, writes down and keeps the time."""

    in_use: InUse
    approvals: Approvals
    feed: EventFeed
    leases: Leases
    settings: ApprovalSettings
    store: Store
    counters: Counters
    clock: Clock
    malformed: MalformedLog = field(default_factory=MalformedLog)
