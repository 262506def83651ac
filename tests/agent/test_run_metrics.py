"""The word for a run that is over, and how it is counted."""

from dataclasses import replace

import orjson
import pytest

from gateway.agent.budget import build_timeout_error
from gateway.agent.loop import Finish, Loop
from gateway.agent.run_metrics import LEFT, build_last_chunks, build_stored_answer, get_run_outcome, record_run_end
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.journal import RunState
from gateway.contracts.storage.store import Json
from gateway.contracts.tracing.context import RunTrace, TraceContext
from gateway.runs.request_snapshot import build_run_record
from gateway.telemetry.counters import ContextCounters


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (build_timeout_error(5, "run_1"), "timeout"),
        (GatewayError("agent_iteration_limit", ""), "limit"),
        (GatewayError("agent_malformed_tool_call", ""), "parse_failed"),
        (GatewayError("workflow_failed", ""), "failed"),
        (GatewayError("upstream_error", ""), "error"),
    ],
)
def test_run_outcome_is_named_for_each_error(error: GatewayError, outcome: str) -> None:
    """Whatever is not about the run itself is an error."""
    assert get_run_outcome(error) == outcome


def test_run_metrics_count_each_finished_run_once() -> None:
    """An agent's; those of workflows have a metric of their own."""
    counters = ContextCounters()
    loop = Loop(
        LoopLimits(), lambda call, call_id: pytest.fail("nothing is judged"), frozenset(), lambda: "", "run_1", asked=3
    )
    for outcome in ("completed", LEFT, "awaiting_approval"):  # two of them are no ends
        record_run_end(loop, outcome, counters, trace=None, run=None, is_lost=False)
    counted = dict(counters.collect_counts())
    assert {labels: values for (name, labels), values in counted.items() if name == "gateway_agent_runs"} == {
        ("completed",): (1,)
    }
    assert ("gateway_agent_run_steps", ()) in counted


@pytest.mark.parametrize(
    ("outcome", "state", "is_lost", "goes_on"),
    [
        ("completed", "completed", False, False),
        ("expired", "expired", False, False),
        ("awaiting_approval", "awaiting_approval", False, True),
        (LEFT, "running", False, True),
        ("cancelled", "running", False, True),
        ("cancelled", "awaiting_approval", False, True),
        ("cancelled", "interrupted", False, False),
        ("cancelled", None, False, False),
        ("error", "running", False, False),
        ("error", "running", True, True),
        ("error", "awaiting_client", False, True),
    ],
)
def test_trace_reports_whether_its_run_continues_elsewhere(
    outcome: str, state: RunState | None, is_lost: bool, goes_on: bool
) -> None:
    """A run that is cancelled here goes on if the store has it so; one that was never stored has ended."""
    exchange = Exchange(id="run_1", body={}, caller=Caller("c", "t", frozenset()), chain="main")
    run = None if state is None else replace(build_run_record(exchange, now_s=0.0), state=state)
    trace = RunTrace(TraceContext("0" * 31 + "1", "0" * 15 + "1", sampled=True), 0.0)
    loop = Loop(LoopLimits(), lambda call, call_id: pytest.fail("none"), frozenset(), lambda: "", "run_1")
    record_run_end(loop, outcome, ContextCounters(), trace=trace, run=run, is_lost=is_lost)
    assert (trace.outcome, trace.goes_on) == (outcome, goes_on)


def test_stored_answer_contains_text_reason_and_usage() -> None:
    """Its text as one; the tokens as they are told."""
    usage: Json = {"choices": [], "usage": {"total_tokens": 3}, "context": {"usage_estimated": True}}
    assert orjson.loads(build_stored_answer(Finish("", "length"), said=["a", "b"], usage=usage)) == {
        "content": "ab",
        "tool_calls": [],
        "finish_reason": "length",
        "usage": {"total_tokens": 3},
        "context": {"usage_estimated": True},
    }


def test_last_chunks_carry_question_run_end_and_usage() -> None:
    """Each where the client gets it; facts of the turn stand beside those of the tokens."""
    run = Exchange(id="run_1", body={}, caller=Caller("c", "t", frozenset()), chain="main")
    usage: Json = {"choices": [], "usage": {"total_tokens": 3}, "context": {"usage_estimated": True}}
    plain = build_last_chunks(Finish("", "stop"), run, "completed", usage=usage, context={}, asked=None)
    assert plain == [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, usage]
    events = replace(run, delivery=replace(run.delivery, events=True))
    asked: Json = {"type": "approval.required"}
    told = build_last_chunks(Finish("", "stop"), events, "completed", usage=usage, context={"a": 1}, asked=asked)
    assert [one["context"] for one in told[:2]] == [  # type: ignore[index]
        asked,
        {"type": "run.finished", "run_id": "run_1", "state": "completed"},
    ]
    assert told[-1]["context"] == {"usage_estimated": True, "a": 1}  # type: ignore[index]
