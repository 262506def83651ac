"""The parts that an agent loop works with."""

from dataclasses import dataclass, field, replace
from typing import Literal

from gateway.agent.output.malformed import MalformedLog
from gateway.approvals.approvals import Approvals
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.store import Store
from gateway.contracts.tracing.tracer import Tracer
from gateway.runs.event_feed import EventFeed
from gateway.runs.leases import Leases
from gateway.tools.active_config import ActiveEquipment


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """The settings for asking people (config: approvals)."""

    inline_wait_s: float
    on_reject: Literal["abort", "continue"]

    def resolve_for_run(self, exchange: Exchange) -> "ApprovalSettings":
        """Return the settings of a run: a workflow without one of its steps is none, and so is a call that is none.

        A client that calls are shown to decides on each, and gets the outcome of each: one rejection ends nothing else.
        """
        if exchange.job.workflow is not None or exchange.job.call is not None:
            return replace(self, on_reject="abort")
        return replace(self, on_reject="continue") if exchange.delivery.shows_calls else self


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """The services of an agent loop: judge, runner, approvals, event feed, leases, store, counters, clock, traces."""

    in_use: ActiveEquipment
    approvals: Approvals
    feed: EventFeed
    leases: Leases
    settings: ApprovalSettings
    store: Store
    counters: Counters
    clock: Clock
    tracer: Tracer | None = None
    malformed: MalformedLog = field(default_factory=MalformedLog)
