"""One call, from its name to its verdict: found, validated, judged; and what an approval of it is bound to."""

import asyncio
from dataclasses import replace

import pytest

from gateway.contracts.calls import Doubt, FoundCall, PlannedCall
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolSpec
from gateway.tools import call_evaluator as judging
from gateway.tools.call_evaluator import Judge
from gateway.tools.catalog import Catalog, ConfiguredSource, load_catalog
from gateway.tools.gate import Gate, Policy

from .doubles import Doubts, ExaminingSource, Source, exchange, spec
from .managed import Managed

SCHEMA: Json = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
LOOK = spec(parameters=SCHEMA)
TRUSTING = Policy(trust_llm="until_tainted", default="confirm")


class Whitelist:
    """Knows one harmless argument."""

    def assess(self, arguments: Json) -> Verdict:
        if arguments.get("x") == 1:
            return Verdict("auto", "whitelist", "one", "one is fine")
        return Verdict("confirm", "default", "other", "nobody knows")


async def judge(*specs: ToolSpec, policy: Policy = TRUSTING, requires_approval: bool = False) -> Judge:
    source = ConfiguredSource(Source(*(specs or (LOOK,))), requires_approval)
    return Judge(await load_catalog({"look": source}), Gate(policy, {"look": Whitelist()}))


def plan(
    made: Judge,
    tool: str = "look",
    *,
    tainted: bool = False,
    asked_for: bool = False,
    only: tuple[str, ...] = (),
    **parameters: object,
) -> PlannedCall:
    found = FoundCall(tool, parameters, terminate=True)
    return made.plan_call(found, "call_7", exchange(*only), tainted=tainted, asked_for=asked_for)


# Found.


async def test_planned_call_omits_the_risk_level() -> None:
    """The tool never sees it."""
    planned = plan(await judge(), x=1, risk_level="low")
    assert (planned.call.id, planned.call.tool, planned.call.arguments) == ("call_7", "look", {"x": 1})
    assert planned.call.terminate and planned.spec == LOOK and planned.refusal is None
    assert (planned.verdict.decision, planned.verdict.basis) == ("auto", "llm") and not planned.needs_approval


async def test_unknown_tool_is_refused_with_the_nearest_name() -> None:
    """It never runs, whatever the model says of its risk."""
    made = await judge()
    planned = plan(made, "lok", x=1, risk_level="low")
    assert planned.refusal == "Error: there is no tool 'lok'. Did you mean look?"
    assert (planned.spec, planned.verdict.decision, planned.verdict.basis) == (None, "error", "unknown_tool")
    assert plan(made, "zzzzzz").refusal == "Error: there is no tool 'zzzzzz'."
    assert not planned.needs_approval


async def test_tool_not_offered_by_the_request_is_unknown() -> None:
    """Nor is it named as the nearest."""
    planned = plan(await judge(), x=1, only=("other",))
    assert planned.refusal == "Error: there is no tool 'look'."


# Validated.


@pytest.mark.parametrize("parameters", [{}, {"x": "one"}, {"x": 1, "y": 2}, {"x": None}])
async def test_arguments_that_do_not_fit_come_back_with_the_schema(parameters: Json) -> None:
    """Before anybody is asked about them."""
    planned = plan(await judge(), **parameters, risk_level="high")
    assert planned.refusal is not None and planned.refusal.startswith("Error: the parameters do not fit: ")
    assert '"additionalProperties":false' in planned.refusal and not planned.needs_approval
    assert (planned.verdict.decision, planned.verdict.basis) == ("error", "malformed")


# Judged.


@pytest.mark.parametrize(
    ("parameters", "tainted", "asked_for", "decision", "rule"),
    [
        ({"x": 2, "risk_level": "low"}, False, False, "auto", "risk_level_low"),
        ({"x": 2, "risk_level": "low"}, True, False, "confirm", "other"),
        ({"x": 1, "risk_level": "low"}, True, False, "auto", "one"),
        ({"x": 1, "risk_level": "high"}, False, False, "confirm", "risk_level_high"),
        ({"x": 1}, False, False, "auto", "one"),
        ({"x": 2}, False, False, "confirm", "other"),
        ({"x": 1}, False, True, "confirm", "asked_for"),
        ({"x": 1, "risk_level": "low"}, False, True, "confirm", "asked_for"),
    ],
)
async def test_verdict_depends_on_risk_level_taint_and_requested_approval(
    parameters: Json, tainted: bool, asked_for: bool, decision: str, rule: str
) -> None:
    """The model's word, what the run has read, what its user wants."""
    planned = plan(await judge(), tainted=tainted, asked_for=asked_for, **parameters)
    assert (planned.verdict.decision, planned.verdict.rule) == (decision, rule)
    assert planned.needs_approval is (decision == "confirm")


