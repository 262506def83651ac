"""One tool call as a state machine: it runs, and its result is the end. No I/O, no clock, and no model.

It stands where a `Loop` stands, so that the same gate, record and approvals serve a call that an MCP client requests.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gateway.agent.loop import Action, Execute, Finish, Plan
from gateway.agent.output.scanner import Outcome
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import encode_model_name


@dataclass(slots=True)
class CallLoop:
    """The run of one `Job.call`. No model rates its risk: `risk_level` is an ordinary argument here."""

    call: Json
    plan: Plan
    new_id: Callable[[], str]
    hidden: list[Json] = field(default_factory=list)  # stays empty: no model reads it

    client_tools: ClassVar[frozenset[str]] = frozenset()
    content: ClassVar[str] = ""
    holds_back: ClassVar[bool] = False
    hides_text: ClassVar[bool] = False
    messages: ClassVar[tuple[Json, ...]] = ()

    def begin(self) -> Action:
        """Return the call as it was judged."""
        found = FoundCall(encode_model_name(self.call["tool"]), self.call["arguments"], False, vouched=False)
        return Execute((self.plan(found, self.new_id()),))

    def handle_answer(self, content: str, outcome: Outcome, *, finish_reason: str | None) -> Action:
        """Raise: no model is called."""
        raise AssertionError(f"a model answered a tool call ({finish_reason}): {content}, {outcome}")

    def handle_results(self, planned: Sequence[PlannedCall], results: Sequence[CallOutcome]) -> Action:
        """Return the end of the run, with the result as its text."""
        del planned
        (outcome,) = results
        return Finish(outcome.shown, "stop")

    def take_snapshot(self) -> Json:
        """Return {}: all that happens is in the step of the call."""
        return {}

    def restore(self, snapshot: Json, rounds: Iterable[tuple[str, Json, Sequence[PlannedCall], Sequence[str]]]) -> None:
        """Restore nothing, as `take_snapshot` has nothing."""

    @property
    def extra_fields(self) -> Json:
        """Return {}: no model has answered."""
        return {}

    @property
    def asked(self) -> int:
        """Return the number of calls that were requested."""
        return 1

    def build_request(self, body: Json, conversation: Sequence[Json]) -> Json:
        """Raise: no model is called."""
        raise AssertionError(
            f"a tool call would call a model, with {len(conversation)} messages and {len(body)} fields"
        )
