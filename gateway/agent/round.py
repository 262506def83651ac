"""One group of calls, from its judgement to its results: people approve calls if required, and the calls run in order.

1. Each call is checked again right before it runs, whatever cleared it: by the tools, definitions, policy, taint and
   grants of that moment, and by its engine. A call that is refused then does not run. A call that needs approval then
   waits for it.
2. Each event is written down before and behind each effect (`gateway.runs.recorder`). So another process can continue
   from any point.

Theory of operation. A round begins with judged calls, and between that judgement and the effect anything may change: a
person takes an hour, the policy is reloaded, an earlier call of the round taints the run. So nothing that was decided
holds forever. `_carry_call` is a loop that ends in a result, a refusal or the end of the turn, and starts over whenever
the basis of its decision has changed.

For all calls, once: `_prepare` looks at each. If a call needs approval, it refuses what the tool itself would refuse
and applies grants. It requests all missing approvals in one line of the record. So a person sees the whole group at
once.
Then, for each call in order:

1. *Refused?* Its result is the refusal.
2. *Wait.* If it needs approval, `_wait_for_decision` waits, or parks the run and ends the turn. A rejection ends
   the turn, or becomes the call's result (`on_reject: continue`).
3. *Look again.* `_ask([i])` judges it by the present configuration. That may refuse it, or ask for a new approval.
4. *Run.* `_execute_call` runs it only if it is cleared by the same approval as in step 2 and by the present look. The
   effect checks that once more (`stands`), right before it starts. If not, the loop starts over, at most `LOOKS` times.

State of a look:
- `_get_judgement_inputs`: what a judgement depends on. `_looked` is the sight of the last look. If both are equal, the
  judgement holds and the call is not judged again.
- `_moments` counts calls that ran and waits for people. It is a part of the sight, so each of them makes earlier looks
  void. While it is 0 in a new round, the store is not read again.
- `_approvals` is the last reading of the store, by step. `_granted` are the steps that a grant clears at present.
- `finish` set means that the turn is over. Check `_is_over` after each await that can set it.

A reopened round (`reopened`) was begun by another process or request. It reads its approvals first, waits a little for
services that are still starting, and takes results from `done`.

Dangers.
- An approval holds for exact arguments and an exact definition. `_get_approved` returns the call with a person's edit.
  Judge and run that call, never the model's.
- An await between the last look and the effect lets a reload slip in. That is why `stands` is passed down. A report to
  a client that does not read may wait for a minute, so what the store knows is read again behind it (`is_granted`).
- A client that leaves while it waits: the cancellation parks the run, so that the question stays open.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypedDict

import orjson

from gateway.agent.call_execution import Effects
from gateway.agent.client_notifications import Speech
from gateway.agent.loop import Finish
from gateway.agent.run_context import RunContext
from gateway.approvals import chat_texts as spoken
from gateway.approvals import texts
from gateway.approvals.approvals import was_rejected
from gateway.approvals.escaping import Language
from gateway.approvals.view import build_approval_view
from gateway.contracts.calls import CallOutcome, PlannedCall
from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.journal import Approval, ApprovalState, AskedAlreadyError, Grant, RunState, StepState
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.runs.lease import build_lost_error
from gateway.runs.live_run import WAITS
from gateway.tools.call_evaluator import Judge
from gateway.tools.catalog import CatalogEntry

#: How often a call is looked at whose tool or policy changes each time before it runs.
LOOKS = 10
_UNSTEADY = "Not run: the tool or the policy kept changing. Call it again if it is still what you want."
_NOT_RUN = "Not run: a person rejected this call."

#: How a step ends with its approval, where that is not cancelled.
_ENDED: Mapping[ApprovalState, StepState] = {"rejected": "rejected", "expired": "expired"}


@dataclass(slots=True, kw_only=True)
class Round:
    """The calls `planned` of one answer, under their `numbers` in the record.

    `outcome` grows to one result for each call, unless `finish` ends the turn before. `state` is then the state of the
    run. `done` are results that are already in the record.
    """

    run: RunContext
    effects: Effects
    speech: Speech
    planned: Sequence[PlannedCall]
    numbers: Sequence[int]
    done: Mapping[int, CallOutcome]
    reopened: bool = False  # another process, or another request, began this round
    outcome: list[CallOutcome] = field(default_factory=list)
    finish: Finish | None = None
    state: RunState = "completed"
    context: Json = field(default_factory=dict)
    _granted: set[int] = field(default_factory=set)
    _approvals: Mapping[int, Approval] = field(default_factory=dict)
    _looked: "dict[int, _Sight]" = field(default_factory=dict)
    _moments: int = 0  # calls that ran, and waits for people: whatever was known before may be otherwise since

    async def carry_out(self) -> None:
        """Run the calls and report them: events for the client, and the mark before the first effect.

        Raises GatewayError.
        """
        if self.reopened:
            pairs = zip(self.planned, self.numbers, strict=True)
            await self.run.parts.in_use.wait_until_started(
                [p.call.tool for p, number in pairs if number not in self.done]
            )
        await self._prepare(range(len(self.numbers)))
        for i, number in enumerate(self.numbers):
            if self._is_finished():
                return
            outcome = self.done.get(number) or await self._carry_call(i)
            if outcome is not None:
                self.outcome.append(outcome)
                if self.planned[i].refusal is not None and number not in self.done:
                    await self.run.reports.report_refusal(number, self.speech.emit_round)
        await self.run.record.record_refusals()

    async def _carry_call(self, i: int) -> CallOutcome | None:
        """Carry one call from its decision, if it needs one, to its result. Return None if the turn ends instead."""
        looks = 0
        while (refused := _find_refusal(self.planned[i])) is None:
            approval: Approval | None = None
            looks += 1
            if looks > LOOKS:
                self._refuse(i, "refused", _UNSTEADY)
                continue
            if self._awaits_decision(i):
                await self._wait_for_decision(i)
                if self._is_finished():
                    return None
                approval = self._approvals[self.numbers[i]]
                if (outcome := self._build_rejection_result(i, approval)) is not None:
                    return outcome
                if approval.state != "approved":  # what it cleared is somebody else's, or was done
                    raise build_lost_error(self.run.exchange.id)
            await self._prepare([i])
            if self._is_finished():
                return None
            if self._is_cleared(i) and (outcome := await self._execute_call(i, approval)) is not None:
                return outcome
        return refused

    def _needs_approval(self, i: int) -> bool:
        """Return whether the call needs a person's approval that no grant gives."""
        return self.planned[i].needs_approval and self.numbers[i] not in self._granted

    def _is_cleared(self, i: int) -> bool:
        number = self.numbers[i]
        return self.planned[i].refusal is None and (
            not self._needs_approval(i) or self._approvals[number].state == "approved"
        )

    async def _execute_call(self, i: int, approval: Approval | None) -> CallOutcome | None:
        """Return the result of a cleared call, or None if its clearance changed before it could run."""
        number = self.numbers[i]
        if approval is not None and self._approvals[number].id != approval.id:
            return None
        planned, equipment = self._get_approved(i), self.run.parts.in_use.current()
        entry = equipment.judge.catalog.find(planned.call.tool, self._get_judging_exchange(i))
        if entry is None or self._looked.get(number) != self._get_judgement_inputs(i):
            return None
        await self.run.reports.report_start(number, planned, approval, self.speech.emit_round, place=i)
        if self.run.reports.may_wait:  # while its client read nothing, its user may have said something
            await self.run.progress.load_ask_before_flag(self.run.parts.approvals.remembered, self.run.exchange)
        outcome = await self.effects.run(
            number,
            planned,
            entry,
            equipment=equipment,
            approval=approval,
            stands=lambda: self._looked.get(number) == self._get_judgement_inputs(i),
            is_granted=lambda: self._is_granted(i),
            begun=self.speech.mark_effects,
        )
        if outcome is not None:
            self._moments += 1
            await self.run.reports.report_finish(number, planned, self.speech.emit_round, place=i)
        return outcome

    # The look at what may run.

    async def _rejudge(self, i: int) -> None:
        """Evaluate a call again by the present configuration, unless nothing has changed since."""
        number = self.numbers[i]
        progress = self.run.progress
        if self._moments:
            await progress.load_ask_before_flag(self.run.parts.approvals.remembered, self.run.exchange)
            await self._is_granted(i)
        if self._looked.get(number) == (sight := self._get_judgement_inputs(i)):
            return
        was = self._get_approved(i)
        now = await self.run.parts.in_use.judge.judge_again(
            was, self._get_judging_exchange(i), tainted=progress.is_call_tainted(number), asked_for=progress.asked_for
        )
        self._looked[number] = sight
        if (now.verdict, now.refusal) != (was.verdict, was.refusal):
            self._replan(i, replace(self.planned[i], verdict=now.verdict, refusal=now.refusal))
            self.run.record.record_verdict(number, self.planned[i])
            self.run.reports.note_refused([self.planned[i]])
            approval = self._approvals.get(number)
            if now.refusal is not None and approval is not None and approval.state in ("pending", "approved"):
                self.run.record.cancel_approval(approval)

    def _get_judgement_inputs(self, i: int) -> "_Sight":
        """Return everything that the verdict on a call depends on, and the number of events so far."""
        judge = self.run.parts.in_use.judge
        planned = self._get_approved(i)
        entry = judge.catalog.find(planned.call.tool, self._get_judging_exchange(i))
        tainted = self.run.progress.is_call_tainted(self.numbers[i])
        return judge, entry, planned, tainted, self.run.progress.asked_for, self._moments

    def _get_judging_exchange(self, i: int) -> Exchange:
        """Return the exchange in which a call is judged. A call that a person approved runs in any case."""
        approval = self._approvals.get(self.numbers[i])
        return self.run.narrowed.exchange if approval is None or approval.state != "approved" else self.run.exchange

    def _get_approved(self, i: int) -> PlannedCall:
        """Return the call that was approved, which is not always the call of the model."""
        planned, approval = self.planned[i], self._approvals.get(self.numbers[i])
        if approval is None or approval.edited is None:
            return planned
        return replace(planned, call=replace(planned.call, arguments=orjson.loads(approval.edited)))

    async def _prepare(self, indices: Sequence[int]) -> None:
        """Evaluate these calls, and request all missing approvals with one write."""
        if (self.reopened or self._moments) and any(map(self._needs_approval, indices)):
            await self._read_approvals()
        open_ = [i for i in indices if self.numbers[i] not in self.done and self.planned[i].refusal is None]
        for i in open_:
            await self._rejudge(i)
        for i in open_:
            if (
                self._needs_approval(i) and self.numbers[i] not in self._approvals
            ):  # else its approval is pending already
                await self._refuse_or_grant(i)
        held = [i for i in open_ if self._needs_approval(i)]
        lacking = [self.numbers[i] for i in held if self._lacks_approval(self.numbers[i])]
        if lacking and self.run.narrowed.exchange.steering.approvals == "reject":
            step = self.run.record.steps[lacking[0]]
            arguments = orjson.loads(step.arguments)
            shown = texts.ApprovalDescription(
                id="", tool=step.tool, arguments=arguments, reason=step.reason, rule=step.rule
            )
            self._end_turn("rejected", texts.format_refused_here_text(shown, **self._get_text_facts()))
            await self.run.record.record_refusals()
            return
        if lacking and (other := await self._request_approvals(lacking)) is not None:
            self.context = other[1]
            self._end_turn("completed" if self.run.exchange.job.workflow is None else "cancelled", other[0])
            await self.run.record.record_refusals()
        elif lacking:
            self.speech.mark_effects()

    async def _refuse_or_grant(self, i: int) -> None:
        """Refuse a call that its tool would refuse, or clear it by a grant: neither needs a person."""
        entry = self.run.parts.in_use.judge.catalog.find(self.planned[i].call.tool, self.run.exchange)
        refusal = None if entry is None else await entry.source.refusal(self.planned[i].call, self.run.exchange)
        if refusal is not None:
            self._refuse(i, "refused", f"Error: {refusal}")
            self.run.reports.note_refused([self.planned[i]])
        elif (grant := await self._find_grant(i)) is not None:
            self._granted.add(self.numbers[i])
            self.run.record.record_grant(self.numbers[i], grant.id, grant.granted_by)

    async def _is_granted(self, i: int) -> bool:
        """Return False if the grant that cleared the call is revoked, so that it needs approval."""
        number = self.numbers[i]
        if number not in self._granted or await self._find_grant(i) is not None:
            return True
        self._granted.discard(number)
        return False

    async def _find_grant(self, i: int) -> Grant | None:
        """Return a grant that clears the call now, or None; also None if the user approves each call."""
        step = self.run.record.steps[self.numbers[i]]
        if self.run.progress.asked_for or self.run.narrowed.exchange.steering.asks_first(step.tool):
            return None
        return await self.run.parts.approvals.remembered.grant(step, self.run.exchange)

    async def _read_approvals(self) -> None:
        """Read the approvals. An executing one is approved again if its call may run once more."""
        found = await self.run.parts.approvals.index_by_step(
            self.run.exchange.id, tenant=self.run.exchange.caller.tenant
        )
        await self.run.narrowed.read(found)
        self._approvals = {
            number: replace(approval, state="approved")
            if approval.state == "executing" and self.run.record.steps[number].state == "requested"
            else approval
            for number, approval in found.items()
        }

    def _lacks_approval(self, number: int) -> bool:
        """Return whether a step still needs its question, or a new one because tool or policy have changed."""
        approval = self._approvals.get(number)
        return approval is None or (approval.state == "approved" and not self.run.parts.approvals.holds(approval))

    async def _request_approvals(self, numbers: Sequence[int]) -> tuple[str, Json] | None:
        """Request approvals of these calls, or return the question of another run that waits for one of them."""
        while (
            other := await self.run.questions.find_pending_question([self.run.record.steps[n] for n in numbers])
        ) is None:
            with suppress(AskedAlreadyError):  # another request asks at this moment
                await self._issue_approvals(numbers)
                return None
        return other

    async def _issue_approvals(self, numbers: Sequence[int]) -> None:
        """Store a new approval for each of these steps, in place of an outdated one. Raises GatewayError."""
        issued = [
            self.run.parts.approvals.issue(self.run.record.steps[number], self.run.exchange) for number in numbers
        ]
        views, outdated = (
            [*map(build_approval_view, issued)],
            [self._approvals[n] for n in numbers if n in self._approvals],
        )
        await self.run.record.record_approval(issued, views, instead_of=outdated, once=self.run.questions.are_shared)
        self._approvals = {**self._approvals, **{approval.step: approval for approval in issued}}

    async def _wait_for_decision(self, i: int) -> None:
        """Wait until the call is decided. `finish` is set if the turn ends before that, or because of it."""
        awaited = [self.numbers[k] for k in range(i, len(self.numbers)) if self._awaits_decision(k)]
        asked = self._list_pending(awaited)
        if self._moments:  # they may have been decided while other calls ran
            await self._read_approvals()
        self._moments += 1
        waiting = self._list_pending(awaited)
        try:
            if self.run.exchange.steering.approvals == "hold" and self._approvals[awaited[0]].state == "pending":
                await self.speech.emit_round({WAITS: True})
                await self.run.questions.send_held_question(
                    waiting, self.speech.emit_round, held_s=self.run.consent.inline_wait_s
                )
            pending = await self._wait_until_decided(awaited)
            await self.speech.emit_round({WAITS: False})
            self.run.questions.trace_decisions([self._approvals[number] for number in awaited])
        except asyncio.CancelledError:
            await self._park_question()
            await self.run.record.park("awaiting_approval")
            raise
        for approval in (self._approvals[n] for n in awaited):
            if approval.state != "pending" and any(approval.id == one.id for one in (*asked, *waiting)):
                outcome = {"type": "approval.resolved", "approval_id": approval.id, "state": approval.state}
                await self.speech.emit_round(chunks.build_event({**outcome, "run_id": self.run.exchange.id}))
        if pending:
            self._park(awaited)
        elif (said_no := self._find_rejection(awaited)) is not None:
            self._abort(said_no, awaited)

    async def _park_question(self) -> None:
        """Park the hidden turns of an answer that its user stops: a chat program goes on from the text it has."""
        if (before := self.speech.text_before_question) is not None:
            await self.run.hidden.park(self.run.loop.hidden, steps=self.run.record.steps, replayed_text=before)

    def _list_pending(self, awaited: Sequence[int]) -> list[Approval]:
        return [self._approvals[number] for number in awaited if self._approvals[number].state == "pending"]

    def _awaits_decision(self, i: int) -> bool:
        number = self.numbers[i]
        return number in self._approvals and number not in self.done and self._needs_approval(i)

    async def _wait_until_decided(self, awaited: Sequence[int]) -> bool:
        """Wait for a decision on these steps; return whether the first is still undecided afterwards."""
        run_id, tenant = self.run.exchange.id, self.run.exchange.caller.tenant
        try:
            if self.run.exchange.steering.approvals == "hold":
                with self.run.budget.pause():
                    async with asyncio.timeout(self.run.consent.inline_wait_s) as limit:
                        await self.run.parts.approvals.wait(
                            awaited, run_id=run_id, tenant=tenant, abort=self._must_abort
                        )
        except TimeoutError:
            if not limit.expired():
                raise
        await self._read_approvals()
        return self._approvals[awaited[0]].state == "pending" and not self._find_rejection(awaited)

    @property
    def _must_abort(self) -> bool:
        return self.run.consent.on_reject == "abort"

    def _find_rejection(self, awaited: Sequence[int]) -> Approval | None:
        """Return the decision that ends the turn: any rejection, unless the run continues after one."""
        said_no = (approval for approval in map(self._approvals.__getitem__, awaited) if was_rejected(approval))
        if self._must_abort:
            return next(said_no, None)
        first = self._approvals[awaited[0]]
        return first if was_rejected(first) and first.state != "rejected" else None

    def _park(self, awaited: Sequence[int]) -> None:
        """End the turn; the run waits in the store."""
        pending = self._list_pending(awaited)
        self.context = spoken.build_waiting_facts(self.run.exchange.id, pending)
        self._end_turn("awaiting_approval", self.run.questions.format_ending(pending))

    def _abort(self, decided: Approval, awaited: Sequence[int]) -> None:
        """End the turn after a rejection, an expiry or a cancellation: the rest of the group does not run."""
        ran = self._get_text_facts()
        if decided.state == "rejected":
            self._end_turn("rejected", texts.format_rejected_text(decided.tool, decided.comment, **ran))
        elif decided.state == "expired":
            self._end_turn("expired", texts.format_expired_text(decided.tool, **ran))
        else:
            self._end_turn("cancelled", texts.format_cancelled_text(decided.tool, **ran))
        for number in awaited:
            approval = self._approvals[number]
            self.run.record.record_skipped_call(number, _ENDED.get(approval.state, "cancelled"), None)

    def _refuse(self, i: int, state: StepState, text: str) -> None:
        """Refuse the call, and give the model the reason, even if the call was to end the turn."""
        self._replan(i, replace(self.planned[i], refusal=text))
        self.run.record.record_skipped_call(self.numbers[i], state, text)

    def _replan(self, i: int, planned: PlannedCall) -> None:
        self.planned = [*self.planned[:i], planned, *self.planned[i + 1 :]]

    def _build_rejection_result(self, i: int, approval: Approval) -> CallOutcome | None:
        """Return the result of a rejected call for the model if the run continues (`on_reject: continue`)."""
        if approval.state != "rejected":
            return None
        text = _NOT_RUN if approval.comment is None else f"{_NOT_RUN} They say: {approval.comment}"
        self._refuse(i, "rejected", text)
        return CallOutcome(text, text, ok=False)

    def _end_turn(self, state: RunState, text: str) -> None:
        self.state, self.finish = state, Finish(text, "stop")

    def _is_finished(self) -> bool:
        return self.finish is not None

    def _get_text_facts(self) -> "_TextFacts":
        ran = sum(step.started_s is not None for step in self.run.record.steps)
        return {"ran_before": ran, "language": self.run.questions.language}


#: See `Round._get_judgement_inputs`.
_Sight: TypeAlias = tuple[Judge, CatalogEntry | None, PlannedCall, bool, bool, int]


class _TextFacts(TypedDict):
    ran_before: int
    language: Language


def _find_refusal(planned: PlannedCall) -> CallOutcome | None:
    return None if planned.refusal is None else CallOutcome(planned.refusal, planned.refusal, ok=False)
