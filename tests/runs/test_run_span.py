"""The span of a stored run that ends without being driven."""

from dataclasses import replace

from gateway.contracts.caller import Caller
from gateway.contracts.calls import PlannedCall
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.tools import ToolCall, ToolSpec
from gateway.contracts.tracing.context import RunTrace, TraceContext
from gateway.contracts.tracing.tracer import Record, Tracer
from gateway.runs.request_snapshot import build_run_record
from gateway.runs.run_span import send_failed_spans, send_refused_span

CONTEXT = TraceContext("0" * 31 + "1", "0" * 15 + "2", sampled=True, state="congo=t61", parent_id="0" * 15 + "3")
EXCHANGE = Exchange(
    id="run_1", body={"messages": []}, caller=Caller("ci", "acme", frozenset()), chain="main", conversation="talk"
)


def sent_for(context: TraceContext | None) -> list[Record]:
    sent: list[Record] = []
    trace = None if context is None else RunTrace(context, 1000.0)
    run = build_run_record(
        replace(EXCHANGE, execution=replace(EXCHANGE.execution, trace=trace)), now_s=1005.0
    )  # written when it first had to be
    tracer = Tracer(sent.append, share=1.0, receivers=frozenset())
    send_failed_spans(run, tracer, waiting=(), error="internal_error", now_s=1010.0)
    send_failed_spans(run, None, waiting=(), error="internal_error", now_s=1010.0)
    return sent


def test_run_span_uses_the_stored_ids_and_start_time() -> None:
    (span,) = sent_for(CONTEXT)
    assert (span.name, span.context, span.began_ns, span.error) == (
        "invoke_agent main",
        CONTEXT,
        1000 * 10**9,
        "internal_error",
    )
    assert span.attributes["twolane.run.outcome"] == "failed" and span.attributes["twolane.key"] == "ci"


def test_refused_call_span_name_contains_no_unknown_tool_name() -> None:
    sent: list[Record] = []
    tracer = Tracer(sent.append, share=1.0, receivers=frozenset())
    spec = ToolSpec(name="files", description="Reads.", parameters={"type": "object"})
    for known, verdict in (
        (None, Verdict("error", "unknown_tool", "unknown_tool")),
        (spec, Verdict("deny", "operator", "deny")),
    ):
        planned = PlannedCall(ToolCall(id="c1", tool="made up", arguments={}), known, verdict, "Not run.")
        send_refused_span(planned, tracer, parent=CONTEXT, run_id="run_1")
        send_refused_span(planned, tracer, parent=replace(CONTEXT, sampled=False), run_id="run_1")
    assert [(one.name, one.error) for one in sent] == [
        ("execute_tool", "unknown_tool"),
        ("execute_tool files", "operator"),
    ]
    assert {one.context.parent_id for one in sent} == {CONTEXT.span_id}
    assert sent[0].attributes["gen_ai.tool.name"] == "made up"


def test_run_without_a_sampled_trace_sends_no_span() -> None:
    assert sent_for(None) == sent_for(replace(CONTEXT, sampled=False)) == []
