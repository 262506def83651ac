"""The stored progress of a run, and the way to continue from it.

A run continues in another process, or after its approval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import orjson

from gateway.agent.budget import TimeBudget
from gateway.agent.call_loop import CallLoop
from gateway.agent.loop import Loop
from gateway.agent.workflow_loop import WorkflowLoop
from gateway.approvals.texts import detect_language, format_stopped_text, format_unknown_text
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.exchange import Exchange
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.journal import Approval, RunState, StoredStep
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolSpec
from gateway.dialects.chat_request import find_last_user_text
from gateway.dialects.usage import TurnUsage
from gateway.runs.model_call_log import ModelCalls, TimedCall
from gateway.runs.recorder import RunRecorder
from gateway.tools.call_evaluator import Judge
from gateway.tools.grants import RememberedDecisions

#: States in which a run waits in the store: its turn is over, it is not.
PARKED: frozenset[RunState] = frozenset(("awaiting_approval", "awaiting_client", "unknown"))
#: States of a step whose result is known.
_KNOWN = frozenset(("finished", "failed"))


@dataclass(frozen=True, slots=True)
class TurnQuestion:
    """The answer in which a turn ended before its run did, by its keys (`gateway.agent.hidden.answer_keys.Keys`).

    The hidden messages from `start` up to `split` came before it. If a client's answer was cut in the question, the
    client gets `retold` again: the text before the question.
    """

    prefix: str
    place: str | None
    start: int
    split: int
    retold: str = ""
    ids: Sequence[str] = ()


@dataclass(slots=True)
class RunProgress:
    """The stored state of a run besides its loop and its steps.

    `question` is the answer in which its turn ended, until a client goes on behind it. The hidden messages of the run
    up to `kept` are stored with it, and the ones up to `start` belong to earlier answers.

    `rounds` are the numbers of the calls of each round, with the text before them and the other fields of the answer.
    The last round is open until all its results are there. `read_tainted`: earlier turns of the conversation contain
    untrusted text. `untrusted_steps` are the steps of this run whose results contain untrusted text, or may do so.

    Of the calls that the client is shown, the first `asked_behind` had results before the question, and the first
    `shown` belong to earlier answers.
    """

    usage: TurnUsage
    said: list[str] = field(default_factory=list)
    question: TurnQuestion | None = None
    start: int = 0
    kept: int = 0
    asked_behind: int = 0
    shown: int = 0
    rounds: list[tuple[str, list[int], Json]] = field(default_factory=list)
    is_open: bool = False
    read_tainted: bool = False
    untrusted_steps: set[int] = field(default_factory=set)
    asked_for: bool = False
    narrowings: list[Json] = field(default_factory=list)  # by requests that decided (`gateway.runs.run_restrictions`)
    added: list[str] = field(default_factory=list)  # requests whose messages came with their decisions
    calls: ModelCalls = field(default_factory=ModelCalls)

    @property
    def is_tainted(self) -> bool:
        """Return whether the model has read untrusted text, or will read it in its next call."""
        return self.read_tainted or bool(self.untrusted_steps)

    def is_call_tainted(self, number: int) -> bool:
        """Return whether the run has read untrusted text, not counting the result of this step."""
        return self.read_tainted or bool(self.untrusted_steps - {number})

    async def load_ask_before_flag(self, remembered: RememberedDecisions, exchange: Exchange) -> None:
        """Read whether the user wants to approve each call of this run or conversation. Raises StoreError."""
        self.asked_for = self.asked_for or await remembered.has_ask(exchange)

    def time_call(self, *, model: object, clock: Clock) -> TimedCall:
        """Return the context manager that adds a call of the requested `model` to the calls."""
        return self.calls.time_call(len(self.rounds), model=model, usage=self.usage, clock=clock)

    def take_snapshot(self, loop: Loop | WorkflowLoop | CallLoop, budget: TimeBudget) -> Json:
        """Return the state that `restore` reads, as JSON values for the record of the run."""
        return {
            "loop": loop.take_snapshot(),
            "usage": self.usage.take_snapshot(),
            "said": "".join(self.said),
            "question": None if self.question is None else asdict(self.question),
            "start": self.start,
            "kept": self.kept,
            "asked_behind": self.asked_behind,
            "shown": self.shown,
            "rounds": self.rounds,
            "is_open": self.is_open,
            "read_tainted": self.read_tainted,
            "asked_for": self.asked_for,
            "narrowings": self.narrowings,
            "added": self.added,
            "spent_s": budget.spent_s,
            "model_calls": self.calls.take_snapshot(),
        }

    def restore(
        self,
        snapshot: Json,
        loop: Loop | WorkflowLoop | CallLoop,
        steps: Sequence[StoredStep],
        judge: Judge,
        exchange: Exchange,
    ) -> None:
        """Set the state from a stored snapshot, also of an earlier version, and that of the loop."""
        self.usage.restore(snapshot["usage"])
        self.said = [snapshot["said"]] if snapshot["said"] else []
        question = snapshot.get("question")  # a run that an earlier version parked has none
        self.question = None if question is None else TurnQuestion(**question)
        self.start, self.kept = snapshot.get("start", 0), snapshot.get("kept", 0)
        self.asked_behind, self.shown = snapshot.get("asked_behind", 0), snapshot.get("shown", 0)  # as above
        self.is_open = snapshot["is_open"]
        self.rounds = [(content, numbers, *(beside or ({},))) for content, numbers, *beside in snapshot["rounds"]]
        self.read_tainted = snapshot.get("read_tainted", True) is True  # an earlier version did not write it
        self.untrusted_steps = {step.number for step in steps if step.tainted}
        self.asked_for = snapshot["asked_for"]
        self.narrowings = list(snapshot.get("narrowings", ()))  # as above
        self.added = list(snapshot.get("added", ()))  # as above
        self.calls.restore(snapshot.get("model_calls", ()))  # as above
        whole = self.rounds[:-1] if self.is_open else self.rounds
        loop.restore(
            snapshot["loop"],
            [
                (
                    content,
                    beside,
                    [restore_planned_call(steps[n], judge, exchange) for n in numbers],
                    [get_shown_result(steps[n]) for n in numbers],
                )
                for content, numbers, beside in whole
            ],
        )


def restore_planned_call(step: StoredStep, judge: Judge, exchange: Exchange) -> PlannedCall:
    """Return the planned call of a stored step, with the present definition of its tool."""
    entry = judge.catalog.find(step.model_name, exchange)
    call = ToolCall(
        id=step.call_id, tool=step.model_name, arguments=orjson.loads(step.arguments), terminate=step.terminate
    )
    verdict = Verdict(step.decision, step.basis, step.rule, step.reason)  # type: ignore[arg-type]  # as it was written
    refusal = step.result if step.state in ("refused", "rejected") else None
    spec = (
        entry.spec
        if entry is not None and entry.spec.name == step.tool
        else ToolSpec(name=step.tool, description="", parameters={})
    )
    return PlannedCall(call, spec, verdict, refusal, step.risk_level)


def get_shown_result(step: StoredStep) -> str:
    return step.shown or step.result or ""


@dataclass(frozen=True, slots=True)
class StoppedRound:
    """The round in which a run stopped. `unknown` are the steps whose outcome is unknown."""

    planned: list[PlannedCall]
    numbers: list[int]
    done: Mapping[int, CallOutcome]
    unknown: list[int]


def get_unfinished_results(steps: Sequence[StoredStep]) -> list[CallOutcome]:
    """Return the results that a later turn's model reads for the calls of a round that its run left unfinished."""
    return [CallOutcome(text, text, ok=False) for text in map(_get_unfinished_result, steps)]


