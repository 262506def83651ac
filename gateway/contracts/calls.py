"""One call that a model requests, from the text in which it was found to its outcome."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolSpec


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call as it is to be done: `refusal` is the result of one that must not run."""

    call: ToolCall
    spec: ToolSpec | None
    verdict: Verdict
    refusal: str | None = None
    risk_level: str | None = None  # the model's word on the risk

    @property
    def needs_approval(self) -> bool:
        """Return whether a person must approve the call before it runs."""
        return self.refusal is None and self.verdict.decision == "confirm"

    @property
    def is_harmless(self) -> bool:
        """Return whether it may run because it was judged harmless: neither a person nor the model vouches for it."""
        return self.verdict.decision == "auto" and self.verdict.basis == "whitelist"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of one call: the text that the model is shown, and the whole text; `answer` is that of the step."""

    shown: str
    whole: str
    ok: bool = True
    answer: bytes | None = None


#: Why a call may be one that the model only repeats or describes. quoted: another author wrote the same call into what
#: the model has read. example: the sentence before it announces it as an example.
Doubt: TypeAlias = Literal["quoted", "example"]


DOUBTS: Final[tuple[Doubt, ...]] = ("quoted", "example")


@dataclass(frozen=True, slots=True)
class FoundCall:
    """One call as the model wrote it; `id` only for native calls. `beside`: a risk level outside of the arguments.

    `written` are the arguments of a native call as its model wrote them; "" if it wrote none.
    """

    tool: str
    parameters: Json
    terminate: bool
    id: str | None = None
    beside: object = None
    doubt: Doubt | None = None
    further: Json = field(default_factory=dict)  # of a native call: what its model must see again with it
    vouched: bool = True  # a model may have rated its risk; else `risk_level` is an ordinary argument
    written: str = field(default="", compare=False)
