"""The spans of a run and of its approvals: from their begin on, sent by the process that ends them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import time_ns

from gateway.contracts.calls import PlannedCall
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.storage.journal import APPROVED, Approval, Journal, StoredRun, Via
from gateway.contracts.tracing.context import RunTrace, TraceContext
from gateway.contracts.tracing.tracer import Attribute, Record, Tracer
from gateway.runs.request_snapshot import load_exchange


def run_span(exchange: Exchange, trace: RunTrace, *, error: str) -> Record:
    """Return the span of a run that ends now. `error` is the type of the error that ended it, or ""."""
    name, attributes = _name_span(exchange)
    attributes = {
        **attributes,
        "gen_ai.conversation.id": exchange.conversation,
        "twolane.run.id": exchange.id,
        "twolane.run.outcome": trace.outcome or None,
        "twolane.chain": exchange.chain,
        "twolane.key": exchange.caller.name,
    }
    return Record(name, "internal", trace.context, int(trace.began_s * 1e9), time_ns(), attributes, error)


def build_approval_span(approval: Approval, context: TraceContext, *, now_s: float) -> Record:
    """Return the span of an approval that was decided, perhaps days after the request for it, and by another process.

    `now_s` is Unix time, the end of an undecided one.
    """
    ended_s = now_s if approval.decided_s is None else approval.decided_s
    if approval.state == "expired":
        ended_s = approval.expires_s
    attributes = {
        "gen_ai.tool.name": approval.tool,
        "twolane.run.id": approval.run_id,
        "twolane.approval.state": approval.state if approval.state not in APPROVED else "approved",
        "twolane.approval.via": approval.via,
        "twolane.approval.by": approval.decided_by,
    }
    times = int(approval.created_s * 1e9), int(ended_s * 1e9)
    return Record(f"approval {approval.tool}", "internal", context, *times, attributes)


def send_refused_span(planned: PlannedCall, tracer: Tracer, *, parent: TraceContext, run_id: str) -> None:
    """Send the span of a call that does not run, with the basis of the verdict against it as its error, or `refused`.

    Models make names of tools up, so an unknown name is left out of the span's name.
    """
    tool = planned.call.tool
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": planned.call.id,
        "twolane.run.id": run_id,
    }
    name = "execute_tool" if planned.spec is None else f"execute_tool {planned.spec.name}"
    verdict = planned.verdict
    error = verdict.basis if verdict.decision in ("error", "deny") else "refused"
    tracer.begin(name, "internal", attributes, parent=parent).end(error)


async def send_cancelled_spans(
    run: StoredRun, tracer: Tracer | None, *, store: Journal, by: str, via: Via, now_s: float
) -> None:
    """Send the spans of a run that was cancelled, and of the approvals that ended with it.

    `run` is as it was before; `tracer` None: tracing is off. A worker that drove the run meanwhile has lost it, and
    sends none of these. Raises StoreError.
    """
    if tracer is None or (found := _find_sampled(run)) is None:
        return
    exchange, trace = found
    is_driven = run.owner is not None and run.lease_s > now_s
    for one in await list_waiting_approvals(run, store):
        if one.state == "cancelled" and one.decided_s is None:
            one = replace(one, decided_s=now_s, decided_by=by, via=via)
        elif is_driven:
            continue  # its driver has sent it
        elif one.state == "cancelled":
            one = replace(one, state="approved")
        tracer.send(build_approval_span(one, tracer.open_child_span(trace.context), now_s=now_s))
    trace.outcome = "cancelled"
    tracer.send(run_span(exchange, trace, error="cancelled"))


def send_failed_spans(
    run: StoredRun, tracer: Tracer | None, *, waiting: Sequence[Approval], error: str, now_s: float
) -> None:
    """Send the spans of a run that no worker can drive any more, and of the approvals that it was `waiting` for.

    `error` is the type of the error that ended it; `tracer` None: tracing is off.
    """
    if tracer is None or (found := _find_sampled(run)) is None:
        return
    exchange, trace = found
    for one in waiting:
        one = replace(one, state="cancelled") if one.state == "pending" else one
        tracer.send(build_approval_span(one, tracer.open_child_span(trace.context), now_s=now_s))
    trace.outcome = "failed"
    tracer.send(run_span(exchange, trace, error=error))


async def list_waiting_approvals(run: StoredRun, store: Journal) -> Sequence[Approval]:
    """Return the approvals of a run's calls that have not begun, decided or not. Raises StoreError."""
    steps = await store.list_steps(run.id, tenant=run.tenant)
    ids = [step.approval_id for step in steps if step.state == "requested" and step.approval_id is not None]
    found = [await store.get_approval(one, tenant=run.tenant) for one in ids]
    return [one for one in found if one is not None]


def _find_sampled(run: StoredRun) -> tuple[Exchange, RunTrace] | None:
    """Return the exchange of a stored run and its trace, if it is exported."""
    exchange = load_exchange(Resume(run), approvals="turn")
    trace = exchange.execution.trace
    return None if trace is None or not trace.context.sampled else (exchange, trace)


def _name_span(exchange: Exchange) -> tuple[str, Mapping[str, Attribute]]:
    """Return the name of the span of a run, and what GenAI's conventions say of it."""
    if exchange.job.is_one_call and exchange.job.call is not None:
        return f"run {exchange.job.call['tool']}", {}
    if exchange.job.task is not None:
        return f"run {exchange.job.task}", {}
    if exchange.job.workflow is not None:
        operation, agent = "invoke_workflow", str(exchange.job.workflow["definition"]["name"])
    else:
        operation, agent = "invoke_agent", exchange.chain
    return f"{operation} {agent}", {"gen_ai.operation.name": operation, "gen_ai.agent.name": agent}
