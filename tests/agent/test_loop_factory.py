"""The machine of a run, and what it is fed with."""

import pytest

from gateway.agent.loop import AskAction, Execute, Loop
from gateway.agent.loop_factory import build_machine
from gateway.agent.output.scanner import CallGroup
from gateway.agent.progress import RunProgress
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.contracts.calls import FoundCall
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.store import Json
from gateway.dialects.message_identity import is_random
from gateway.dialects.usage import TurnUsage
from tests.exchanges import new_exchange

from .agent_bench import BODY, CALLER, Bench, answer, call, texts, workflow
from .doubles import samples

FUNCTION = {"name": "theirs", "parameters": {"type": "object"}}


async def machine_of(bench: Bench, **facts: object) -> Loop | WorkflowLoop:
    await bench.agents()
    given: dict[str, object] = {"body": BODY, "caller": CALLER, "chain": "main", **facts}
    exchange = new_exchange(id="run_1", **given)
    return build_machine(bench.parts, LoopLimits(), exchange, RunProgress(TurnUsage()))


async def test_chat_machine_is_a_loop_that_judges_and_counts_calls() -> None:
    """By the judge in use; each call has an id of its own."""
    bench = Bench([])
    machine = await machine_of(bench)
    assert isinstance(machine, Loop) and isinstance(machine.begin(), AskAction)
    found = CallGroup((FoundCall("look", {"x": 1}, terminate=False), FoundCall("look", {"x": 2}, terminate=False)))
    action = machine.handle_answer("", found, finish_reason="stop")
    assert isinstance(action, Execute)
    assert [planned.verdict.decision for planned in action.planned] == ["confirm", "confirm"]
    assert len({planned.call.id for planned in action.planned}) == 2
    assert samples(bench.counters)["gateway_risk_decisions_total", ("confirm", "default")] == 2
    await bench.close()


@pytest.mark.parametrize(
    ("wanted", "most", "is_lowered"), [(None, 10, False), (3, 3, True), (0, 0, True), (10, 10, True), (99, 10, False)]
)
async def test_request_can_only_lower_the_tool_call_limit(wanted: int | None, most: int, is_lowered: bool) -> None:
    """And never raises it."""
    bench = Bench([])
    machine = await machine_of(bench, max_tool_calls=wanted)
    assert isinstance(machine, Loop)
    assert (machine.limits.max_tool_calls, machine.is_lowered) == (most, is_lowered)
    await bench.close()


@pytest.mark.parametrize("given", ["call_1", "functions.look:0", "call_0123456789abcdef01234567"])
async def test_shown_call_gets_a_unique_id(given: str) -> None:
    """The model's own, if it is one; without a client that sees it the model's in any case."""
    bench = Bench([])
    found = CallGroup((FoundCall("look", {"x": 1}, terminate=False, id=given),))
    for shows_calls in (True, False):
        machine = await machine_of(bench, shows_calls=shows_calls)
        action = machine.handle_answer("", found, finish_reason="stop")
        assert isinstance(action, Execute)
        (planned,) = action.planned
        assert is_random(planned.call.id) or not shows_calls
        assert (planned.call.id == given) is (is_random(given) or not shows_calls)
    await bench.close()


async def test_workflow_run_uses_the_workflow_loop() -> None:
    """Its steps are filled with its parameters by the tool that they call."""
    bench = Bench([])
    use = workflow({"name": "a", "tool": "look", "with": {"x": "{{params.what}}"}}, what="a door")
    machine = await machine_of(bench, workflow=use)
    assert isinstance(machine, WorkflowLoop)
    action = machine.begin()
    assert isinstance(action, Execute) and action.planned[0].call.arguments == {"x": "a door"}
    await bench.close()


async def test_each_risk_verdict_is_counted() -> None:
    """By its basis; a doubted call by its rule as well."""
    bench = Bench([answer(call(x=1)), answer(f"For example:\n{call(x=2)}")])
    await bench.run()
    counted = samples(bench.counters)
    assert counted["gateway_risk_decisions_total", ("auto", "llm")] == 1
    assert counted["gateway_risk_decisions_total", ("confirm", "default")] == 1
    assert counted["gateway_doubted_calls_total", ("example",)] == 1


async def test_workflow_calls_are_not_counted_as_doubted() -> None:
    """Its calls are not doubted, whatever a message holds."""
    body: Json = {"model": "m", "messages": [{"role": "user", "content": call(x=1)}]}
    bench = Bench([])
    told = await bench.run(workflow=workflow({"name": "a", "tool": "look", "with": {"x": 1}}), body=body)
    assert not any("doubted_calls" in name for name, *_ in samples(bench.counters)), texts(told)


async def test_legacy_functions_client_gets_one_call_per_turn() -> None:
    """It knows one at a time; the model is asked for the others in the next turn."""
    both = [{"index": i, "id": str(i), "function": {"name": "theirs", "arguments": "{}"}} for i in range(2)]
    chunk: Json = {"choices": [{"index": 0, "delta": {"tool_calls": both}, "finish_reason": None}]}
    body: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "functions": [FUNCTION]}
    told = await Bench([[chunk, *answer()]]).run(body=body)
    deltas = [choice["delta"] for one in told for choice in one["choices"]]
    assert [d["function_call"] for d in deltas if "function_call" in d] == [{"name": "theirs", "arguments": "{}"}]
    assert [c["finish_reason"] for one in told for c in one["choices"] if c.get("finish_reason")] == ["function_call"]