async def test_request_can_require_approval_for_some_tools() -> None:
    """At the first look at a call, and at each later one."""
    made = await judge(LOOK, spec("peek", parameters=SCHEMA))
    asks = replace(exchange(), steering=replace(exchange().steering, ask_first=("look",)))
    for tool, rule in (("look", "client_asks"), ("peek", "risk_level_low")):
        found = FoundCall(tool, {"x": 1, "risk_level": "low"}, terminate=False)
        planned = made.plan_call(found, "call_7", asks, tainted=False, asked_for=False)
        assert planned.verdict.rule == rule
        before = made.plan_call(found, "call_7", exchange(), tainted=False, asked_for=False)
        assert before.verdict.decision == "auto"
        again = await made.judge_again(before, asks, tainted=False, asked_for=False)
        assert (again.verdict.rule, again.needs_approval) == (rule, tool == "look")


async def test_policy_refusal_is_returned_to_the_model() -> None:
    """Not to a person."""
    planned = plan(await judge(policy=replace(TRUSTING, default="deny")), x=2)
    assert planned.refusal == "Not run: refused by policy. nobody knows" and not planned.needs_approval


async def test_operator_approval_requirement_overrides_model_risk_level() -> None:
    """`requires_approval`."""
    planned = plan(await judge(requires_approval=True), x=1, risk_level="low")
    assert (planned.verdict.basis, planned.needs_approval) == ("operator", True)


async def test_changed_tool_needs_approval_until_accepted() -> None:
    """Whatever the model says of its risk; no other tool does, and policy still refuses what it refuses."""
    service = Managed("time")
    service.becomes("running", look="2", listen="1")
    service.accept({"look": "1", "listen": "1"})
    further = Catalog((), [ConfiguredSource(service)])
    made = Judge(further, Gate(TRUSTING, {}))
    planned = plan(made, "time.look", risk_level="low")
    assert (planned.verdict.decision, planned.verdict.basis, planned.verdict.rule) == (
        "confirm",
        "operator",
        "definition_changed",
    )
    assert plan(made, "time.listen", risk_level="low").verdict.decision == "auto"
    assert plan(Judge(further, Gate(TRUSTING, {}, rules={"time.*": "deny"})), "time.look").refusal is not None
    service.accept({"look": "2"})
    assert plan(made, "time.look", risk_level="low").verdict.decision == "auto"


# Examined by the engine that would run it.


async def agrees(call: ToolCall) -> None:
    del call


async def doubts(call: ToolCall) -> Verdict:
    return Verdict("confirm", "default", "not_what_it_seems", f"{call.tool} would write")


async def fails(call: ToolCall) -> Verdict | None:
    raise OSError(f"nobody answers about {call.id}")


async def hangs(call: ToolCall) -> Verdict | None:
    await asyncio.Event().wait()
    raise AssertionError(call)


async def examining(engine: Doubts, *, policy: Policy = TRUSTING) -> tuple[Judge, ExaminingSource]:
    source = ExaminingSource(LOOK, doubts=engine)
    return Judge(await load_catalog({"look": ConfiguredSource(source)}), Gate(policy, {"look": Whitelist()})), source


async def test_agreeing_policy_engine_leaves_the_call_unchanged() -> None:
    """Nor does a source that has no engine."""
    made, source = await examining(agrees)
    planned = plan(made, x=1)
    assert await made.examine_call(planned, exchange()) is planned
    assert [call.arguments for call in source.examined] == [{"x": 1}]
    unexamined = await judge()
    assert await unexamined.examine_call(plan(unexamined, x=1), exchange()) is not None


