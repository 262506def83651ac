"""An upstream: its endpoints, which of them takes the next request, and the requests that wait for a place.

Every upstream is a group, also one with a single endpoint and no rules, which then only names its pool (`plain`). The
passthrough lane and the context lane use the same groups, so that breakers, places and budget count for both.

How a lane sends a request: make one `Tries` (attempts.py) for the client's request, and get each endpoint from it.

    tries = Tries(group, twice=True, sticky=b"conversation", model="gpt-5")
    while True:
        member = tries.begin() or await group.place(tries)  # raises GatewayError: no endpoint can take it
        ...send the request over member.pool (of upstream tries.group, which may be a fallback)...
        if the head of the answer is good:
            tries.answered()                    # from now on it goes to the client
            ...
            tries.ended(failed=False)           # True: it was cut; None: the client left, or it proves nothing
            break
        if not tries.again("503"):              # or "connect", "reset", "timeout"; gives the place back
            break                               # the client gets this answer, or this error
        await asyncio.sleep(tries.pause_s)      # mostly 0

Invariants: a place that `begin` or `wait_for_place` took is given back by `end` or `end_failed_try`, once. The queue is
first come, first served, and no request passes another. Nothing here does I/O, or reads a clock but the one that is
passed in.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.contracts.errors import GatewayError
from gateway.telemetry.metrics import UpstreamTally
from gateway.upstream.balance import Balance, choose
from gateway.upstream.breaker import BreakerRules, Probe
from gateway.upstream.budget import RetryBudget
from gateway.upstream.endpoint_state import Member, Obstacle
from gateway.upstream.queue import BUSY_RETRY_S, PlaceQueue, QueueRules, QueueWaiter
from gateway.upstream.recent_callers import CallerId, Callers
from gateway.upstream.shared_timer import Waits
from gateway.upstream.status_verdict import ELSEWHERE, FAILING, NOTHING_DONE, SUSPECT

log = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """When a request is sent again: `tries` of them at most, for the reasons in `on`, within the budget `part`.

    Reasons are `connect`, `reset`, `timeout` and status codes, as texts. `body_bytes` is the longest request body that
    is kept for it.
    """

    tries: int = 3
    part: float = 0.2
    on: frozenset[str] = frozenset(("connect", "reset", "timeout", "429", "502", "503", "504", "529", *ELSEWHERE))
    body_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """The rules of an upstream. None switches one off. `hedge_s` is the wait before a second request, in seconds."""

    balance: Balance = "weighted"
    breaker: BreakerRules | None = None
    retry: RetryRules | None = None
    hedge_s: float | None = None
    queue: QueueRules | None = None


class Checks(Protocol):
    """Active health checks of the endpoints (health.py)."""

    def sweep(self, now_s: float) -> None: ...
    def close(self) -> None: ...


class Group:
    """The endpoints of one upstream. Used on one event loop only. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        *,
        tally: UpstreamTally,
        clock: Callable[[], float],
        rules: GroupRules | None = None,
    ) -> None:
        self.name = name
        self.members = tuple(members)
        self.rules = rules or GroupRules()
        self.tally = tally
        self.clock = clock
        #: The upstreams that take its requests while it cannot, in their order.
        self.fallbacks: tuple[Group, ...] = ()
        self.checks: Checks | None = None
        self.budget = RetryBudget(self.rules.retry.part if self.rules.retry is not None else 0.0, clock=clock)
        self.callers = Callers()
        #: The requests whose endpoint is slow by `hedge_s`; None: no route hedges.
        self.hedges = Waits(self.rules.hedge_s) if self.rules.hedge_s is not None else None
        self._retried = NOTHING_DONE | FAILING | (self.rules.retry.on if self.rules.retry is not None else frozenset())
        self.queue = PlaceQueue(self.rules.queue)

    @property
    def plain(self) -> bool:
        """Return whether the upstream is one endpoint without limits, rules or fallbacks."""
        rules = self.rules
        alone = len(self.members) == 1 and self.members[0].most is None and not self.fallbacks and self.checks is None
        return alone and rules.breaker is None and rules.retry is None and rules.hedge_s is None

    @property
    def has_others(self) -> bool:
        """Return whether another endpoint, here or at a fallback, may answer in place of one."""
        return len(self.members) > 1 or bool(self.fallbacks)

    def is_telling(self, status: str) -> bool:
        """Return whether an answer with this status is inspected before a client gets it."""
        return status in self._retried or (status in SUSPECT and self.has_others)

    @property
    def has_places(self) -> bool:
        """Return whether one of its endpoints bounds the requests under way."""
        return any(member.most is not None for member in self.members)

    @property
    def kept_bytes(self) -> int:
        """Return the longest request body that is held or kept; without retries as by default."""
        return (self.rules.retry or RetryRules()).body_bytes

    @property
    def has_room(self) -> bool:
        """Return whether another request may wait in the queue."""
        return self.queue.has_room

    @property
    def queue_length(self) -> int:
        """Return how many requests wait for a place."""
        return len(self.queue)

    @property
    def has_key(self) -> bool:
        """Return whether the gateway has a key for it; if not, the client's credential is sent."""
        return self.members[0].pool.endpoint.api_key is not None

    def list_candidates(
        self, model: str | None, *, without: Collection[Member] = (), whole: bool = True
    ) -> list[Member]:
        """Return the endpoints that may take a request for `model` now. `whole`: its client has sent all of it."""
        now_s = self.clock()
        return [
            member
            for member in self.members
            if member.find_obstacle(now_s, whole=whole) is None
            and member not in without
            and (not member.models or member.serves(model))
        ]

    def choose(
        self,
        sticky: bytes,
        model: str | None,
        *,
        without: Collection[Member] = (),
        whole: bool = True,
        having: bool = False,
    ) -> Member | None:
        """Return the endpoint for a request, or None: none can take it now. It has no place there yet.

        `without`: the endpoints that were tried already. Then one whose last answer was a failure comes last: each try
        counts. One that was seen to lack the model comes last, too, and not at all if it should be one `having` it.
        """
        found = self.list_candidates(model, without=without, whole=whole)
        if len(found) == 1 and not found[0].lacking.models:
            return found[0]
        if model is not None and any(member.lacking.models for member in found):
            now_s = self.clock()
            fitting = [member for member in found if not member.lacking.is_missing(model, now_s)]
            found = fitting if fitting or having else found
        if without:
            found = [member for member in found if not member.answers.strikes] or found
        return choose(found, self.rules.balance, sticky) if found else None

    def is_busy(self, model: str | None, *, without: Collection[Member] = ()) -> bool:
        """Return whether only the number of requests under way keeps one from beginning."""
        now_s = self.clock()
        return any(m.serves(model) and m.find_obstacle(now_s) == "busy" for m in self.members if m not in without)

    def build_unavailable_error(self, model: str | None) -> GatewayError:
        """Return the error for a request that no endpoint can take: which ones, why, and when to ask again."""
        now_s = self.clock()
        serving = [member for member in self.members if member.serves(model)]
        if not serving:
            return GatewayError(
                "upstream_unavailable",
                f"No endpoint of upstream {self.name!r} serves this model: add it to 'models' of one of them.",
            )
        obstacles = {member.find_obstacle(now_s) for member in serving}
        if "busy" in obstacles:
            self.tally.refused["busy"] += 1
            return GatewayError(
                "overloaded",
                f"All endpoints of upstream {self.name!r} have as many requests as they may; try again shortly.",
                retry_after_s=BUSY_RETRY_S,
            )
        wait_s = max(min(member.get_wait_s(now_s) for member in serving), 1.0)
        is_pausing = obstacles == {"pausing"}
        self.tally.refused["pausing" if is_pausing else "open"] += 1
        if is_pausing and all(member.limited for member in serving):
            text = f"Upstream {self.name!r} requested a pause; send no request for {wait_s:.0f} s."
            return GatewayError("upstream_limited", text, retry_after_s=wait_s)
        why = "; ".join(f"{member.name} {_WHY[found]}" for member in serving if (found := member.find_obstacle(now_s)))
        return GatewayError(
            "circuit_open",
            f"Upstream {self.name!r} is out, so nothing was sent: {why}. Try again in {wait_s:.0f} s.",
            retry_after_s=wait_s,
        )

    # Places.

    def take_place(self, member: Member, *, whole: bool = True) -> Probe | None:
        """Take a place at an endpoint. Return the probe of its breaker that the request is (`Breaker.begin`)."""
        member.inflight += 1
        if member.breaker.until_s is None:
            return None
        return member.breaker.begin(self.clock(), whole=whole)

    def give_back(
        self, member: Member, *, failed: bool | None, probe: Probe | None, caller: CallerId | None = None
    ) -> None:
        """Give a place back. `failed`: whether the endpoint was at fault; None: the end proves nothing about it.

        `caller`: see `record_failure`.
        """
        member.inflight -= 1
        self.tally.tries[member.name, _SAID[failed]] += 1
        if failed is None:
            member.breaker.record_client_left(probe)
        elif failed:
            member.answers.strikes += 1
            self.record_failure(member, probe, caller=caller)
        else:
            member.answers.strikes = 0
            if member.breaker.record_success(probe):
                self._log_readmission(member)
        if self.queue.turns:
            self.queue.serve_waiters(self)

    def release_as_suspect(self, member: Member) -> None:
        """Release a place after a failure that counts only if another endpoint answers well."""
        member.inflight -= 1
        member.answers.strikes += 1
        self.tally.tries[member.name, _SAID[True]] += 1
        if self.queue.turns:
            self.queue.serve_waiters(self)

    def record_failure(self, member: Member, probe: Probe | None, *, caller: CallerId | None) -> None:
        """Let a failure count for the breaker of an endpoint. `caller`: whose request it was (`Breaker.failed`)."""
        now_s = self.clock()
        has_others = caller is not None and self.callers.has_others(caller, now_s)
        if member.breaker.record_failure(now_s, probe, caller=caller, has_others=has_others):
            self._record_ejection(member, "breaker", for_s=member.breaker.get_wait_s(now_s))

    def count_other_answers(self, member: Member) -> int:
        """Return how many good answers other endpoints gave, here and at fallbacks."""
        return sum(one.answers.good for group in (self, *self.fallbacks) for one in group.members if one is not member)

    def record_answer(self, member: Member, *, probe: Probe | None) -> None:
        """Note that an answer began, after which the endpoint may get requests."""
        if member.breaker.record_answer(probe):
            self._log_readmission(member)

    def note_missing_model(self, member: Member, model: str) -> None:
        """Note that an endpoint lacks a model that another one has, so that it is passed over."""
        if member.lacking.add(model, self.clock()):
            facts = {"upstream": self.name, "endpoint": member.name, "model": model}
            log.warning("endpoint lacks a model that others have", extra={"facts": facts})

    async def wait_for_place(self, waiter: QueueWaiter) -> Member:
        """Wait in the queue for a place, which the waiter then has (`PlaceQueue.wait`). Raises GatewayError."""
        return await self.queue.wait(waiter, self)

    def serve_queue(self) -> None:
        """Give free places to the waiting requests in order; wake requests that can get none."""
        self.queue.serve_waiters(self)

    # Endpoints that come and go.

    def apply_health_check(self, member: Member, *, failing: str | None) -> None:
        """Take the result of health checks: an endpoint goes out, or comes back with its breaker closed.

        `failing` states why it goes out.
        """
        if failing is not None:
            member.healthy = False
            self._record_ejection(member, "health", cause=failing)
        else:
            member.healthy = True
            member.breaker.close()
            self._log_readmission(member)
        self.serve_queue()

    def sweep(self, now_s: float) -> None:
        """Run the periodic work of pools, health checks and queue; called twice a second."""
        for member in self.members:
            member.pool.sweep(now_s)
        if self.checks is not None:
            self.checks.sweep(now_s)
        if self.queue.turns:
            self.queue.serve_waiters(self)

    def close(self) -> None:
        """Close idle connections; busy ones close when their request ends. Idempotent."""
        for member in self.members:
            member.pool.close()
        if self.checks is not None:
            self.checks.close()

    def _record_ejection(self, member: Member, reason: str, **more: object) -> None:
        self.tally.ejections[member.name, reason] += 1
        facts = {"upstream": self.name, "endpoint": member.name, "reason": reason}
        log.warning("endpoint ejected", extra={"facts": facts | more})

    def _log_readmission(self, member: Member) -> None:
        log.warning("endpoint admitted again", extra={"facts": {"upstream": self.name, "endpoint": member.name}})


#: The label of a try in the metrics, by whether its endpoint was at fault.
_SAID: Final[dict[bool | None, str]] = {False: "ok", True: "failed", None: "none"}
_WHY: dict[Obstacle, str] = {
    "unhealthy": "fails its health checks",
    "open": "failed too often (its breaker is open)",
    "pausing": "requested a pause",
    "busy": "is busy",
}
