"""A workflow as a state machine: the next action after the result of each step. No I/O, no clock.

It stands where a `Loop` stands, and the same gate, record and approvals serve it. Invariants: steps run in the order of
the file. A call runs only after it was validated and judged. A model's output is text, whatever it looks like. A failed
step is the last one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from gateway.agent.loop import Action, AskAction, Execute, Finish, Plan
from gateway.agent.output.scanner import Outcome
from gateway.approvals.escaping import escape_line
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import CallWatcher
from gateway.contracts.storage.store import Json
from gateway.contracts.templates import Reference, TooLongError, Values, fill_text, iterate_references
from gateway.workflows.definition import Workflow, WorkflowStep

#: Limit of a result for later steps. The last result is sent whole.
RESULT_CHARS: Final = 65_536
#: Limit of the reason in the error.
REASON_CHARS: Final = 500
#: Fields of a request that are about tools, or about the answer to a client.
_NOT_SENT: Final = frozenset(
    ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format")
)
#: Ends of an answer that are not the ordinary one.
_ENDS: Final[Mapping[str | None, Literal["length", "content_filter"]]] = {
    "length": "length",
    "content_filter": "content_filter",
}


#: Fills the references in the arguments of a tool. Raises ValueError, with the reason.
Fill: TypeAlias = Callable[[str, Mapping[str, object], Values], Json]


@dataclass(slots=True)
class WorkflowLoop:
    """One run of a workflow; `parameters` are checked, with their defaults. `watcher` gets each step that begins.

    `begin`, `answered` and `executed` raise GatewayError (workflow_failed) where the run must end.
    """

    workflow: Workflow
    parameters: Json
    plan: Plan
    new_id: Callable[[], str]
    run_id: str
    fill: Fill
    watcher: CallWatcher | None = None
    hidden: list[Json] = field(default_factory=list)  # stays empty: no model goes on from what a workflow did
    _number: int = 0  # of the step under way
    _results: dict[str, str] = field(default_factory=dict)
    _cut: set[str] = field(default_factory=set)  # steps of whose results the end is missing

    client_tools: ClassVar[frozenset[str]] = frozenset()
    content: ClassVar[str] = ""  # no text surrounds a call
    holds_back: ClassVar[bool] = False
    hides_text: ClassVar[bool] = False

    def begin(self) -> Action:
        """Return the first action of a workflow, or of a stored one that continues between two rounds."""
        while (step := self._step).prompt is not None:
            text, is_cut = self._fill_text(step.prompt), self._refers_to_shortened(step.prompt)
            if self._is_last:
                return Finish(text, "stop")
            self._store_result(text, is_cut=is_cut)
        if self.watcher is not None:
            self.watcher.on_step_begun(step.name, number=self._number, total=len(self.workflow.steps))
        if step.model is not None:
            return AskAction(self.messages)
        return Execute((self._plan_call(step),))

    def handle_answer(self, content: str, outcome: Outcome, *, finish_reason: str | None) -> Action:
        """Return the action that follows from the model's answer.

        `content` is all of its text. No calls are looked for in it.
        """
        del outcome  # the request offered it no tools
        if self._is_last:
            return Finish(content, _ENDS.get(finish_reason, "stop"))
        self._store_result(content, is_cut=finish_reason in _ENDS)
        return self.begin()

    def handle_results(self, planned: Sequence[PlannedCall], results: Sequence[CallOutcome]) -> Action:
        """Return the action that follows from the result of the one call."""
        (call,), (outcome,) = planned, results
        if call.refusal is not None or not outcome.ok:
            raise self._build_step_error(escape_line(outcome.whole, REASON_CHARS))
        if self._is_last:
            return Finish(outcome.whole, "stop")
        self._store_result(outcome.whole)
        return self.begin()

    def take_snapshot(self) -> Json:
        """Return the state that `restore` needs besides the workflow and its parameters."""
        return {"number": self._number, "results": self._results, "cut": sorted(self._cut)}

    def restore(self, snapshot: Json, rounds: Iterable[tuple[str, Json, Sequence[PlannedCall], Sequence[str]]]) -> None:
        """Restore the state of a stored run. The snapshot contains the results of its `rounds`."""
        del rounds
        self._number, self._results = snapshot["number"], dict(snapshot["results"])
        self._cut = set(snapshot["cut"])

    @property
    def extra_fields(self) -> Json:
        """Return {}: no step sees the answer of another one."""
        return {}

    @property
    def asked(self) -> int:
        """Return the number of calls that were requested, executed or answered with an error."""
        return sum(step.tool is not None for step in self.workflow.steps[: self._number + 1])

    @property
    def messages(self) -> tuple[Json, ...]:
        """Return all messages of the next model call."""
        step = self._step
        return () if step.model is None else ({"role": "user", "content": self._fill_text(step.model)},)

    def build_request(self, body: Json, conversation: Sequence[Json]) -> Json:
        """Return the body of the next model call: one message, without the conversation and without tools."""
        del conversation
        return {**{key: value for key, value in body.items() if key not in _NOT_SENT}, "messages": [*self.messages]}

    def add_step_to_error(self, error: GatewayError) -> GatewayError:
        """Return the error that ended a step, with the step and the workflow named in it."""
        if error.code == "workflow_failed":
            return error
        where = f"the step {self._step.name!r} of the workflow {self.workflow.name!r} (run {self.run_id})"
        outcome = GatewayError(
            error.code,
            f"{error.message} That was {where}.",
            param=error.param,
            retry_after_s=error.retry_after_s,
        )
        outcome = outcome.with_status(error.facts.status)
        return outcome.mark_after_effects() if error.settled else outcome

    @property
    def _step(self) -> WorkflowStep:
        return self.workflow.steps[self._number]

    @property
    def _is_last(self) -> bool:
        return self._number == len(self.workflow.steps) - 1

    @property
    def _values(self) -> Values:
        return {"params": self.parameters, "steps": self._results}

    def _store_result(self, result: str, *, is_cut: bool = False) -> None:
        """Keep the result of the current step for later references, and advance to the next step."""
        name = self._step.name
        omitted = len(result) - RESULT_CHARS
        if omitted > 0:
            result, is_cut = f"{result[:RESULT_CHARS]}\n[... {omitted} characters omitted]", True
        if self._is_used_later(Reference("steps", name)):
            self._results[name] = result
            if is_cut:
                self._cut.add(name)
        self._number += 1

    def _plan_call(self, step: WorkflowStep) -> PlannedCall:
        """Return the call, judged like a call of a model."""
        if self._refers_to_shortened(step.with_):
            # A model sees that a text is only a half. A tool would take it for the whole.
            reason = f"more than {RESULT_CHARS} characters, or the model came to its own limit"
            raise self._build_step_error(f"it needs a result of which the end is missing ({reason})")
        assert step.tool is not None
        try:
            arguments = self.fill(step.tool, step.with_, self._values)
        except ValueError as error:
            raise self._build_step_error(str(error)) from None
        return self.plan(FoundCall(step.tool, arguments, False), self.new_id())

    def _fill_text(self, text: str) -> str:
        try:
            return fill_text(text, self._values)
        except TooLongError as error:
            raise self._build_step_error(str(error)) from None

    def _refers_to_shortened(self, template: object) -> bool:
        return any(ref.kind == "steps" and ref.name in self._cut for ref in iterate_references(template))

    def _is_used_later(self, result: Reference) -> bool:
        """Return whether a later step uses the result."""
        later = self.workflow.steps[self._number + 1 :]
        return any(result in iterate_references(template) for step in later for template in _list_templates(step))

    def _build_step_error(self, reason: str) -> GatewayError:
        return GatewayError(
            "workflow_failed",
            f"The workflow {self.workflow.name!r} ended at its step {self._step.name!r}: {reason} (run {self.run_id}).",
        )


def _list_templates(step: WorkflowStep) -> tuple[object, ...]:
    return step.prompt, step.model, step.with_