@pytest.mark.parametrize(
    ("engine", "rule"), [(doubts, "not_what_it_seems"), (fails, "engine_failed"), (hangs, "engine_failed")]
)
async def test_engine_doubt_or_failure_requires_confirmation(
    engine: Doubts, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that fails or hangs doubts, too; under `risk.default: deny` nobody is asked."""
    monkeypatch.setattr(judging, "EXAMINE_S", 0.01)
    made, _ = await examining(engine)
    examined = await made.examine_call(plan(made, x=1), exchange())
    assert (examined.verdict.decision, examined.verdict.basis, examined.verdict.rule) == ("confirm", "default", rule)
    assert examined.needs_approval and examined.verdict.reason
    strict, _ = await examining(engine, policy=replace(TRUSTING, default="deny"))
    refused = await strict.examine_call(plan(strict, x=1), exchange())
    assert refused.refusal is not None and refused.refusal.startswith("Not run: refused by policy.")


@pytest.mark.parametrize("parameters", [{"x": 2, "risk_level": "low"}, {"x": 2}, {"x": 1, "risk_level": "high"}, {}])
async def test_engine_examines_only_calls_judged_harmless(parameters: Json) -> None:
    """What a model vouches for, what asks anyway and what fits no schema is not examined."""
    made, source = await examining(doubts)
    planned = plan(made, **parameters)
    assert await made.examine_call(planned, exchange()) is planned and source.examined == []


# What a person changes, and what an approval is bound to.


async def test_edited_arguments_are_judged_without_the_model_risk_level() -> None:
    """They must fit the schema; a level of the model's is no argument."""
    made = await judge()
    assert made.judge_edit("look", {"x": 1}).decision == "auto"
    assert made.judge_edit("look", {"x": 2}).decision == "confirm"
    assert made.judge_edit("look", {"x": "two"}).basis == "malformed"
    assert made.judge_edit("look", {"x": 2, "risk_level": "low"}).decision == "error"
    gone = made.judge_edit("gone", {})
    assert gone.decision == "error" and "'gone'" in gone.reason


async def test_an_approval_is_bound_to_definition_and_policy() -> None:
    """Any change of either is another binding; a tool that is gone has none."""
    base = (await judge()).find_binding("look")
    assert base is not None and base == (await judge()).find_binding("look")
    for other in (
        await judge(replace(LOOK, description="Does more.")),
        await judge(replace(LOOK, parameters={"type": "object"})),
    ):
        changed = other.find_binding("look")
        assert changed is not None and changed.definition != base.definition and changed.policy == base.policy
    for policy in (replace(TRUSTING, default="deny"), replace(TRUSTING, trust_llm="never")):
        changed = (await judge(policy=policy)).find_binding("look")
        assert changed is not None and changed.definition == base.definition and changed.policy != base.policy
    assert (await judge()).find_binding("gone") is None


@pytest.mark.parametrize("doubt", ["quoted", "example"])
async def test_extraction_doubt_requires_confirmation_and_lifts_no_refusal(doubt: Doubt) -> None:
    """What would run asks, by the model's word or the whitelist's; what asks or is refused stays as it is."""
    made = await judge()
    cases: list[tuple[Json, str]] = [({"x": 2, "risk_level": "low"}, doubt), ({"x": 1}, doubt), ({"x": 2}, "other")]
    for parameters, rule in cases:
        found = FoundCall("look", parameters, terminate=True, doubt=doubt)
        verdict = made.plan_call(found, "call_7", exchange(), tainted=False, asked_for=False).verdict
        assert (verdict.decision, verdict.basis, verdict.rule) == ("confirm", "default", rule)
    found = FoundCall("look", {"x": "no"}, terminate=True, doubt=doubt)
    assert made.plan_call(found, "call_7", exchange(), tainted=False, asked_for=False).verdict.decision == "error"


async def test_doubted_call_still_asks_when_judged_again() -> None:
    """A call that asked because of one still asks when it is looked at again."""
    made = await judge()
    found = FoundCall("look", {"x": 1, "risk_level": "low"}, terminate=True, doubt="quoted")
    planned = made.plan_call(found, "call_7", exchange(), tainted=False, asked_for=False)
    assert (await made.judge_again(planned, exchange(), tainted=False, asked_for=False)).verdict == planned.verdict
