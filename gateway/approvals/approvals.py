"""Approvals: the question to a person about a call, the wait for the answer, and the effect of a decision.

1. The record in the store is the only truth: a decision is stored before any code acts on it.
2. A decision holds for exactly the call that was shown: tool, arguments, definition, policy and caller.
3. A person who decides has the scope `approve` in the tenant of the run. For all others the approval does not exist.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import orjson

from gateway.approvals.check_word import new_approval_id, new_secret
from gateway.approvals.texts import Answering
from gateway.approvals.view import approval_view
from gateway.contracts.caller import Caller
from gateway.contracts.canonical import call_sha256, canonical
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.journal import (
    APPROVED,
    Approval,
    AuditLine,
    DecisionResult,
    DecisionWrite,
    Grant,
    Journal,
    RunEvent,
    StoredStep,
    Via,
)
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.store import Json
from gateway.errors import GatewayError
from gateway.runs.event_feed import EventFeed
from gateway.runs.snapshot import client_of, exchange_of
from gateway.tools.remembered import REMEMBERED_S, Binding, Judges, Remembered

#: Approvals of one run: it has at most a thousand calls, and each may be asked for anew.
OF_RUN = 10_000
Remember = Literal["once", "run", "conversation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision on an approval.

    `sha256`, where given, is the hash of the call that was shown to them. `facts` go into its event.
    """

    approve: bool
    via: Via
    sha256: str | None = None
    arguments: Json | None = None
    comment: str | None = None
    remember: Remember = "once"
    facts: Json = field(default_factory=dict)


