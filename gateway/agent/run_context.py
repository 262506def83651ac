"""One run as its driver, its rounds and its end share it: the request, the record, the progress, the time."""

from dataclasses import dataclass
from functools import partial

from gateway.agent.agent_services import AgentParts, ApprovalSettings
from gateway.agent.budget import TimeBudget, build_timeout_error
from gateway.agent.client_notifications import Questions, Reports
from gateway.agent.hidden.turns import HiddenTurns
from gateway.agent.loop_factory import Machine, NarrowedRun, build_machine
from gateway.agent.progress import RunProgress
from gateway.agent.store_retry import Patience
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import LoopLimits
from gateway.dialects.usage import TurnUsage
from gateway.runs.recorder import RunRecorder


@dataclass(slots=True, kw_only=True, eq=False)
class RunContext:
    """The parts of one run. None refers to its driver, which is freed with its last reference.

    It is not changed after it is made.
    """

    parts: AgentParts
    limits: LoopLimits
    exchange: Exchange
    consent: ApprovalSettings
    progress: RunProgress
    hidden: HiddenTurns
    loop: Machine
    narrowed: NarrowedRun
    budget: TimeBudget
    record: RunRecorder
    questions: Questions
    reports: Reports
    patience: Patience


def build_run_context(parts: AgentParts, limits: LoopLimits, exchange: Exchange) -> RunContext:
    """Return the parts of a run that begins. A run that continues restores their state afterwards."""
    store, clock, counters, progress = parts.store, parts.clock, parts.counters, RunProgress(TurnUsage())
    hidden = HiddenTurns(exchange, progress, store=store, clock=clock, counters=counters)
    loop = build_machine(parts, limits, exchange, progress)
    limit_s = min(limits.timeout_s, exchange.execution.budget_s)
    budget = TimeBudget(limit_s, clock=clock, expiry=partial(build_timeout_error, limit_s, exchange.id))
    record = RunRecorder(
        store=store,
        exchange=exchange,
        leases=parts.leases,
        clock=clock,
        progress=partial(progress.take_snapshot, loop, budget),
        wrote=parts.feed.nudge,
    )
    return RunContext(
        parts=parts,
        limits=limits,
        exchange=exchange,
        consent=parts.settings.resolve_for_run(exchange),
        progress=progress,
        hidden=hidden,
        loop=loop,
        narrowed=NarrowedRun(parts, limits, exchange, progress, loop),
        budget=budget,
        record=record,
        questions=Questions(parts, exchange, record),
        reports=Reports(exchange, record, progress, parts, hidden.marks.mark_calls),
        patience=Patience(record, budget, clock=clock, counters=counters),
    )
