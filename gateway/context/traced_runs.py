"""The span of a run, which outlives the processes that drive it.

Its ids are drawn when the run begins, and stored with it. Whoever ends the run sends the span, from the begin of the
run on; a process that parks it, or is killed, sends none. So all that happens in a run is in one trace, below one span.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import time, time_ns

from gateway.contracts.exchange import Emit, Exchange, Handler, Reply
from gateway.trace_context import CURRENT, RunTrace
from gateway.tracing.tracer import Attribute, Record, Tracer, type_of


def traced_run(handler: Handler, tracer: Tracer) -> Handler:
    """Return `handler` with a span for its run, below the span of the request that began it."""

    async def handle(exchange: Exchange) -> Reply:
        trace = exchange.trace
        if trace is None:
            above = CURRENT.get() if exchange.resume is None else None
            trace = RunTrace(tracer.below(above), time())
            exchange = replace(exchange, trace=trace)
        CURRENT.set(trace.context)  # for all that the task of the run does
        try:
            reply = await handler(exchange)
        except BaseException as error:
            trace.goes_on |= exchange.resume is not None
            _end(tracer, exchange, trace, error)
            raise

        async def stream(emit: Emit) -> None:
            try:
                await reply.stream(emit)
            except BaseException as error:
                _end(tracer, exchange, trace, error)
                raise
            _end(tracer, exchange, trace, None)

        return replace(reply, stream=stream)

    return handle


def _end(tracer: Tracer, exchange: Exchange, trace: RunTrace, error: BaseException | None) -> None:
    """Send the span of a run that has ended."""
    if trace.goes_on or not trace.context.sampled:
        return
    name, attributes = _named(exchange)
    attributes = {
        **attributes,
        "gen_ai.conversation.id": exchange.conversation,
        "twolane.run.id": exchange.id,
        "twolane.run.outcome": trace.outcome or None,
        "twolane.chain": exchange.chain,
        "twolane.key": exchange.caller.name,
    }
    tracer.send(
        Record(name, "internal", trace.context, int(trace.began_s * 1e9), time_ns(), attributes, type_of(error))
    )


def _named(exchange: Exchange) -> tuple[str, Mapping[str, Attribute]]:
    """Return the name of the span of a run, and what GenAI's conventions say of it."""
    if exchange.is_one_call and exchange.call is not None:
        return f"run {exchange.call['tool']}", {}
    if exchange.task is not None:
        return f"run {exchange.task}", {}
    if exchange.workflow is not None:
        operation, agent = "invoke_workflow", str(exchange.workflow["definition"]["name"])
    else:
        operation, agent = "invoke_agent", exchange.chain
    return f"{operation} {agent}", {"gen_ai.operation.name": operation, "gen_ai.agent.name": agent}
