"""The word for a run that is over, and how it is counted."""

import pytest

from gateway.agent.loop import Loop
from gateway.agent.outcome import count, outcome_of, timeout
from gateway.contracts.plugin import LoopLimits
from gateway.errors import GatewayError
from gateway.telemetry.counters import ContextCounters


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (timeout(5, "run_1"), "timeout"),
        (GatewayError("agent_iteration_limit", ""), "limit"),
        (GatewayError("agent_malformed_tool_call", ""), "parse_failed"),
        (GatewayError("workflow_failed", ""), "failed"),
        (GatewayError("upstream_error", ""), "error"),
    ],
)
def test_each_end_has_a_word(error: GatewayError, outcome: str) -> None:
    """Whatever is not about the run itself is an error."""
    assert outcome_of(error) == outcome


def test_a_run_is_counted_with_its_calls() -> None:
    """An agent's; those of workflows have a metric of their own."""
    counters = ContextCounters()
    loop = Loop(
        LoopLimits(), lambda call, call_id: pytest.fail("nothing is judged"), frozenset(), lambda: "", "run_1", asked=3
    )
    count(loop, "completed", counters)
    counted = dict(counters.counted())
    assert counted["gateway_agent_runs", ("completed",)] == (1,)
    assert ("gateway_agent_run_steps", ()) in counted
