"""The span of a run, as whoever ends the run sends it: from the begin of the run on, with the ids that are stored."""

from collections.abc import Mapping
from time import time_ns

from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.journal import StoredRun
from gateway.runs.snapshot import exchange_of
from gateway.trace_context import RunTrace
from gateway.tracing.tracer import Attribute, Record, Tracer


def run_span(exchange: Exchange, trace: RunTrace, *, error: str) -> Record:
    """Return the span of a run that ends now. `error` is the type of the error that ended it, or ""."""
    name, attributes = _named(exchange)
    attributes = {
        **attributes,
        "gen_ai.conversation.id": exchange.conversation,
        "twolane.run.id": exchange.id,
        "twolane.run.outcome": trace.outcome or None,
        "twolane.chain": exchange.chain,
        "twolane.key": exchange.caller.name,
    }
    return Record(name, "internal", trace.context, int(trace.began_s * 1e9), time_ns(), attributes, error)


def send_ended(run: StoredRun, tracer: Tracer | None, *, outcome: str, error: str) -> None:
    """Send the span of a stored run that was ended without being driven. `tracer` None: there are no traces.

    Whoever drove it meanwhile has lost it, and sends none.
    """
    if tracer is None:
        return
    exchange = exchange_of(Resume(run), approvals="turn")
    trace = exchange.trace
    if trace is not None and trace.context.sampled:
        trace.outcome = outcome
        tracer.send(run_span(exchange, trace, error=error))


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
