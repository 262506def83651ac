"""The state machine of one tool call."""

import pytest

from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Execute, Finish
from gateway.agent.output.scanner import Prose
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall

CALL: Json = {"tool": "notes.find", "arguments": {"risk_level": "low"}}


def plan(found: FoundCall, call_id: str) -> PlannedCall:
    assert not found.vouched
    call = ToolCall(id=call_id, tool=found.tool, arguments=found.parameters)
    return PlannedCall(call, None, Verdict("auto", "whitelist", "x"))


def loop() -> CallLoop:
    return CallLoop(CALL, plan=plan, new_id=lambda: "call_1")


def test_call_loop_executes_the_call_and_returns_its_result() -> None:
    """Named as models name it, with its arguments as they came: nothing in them is a model's word on the risk."""
    machine = loop()
    action = machine.begin()
    assert isinstance(action, Execute)
    (planned,) = action.planned
    assert planned.call == ToolCall(id="call_1", tool="notes__find", arguments={"risk_level": "low"})
    assert machine.handle_results(action.planned, [CallOutcome("shown", "whole")]) == Finish("shown", "stop")


def test_call_loop_restores_from_its_snapshot() -> None:
    machine = loop()
    machine.restore(machine.take_snapshot(), ())
    assert machine.begin() == loop().begin()
    assert (machine.asked, machine.extra_fields, machine.hidden) == (1, {}, [])


def test_call_loop_refuses_model_requests_and_answers() -> None:
    with pytest.raises(AssertionError):
        loop().build_request({}, ())
    with pytest.raises(AssertionError):
        loop().handle_answer("", Prose(), finish_reason="stop")
