"""Approvals: the question to a person about a call, the wait for the answer, and the effect of a decision.

1. The record in the store is the only truth: a decision is stored before any code acts on it.
2. A decision holds for exactly the call that was shown: tool, arguments, definition, policy and caller.
3. A person who decides has the scope `approve` in the tenant of the run. For all others the approval does not exist.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import orjson

from gateway.approvals.answer_options import AnswerOptions, Hindrance
from gateway.approvals.decision import (
    PARTLY,
    DecisionEffect,
    apply_edit,
    build_decision_write,
    build_event,
    build_not_found_error,
    check_same_call,
    compute_decision_effect,
    describe_decision,
    join_other_names,
)
from gateway.approvals.decision import Decision as Decision
from gateway.approvals.decision import Remember as Remember
from gateway.approvals.view import build_approval_view
from gateway.contracts.caller import Caller
from gateway.contracts.canonical_json import call_sha256
from gateway.contracts.check_word import generate_approval_id, generate_secret
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange, Resume
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.endorsements import select_counted_endorsements
from gateway.contracts.storage.journal import (
    APPROVED,
    Approval,
    DecisionResult,
    DecisionWrite,
    Grant,
    Journal,
    StoredStep,
)
from gateway.runs.event_feed import EventFeed
from gateway.runs.request_snapshot import dump_client, load_exchange
from gateway.tools.decision_rules import DecisionRules
from gateway.tools.grants import REMEMBERED_S, ApprovalBinding, Judges, RememberedDecisions

#: Approvals of one run: it has at most a thousand calls, and each may need a new approval.
OF_RUN = 10_000
#: Approvals that expire in one transaction: each takes about 0.1 ms.
EXPIRED_AT_ONCE = 100
#: How often a decision is made anew because others approve the same call at the same moment.
TRIES = 20


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
        self.remembered = RememberedDecisions(store, judges, clock=clock, kept_s=remembered_s)
        self._store = store
        self._feed = feed
        self._judges = judges
        self._counters = counters
        self._clock = clock
        self._expires_s = expires_s
        self._on_reject = on_reject
        self._deciders = deciders
        self._console_url = console_url

    @property
    def rules(self) -> DecisionRules:
        """Return the rules for approvers, of the configuration in use."""
        return self._judges.rules

    def issue(self, step: StoredStep, exchange: Exchange) -> Approval:
        """Build an approval for a step; nothing is written."""
        binding = self._judges.find_binding(step.tool) or ApprovalBinding("", "")
        now_s = self._clock.time()
        return Approval(
            id=generate_approval_id(),
            tenant=step.tenant,
            caller=exchange.caller.name,
            conversation=exchange.conversation,
            user=exchange.user,
            client=dump_client(exchange),
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
            secret=generate_secret(),
            required=self.rules.count_required(step.tool, step.risk_level),
        )

    async def find_pending_duplicate(self, step: StoredStep, exchange: Exchange) -> Approval | None:
        """Return the approval of another run that waits for the same call.

        It is of the same caller, end user and conversation. None: there is none.
        """
        pending = await self._store.list_approvals(
            tenant=step.tenant,
            state="pending",
            sha256=step.sha256,
            caller=exchange.caller.name,
            conversation=exchange.conversation,
            limit=OF_RUN,
        )
        alike = (one for one in pending if has_same_requester(one, exchange) and one.expires_s > self._clock.time())
        return next((one for one in alike if one.run_id != step.run_id), None)

    def holds(self, approval: Approval) -> bool:
        """Return whether the approval is still bound to the present tool and policy."""
        return self._judges.find_binding(approval.tool) == ApprovalBinding(
            approval.definition_sha256, approval.policy_sha256
        )

    async def find_obstacle(self, approval: Approval) -> str | None:
        """Return why a waiting call cannot run any more, even if approved; None: it can. Raises StoreError.

        A missing tool does not count as an obstacle: its service may come back.
        """
        if approval.client is not None:
            run = await self._store.run(approval.run_id, tenant=approval.tenant)
            reason = (
                None if run is None else self._judges.find_client_refusal(load_exchange(Resume(run), approvals="turn"))
            )
            if reason is not None:
                return reason
        if self.holds(approval) or self._judges.find_binding(approval.tool) is None:
            return None
        verdict = self._judges.judge_edit(approval.tool, orjson.loads(approval.arguments))
        return verdict.reason if verdict.decision in ("deny", "error") else None

    def build_answer_options(
        self, caller: Caller, asked: Sequence[Approval], *, user: str | None = None, held_s: float | None = None
    ) -> AnswerOptions:
        """Return how this caller, for this end user, can answer a question about these approvals.

        `held_s`: its answer stays open for so long.
        """
        tenant, hindrance = caller.tenant, self._find_hindrance(caller, asked, user)
        deciders = [] if hindrance is None else [name for name in self._deciders(tenant) if name != caller.name]
        return AnswerOptions(
            held_s=held_s, hindrance=hindrance, tenant=tenant, deciders=deciders, console_url=self._console_url
        )

    def _find_hindrance(self, caller: Caller, asked: Sequence[Approval], user: str | None) -> Hindrance | None:
        """Return why this caller may not approve these calls; None: it may."""
        if "approve" not in caller.scopes:
            return "scope"
        if any(self.rules.refuses(one, key=caller.name, user=user) for one in asked):
            return "own"
        given = (each for one in asked for each in select_counted_endorsements(one))
        return "approved" if any(each.has_endorser(caller.name, user) for each in given) else None

    async def index_by_step(self, run_id: str, *, tenant: str) -> Mapping[int, Approval]:
        """Return the approvals of a run by the step that they are for, the latest of each."""
        return {one.step: one for one in await self._store.list_approvals(tenant=tenant, run_id=run_id, limit=OF_RUN)}

    async def wait(self, steps: Sequence[int], *, run_id: str, tenant: str, abort: bool) -> None:
        """Wait until the approval of the first of `steps` is decided.

        With `abort`, a decision against any of their calls ends the wait too. The wait ends at once when the process is
        about to stop.
        """
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        async with self._feed.subscribe(lambda _: news.set(), run_id=run_id, parting=news.set):
            while not self._feed.leaving:
                approvals = await self.index_by_step(run_id, tenant=tenant)
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
        """End the approvals whose time is over, and return them. Other writers take their turns between portions."""
        expired: list[Approval] = []
        while some := await self._store.expire(now_s=self._clock.time(), limit=EXPIRED_AT_ONCE):
            self._counters.count("approvals", len(some), decision="expired", via="time")
            self._feed.nudge()
            expired += some
        return expired

    async def expire_due(self, *, tenant: str) -> None:
        """End the approvals whose time is over if a tenant has one, so that no page shows it as pending."""
        first = await self._store.list_approvals(tenant=tenant, state="pending", order="urgency", limit=1)
        if first and first[0].expires_s <= self._clock.time():
            await self.expire()

    async def find(self, approval_id: str, *, caller: Caller) -> Approval:
        """Return an approval that the caller may decide on.

        Raises GatewayError (approval_not_found, scope_missing) and StoreError.
        """
        approval = await self._store.get_approval(approval_id, tenant=caller.tenant)
        if approval is None:
            raise build_not_found_error()
        if "approve" not in caller.scopes:
            who = join_other_names(self._deciders(caller.tenant), besides=caller.name)
            raise GatewayError(
                "scope_missing",
                f"Your key may not decide on approvals: it needs the scope 'approve'. Keys of its tenant that have it: "
                f"{who}. Their holders decide with `gateway approvals approve {approval_id}`.",
            )
        return approval

    async def decide(self, approval_id: str, wish: Decision, *, caller: Caller) -> Approval:
        """Decide on one approval; see `rule_all`."""
        return (await self.decide_all([(approval_id, wish)], caller=caller))[0]

    async def decide_all(self, wishes: Sequence[tuple[str, Decision]], *, caller: Caller) -> Sequence[Approval]:
        """Decide on different approvals, all of them or none, and return them as they are afterwards.

        An approval that several must approve stays pending until they have. Where a rejection ends its run, approvals
        of the same run count as rejected with it. Raises GatewayError (scope_missing, own_call, approval_not_found,
        approved_already, approval_expired, decision_conflict, approval_stale, edit_refused) and StoreError: nothing is
        decided then.
        """
        for _ in range(TRIES):
            ruled = await self._make_decisions(wishes, caller)
            if all(how != "moved" for how, _ in ruled):
                break
        self._feed.nudge()
        after = [_require_decided(how, approval, alone=len(ruled) == 1) for how, approval in ruled]
        if len(after) == 1:  # another person may have decided since it was read
            check_same_call(after[0], wishes[0][1])
        for (how, _), approval in zip(ruled, after, strict=True):
            if how == "decided":
                decision = PARTLY if approval.state == "pending" else approval.state
                self._counters.count("approvals", decision=decision, via=wishes[0][1].via)
                if decision != PARTLY:
                    self._counters.observe("approval_wait_seconds", max(self._clock.time() - approval.created_s, 0.0))
        return after

    async def _make_decisions(
        self, wishes: Sequence[tuple[str, Decision]], caller: Caller
    ) -> Sequence[tuple[DecisionResult, Approval | None]]:
        """Make decisions on the approvals as they are now. Raises GatewayError, StoreError."""
        wanted = [(await self.find(approval_id, caller=caller), wish) for approval_id, wish in wishes]
        for approval, wish in wanted:
            self._check_decider(approval, wish, caller)
        edits = [apply_edit(approval, wish, self._judges) for approval, wish in wanted]
        for approval, wish in wanted:
            if wish.approve and approval.state == "pending":
                if (obstacle := await self.find_obstacle(approval)) is not None:
                    raise GatewayError("approval_stale", f"This call cannot run any more; reject it. {obstacle}")
                if not self.holds(approval):
                    raise await self._reissue(approval)
        writes = [
            self._build_decision_write(approval, wish, edit, caller)
            for (approval, wish), edit in zip(wanted, edits, strict=True)
        ]
        rejected = [one for one in wanted if not one[1].approve and await self.ends_run(one[0])]
        if rejected:
            ended = {approval.run_id for approval, _ in rejected}
            writes = [
                write
                for (approval, wish), write in zip(wanted, writes, strict=True)
                if not (wish.approve and approval.run_id in ended)
            ]
            others = await self._build_sibling_rejections(
                [approval for approval, _ in rejected], rejected[0][1], caller
            )
            writes[0] = replace(writes[0], others=others)
        return await self._store.decide_approvals(writes)

    async def ends_run(self, approval: Approval) -> bool:
        """Return whether a rejection ends its run: not if the client is shown each call. Raises StoreError."""
        if self._on_reject == "continue":
            return False
        run = await self._store.run(approval.run_id, tenant=approval.tenant)
        return run is None or not orjson.loads(run.request or b"{}").get("shows_calls", False)

    def _check_decider(self, approval: Approval, wish: Decision, caller: Caller) -> None:
        """Check that another key began the run of a call that is to be approved. Raises GatewayError (own_call)."""
        if wish.approve and self.rules.refuses(approval, key=caller.name, user=wish.user):
            yours = "Your key" if approval.caller == caller.name else f"The user {approval.user!r}"
            others = join_other_names(self._deciders(caller.tenant), besides=caller.name)
            raise GatewayError(
                "own_call",
                f"{yours} began the run of this call, and `approvals.self` is `refuse`: another person must approve "
                f"it. Other keys of the tenant that may: {others}. To withdraw the call, reject it.",
            )

    async def _build_sibling_rejections(
        self, rejected: Sequence[Approval], wish: Decision, caller: Caller
    ) -> tuple[DecisionWrite, ...]:
        """Return the rejections of all other pending approvals of the rejected runs.

        A rejection ends its run: from the same moment on, the others can be approved no more.
        """
        writes: list[DecisionWrite] = []
        for first in {approval.run_id: approval for approval in rejected}.values():
            together = replace(wish, comment=f"rejected together with {first.id}")
            others = (await self.index_by_step(first.run_id, tenant=first.tenant)).values()
            writes += [
                self._build_decision_write(other, together, None, caller)
                for other in others
                if other.state == "pending"
            ]
        return tuple(writes)

    def _build_decision_write(
        self, approval: Approval, wish: Decision, edited: str | None, caller: Caller
    ) -> DecisionWrite:
        now_s = self._clock.time()
        outcome = compute_decision_effect(approval, wish, edited, caller, now_s=now_s)
        grant = self._build_grant(approval, wish, outcome, caller)
        return build_decision_write(approval, wish, outcome, caller, now_s=now_s, grant=grant)

    def _build_grant(self, approval: Approval, wish: Decision, outcome: DecisionEffect, caller: Caller) -> Grant | None:
        """Return the grant that a decision makes, if any. Raises GatewayError (invalid_field)."""
        if not wish.approve or wish.remember == "once":
            return None
        edited, of_run = outcome.edited, (outcome.remember if outcome.is_settled else wish.remember) == "run"
        sha256 = approval.sha256 if edited is None else call_sha256(approval.tool, edited)
        grant = self.remembered.build_grant(approval, of_run=of_run, sha256=sha256, by=caller)
        return grant if outcome.is_settled and outcome.remember != "once" else None

    async def _reissue(self, stale: Approval) -> GatewayError:
        """Issue a new approval for a call whose tool or policy has changed, and return the error that names it."""
        binding = self._judges.find_binding(stale.tool)
        if binding is None:
            return GatewayError(
                "approval_stale", "The tool of this approval is not there: decide when it is back, or reject it."
            )
        verdict = self._judges.judge_edit(stale.tool, orjson.loads(stale.arguments))
        now_s, asks = self._clock.time(), verdict.decision == "confirm"
        steps = await self._store.list_steps(stale.run_id, tenant=stale.tenant)
        level = next((step.risk_level for step in steps if step.number == stale.step), None)
        fresh = replace(
            stale,
            id=generate_approval_id(),
            secret=generate_secret(),
            basis=verdict.basis if asks else stale.basis,
            rule=verdict.rule if asks else stale.rule,
            reason=verdict.reason if asks else stale.reason,
            definition_sha256=binding.definition,
            policy_sha256=binding.policy,
            created_s=now_s,
            expires_s=now_s + self._expires_s,
            required=self.rules.count_required(stale.tool, level),
            given="[]",
            edited=None,
        )
        event = build_event(fresh, "approval.required", build_approval_view(fresh), now_s=now_s)
        if not await self._store.reissue(stale.id, fresh, events=[event]):  # another request has reissued it
            fresh = (await self.index_by_step(stale.run_id, tenant=stale.tenant))[stale.step]
        self._feed.nudge()
        return GatewayError(
            "approval_stale", f"The tool or the policy has changed since: decide on {fresh.id} instead."
        )


def has_same_requester(approval: Approval, exchange: Exchange) -> bool:
    """Return whether the approval is of the caller, the end user and the conversation of this exchange."""
    whose = (exchange.caller.name, exchange.conversation, exchange.user)
    return (approval.caller, approval.conversation, approval.user) == whose


def was_rejected(approval: Approval) -> bool:
    """Return whether the call was rejected, cancelled or expired."""
    return approval.state not in APPROVED and approval.state != "pending"


def _require_decided(how: DecisionResult, approval: Approval | None, *, alone: bool) -> Approval:
    """Return the approval that was decided on.

    Raises GatewayError for one that prevents the decision on all of them.
    """
    if approval is None:
        raise build_not_found_error()
    name = "This approval" if alone else f"Nothing was decided: the approval {approval.id}"
    if how == "moved":
        raise GatewayError("decision_conflict", f"{name} is being decided by others: look at it again.")
    if how == "expired":
        raise GatewayError("approval_expired", f"{name} was not decided in time; ask again for what it was.")
    if how == "other":
        raise GatewayError("decision_conflict", f"{name} {describe_decision(approval)}.")
    return approval
