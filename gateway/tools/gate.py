"""The gate that decides what happens with a call, in a fixed order of authorities (requirement risk-gate). No I/O.

The first of these that applies decides: a missing tool, the operator, the model's `risk_level`, the whitelist, the
default. The model may always raise the risk. It lowers it only in the one place, and under the policy, that permits it.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from gateway.contracts.calls import Doubt
from gateway.contracts.errors import contained
from gateway.contracts.risk import LEVELS, LOW, RAISED, RISK_LEVEL, RiskAssessor, Verdict, normalize_choice
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.tools.risk_level import find_raising_value, list_declared_names, raises_level, resembles

logger = logging.getLogger(__name__)

#: The operator's rule for one tool. deny: it never runs. confirm: every call needs a person. floor: the model's low
#: lowers nothing, the whitelist still decides.
Rule: TypeAlias = Literal["deny", "confirm", "floor"]
_RULES: Final[tuple[Rule, ...]] = ("deny", "confirm", "floor")  # the strictest first


_DOUBTS: Final[Mapping[Doubt, str]] = {
    "quoted": "A tool's result or a user's message holds this very call: the model may only repeat it.",
    "example": "The model announces the call as an example.",
}


class Absent:
    """The type of ABSENT."""

    def __repr__(self) -> str:
        return "ABSENT"


#: The model sent no risk level.
ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class RiskClaim:
    """The parts of a model's call: the arguments that would run, and the model's own risk level."""

    arguments: Json
    risk_level: object = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The risk policy: when a model's `low` lets a call run, and the default for unknown calls (config: risk)."""

    trust_llm: Literal["always", "until_tainted", "never"]
    default: Literal["confirm", "deny"]


def take_risk_level(arguments: Json, spec: ToolSpec, *, beside: object = None) -> RiskClaim:
    """Take `risk_level` out of the arguments, unless the tool has an argument of that name; null and "" are absent.

    A level `beside` the arguments, or under a name that only resembles it, may raise the risk, never lower it. Deeper
    in the arguments it counts against a `low` only: without one it is the tool's own.
    """
    properties = spec.parameters.get("properties")
    own: Mapping[str, object] = properties if isinstance(properties, dict) else {}
    level: object = ABSENT
    if RISK_LEVEL not in own and RISK_LEVEL in arguments:
        level = arguments[RISK_LEVEL]
        arguments = {name: value for name, value in arguments.items() if name != RISK_LEVEL}
    if level is None or level == "":
        level = ABSENT
    if normalize_choice(level) in RAISED:
        return RiskClaim(arguments, level)
    stated = (value for name, value in arguments.items() if name not in own and resembles(name) and raises_level(value))
    others = (beside, next(stated, None))
    for other in others:
        if normalize_choice(other) in RAISED:
            return RiskClaim(arguments, other)
    if level in (ABSENT, LOW):
        level = next((other for other in others if other not in (None, "", LOW)), level)
    if level == LOW and (within := find_raising_value(arguments, list_declared_names(spec.parameters))) is not None:
        return RiskClaim(arguments, within)
    return RiskClaim(arguments, level)


