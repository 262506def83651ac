"""The parameter `risk_level` that every tool has besides its own: name, levels, and what models are told of it."""

from typing import Any, Final

RISK_LEVEL: Final = "risk_level"
LEVELS: Final = ("low", "medium", "high")
#: Those by which a model raises the risk.
RAISED: Final = ("medium", "high")
CHOICES: Final = f"One of: {', '.join(LEVELS)}"
MEANING: Final = (
    "low: runs automatically; medium, high: a person must confirm. Unsure: set high or ask the user in text"
)


def schema() -> dict[str, Any]:
    """The parameter in a JSON Schema."""
    return {"type": "string", "enum": list(LEVELS), "description": MEANING}
