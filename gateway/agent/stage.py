"""The agent loops of one configuration, as their chains use them."""

import logging
from dataclasses import dataclass, field

from gateway.contracts.exchange import Clock, Counters, Exchange, Handler, LoopLimits, Reply, Stage
from gateway.errors import GatewayError
from gateway.agent.output.malformed import MalformedLog
from gateway.agent.patience import left
from gateway.agent.round import Consent
from gateway.agent.driver import Run
from gateway.agent.unlooped import unlooped
from gateway.approvals.approvals import Desk
from gateway.runs.leases import Keeper
from gateway.runs.event_feed import Tail
from gateway.contracts.store import Store, StoreError
from gateway.tools.in_use import InUse
from gateway.dialects.chat_request import wants_text

log = logging.getLogger("gateway")


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


class Agents:
    """`contracts.Runs`."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def stage(self, limits: LoopLimits) -> Stage:
        return _AgentLoop(self._crew, limits)


class _AgentLoop:
    """The stage: each exchange gets a run of its own, or goes on with one that is on record."""

    def __init__(self, crew: Crew, limits: LoopLimits) -> None:
        self._crew = crew
        self._limits = limits

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        if exchange.workflow is None and not wants_text(exchange.body):
            return await unlooped(call_next)(exchange)  # a JSON answer is the client's, whatever it looks like
        run = Run(self._crew, self._limits, exchange, call_next)
        try:
            await run.remember()
        except BaseException as error:
            run.drop()
            if isinstance(error, StoreError):
                log.error("run %s cannot begin: %s", exchange.id, error)
                if exchange.resume is not None:  # whoever comes after its lease tries again
                    raise left(exchange.id) from None
                raise GatewayError("store_full", "The gateway's store failed, so it does nothing.") from None
            raise
        return Reply(run.stream, run.release)