@dataclass(frozen=True, slots=True)
class Gate:
    """The order of the requirement, with the assessors by the names of their tools.

    `rules` are the operator's, by names of tools or globs; of several that match, the strictest applies. `configured`
    maps a tool to its assessor and its settings (JSON): it decides nothing here, but changes the policy's hash.
    """

    policy: Policy
    assessors: Mapping[str, RiskAssessor]
    rules: Mapping[str, Rule] = field(default_factory=dict, kw_only=True)
    configured: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def hash_policy(self, tool: str) -> str:
        """Return the SHA-256 (hex) over everything that decides about calls of this tool, but for its definition."""
        decisive = (asdict(self.policy), self._find_rule(tool), tool in self.assessors, self.configured.get(tool))
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def judge(
        self,
        spec: ToolSpec | None,
        claim: RiskClaim,
        *,
        tainted: bool,
        asked_for: bool = False,
        client_asks: bool = False,
        definition_changed: bool = False,
        doubt: Doubt | None = None,
    ) -> Verdict:
        """Return the verdict on a call. Never raises, for any arguments.

        `tainted`: the run has read untrusted text. `asked_for`: the user wants to approve every call, `client_asks`:
        the request wants that for calls of this tool. `definition_changed`: the tool's definition differs from the
        accepted one. `doubt`: the model may only repeat or describe the call. The last four turn a call that would run
        into one that needs approval, never the reverse.
        """
        verdict = self._judge(spec, claim, tainted=tainted)
        if verdict.decision in ("deny", "error"):
            return verdict
        if definition_changed:
            return Verdict("confirm", "operator", "definition_changed", "The tool is not as it was accepted.")
        if asked_for and verdict.decision == "auto":
            return Verdict("confirm", "operator", "asked_for", "The user wants to be asked before every call.")
        if client_asks and verdict.decision == "auto":
            return Verdict("confirm", "operator", "client_asks", "The request wants calls of this tool to be approved.")
        if doubt is not None and verdict.decision == "auto":
            return Verdict("confirm", "default", doubt, _DOUBTS[doubt])
        return verdict

    def _judge(self, spec: ToolSpec | None, claim: RiskClaim, *, tainted: bool) -> Verdict:
        """Return the verdict by the operator's rules, then the model's risk level, then the assessor."""
        if spec is None:
            return Verdict("error", "unknown_tool", "unknown_tool", "There is no tool of this name.")
        rule = self._find_rule(spec.name)
        if rule == "deny":
            return Verdict("deny", "operator", "denied", f"The operator lets no call of {spec.name!r} run.")
        if rule == "confirm" or spec.requires_approval:
            return Verdict(
                "confirm", "operator", "requires_approval", f"The operator wants {spec.name!r} to be approved."
            )
        if claim.risk_level is not ABSENT:
            raised = normalize_choice(claim.risk_level)
            if raised in RAISED:
                return Verdict("confirm", "llm", f"risk_level_{raised}", f"The model says that the risk is {raised}.")
            if claim.risk_level != LOW:  # in this one spelling
                return Verdict(
                    "confirm",
                    "invalid",
                    "risk_level_invalid",
                    f"risk_level is none of {', '.join(LEVELS)}: ask, or omit it.",
                )
            if rule != "floor" and self._trusts_model(tainted=tainted):
                return Verdict("auto", "llm", "risk_level_low", "The model says that the risk is low.")
        return self._assess(spec, claim.arguments)

    def _find_rule(self, tool: str) -> Rule | None:
        found = {rule for pattern, rule in self.rules.items() if fnmatchcase(tool, pattern)}
        return next((rule for rule in _RULES if rule in found), None)

    def _trusts_model(self, *, tainted: bool) -> bool:
        return self.policy.trust_llm == "always" or (self.policy.trust_llm == "until_tainted" and not tainted)

    def _assess(self, spec: ToolSpec, arguments: Json) -> Verdict:
        """Return the verdict of the tool's assessor; without one, or if it fails, the default."""
        assessor = self.assessors.get(spec.name)
        if assessor is None:
            return self.choose_default("no_assessor", f"Nothing is known about the risk of {spec.name!r}.")
        try:
            with contained(f"the assessor of {spec.name!r}"):
                verdict = assessor.assess(arguments)
            decision, rule, reason = verdict.decision, verdict.rule, verdict.reason
        except Exception as error:
            logger.warning(
                "The assessor of %r failed with %s: the call needs a person.", spec.name, type(error).__name__
            )
            return Verdict("confirm", "default", "assessor_failed", f"The assessor of {spec.name!r} failed.")
        if decision == "auto":
            return Verdict("auto", "whitelist", rule, reason)
        if decision == "deny":
            return Verdict("deny", "default", rule, reason)
        return self.choose_default(rule, reason)

    def choose_default(self, rule: str, reason: str) -> Verdict:
        """Return the verdict on a call that is not known to be harmless."""
        return Verdict(self.policy.default, "default", rule, reason)
