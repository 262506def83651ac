"""The machine of a run, and what it is fed with."""

from gateway.contracts import Exchange, LoopLimits
from gateway.pipeline.machine import new_machine
from gateway.pipeline.resume import Progress
from gateway.pipeline.usage import Usage
from gateway.runs.loop import Ask, Execute, Loop
from gateway.runs.script import Script
from gateway.wire.scanner import Calls, FoundCall

from .benches import BODY, CALLER, Bench, workflow
from .doubles import samples


async def machine_of(bench: Bench, **facts: object) -> Loop | Script:
    await bench.agents()
    given: dict[str, object] = {"body": BODY, "caller": CALLER, "chain": "main", **facts}
    exchange = Exchange(id="run_1", **given)  # type: ignore[arg-type]
    return new_machine(bench.crew, LoopLimits(), exchange, Progress(Usage()))


async def test_a_chat_is_a_loop_whose_calls_are_judged_and_counted() -> None:
    """By the judge in use; each call has an id of its own."""
    bench = Bench([])
    machine = await machine_of(bench)
    assert isinstance(machine, Loop) and isinstance(machine.begin(), Ask)
    found = Calls((FoundCall("look", {"x": 1}, terminate=False), FoundCall("look", {"x": 2}, terminate=False)))
    action = machine.answered("", found, finish_reason="stop")
    assert isinstance(action, Execute)
    assert [planned.verdict.decision for planned in action.planned] == ["confirm", "confirm"]
    assert len({planned.call.id for planned in action.planned}) == 2
    assert samples(bench.counters)["gateway_risk_decisions_total", ("confirm", "default")] == 2
    await bench.close()


async def test_a_workflow_is_a_script() -> None:
    """Its steps are filled with its parameters by the tool that they call."""
    bench = Bench([])
    use = workflow({"name": "a", "tool": "look", "with": {"x": "{{params.what}}"}}, what="a door")
    machine = await machine_of(bench, workflow=use)
    assert isinstance(machine, Script)
    action = machine.begin()
    assert isinstance(action, Execute) and action.planned[0].call.arguments == {"x": "a door"}
    await bench.close()
