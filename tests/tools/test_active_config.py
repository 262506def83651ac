"""The configuration in use is looked up each time, whichever configuration a run began with."""

from collections.abc import Awaitable, Callable
from typing import Literal

from gateway.telemetry.counters import ContextCounters
from gateway.testing.clock import ManualClock
from gateway.tools.active_config import ActiveEquipment, Equipment
from gateway.tools.call_evaluator import Judge
from gateway.tools.catalog import ConfiguredSource, load_catalog
from gateway.tools.gate import Gate, Policy
from gateway.tools.results import Results
from gateway.tools.runner import Runner
from tests.agent.doubles import Clock

from .doubles import Source, spec


async def equipment(rule: Literal["deny", "confirm"], *, description: str = "x") -> Equipment:
    async def let_go() -> None:
        """Nobody closes these tools."""

    def hold() -> Callable[[], Awaitable[None]]:
        return let_go

    catalog = await load_catalog({"look": ConfiguredSource(Source(spec(description=description)))})
    gate = Gate(Policy(trust_llm="always", default="confirm"), {}, rules={"look": rule})
    return Equipment(
        Judge(catalog, gate), Runner(Results(), counters=ContextCounters(), clock=Clock(ManualClock())), hold
    )


async def test_reload_changes_bindings_and_verdicts_immediately() -> None:
    """Of whoever asked before, too: policy and definition are those of this moment."""
    current = [await equipment("confirm")]
    in_use = ActiveEquipment(lambda: current[0])
    before = in_use.find_binding("look")
    assert (in_use.judge_edit("look", {}).decision, in_use.find_binding("nothing")) == ("confirm", None)
    current[0] = await equipment("deny")
    after = in_use.find_binding("look")
    assert in_use.judge_edit("look", {}).decision == "deny"
    assert before is not None and after is not None and before.policy != after.policy
    current[0] = await equipment("deny", description="y")
    other = in_use.find_binding("look")
    assert other is not None and other.definition != after.definition