def _get_unfinished_result(step: StoredStep) -> str:
    if step.started_s is None:
        return step.result or "Not run: its turn was cancelled before."
    return get_shown_result(step) if step.state in _KNOWN else format_stopped_text(step.tool, run_id=step.run_id)


def reopen(
    progress: RunProgress, recorder: RunRecorder, approvals: Mapping[int, Approval], judge: Judge, exchange: Exchange
) -> StoppedRound:
    """Return the open round of a run that continues."""
    _, numbers, _ = progress.rounds[-1]
    planned, done, unknown = [], {}, []
    for number in numbers:
        step = recorder.steps[number]
        was = restore_planned_call(step, judge, exchange)
        if step.state in _KNOWN or (step.state == "rejected" and step.result is not None):
            whole = step.result or ""
            done[number] = CallOutcome(get_shown_result(step), whole, ok=step.state == "finished", answer=step.answer)
        elif step.state in ("started", "unknown"):
            if step.state == "started" and was.spec is not None and was.spec.idempotent:
                approval = approvals.get(number)
                recorder.reset_call(
                    number, approval.id if approval is not None and approval.state == "executing" else None
                )
            else:
                unknown.append(number)
        planned.append(was)
    return StoppedRound(planned, list(numbers), done, unknown)


async def report_unknown(numbers: Sequence[int], recorder: RunRecorder, exchange: Exchange, counters: Counters) -> str:
    """Store that the outcome of these calls is unknown, and return the text for the user."""
    for number in numbers:
        if recorder.steps[number].state == "started":
            counters.count("unknown_outcomes", tool=recorder.steps[number].tool)
            await recorder.write_outcome(number, None, ok=False)
    first = recorder.steps[numbers[0]]
    language = detect_language(find_last_user_text(exchange.body["messages"]))
    return format_unknown_text(first.tool, run_id=exchange.id, step=first.number, language=language)


def lacks_credential(exchange: Exchange) -> bool:
    """Return whether the run began with a credential that it no longer has: it waits for its client."""
    resume = exchange.execution.resume
    return (
        resume is not None and not exchange.origin.credential and orjson.loads(resume.run.request)["credential"] is True
    )
