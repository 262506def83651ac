"""The span of a run, which outlives the processes that drive it.

Its ids are drawn when the run begins, and stored with it. The process that ends the run sends the span, from the begin
of the run on. A process that parks it, or is killed, sends none. So all that happens in a run is in one trace, below
one span.
"""

from time import time

from gateway.contracts.exchange import Emit, Exchange, Handler, Reply
from gateway.contracts.records import replace
from gateway.contracts.tracing.context import CURRENT, RunTrace
from gateway.contracts.tracing.tracer import Tracer, get_error_type
from gateway.runs.run_span import run_span


def trace_run(handler: Handler, tracer: Tracer) -> Handler:
    """Return `handler` with a span for its run, below the span of the request that began it."""

    async def handle(exchange: Exchange) -> Reply:
        trace = exchange.execution.trace
        if trace is None:
            above = CURRENT.get() if exchange.execution.resume is None else None
            trace = RunTrace(tracer.open_child_span(above), time())
            exchange = replace(exchange, execution=replace(exchange.execution, trace=trace))
        CURRENT.set(trace.context)  # for all that the task of the run does
        try:
            reply = await handler(exchange)
        except BaseException as error:
            trace.goes_on |= exchange.execution.resume is not None
            _send_span(tracer, exchange, trace, error)
            raise

        async def stream(emit: Emit) -> None:
            try:
                await reply.stream(emit)
            except BaseException as error:
                _send_span(tracer, exchange, trace, error)
                raise
            _send_span(tracer, exchange, trace, None)

        return replace(reply, stream=stream)

    return handle


def _send_span(tracer: Tracer, exchange: Exchange, trace: RunTrace, error: BaseException | None) -> None:
    """Send the span of a run that has ended."""
    if trace.context.sampled and not trace.goes_on:
        tracer.send(run_span(exchange, trace, error=get_error_type(error)))
