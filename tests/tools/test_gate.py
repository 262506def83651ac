"""The order of the parties that decide about a call; the scenarios of the requirement risk-gate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.tools.gate import ABSENT, Gate, Policy, RiskClaim, Rule, take_risk_level

SQL = ToolSpec(
    name="execute_sql",
    description="Asks a database.",
    parameters={"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)
OWNER = ToolSpec(
    name="mcp.audit.log",
    description="Writes a line.",
    parameters={"type": "object", "properties": {"risk_level": {"type": "integer"}}},
)
GUARDED = ToolSpec(name="execute_sql", description="", parameters={}, requires_approval=True)
SELECT, DROP = {"sql": "SELECT 1"}, {"sql": "DROP TABLE users"}
POLICY = Policy(trust_llm="always", default="confirm")


class OnlySelects:
    """Knows one harmless statement."""

    def assess(self, arguments: Json) -> Verdict:
        if arguments.get("sql") == "SELECT 1":
            return Verdict("auto", "whitelist", "select", "It only reads.")
        return Verdict("confirm", "default", "statement", "It may write.")


class Fails:
    """An assessor with a fault."""

    def assess(self, arguments: Json) -> Verdict:
        raise RecursionError


class Refuses:
    """An assessor that refuses."""

    def assess(self, arguments: Json) -> Verdict:
        return Verdict("deny", "default", "never", "Not this one.")


def gate(*, trust_llm: str = "always", default: str = "confirm", assessor: object = None) -> Gate:
    policy = Policy(trust_llm=trust_llm, default=default)  # type: ignore[arg-type]
    return Gate(policy, {"execute_sql": assessor or OnlySelects()})  # type: ignore[dict-item]


def judged(arguments: Json, *, tainted: bool = False, spec: ToolSpec = SQL, **policy: object) -> tuple[str, str]:
    verdict = gate(**policy).judge(spec, take_risk_level(arguments, spec), tainted=tainted)  # type: ignore[arg-type]
    assert verdict.rule
    assert verdict.reason
    return verdict.decision, verdict.basis


def test_llm_provides_low_risk_level() -> None:
    """The call runs without a person."""
    assert judged({**SELECT, "risk_level": "low"}) == ("auto", "llm")


@pytest.mark.parametrize("level", ["medium", "high", "HIGH", " Medium\n"])
def test_llm_provides_high_risk_level(level: str) -> None:
    """Raising is honoured in any spelling, for a harmless call, too, and under every trust."""
    for trust in ("always", "until_tainted", "never"):
        assert judged({**SELECT, "risk_level": level}, trust_llm=trust) == ("confirm", "llm")


@pytest.mark.parametrize("absent", [{}, {"risk_level": None}, {"risk_level": ""}])
def test_llm_does_not_provide_risk_level(absent: Json) -> None:
    """The whitelist in code decides; what it does not know is asked. null and "" are absent."""
    assert judged({**SELECT, **absent}) == ("auto", "whitelist")
    assert judged({**DROP, **absent}) == ("confirm", "default")


def test_llm_risk_level_takes_priority() -> None:
    """low runs what the whitelist does not know."""
    assert judged({**DROP, "risk_level": "low"}) == ("auto", "llm")


def test_conservative_default_for_unknown_operations() -> None:
    """A tool without an assessor asks; so does a statement that its assessor does not know."""
    unknown = ToolSpec(name="custom", description="", parameters={})
    assert judged({"x": 1}, spec=unknown) == ("confirm", "default")
    assert judged(DROP) == ("confirm", "default")


def test_llm_can_handle_unknown_commands_intelligently() -> None:
    """high on a command that no list names asks on the model's word."""
    command = ToolSpec(name="execute_command", description="", parameters={})
    assert judged({"command": "init 0", "risk_level": "high"}, spec=command) == ("confirm", "llm")


