"""The parameter `risk_level` that every tool has besides its own: name, levels, and what models are told of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from gateway.contracts.store import Json as Json

RISK_LEVEL: Final = "risk_level"
LEVELS: Final = ("low", "medium", "high")
#: The one that lowers, in this spelling only.
LOW: Final = LEVELS[0]
#: Those by which a model raises the risk.
RAISED: Final = ("medium", "high")
CHOICES: Final = f"One of: {', '.join(LEVELS)}"
MEANING: Final = (
    "low: runs automatically; medium, high: a person must confirm. Unsure: set high or ask the user in text"
)


def schema() -> dict[str, Any]:
    """The parameter in a JSON Schema."""
    return {"type": "string", "enum": list(LEVELS), "description": MEANING}


def normal(level: object) -> object:
    """A text without its outer white space and case, everything else as it is: raising counts in any spelling."""
    return level.strip().lower() if isinstance(level, str) else level


def resembles(name: str) -> bool:
    """`riskLevel`, `risk-level`, `RISK LEVEL`: what a model writes that means risk_level."""
    return len(name) <= 20 and "".join(filter(str.isalpha, name)).lower() == "risklevel"


def level_beside(*holders: Mapping[str, object]) -> object:
    """The level that these objects of a call hold beside its arguments; None: none. The strictest of several counts."""
    levels = [value for holder in holders for name, value in holder.items() if resembles(name)]
    raised = (level for level in levels if normal(level) in RAISED)
    invalid = (level for level in levels if level not in (None, "", *LEVELS))
    return next(raised, None) or next(invalid, None)


Action = Literal["auto", "confirm", "deny", "error"]


Basis = Literal["operator", "llm", "whitelist", "default", "invalid", "malformed", "duplicate", "unknown_tool"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to happen with a call, on which basis, by which rule; `reason` is one sentence for a person."""

    decision: Action
    basis: Basis
    rule: str
    reason: str = ""


class RiskAssessor(Protocol):
    """Judges the arguments of one tool where neither the operator nor the model has decided (requirement risk-gate).

    Returns auto (basis whitelist) for what is known to be harmless, confirm (basis default) for everything else, and
    never raises for any JSON object; one that does raise counts as confirm.
    """

    def assess(self, arguments: Json) -> Verdict: ...
