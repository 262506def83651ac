"""The agent loops of one configuration, as their chains use them."""

import logging

from gateway.agent.agent_services import AgentParts
from gateway.agent.driver import RunDriver
from gateway.agent.hidden.turns import HiddenTurns
from gateway.agent.output.passthrough_answer_filter import with_safe_answers
from gateway.agent.progress import RunProgress
from gateway.agent.store_retry import build_left_run_error
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Emit, Exchange, Handler, Pause, Reply, Stage
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.records import replace
from gateway.contracts.storage.store import StoreError
from gateway.dialects.chat_request import may_call_tools, names_sources, wants_text
from gateway.dialects.usage import TurnUsage

log = logging.getLogger("gateway")


class AgentLoops:
    """The agent loop stages of one configuration (`contracts.plugin.Runs`)."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts

    def build_stage(self, limits: LoopLimits) -> Stage:
        return _AgentLoop(self._parts, limits)


class _AgentLoop:
    """The stage: each exchange gets its own run, or continues a stored one."""

    def __init__(self, parts: AgentParts, limits: LoopLimits) -> None:
        self._parts = parts
        self._limits = limits

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        if exchange.job.workflow is None and not (wants_text(exchange.body) or may_call_tools(exchange)):
            if not exchange.delivery.background:
                return await self._handle_without_loop(
                    exchange, call_next
                )  # it is the client's, whatever it looks like
            # It has a run, for the record.
            exchange = replace(exchange, steering=replace(exchange.steering, no_tools=True))
        run = RunDriver(self._parts, self._limits, exchange, call_next)
        try:
            await run.load_state()
        except BaseException as error:
            run.drop_run()
            if isinstance(error, StoreError):
                log.error("run %s cannot begin: %s", exchange.id, error)
                if exchange.execution.resume is not None:
                    self._parts.leases.give_back(exchange.execution.resume.run)
                    raise build_left_run_error(exchange.id) from None
                raise GatewayError("store_full", "The gateway's store failed, so it does nothing.") from None
            raise
        return Reply(run.stream, run.release)

    async def _handle_without_loop(self, exchange: Exchange, call_next: Handler) -> Reply:
        """Return an answer without scanning it for calls, marked as tainted if its model reads untrusted text."""
        parts, progress = self._parts, RunProgress(TurnUsage())
        hidden = HiddenTurns(exchange, progress, store=parts.store, clock=parts.clock, counters=parts.counters)
        await hidden.build_conversation()
        reply = await with_safe_answers(call_next)(exchange)

        async def stream(emit: Emit) -> None:
            tell = hidden.marks.told.wrap_emit(emit)

            def take(chunk: Chunk) -> Pause | None:
                if not isinstance(chunk, str) and names_sources(chunk):
                    progress.read_tainted = True
                return tell(chunk)

            try:
                await reply.stream(take)
                await hidden.store_plain()
            finally:
                await hidden.marks.mark_received_texts()

        return replace(reply, stream=stream)