def test_new_tool_can_implement_risk_assessor() -> None:
    """An assessor under the tool's name follows the same order."""
    new = ToolSpec(name="new", description="", parameters={})
    gate = Gate(Policy(trust_llm="always", default="confirm"), {"new": OnlySelects()})
    assert gate.judge(new, RiskClaim(SELECT), tainted=False).basis == "whitelist"
    assert gate.judge(new, RiskClaim(DROP, "low"), tainted=False).basis == "llm"
    assert gate.judge(new, RiskClaim(DROP), tainted=False) == Verdict(
        "confirm", "default", "statement", "It may write."
    )


@pytest.mark.parametrize(
    "level", ["none", "safe", "l", "very low", "低", "0", " ", 0, -1, 1.5, True, False, [], ["low"], {}]
)
def test_risk_level_outside_the_enum_requires_confirmation(level: object) -> None:
    """A level outside the enum never falls back to the whitelist."""
    for trust in ("always", "never"):
        assert judged({**SELECT, "risk_level": level}, trust_llm=trust) == ("confirm", "invalid")


def test_operator_approval_precedes_model_and_whitelist() -> None:
    """requires_approval is not cancelled by low."""
    assert judged({**SELECT, "risk_level": "low"}, spec=GUARDED) == ("confirm", "operator")
    assert judged(SELECT, spec=GUARDED) == ("confirm", "operator")


def test_an_unknown_tool_never_runs() -> None:
    """Whatever the level."""
    verdict = gate().judge(None, RiskClaim({}, "low"), tainted=False)
    assert (verdict.decision, verdict.basis) == ("error", "unknown_tool")


@pytest.mark.parametrize(
    ("trust", "tainted", "expected"),
    [
        ("always", False, ("auto", "llm")),
        ("always", True, ("auto", "llm")),
        ("until_tainted", False, ("auto", "llm")),
        ("until_tainted", True, ("confirm", "default")),
        ("never", False, ("confirm", "default")),
        ("never", True, ("confirm", "default")),
    ],
)
def test_low_risk_level_counts_only_as_far_as_trusted(trust: str, tainted: bool, expected: tuple[str, str]) -> None:
    """Where it does not count, the whitelist decides."""
    assert judged({**DROP, "risk_level": "low"}, trust_llm=trust, tainted=tainted) == expected
    if expected[1] == "default":
        assert judged({**SELECT, "risk_level": "low"}, trust_llm=trust, tainted=tainted) == ("auto", "whitelist")


def test_default_deny_refuses_unknown_operations() -> None:
    """`default: deny` refuses what no rule knows, and nothing else."""
    assert judged(DROP, default="deny") == ("deny", "default")
    assert judged(SELECT, default="deny") == ("auto", "whitelist")
    assert judged({**SELECT, "risk_level": "high"}, default="deny") == ("confirm", "llm")


def test_failing_assessor_requires_confirmation_and_logs_no_arguments(caplog: pytest.LogCaptureFixture) -> None:
    """Its fault is logged by its kind, without the arguments; an answer that is no verdict is a fault."""
    assert judged({"sql": "secret"}, assessor=Fails()) == ("confirm", "default")
    assert judged({"sql": "secret"}, assessor=Fails(), default="deny") == ("confirm", "default")
    assert judged({"sql": "secret"}, assessor=OnlyTrue()) == ("confirm", "default")
    assert "RecursionError" in caplog.text
    assert "secret" not in caplog.text


class OnlyTrue:
    """An assessor that does not keep to its type."""

    def assess(self, arguments: Json) -> object:
        return True


def test_assessor_deny_verdict_is_kept() -> None:
    """A deny of its own stays one."""
    assert judged(SELECT, assessor=Refuses()) == ("deny", "default")