class Approvals:
    """The approvals of one configuration. `judges` gives the judges of the one in use."""

    def __init__(
        self,
        store: Journal,
        feed: EventFeed,
        judges: Judges,
        *,
        counters: Counters,
        clock: Clock,
        expires_s: float,
        on_reject: Literal["abort", "continue"],
        remembered_s: float = REMEMBERED_S,
        deciders: Callable[[str], Sequence[str]] = lambda _: (),
        console_url: str | None = None,
    ) -> None:
        """Set the services and settings. `deciders` returns the names of the keys of a tenant that may decide.

        `console_url` is the URL of the console for links, None where it has none.
        """
        self.remembered = Remembered(store, judges, clock=clock, kept_s=remembered_s)
        self._store = store
        self._feed = feed
        self._judges = judges
        self._counters = counters
        self._clock = clock
        self._expires_s = expires_s
        self._on_reject = on_reject
        self._deciders = deciders
        self._console_url = console_url

    def issue(self, step: StoredStep, exchange: Exchange) -> Approval:
        """Build an approval for a step; nothing is written."""
        binding = self._judges.binding(step.tool) or Binding("", "")
        now_s = self._clock.time()
        return Approval(
            id=new_approval_id(),
            tenant=step.tenant,
            caller=exchange.caller.name,
            conversation=exchange.conversation,
            user=exchange.user,
            client=client_of(exchange),
            run_id=step.run_id,
            step=step.number,
            tool=step.tool,
            arguments=step.arguments,
            sha256=step.sha256,
            definition_sha256=binding.definition,
            policy_sha256=binding.policy,
            basis=step.basis,
            rule=step.rule,
            reason=step.reason,
            state="pending",
            created_s=now_s,
            expires_s=now_s + self._expires_s,
            secret=new_secret(),
        )

    async def pending_for(self, step: StoredStep, exchange: Exchange) -> Approval | None:
        """Return the approval of another run that waits for the same call.

        It is of the same caller, end user and conversation. None: there is none.
        """
        pending = await self._store.approvals(tenant=step.tenant, state="pending", sha256=step.sha256, limit=OF_RUN)
        alike = (one for one in pending if is_asked_by(one, exchange) and one.expires_s > self._clock.time())
        return next((one for one in alike if one.run_id != step.run_id), None)

    def holds(self, approval: Approval) -> bool:
        """Return whether tool and policy are still those that the approval is bound to."""
        return self._judges.binding(approval.tool) == Binding(approval.definition_sha256, approval.policy_sha256)

    async def obstacle(self, approval: Approval) -> str | None:
        """Return why a call that waits cannot run any more, whoever approves it; None: it can. Raises StoreError.

        A tool that is not there is no obstacle: its service may come back.
        """
        if approval.client is not None:
            run = await self._store.run(approval.run_id, tenant=approval.tenant)
            reason = None if run is None else self._judges.barred(exchange_of(Resume(run), approvals="turn"))
            if reason is not None:
                return reason
        if self.holds(approval) or self._judges.binding(approval.tool) is None:
            return None
        verdict = self._judges.edited(approval.tool, orjson.loads(approval.arguments))
        return verdict.reason if verdict.decision in ("deny", "error") else None

    def answering(self, caller: Caller, *, held_s: float | None = None) -> Answering:
        """Return how this caller can answer a question. `held_s`: its answer stays open for so long."""
        may, tenant = "approve" in caller.scopes, caller.tenant
        deciders = () if may else self._deciders(tenant)
        return Answering(held_s=held_s, may_decide=may, tenant=tenant, deciders=deciders, console_url=self._console_url)

    async def of_run(self, run_id: str, *, tenant: str) -> Mapping[int, Approval]:
        """Return the approvals of a run by the step that they are for, the latest of each."""
        return {one.step: one for one in await self._store.approvals(tenant=tenant, run_id=run_id, limit=OF_RUN)}

    async def wait(self, steps: Sequence[int], *, run_id: str, tenant: str, abort: bool) -> None:
        """Wait until the approval of the first of `steps` is decided.

        With `abort`, a decision against any of their calls ends the wait too. The wait ends at once when the process is
        about to stop.
        """
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        async with self._feed.listening(lambda _: news.set(), run_id=run_id, parting=news.set):
            while not self._feed.leaving:
                approvals = await self.of_run(run_id, tenant=tenant)
                awaited = [approvals[step] for step in steps]
                if awaited[0].state != "pending" or (abort and any(map(was_rejected, awaited))):
                    return
                pending = (approval for approval in awaited if approval.state == "pending")
                left_s = min(approval.expires_s for approval in pending) - self._clock.time()
                if left_s <= 0:
                    await self.expire()
                    continue
                timer = loop.call_later(left_s, news.set)
                try:
                    await news.wait()
                finally:
                    timer.cancel()
                news.clear()

    async def expire(self) -> Sequence[Approval]:
        """End the approvals whose time is over, and return them."""
        expired = await self._store.expire(now_s=self._clock.time())
        for _ in expired:
            self._counters.count("approvals", decision="expired", via="time")
        if expired:
            self._feed.nudge()
        return expired

    async def find(self, approval_id: str, *, caller: Caller) -> Approval:
        """Return an approval that the caller may decide on.

        Raises GatewayError (approval_not_found, scope_missing) and StoreError.
        """
        approval = await self._store.approval(approval_id, tenant=caller.tenant)
        if approval is None:
            raise not_found()
        if "approve" not in caller.scopes:
            who = ", ".join(map(repr, self._deciders(caller.tenant))) or "none so far"
            raise GatewayError(
                "scope_missing",
                f"Your key may not decide on approvals: it needs the scope 'approve'. Keys of its tenant that have it: "
                f"{who}. Their holders decide with `gateway approvals approve {approval_id}`.",
            )
        return approval

    async def decide(self, approval_id: str, wish: Decision, *, caller: Caller) -> Approval:
        """Decide on one approval; see `rule_all`."""
        return (await self.rule_all([(approval_id, wish)], caller=caller))[0]

    async def rule_all(self, wishes: Sequence[tuple[str, Decision]], *, caller: Caller) -> Sequence[Approval]:
        """Decide on different approvals, all of them or none, and return them as they are afterwards.

        Where a rejection ends its run, approvals of the same run count as rejected with it. Raises GatewayError
        (scope_missing, approval_not_found, approval_expired, decision_conflict, approval_stale, edit_refused) and
        StoreError: nothing is decided then.
        """
        wanted = [(await self.find(approval_id, caller=caller), wish) for approval_id, wish in wishes]
        edits = [self._edited(approval, wish) for approval, wish in wanted]
        for approval, wish in wanted:
            if wish.approve and approval.state == "pending":
                if (obstacle := await self.obstacle(approval)) is not None:
                    raise GatewayError("approval_stale", f"This call cannot run any more; reject it. {obstacle}")
                if not self.holds(approval):
                    raise await self._reissue(approval)
        writes = [
            self._decision_write(approval, wish, edit, caller)
            for (approval, wish), edit in zip(wanted, edits, strict=True)
        ]
        if self._on_reject == "abort" and (rejected := [one for one in wanted if not one[1].approve]):
            ended = {approval.run_id for approval, _ in rejected}
            writes = [
                write
                for (approval, wish), write in zip(wanted, writes, strict=True)
                if not (wish.approve and approval.run_id in ended)
            ]
            others = await self._rejected_with([approval for approval, _ in rejected], rejected[0][1], caller)
            writes[0] = replace(writes[0], others=others)
        ruled = await self._store.rule_all(writes)
        self._feed.nudge()
        after = [_ruled(how, approval, alone=len(ruled) == 1) for how, approval in ruled]
        for (how, _), approval in zip(ruled, after, strict=True):
            if how == "decided":
                self._counters.count("approvals", decision=approval.state, via=wanted[0][1].via)
                self._counters.observe("approval_wait_seconds", max(self._clock.time() - approval.created_s, 0.0))
        return after

    async def _rejected_with(
        self, rejected: Sequence[Approval], wish: Decision, caller: Caller
    ) -> tuple[DecisionWrite, ...]:
        """Return the rejections of all other pending approvals of the rejected runs.

        A rejection ends its run: from the same moment on, the others can be approved no more.
        """
        writes: list[DecisionWrite] = []
        for first in {approval.run_id: approval for approval in rejected}.values():
            together = replace(wish, comment=f"rejected together with {first.id}")
            others = (await self.of_run(first.run_id, tenant=first.tenant)).values()
            writes += [
                self._decision_write(other, together, None, caller) for other in others if other.state == "pending"
            ]
        return tuple(writes)

    def _edited(self, approval: Approval, wish: Decision) -> str | None:
        """Return a person's new arguments as canonical JSON. Raises GatewayError (approval_stale, edit_refused)."""
        if wish.sha256 is not None and wish.sha256 != approval.sha256:
            raise GatewayError(
                "approval_stale",
                "The hash is of another call than the one that waits: look at the approval again.",
                param="sha256",
            )
        if not wish.approve or wish.arguments is None:
            return None
        edited = canonical(wish.arguments)
        if edited == approval.arguments:
            return None
        verdict = self._judges.edited(approval.tool, wish.arguments)
        if verdict.decision in ("deny", "error"):
            raise GatewayError("edit_refused", f"The edited call cannot run: {verdict.reason}.", param="arguments")
        return edited

    def _decision_write(self, approval: Approval, wish: Decision, edited: str | None, caller: Caller) -> DecisionWrite:
        now_s = self._clock.time()
        sha256 = approval.sha256 if edited is None else call_sha256(approval.tool, edited)
        state = "approved" if wish.approve else "rejected"
        facts = {"run_id": approval.run_id, "approval_id": approval.id, "state": state, "via": wish.via, **wish.facts}
        line = AuditLine(
            tenant=approval.tenant,
            caller=approval.caller,
            run_id=approval.run_id,
            step=approval.step,
            event="decision",
            tool=approval.tool,
            sha256=sha256,
            decision=state,
            basis=approval.basis,
            rule=approval.rule,
            by=caller.name,
            via=wish.via,
            created_s=now_s,
        )
        return DecisionWrite(
            approval_id=approval.id,
            tenant=approval.tenant,
            approve=wish.approve,
            by=caller.name,
            via=wish.via,
            now_s=now_s,
            comment=wish.comment,
            edited=edited,
            remember=wish.remember,
            grant=self._grant(approval, wish, sha256, caller),
            events=(_event(approval, "approval.resolved", facts, now_s=now_s),),
            audit=(line,),
        )

    def _grant(self, approval: Approval, wish: Decision, sha256: str, caller: Caller) -> Grant | None:
        if not wish.approve or wish.remember == "once":
            return None
        return self.remembered.granted(approval, of_run=wish.remember == "run", sha256=sha256, by=caller)

    async def _reissue(self, stale: Approval) -> GatewayError:
        """Issue a new approval for a call whose tool or policy has changed, and return the error that names it."""
        binding = self._judges.binding(stale.tool)
        if binding is None:
            return GatewayError(
                "approval_stale", "The tool of this approval is not there: decide when it is back, or reject it."
            )
        verdict = self._judges.edited(stale.tool, orjson.loads(stale.arguments))
        now_s, asks = self._clock.time(), verdict.decision == "confirm"
        fresh = replace(
            stale,
            id=new_approval_id(),
            secret=new_secret(),
            basis=verdict.basis if asks else stale.basis,
            rule=verdict.rule if asks else stale.rule,
            reason=verdict.reason if asks else stale.reason,
            definition_sha256=binding.definition,
            policy_sha256=binding.policy,
            created_s=now_s,
            expires_s=now_s + self._expires_s,
        )
        event = _event(fresh, "approval.required", approval_view(fresh), now_s=now_s)
        if not await self._store.reissue(stale.id, fresh, events=[event]):  # somebody else has asked anew
            fresh = (await self.of_run(stale.run_id, tenant=stale.tenant))[stale.step]
        self._feed.nudge()
        return GatewayError(
            "approval_stale", f"The tool or the policy has changed since: decide on {fresh.id} instead."
        )


