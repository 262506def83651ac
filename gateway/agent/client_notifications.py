"""The client of a run: the texts of its answer, the question about calls that wait for a person, reports on the others.

The question comes once in each answer: as text, or as an event to a client that calls are shown to.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from gateway.agent.agent_services import AgentParts
from gateway.agent.progress import RunProgress
from gateway.approvals import chat_texts as spoken
from gateway.approvals import texts
from gateway.approvals.escaping import Language
from gateway.approvals.view import build_approval_view
from gateway.contracts.calls import PlannedCall
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.exchange import Chunk, Emit, Exchange
from gateway.contracts.storage.journal import Approval, StoredStep
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.chat_request import find_last_user_text
from gateway.runs import call_events
from gateway.runs.live_run import EFFECTS
from gateway.runs.recorder import RunRecorder
from gateway.runs.run_span import build_approval_span, send_refused_span

#: Sends the client a chunk of its answer.
Say: TypeAlias = Callable[[Chunk], Awaitable[None]]
#: Marks calls of these numbers, among the steps of a run, whose results may contain untrusted text.
Mark: TypeAlias = Callable[[Collection[int], Sequence[StoredStep]], Awaitable[None]]


class Speech:
    """The texts and chunks that a run says to its client. `progress.said` has the texts of the whole turn."""

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self.tell: Emit  # from `stream` on
        self.is_quiet = True  # nothing was said in this round
        self._before_question: int | None = None  # so many texts came before the question of an open answer

    async def emit(self, chunk: Chunk) -> None:
        """Send the client a chunk, and wait while it does not keep up."""
        if (pause := self.tell(chunk)) is not None:
            await pause()

    def format_text(self, text: str) -> str:
        """Return text for the client. The model's text of a later round begins with a new paragraph."""
        said = self._progress.said
        if self.is_quiet and said and not said[-1][-1:].isspace():
            text = f"\n\n{text}"
        self.is_quiet = False
        said.append(text)
        return text

    async def emit_round(self, chunk: Chunk) -> None:
        """Send a chunk of a round to the client. A text in it becomes a paragraph of the answer."""
        if isinstance(chunk, str):
            self.is_quiet, self._before_question = True, len(self._progress.said)
            chunk = self.format_text(chunk)
        await self.emit(chunk)

    @property
    def text_before_question(self) -> str | None:
        """Return the text before the question of an open answer, or None if it asks nothing."""
        return None if self._before_question is None else "".join(self._progress.said[: self._before_question])

    def mark_effects(self) -> None:
        """Send the mark of the first effect without waiting for the client."""
        self.tell({EFFECTS: True})


