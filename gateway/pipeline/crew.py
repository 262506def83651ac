"""What the runs of one configuration work with."""

from dataclasses import dataclass

from gateway.contracts import Clock, Counters, Store
from gateway.pipeline.round import Consent
from gateway.runs.desk import Desk
from gateway.runs.keeper import Keeper
from gateway.runs.tail import Tail
from gateway.tools.judge import Judge
from gateway.tools.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Whoever judges, runs, asks, writes down and keeps the time."""

    judge: Judge
    runner: Runner
    desk: Desk
    tail: Tail
    keeper: Keeper
    consent: Consent
    store: Store
    counters: Counters
    clock: Clock