def is_asked_by(approval: Approval, exchange: Exchange) -> bool:
    """Return whether the approval is of the caller, the end user and the conversation of this exchange."""
    whose = (exchange.caller.name, exchange.conversation, exchange.user)
    return (approval.caller, approval.conversation, approval.user) == whose


def was_rejected(approval: Approval) -> bool:
    """Return whether the call was rejected, cancelled or expired."""
    return approval.state not in APPROVED and approval.state != "pending"


def _ruled(how: DecisionResult, approval: Approval | None, *, alone: bool) -> Approval:
    """Return the approval that was decided on.

    Raises GatewayError for one that prevents the decision on all of them.
    """
    if approval is None:
        raise not_found()
    name = "This approval" if alone else f"Nothing was decided: the approval {approval.id}"
    if how == "expired":
        raise GatewayError("approval_expired", f"{name} was not decided in time; ask again for what it was.")
    if how == "other":
        raise GatewayError("decision_conflict", f"{name} is {approval.state} already.")
    return approval


def not_found() -> GatewayError:
    """Return the error of a missing approval. An approval of another tenant gets the same answer."""
    return GatewayError("approval_not_found", "There is no such approval.")


def _event(approval: Approval, kind: str, facts: Json, *, now_s: float) -> RunEvent:
    data = orjson.dumps(facts)
    return RunEvent(tenant=approval.tenant, run_id=approval.run_id, type=kind, data=data, created_s=now_s)