@dataclass(slots=True)
class Questions:
    """The questions of one answer. `asked` is the event that it ends with, if its client gets the question as one."""

    parts: AgentParts
    exchange: Exchange
    recorder: RunRecorder
    asked: Json | None = None
    _stands: list[str] = field(default_factory=list)  # the approvals that the question in this answer is about

    @property
    def language(self) -> Language:
        """Return the language of the client's last message."""
        return texts.detect_language(find_last_user_text(self.exchange.body["messages"]))

    async def send_held_question(self, pending: Sequence[Approval], say: Say, *, held_s: float) -> None:
        """Send the question to a client whose answer stays open, as a part of the answer.

        Programs get an event.
        """
        asked = [approval.id for approval in pending]
        is_new, self._stands = self._stands != asked, asked
        if self.exchange.delivery.asks_with_events:
            await say(chunks.build_event(self._build_question_event(self.exchange.id, pending, self.recorder.steps)))
            return
        if is_new:
            await say(self._format_question(pending, held_s=held_s))
        told = {"type": "approval.required", "approvals": [build_approval_view(approval) for approval in pending]}
        await say(chunks.build_event({**told, "run_id": self.exchange.id}))

    def trace_decisions(self, approvals: Sequence[Approval]) -> None:
        """Note decisions in the trace of the run: each once, from the question to the decision.

        The code that cancels a run notes the approvals that are cancelled with it.
        """
        trace, tracer = self.exchange.execution.trace, self.parts.tracer
        if trace is None or tracer is None or not trace.context.sampled:
            return
        for one in approvals:
            if one.state not in ("pending", "cancelled") and one.id not in trace.told:
                trace.told.add(one.id)
                tracer.send(
                    build_approval_span(one, tracer.open_child_span(trace.context), now_s=self.parts.clock.time())
                )

    def format_ending(self, pending: Sequence[Approval]) -> str:
        """Return the text that ends the answer of a turn that waits for these approvals; "" if `asked` does instead.

        A call of an MCP client has none: the MCP endpoint puts the question in its own way.
        """
        if self.exchange.job.call is not None:
            return ""
        is_new = self._stands != [approval.id for approval in pending]
        if self.exchange.delivery.asks_with_events:
            self.asked = self._build_question_event(self.exchange.id, pending, self.recorder.steps) if is_new else None
            return ""
        if is_new:
            return self._format_question(pending)
        may_decide = self._build_answer_options(pending).may_decide
        return texts.format_still_undecided_text(may_decide=may_decide, language=self.language)

    @property
    def are_shared(self) -> bool:
        """Return whether the same call in two runs shares one approval.

        A stored run requests its own approval, because it has its own answer. Calls of MCP clients share the run itself
        (`gateway.context.tool_calls`). Requests that name neither an end user nor a conversation may be of different
        people, and an approval shows what its run is about.
        """
        exchange = self.exchange
        is_named = exchange.user is not None or exchange.conversation is not None
        return (
            is_named
            and exchange.job.workflow is None
            and exchange.job.call is None
            and exchange.execution.resume is None
        )

    async def find_pending_question(self, steps: Sequence[StoredStep]) -> tuple[str, Json] | None:
        """Return the question of another run that waits for one of these calls, and its facts. None: no run does.

        The text is "" if `asked` has the question instead.
        """
        if self.exchange.job.call is not None:
            return await self._find_same_call()
        if not self.are_shared:
            return None
        approvals = self.parts.approvals
        for step in steps:
            asked = await approvals.find_pending_duplicate(step, self.exchange)
            of_run = {} if asked is None else await approvals.index_by_step(asked.run_id, tenant=asked.tenant)
            pending = [approval for approval in of_run.values() if approval.state == "pending"]
            if asked is not None and pending:  # else somebody has decided this moment
                if self.exchange.delivery.asks_with_events:
                    of_other = await self.parts.store.list_steps(asked.run_id, tenant=asked.tenant)
                    self.asked = self._build_question_event(asked.run_id, pending, of_other)
                    return "", spoken.build_waiting_facts(asked.run_id, pending)
                before = texts.format_duplicate_call_text(
                    [other.tool for other in steps if other.sha256 != asked.sha256], language=self.language
                )
                return f"{before}\n\n{self._format_question(pending)}", spoken.build_waiting_facts(
                    asked.run_id, pending
                )
        return None

    async def _find_same_call(self) -> tuple[str, Json] | None:
        """Return "" and the facts of another run that has the same call of an MCP client, if there is one."""
        exchange = self.exchange
        other = await self.parts.store.find_undelivered_run(exchange.origin.fingerprint, tenant=exchange.caller.tenant)
        return None if other is None or other.id == exchange.id else ("", spoken.build_waiting_facts(other.id, ()))

    def _format_question(self, pending: Sequence[Approval], *, held_s: float | None = None) -> str:
        answering = self._build_answer_options(pending, held_s=held_s)
        return spoken.format_turn_text(pending, language=self.language, answering=answering)

    def _build_answer_options(self, pending: Sequence[Approval], *, held_s: float | None = None) -> texts.AnswerOptions:
        exchange = self.exchange
        return self.parts.approvals.build_answer_options(exchange.caller, pending, user=exchange.user, held_s=held_s)

    def _build_question_event(self, run_id: str, pending: Sequence[Approval], steps: Sequence[StoredStep]) -> Json:
        catalog = self.parts.in_use.judge.catalog
        return spoken.build_question_event(run_id, pending, steps, service_of=catalog.find_service_name)


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports on the calls of a run: whole if its client is shown calls, brief if it wants events, else none."""

    exchange: Exchange
    recorder: RunRecorder
    progress: RunProgress
    parts: AgentParts
    mark: Mark

    @property
    def may_wait(self) -> bool:
        """Return whether a report may wait for the client to read."""
        return self.exchange.delivery.shows_calls or self.exchange.delivery.events

    async def report_start(
        self, number: int, planned: PlannedCall, approval: Approval | None, say: Say, *, place: int
    ) -> None:
        """Report that a call begins: step `number` of the run, and at `place` in its group."""
        if self.exchange.delivery.shows_calls:
            step = replace(self.recorder.steps[number], arguments=write_canonical(planned.call.arguments))
            step = step if approval is None else replace(step, approval_id=approval.id)
            await say(call_events.build_start_event(step, self.parts.in_use.judge.catalog))
        elif self.exchange.delivery.events:
            await say(chunks.build_event({**_build_call_fields(planned, place), "type": "tool.started"}))

    async def report_finish(self, number: int, planned: PlannedCall, say: Say, *, place: int) -> None:
        """Report that a call has run. A result with untrusted text reaches the client only after the call is marked."""
        self._notify_watcher(number)
        if self.exchange.delivery.shows_calls:
            if number in self.progress.untrusted_steps:
                await self.mark((number,), self.recorder.steps)
            await say(call_events.build_finish_event(self.recorder.steps[number], self.parts.in_use.judge.catalog))
        elif self.exchange.delivery.events:
            await say(chunks.build_event({**_build_call_fields(planned, place), "type": "tool.finished"}))

    def note_refused(self, planned: Sequence[PlannedCall]) -> None:
        """Trace each of these calls that is refused."""
        trace, tracer = self.exchange.execution.trace, self.parts.tracer
        if trace is None or tracer is None:
            return
        for one in planned:
            if one.refusal is not None:
                send_refused_span(one, tracer, parent=trace.context, run_id=self.exchange.id)

    async def report_refusal(self, number: int, say: Say) -> None:
        """Report that a call does not run, and why, to a client that is shown calls."""
        self._notify_watcher(number)
        if self.exchange.delivery.shows_calls:
            await say(call_events.build_finish_event(self.recorder.steps[number], self.parts.in_use.judge.catalog))

    def _notify_watcher(self, number: int) -> None:
        if (watcher := self.exchange.job.watcher) is not None:
            watcher.report_result(self.recorder.steps[number])


def _build_call_fields(planned: PlannedCall, place: int) -> Json:
    return {"tool": planned.call.tool, "call_id": planned.call.id, "number": place}
