"""The parts that an agent loop works with."""

from dataclasses import dataclass, field
from typing import Literal

from gateway.agent.output.malformed import MalformedLog
from gateway.approvals.approvals import Desk
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.store import Store
from gateway.runs.event_feed import Tail
from gateway.runs.leases import Keeper
from gateway.tools.in_use import InUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """How people are asked (config: approvals)."""

    inline_wait_s: float
    on_reject: Literal["abort", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Whoever judges, runs, asks, writes down and keeps the time."""

    in_use: InUse
    desk: Desk
    tail: Tail
    keeper: Keeper
    consent: Consent
    store: Store
    counters: Counters
    clock: Clock
    malformed: MalformedLog = field(default_factory=MalformedLog)