def test_risk_level_is_removed_from_the_arguments() -> None:
    """What runs has no risk_level; the model's arguments stay as they were."""
    sent = {**SELECT, "risk_level": "low"}
    assert take_risk_level(sent, SQL) == RiskClaim(SELECT, "low")
    assert sent == {**SELECT, "risk_level": "low"}
    assert take_risk_level(SELECT, SQL) == RiskClaim(SELECT, ABSENT)
    assert take_risk_level({**SELECT, "risk_level": None}, SQL) == RiskClaim(SELECT, ABSENT)
    nested = {**SELECT, "options": {"risk_level": "low"}}
    assert take_risk_level(nested, SQL) == RiskClaim(nested, ABSENT)


def test_a_tool_keeps_its_own_risk_level() -> None:
    """An argument of that name that belongs to the tool is neither read nor removed."""
    arguments = {"risk_level": 3, "text": "x"}
    assert take_risk_level(arguments, OWNER) == RiskClaim(arguments, ABSENT)
    assert take_risk_level(arguments, OWNER, beside="high").risk_level == "high"


@pytest.mark.parametrize(
    ("inside", "beside", "expected"),
    [
        (ABSENT, "low", ABSENT),
        (ABSENT, "high", "high"),
        ("low", "medium", "medium"),
        ("low", "low", "low"),
        ("low", None, "low"),
        ("low", "critical", "critical"),
        ("high", "low", "high"),
        ("odd", "low", "odd"),
        ("odd", "high", "high"),
        (ABSENT, "", ABSENT),
        (ABSENT, 3, 3),
    ],
)
def test_risk_level_beside_the_arguments_only_raises(inside: object, beside: object, expected: object) -> None:
    """The highest word counts; low counts in its own place only."""
    arguments = SELECT if inside is ABSENT else {**SELECT, "risk_level": inside}
    assert take_risk_level(arguments, SQL, beside=beside) == RiskClaim(SELECT, expected)


@pytest.mark.parametrize("name", ["riskLevel", "risk-level", "RISK_LEVEL", "risk level", "risk", "r\u0131sk_level"])
def test_name_resembling_risk_level_only_raises(name: str) -> None:
    """It stays an argument; high under it asks, low under it does not lower."""
    assert judged({**SELECT, name: "high"}) == ("confirm", "llm")
    assert judged({**DROP, name: "low"}) == ("confirm", "default")
    assert take_risk_level({**SELECT, name: "high"}, SQL).arguments == {**SELECT, name: "high"}
    owner = ToolSpec(name="execute_sql", description="", parameters={"properties": {name: {}}})
    assert take_risk_level({**SELECT, name: "high"}, owner).risk_level in (ABSENT,)


@pytest.mark.parametrize(
    "stated",
    [
        {"risk": "high"},
        {"risk": "critical"},
        {"risk": {"level": "high"}},
        {"r\u0131sk_level": "high"},
        {"riskLevel": "h\u0456gh"},
        {"options": {"risk_level": "high"}},
        {"parameters": {"parameters": [{"risk_level": "medium"}]}},
    ],
)
def test_low_risk_level_is_ignored_beside_another_level(stated: Json) -> None:
    """A model that says both is asked about; where the tool has such an argument, that is the tool's own."""
    assert judged({**DROP, **stated, "risk_level": "low"})[0] == "confirm"
    (name, value), *_ = stated.items()
    below = {"properties": {"risk_level": {}}} if name in ("options", "parameters") else {}
    owner = ToolSpec(name="execute_sql", description="", parameters={"properties": {name: below}})
    assert judged({**DROP, name: value, "risk_level": "low"}, spec=owner) == ("auto", "llm")


def test_nested_risk_level_without_low_is_left_to_the_tool() -> None:
    """The whitelist decides, as if it were not there."""
    assert judged({**SELECT, "options": {"risk_level": "high"}}) == ("auto", "whitelist")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)
