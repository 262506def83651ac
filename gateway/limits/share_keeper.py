"""The keeper of a gateway's shares: its first worker, which agrees with other gateways on who may use what of a limit.

1. Workers count for themselves within the shares (share_client.py), and ask for more where these are used up.
2. The keeper calls the store for what workers request, and at each beat for what the gateway no longer needs. A share
   is lowered here before it is lowered there, and grows there before it grows here. So the shares that gateways use are
   never more than the limit, whenever a call is lost, comes twice or late (`QuotaStore.share_quota`).
3. If the store does not answer for the length of a lease, requests are refused. The store then forgets the share,
   later than any request that was admitted by it has left its window.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from gateway.aio.clock import wait_until_set
from gateway.aio.cooperative import Work, run_cooperatively
from gateway.contracts.plugin import Clock
from gateway.contracts.storage.journal import ConflictError
from gateway.contracts.storage.quota import QUOTA_LEASE_S, QuotaAnswer, QuotaStore, ShareGrant
from gateway.contracts.storage.store import StoreError
from gateway.limits.budgets import Budgets
from gateway.limits.counter_registry import Meters
from gateway.limits.share_client import ShareClient
from gateway.limits.share_memory import ALIVE, FAILING, LEASE, MICROSECONDS, TURN
from gateway.limits.share_rules import KeptRule, Occasion, PlannedShare, RuleList

log = logging.getLogger("gateway")

#: How often a gateway gives back what others lack, and how often what it does not need.
BEAT_S: Final = 0.25
ROUTINE_S: Final = 1.0
#: A call of the store may take so long, and a start makes so many until there is an answer.
CALL_S: Final = 2.0
FIRST_CALLS: Final = 3


class ShareKeeper:
    """Keeps the shares of one gateway, in its first worker."""

    def __init__(
        self, store: QuotaStore, meters: Meters, budgets: Budgets, *, shares: ShareClient, clock: Clock
    ) -> None:
        self._store = store
        self._meters = meters
        self._shares = shares
        self._header = shares.memory.header
        self._clock = clock
        self._rules = RuleList(meters, budgets, shares=shares, clock=clock)
        self._asks = shares.memory.copy_asks()
        self._gateways = 1
        self._routine_s = self._called_s = float("-inf")
        self._has_failed = False

    async def report_first(self) -> None:
        """Report this gateway to the store, and have a lease. A start waits for that, some seconds at most."""
        for _ in range(FIRST_CALLS):
            if await self._call([]):
                return
            await asyncio.sleep(BEAT_S)

    async def run(self) -> None:
        """Keep the shares."""
        while True:
            await self.exchange_shares()
            await wait_until_set(self._shares.has_asks, self._find_pause_s())
            self._shares.has_asks.clear()

    async def close(self) -> None:
        """Give back all that is not used."""
        now_s = self._clock.monotonic()
        self._rules.lower_to_use(now_s)
        rest = [request for rule in self._rules.found.values() for request in rule.list_rest(now_s)]
        self._rules.released.update({request.name: request for request in rest})
        if self._rules.released:
            await self._call([])

    async def exchange_shares(self) -> None:
        """Request from the store what workers need, and give back what they do not."""
        now_s = self._clock.monotonic()
        self._header[ALIVE] = int(now_s * MICROSECONDS)
        is_routine = now_s - self._routine_s >= ROUTINE_S
        if is_routine:
            self._routine_s = now_s
            await run_cooperatively(self._rules.follow_all())
        self._take_asks(now_s)
        if not (has_lease := self._shares.has_lease(now_s)):
            self._rules.lower_to_use(now_s)  # the store may have forgotten these
        occasion = Occasion(now_s, self._gateways, is_routine)
        due = [rule for rule in self._rules.found.values() if rule.is_due(occasion)]
        planned = await run_cooperatively(_plan_changes(due, occasion))
        if not has_lease and any(rule.has_demand for rule in due):
            has_lease = await self._call(planned)
        elif planned or self._rules.released or self._owes_call(now_s):
            await self._call(planned)
        if has_lease:  # else those wait until it is there, or known not to come
            self._answer_satisfied(due, planned)

    def _answer_satisfied(self, due: Sequence[KeptRule], planned: Sequence[PlannedShare]) -> None:
        """Answer those that need no more than is here by now."""
        asking = {one.rule for one in planned}
        satisfied = [rule for rule in due if rule.has_demand and rule not in asking]
        for rule in satisfied:
            rule.wake_waiters()
        if satisfied:
            self._shares.wake_answered()

    def _owes_call(self, now_s: float) -> bool:
        """Return whether the store has to hear of this gateway: it has shares, and perhaps others lack some."""
        return now_s - self._called_s >= BEAT_S and any(rule.has_share for rule in self._rules.found.values())

    def _find_pause_s(self) -> float:
        """Return how long there is nothing to do, unless a worker needs more."""
        now_s, rules = self._clock.monotonic(), self._rules.found.values()
        if any(rule.may_give(now_s) for rule in rules):
            return 0.0
        pause_s = BEAT_S if self._has_failed or any(rule.has_share for rule in rules) else ROUTINE_S
        return min((max(rule.demand.again_s - now_s, 0.0) for rule in rules if rule.has_demand), default=pause_s)

    def _take_asks(self, now_s: float) -> None:
        """Take what workers ask for."""
        asks = self._shares.memory.copy_asks()
        for number, (requests, tokens) in self._shares.memory.list_asks(self._asks, asks).items():
            rule = self._rules.update_rule(number)
            rule.demand.add(requests, tokens, now_s)
        self._asks = asks

    async def _call(self, planned: Sequence[PlannedShare]) -> bool:
        """Call the store, and take its answer. Return whether there was one."""
        sent_s, released = self._clock.monotonic(), list(self._rules.released.values())
        self._header[TURN] += 1
        requests = [*(one.request for one in planned), *released]
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._store.share_quota(
                    self._meters.gateway, requests, turn=self._header[TURN], now_s=self._clock.time()
                )
        except (StoreError, ConflictError, TimeoutError) as error:
            self._note_failure(error)
            return False
        self._called_s = sent_s
        self._header[LEASE] = int((sent_s + QUOTA_LEASE_S) * MICROSECONDS)
        self._header[FAILING] = 0
        if self._has_failed:
            self._has_failed = False
            log.warning("limits that gateways share are counted again: the store answers")
        for request in released:
            del self._rules.released[request.name]
        self._apply_answer(planned, answer)
        return True

    def _apply_answer(self, planned: Sequence[PlannedShare], answer: QuotaAnswer) -> None:
        now_s, by_rule = self._clock.monotonic(), defaultdict[KeptRule, list[tuple[PlannedShare, ShareGrant]]](list)
        self._gateways = max(answer.gateways, 1)
        for one, grant in zip(planned, answer.grants, strict=False):  # behind them are those released
            by_rule[one.rule].append((one, grant))
        for rule, granted in by_rule.items():
            rule.take_grant(granted, now_s)
        self._rules.note_lacking(answer.lacking, now_s)
        self._shares.wake_answered()

    def _note_failure(self, error: Exception) -> None:
        """Let requests wait while the lease lasts. Then they are refused."""
        now_s = self._clock.monotonic()
        for rule in self._rules.found.values():
            rule.demand.again_s = now_s + BEAT_S
        if self._shares.has_lease(now_s):
            return
        self._header[FAILING] = 1
        if not self._has_failed:
            self._has_failed = True
            log.error(
                "the store in which gateways share their limits does not answer: requests that have limits are "
                "refused until it does: %s",
                str(error) or type(error).__name__,
            )
        for rule in self._rules.found.values():
            if rule.has_demand:
                rule.wake_waiters()
        self._shares.wake_answered()


def _plan_changes(due: Sequence[KeptRule], occasion: Occasion) -> Work[list[PlannedShare]]:
    """Return what is to be requested and given back."""
    planned: list[PlannedShare] = []
    for rule in due:
        planned += rule.plan_requests(occasion)
        yield
    return planned
