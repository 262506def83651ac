"""One group of calls, from its judgement to its results: people are asked where they have a say, calls run in order.

What happens is written down before and behind each effect (`gateway.runs.record`), so that another process can go on
from any point of it. Only here do calls run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict

import orjson

from gateway.contracts import Chunk, Counters, Exchange, Json
from gateway.journal import Approval, ApprovalState, RunState, StepState
from gateway.pipeline.resume import Progress
from gateway.runs import chunks, spoken
from gateway.runs.budget import Budget
from gateway.runs.desk import Desk, against, approval_view
from gateway.runs.live import EFFECTS, WAITS
from gateway.runs.loop import Finish, Planned, Told
from gateway.runs.record import Record
from gateway.tools.judge import Judge
from gateway.tools.runner import Runner
from gateway.wire import approval_text as texts
from gateway.wire.phrases import last_user_text
from gateway.wire.shown import Language

log = logging.getLogger("gateway")

#: How long a tool may go on whose client is gone, or whose gateway stops.
TOOL_GRACE_S = 2.0
_LEFT = "Not run: the request was cancelled before it began."
_NOT_RUN = "Not run: a person rejected this call."
_GONE = "Not run: the service of this tool is not running any more. Say so, and go on without it."
_CHANGED = "Not run: the definition of this tool has changed just now. Call it again if it is still what you want."


#: How a step ends with its approval, where that is not cancelled.
_ENDED: Mapping[ApprovalState, StepState] = {"rejected": "rejected", "expired": "expired"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """How people are asked (config: approvals)."""

    inline_wait_s: float
    on_reject: Literal["abort", "continue"]


@dataclass(slots=True, kw_only=True)
class Round:
    """The calls `planned` of one answer, under their `numbers` in the record.

    `told` grows to one result for each call, unless `finish` ends the turn before; `state` is what becomes of the run
    then. `done` are results that are on record already.
    """

    judge: Judge
    runner: Runner
    desk: Desk
    counters: Counters
    consent: Consent
    exchange: Exchange
    record: Record
    budget: Budget
    limit_chars: int
    planned: Sequence[Planned]
    numbers: Sequence[int]
    done: Mapping[int, Told]
    progress: Progress
    say: Callable[[Chunk], Awaitable[None]]  # to the client: events, and marks of `gateway.runs.live`
    told: list[Told] = field(default_factory=list)
    finish: Finish | None = None
    state: RunState = "completed"
    context: Json = field(default_factory=dict)
    _granted: set[int] = field(default_factory=set)
    _approvals: Mapping[int, Approval] = field(default_factory=dict)

    async def run(self) -> None:
        """Runs the calls, and says so: events for the client, and the mark before the first effect.

        Raises GatewayError.
        """
        await self._ask()
        for i, number in enumerate(self.numbers):
            if self._is_over():
                return
            planned = self.planned[i]
            told = self.done.get(number) or _refused(planned)
            approval: Approval | None = None
            if told is None and planned.needs_approval and number not in self._granted:
                await self._wait(i)
                if self._is_over():
                    return
                approval = self._approvals[number]
                told = self._rejected(i, approval)
            if told is None:
                planned = planned if approval is None else _as_approved(planned, approval)
                if self.exchange.events:
                    await self.say(chunks.event({**_named(planned, i), "type": "tool.started"}))
                entry = self.judge.catalog.find(planned.call.tool, self.exchange)
                if entry is not None and self.runner.taints(entry, planned.call, self.exchange):
                    self.progress.strangers.add(number)  # from the start: nobody knows how much of a call comes back
                await self._start(number, approval)
                await self.say({EFFECTS: True})
                told = await self._run(number, planned, edited=approval is not None and approval.edited is not None)
                if self.exchange.events:
                    await self.say(chunks.event({**_named(planned, i), "type": "tool.finished"}))
            self.told.append(told)
        await self.record.refused()

    async def _ask(self) -> None:
        """Asks for every call of the group that needs it, at once."""
        await self._examine()
        held = [i for i, p in enumerate(self.planned) if p.needs_approval and self.numbers[i] not in self.done]
        for i in held:
            if self.record.steps[self.numbers[i]].approval_id is None:  # else somebody is asked already
                await self._refuse_or_grant(i)
        held = [i for i in held if self.planned[i].needs_approval and self.numbers[i] not in self._granted]
        if not held:
            return
        self._approvals = await self.desk.of_run(self.exchange.id, tenant=self.exchange.caller.tenant)
        lacking = [self.numbers[i] for i in held if self._lacks(self.numbers[i])]
        if lacking and self.exchange.approvals == "reject":
            step = self.record.steps[lacking[0]]
            arguments = orjson.loads(step.arguments)
            shown = texts.Shown(id="", tool=step.tool, arguments=arguments, reason=step.reason, rule=step.rule)
            self._end("rejected", texts.refused_here_text(shown, **self._told_so_far()))
            await self.record.refused()
            return
        await self._issue(lacking)
        await self.say({EFFECTS: True})

    async def _examine(self) -> None:
        """Has engines look at what is to run because it was judged to be harmless."""
        for i, number in enumerate(self.numbers):
            examined = (
                self.planned[i] if number in self.done else await self.judge.examined(self.planned[i], self.exchange)
            )
            if examined is not self.planned[i]:
                self._replan(i, examined)
                self.record.judged(number, examined)

    async def _refuse_or_grant(self, i: int) -> None:
        """Nobody is asked about a call that its tool would refuse, nor about one that was approved for good."""
        number, planned = self.numbers[i], self.planned[i]
        entry = self.judge.catalog.find(planned.call.tool, self.exchange)
        refusal = None if entry is None else await entry.source.refusal(planned.call, self.exchange)
        if refusal is not None:
            self._refuse(i, "refused", f"Error: {refusal}")
            return
        grant = (
            None
            if self.progress.asked_for
            else await self.desk.remembered.grant(self.record.steps[number], self.exchange)
        )
        if grant is not None:
            self._granted.add(number)
            self.record.granted(number, grant.id, grant.granted_by)

    def _lacks(self, number: int) -> bool:
        """Whether a step still has to be asked for, or anew because tool or policy have changed since."""
        approval = self._approvals.get(number)
        if approval is None:
            return True
        if approval.state == "approved" and not self.desk.holds(approval):
            self.record.outdated(approval)
            return True
        return False

    async def _issue(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        issued = [self.desk.issue(self.record.steps[number], self.exchange) for number in numbers]
        await self.record.ask(issued, [approval_view(approval) for approval in issued])
        self._approvals = {**self._approvals, **{approval.step: approval for approval in issued}}

    async def _wait(self, i: int) -> None:
        """Until the call is decided on; `finish` is set when the turn ends before, or because of it."""
        awaited = [n for n in self.numbers[i:] if n in self._approvals and n not in self.done]
        waiting = [self._approvals[n] for n in awaited if self._approvals[n].state == "pending"]
        try:
            if self.exchange.approvals == "hold" and self._approvals[awaited[0]].state == "pending":
                await self.say({WAITS: True})
                for chunk in self._telling(waiting):
                    await self.say(chunk)
            pending = await self._until_decided(awaited)
            await self.say({WAITS: False})
        except asyncio.CancelledError:
            await self.record.park("awaiting_approval")
            raise
        for approval in (self._approvals[n] for n in awaited):
            if approval.state != "pending" and any(approval.id == w.id for w in waiting):
                told = {"type": "approval.resolved", "approval_id": approval.id, "state": approval.state}
                await self.say(chunks.event({**told, "run_id": self.exchange.id}))
        if pending:
            self._park(awaited)
        elif (said_no := self._decided_against(awaited)) is not None:
            self._abort(said_no, awaited)

    def _telling(self, waiting: Sequence[Approval]) -> Iterator[Json]:
        """What a client is told that is held: a line for people, an event for programs."""
        shown = [spoken.shown(approval) for approval in waiting]
        delta = {"reasoning_content": texts.waiting_text(shown, language=self._language)}
        yield chunks.delta(delta)
        told = {"type": "approval.required", "approvals": [approval_view(approval) for approval in waiting]}
        yield chunks.event({**told, "run_id": self.exchange.id})

    async def _until_decided(self, awaited: Sequence[int]) -> bool:
        """Whether the first of them is still not decided when the time to wait here is over."""
        run_id, tenant = self.exchange.id, self.exchange.caller.tenant
        try:
            if self.exchange.approvals == "hold":
                with self.budget.paused():
                    async with asyncio.timeout(self.consent.inline_wait_s) as limit:
                        await self.desk.wait(awaited, run_id=run_id, tenant=tenant, abort=self._aborts)
        except TimeoutError:
            if not limit.expired():
                raise
        self._approvals = await self.desk.of_run(run_id, tenant=tenant)
        return self._approvals[awaited[0]].state == "pending" and not self._decided_against(awaited)

    @property
    def _aborts(self) -> bool:
        return self.consent.on_reject == "abort"

    def _decided_against(self, awaited: Sequence[int]) -> Approval | None:
        """What ends the turn: any rejection, unless the run goes on after those."""
        said_no = (approval for approval in map(self._approvals.__getitem__, awaited) if against(approval))
        if self._aborts:
            return next(said_no, None)
        first = self._approvals[awaited[0]]
        return first if against(first) and first.state != "rejected" else None

    def _park(self, awaited: Sequence[int]) -> None:
        """The turn ends; the run waits in the store."""
        pending = [self._approvals[n] for n in awaited if self._approvals[n].state == "pending"]
        text = spoken.turn_text(pending, language=self._language)
        self.context = spoken.waiting(self.exchange.id, pending)
        self._end("awaiting_approval", text)

    def _abort(self, decided: Approval, awaited: Sequence[int]) -> None:
        """A person, the clock or an operator said no: nothing of what is left of the group runs."""
        ran = self._told_so_far()
        if decided.state == "rejected":
            self._end("rejected", texts.rejected_text(decided.tool, decided.comment, **ran))
        elif decided.state == "expired":
            self._end("expired", texts.expired_text(decided.tool, **ran))
        else:
            self._end("cancelled", texts.cancelled_text(decided.tool, **ran))
        for number in awaited:
            approval = self._approvals[number]
            self.record.ended(number, _ENDED.get(approval.state, "cancelled"), None)
            if approval.state == "approved":
                self.record.outdated(approval)

    def _refuse(self, i: int, state: StepState, text: str) -> None:
        """The call will not run, and the model is told so, whatever it wanted to come of the call."""
        self._replan(i, replace(self.planned[i], refusal=text))
        self.record.ended(self.numbers[i], state, text)

    def _replan(self, i: int, planned: Planned) -> None:
        self.planned = [*self.planned[:i], planned, *self.planned[i + 1 :]]

    def _rejected(self, i: int, approval: Approval) -> Told | None:
        """What the model is told of a rejected call when the run goes on (`on_reject: continue`)."""
        if approval.state != "rejected":
            return None
        text = _NOT_RUN if approval.comment is None else f"{_NOT_RUN} They say: {approval.comment}"
        self._refuse(i, "rejected", text)
        return Told(text, text, ok=False)

    async def _start(self, number: int, approval: Approval | None) -> None:
        """The last thing before a call runs. Raises GatewayError: then it must not."""
        if self.budget.left_s <= 0:
            raise self.budget.expiry()
        try:
            await self.record.start(number, approval=approval, tainted=number in self.progress.strangers)
        except asyncio.CancelledError:
            await self.record.finish(number, Told(_LEFT, _LEFT, ok=False), ok=False)
            raise

    async def _run(self, number: int, planned: Planned, *, edited: bool) -> Told:
        """Runs one call that may run. One that is cancelled gets a little time to end by itself."""
        entry = self.judge.catalog.find(planned.call.tool, self.exchange)
        if entry is None or (entry.changed and planned.verdict.decision == "auto"):  # services come and go
            text = _GONE if entry is None else _CHANGED
            await self.record.finish(number, gone := Told(text, text, ok=False), ok=False)
            return gone
        call = replace(planned.call, harmless=planned.is_harmless)
        work = asyncio.get_running_loop().create_task(
            self.runner.run(entry, call, self.exchange, limit_chars=self.limit_chars)
        )
        try:
            told = await self.budget.within(asyncio.shield(work))
        except BaseException as error:
            grace_s = TOOL_GRACE_S if isinstance(error, asyncio.CancelledError) else 0.0
            await _to_its_end(self._stop(number, work, grace_s=grace_s, idempotent=entry.spec.idempotent))
            raise
        if edited:
            arguments = orjson.dumps(planned.call.arguments).decode()
            told = replace(told, shown=f"[A person changed the arguments to {arguments}]\n{told.shown}")
        await self.record.finish(number, told, ok=told.ok)
        return told

    async def _stop(self, number: int, work: "asyncio.Task[Told]", *, grace_s: float, idempotent: bool) -> None:
        """Ends a call, and writes down what is known of it."""
        if grace_s:
            await asyncio.wait({work}, timeout=grace_s)
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled() and work.exception() is None:
            told = work.result()
            await self.record.finish(number, told, ok=told.ok)
        elif idempotent:
            self.record.again(number, None)
        else:
            self.counters.count("unknown_outcomes", tool=self.record.steps[number].tool)
            await self.record.finish(number, None, ok=False)

    def _end(self, state: RunState, text: str) -> None:
        self.state, self.finish = state, Finish(text, "stop")

    def _is_over(self) -> bool:
        return self.finish is not None

    @property
    def _language(self) -> Language:
        return texts.language_of(last_user_text(self.exchange.body["messages"]))

    def _told_so_far(self) -> "_ToldSoFar":
        ran = sum(step.started_s is not None for step in self.record.steps)
        return {"ran_before": ran, "language": self._language}


class _ToldSoFar(TypedDict):
    ran_before: int
    language: Language


async def _to_its_end(work: Coroutine[object, object, None]) -> None:
    """Waits, however often we are cancelled meanwhile: the reason to stop is the first one."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


def _refused(planned: Planned) -> Told | None:
    return None if planned.refusal is None else Told(planned.refusal, planned.refusal, ok=False)


def _as_approved(planned: Planned, approval: Approval) -> Planned:
    """The call that was approved, which is not always the one that the model asked for."""
    if approval.edited is None:
        return planned
    return replace(planned, call=replace(planned.call, arguments=orjson.loads(approval.edited)))


def _named(planned: Planned, number: int) -> Json:
    return {"tool": planned.call.tool, "call_id": planned.call.id, "number": number}