LEVELS = st.sampled_from(["low", "medium", "high", "", None]) | VALUES


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["sql", "risk_level", "riskLevel", "risk"]) | st.text(), LEVELS, max_size=4),
    LEVELS,
    st.sampled_from(["always", "until_tainted", "never"]),
    st.booleans(),
)
def test_gate_returns_a_verdict_for_every_call(arguments: Json, beside: object, trust: str, tainted: bool) -> None:
    """Whatever is sent: a verdict, and auto only by the whitelist or by a trusted `low` in its own place."""
    claim = take_risk_level(arguments, SQL, beside=beside)
    verdict = gate(trust_llm=trust).judge(SQL, claim, tainted=tainted)
    assert "risk_level" not in claim.arguments
    if verdict.decision == "auto" and arguments.get("sql") != "SELECT 1":
        assert str(arguments["risk_level"]).strip().lower() == "low"
        assert trust == "always" or (trust == "until_tainted" and not tainted)


def test_operator_rules_precede_model_and_whitelist() -> None:
    """deny refuses, confirm asks, whatever the model says; floor leaves the whitelist alone but ignores low (A7)."""

    def ruled(rule: Rule, arguments: Json) -> tuple[str, str, str]:
        judge = Gate(POLICY, {"execute_sql": OnlySelects()}, rules={"execute_*": rule}).judge
        verdict = judge(SQL, take_risk_level(arguments, SQL), tainted=False)
        return verdict.decision, verdict.basis, verdict.rule

    for level in ({}, {"risk_level": "low"}, {"risk_level": "high"}, {"risk_level": "none"}):
        assert ruled("deny", {**SELECT, **level}) == ("deny", "operator", "denied")
        assert ruled("confirm", {**SELECT, **level}) == ("confirm", "operator", "requires_approval")
    assert ruled("floor", SELECT)[:2] == ("auto", "whitelist")
    assert ruled("floor", {**SELECT, "risk_level": "low"})[:2] == ("auto", "whitelist")
    assert ruled("floor", {**DROP, "risk_level": "low"})[:2] == ("confirm", "default")
    assert ruled("floor", {**SELECT, "risk_level": "high"})[:2] == ("confirm", "llm")


def test_of_several_rules_the_strictest_holds() -> None:
    """In whatever order they are written; a rule for another tool does not matter."""
    for rules in ({"execute_sql": "floor", "*": "deny"}, {"*": "deny", "execute_sql": "confirm"}):
        strict = Gate(POLICY, {}, rules=rules)  # type: ignore[arg-type]
        assert strict.judge(SQL, RiskClaim(SELECT), tainted=False).decision == "deny"
    other = Gate(POLICY, {"execute_sql": OnlySelects()}, rules={"execute_SQL": "deny", "execute": "deny"})
    assert other.judge(SQL, RiskClaim(SELECT), tainted=False).decision == "auto"


@pytest.mark.parametrize("claim", [RiskClaim(SELECT), RiskClaim(DROP, "low")])
def test_user_request_for_approval_turns_auto_into_confirm(claim: RiskClaim) -> None:
    """What would run asks; what asks anyway says why it does; what is refused stays refused."""
    assert gate().judge(SQL, claim, tainted=False).decision == "auto"
    verdict = gate().judge(SQL, claim, tainted=False, asked_for=True)
    assert (verdict.decision, verdict.basis, verdict.rule) == ("confirm", "operator", "asked_for")
    assert gate().judge(SQL, RiskClaim(DROP), tainted=False, asked_for=True).basis == "default"
    assert gate(assessor=Refuses()).judge(SQL, RiskClaim(SELECT), tainted=False, asked_for=True).decision == "deny"
    assert gate().judge(None, claim, tainted=False, asked_for=True).decision == "error"


@pytest.mark.parametrize("claim", [RiskClaim(SELECT), RiskClaim(DROP, "low")])
def test_client_approval_requirement_tightens_the_verdict(claim: RiskClaim) -> None:
    """It only tightens: what asks anyway says why it does, and what is refused stays refused."""
    verdict = gate().judge(SQL, claim, tainted=False, client_asks=True)
    assert (verdict.decision, verdict.basis, verdict.rule) == ("confirm", "operator", "client_asks")
    assert gate().judge(SQL, RiskClaim(DROP), tainted=False, client_asks=True).basis == "default"
    assert gate(assessor=Refuses()).judge(SQL, RiskClaim(SELECT), tainted=False, client_asks=True).decision == "deny"
    assert gate().judge(None, claim, tainted=False, client_asks=True).decision == "error"


