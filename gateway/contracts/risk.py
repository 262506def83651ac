"""The parameter `risk_level` that every tool has besides its own: name, levels, and its description for models."""

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from gateway.contracts.storage.store import Json as Json

RISK_LEVEL: Final = "risk_level"
LEVELS: Final = ("low", "medium", "high")
#: The level that lowers the risk, in this spelling only.
LOW: Final = LEVELS[0]
#: Levels by which a model raises the risk.
RAISED: Final = ("medium", "high")
CHOICES: Final = f"One of: {', '.join(LEVELS)}"
MEANING: Final = (
    "low: runs automatically; medium, high: a person must confirm. Unsure: set high or ask the user in text"
)


def build_schema() -> dict[str, Any]:
    """Return the parameter in a JSON Schema."""
    return {"type": "string", "enum": list(LEVELS), "description": MEANING}


def normalize_choice(level: object) -> object:
    """Return a text stripped and in lower case, everything else as it is: raising counts in any spelling."""
    return level.strip().lower() if isinstance(level, str) else level


Action = Literal["auto", "confirm", "deny", "error"]


Basis = Literal["operator", "llm", "whitelist", "default", "invalid", "malformed", "duplicate", "unknown_tool"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a call, its basis and its rule; `reason` is one sentence for a person."""

    decision: Action
    basis: Basis
    rule: str
    reason: str = ""


class RiskAssessor(Protocol):
    """The judge of one tool's arguments, where neither operator nor model has decided (requirement risk-gate).

    It returns auto (basis whitelist) for calls that are known to be harmless, confirm (basis default) for all others.
    It never raises for any JSON object. An assessor that does raise counts as confirm.
    """

    def assess(self, arguments: Json) -> Verdict: ...