@pytest.mark.parametrize("claim", [RiskClaim(SELECT), RiskClaim(DROP, "low"), RiskClaim(DROP), RiskClaim(DROP, "high")])
def test_changed_definition_requires_confirmation(claim: RiskClaim) -> None:
    """Whoever would have decided; what is refused stays refused."""
    verdict = gate().judge(SQL, claim, tainted=False, definition_changed=True, asked_for=True)
    assert (verdict.decision, verdict.basis, verdict.rule) == ("confirm", "operator", "definition_changed")
    denying = gate(assessor=Refuses())
    assert denying.judge(SQL, RiskClaim(SELECT), tainted=False, definition_changed=True).decision == "deny"
    assert denying.judge(None, claim, tainted=False, definition_changed=True).decision == "error"


def test_policy_hash_changes_with_every_deciding_setting() -> None:
    """Policy, rules and the assessor's configuration count; those of other tools do not."""
    plain = Gate(POLICY, {"execute_sql": OnlySelects()})
    same = Gate(
        Policy(trust_llm="always", default="confirm"),
        {"execute_sql": OnlySelects(), "other": OnlySelects()},
        rules={"other": "deny"},
        configured={"other": "{}"},
    )
    different = [
        Gate(POLICY, {}),
        Gate(Policy(trust_llm="never", default="confirm"), plain.assessors),
        Gate(Policy(trust_llm="always", default="deny"), plain.assessors),
        Gate(POLICY, plain.assessors, rules={"execute_*": "floor"}),
        Gate(POLICY, plain.assessors, configured={"execute_sql": '{"profile": "standard"}'}),
        Gate(POLICY, plain.assessors, configured={"execute_sql": '{"profile": "hardened"}'}),
    ]
    hashes = [each.hash_policy("execute_sql") for each in (plain, *different)]
    assert same.hash_policy("execute_sql") == hashes[0]
    assert len(set(hashes)) == len(hashes) and all(len(each) == 64 for each in hashes)


@pytest.mark.parametrize("command", ["init 0", "reboot", "ls"])
def test_llm_sets_high_risk_for_uncertain_operation(command: str) -> None:
    """The call asks, whatever the whitelist knows about it."""
    command_tool = ToolSpec(name="execute_command", description="", parameters={"type": "object"})
    verdict = gate().judge(command_tool, RiskClaim({"command": command}, "high"), tainted=False)
    assert (verdict.decision, verdict.basis, verdict.rule) == ("confirm", "llm", "risk_level_high")


def test_risk_assessor_is_called_only_without_a_model_risk_level() -> None:
    """Each tool has its own assessor, which sees the arguments alone, and only where the model has not decided."""
    seen: list[tuple[str, Json]] = []

    class Notes:
        def __init__(self, tool: str) -> None:
            self._tool = tool

        def assess(self, arguments: Json) -> Verdict:
            seen.append((self._tool, arguments))
            return Verdict("auto", "whitelist", self._tool, "It is harmless.")

    judge = Gate(POLICY, {name: Notes(name) for name in ("a", "b")}).judge
    specs = {name: ToolSpec(name=name, description="", parameters={"type": "object"}) for name in ("a", "b", "c")}
    for name in specs:
        for level in ({}, {"risk_level": "low"}, {"risk_level": "medium"}):
            judge(specs[name], take_risk_level({"x": 1, **level}, specs[name]), tainted=False)
    assert seen == [("a", {"x": 1}), ("b", {"x": 1})]
    assert judge(specs["c"], RiskClaim({"x": 1}), tainted=False).rule == "no_assessor"
