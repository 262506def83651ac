"""One client request on its way through the endpoints of an upstream and of its fallbacks.

A request is sent again only before a byte of an answer went to the client, within the number of tries and the budget,
for a configured reason, and only if that is safe: nothing was sent, the answer itself says that nothing was done (429,
503, a refusal of the gateway's own key), or doing it twice is harmless (`twice`). The order of endpoints: the untried
ones, in the queue if they are busy; the fallbacks'; the ones that lack the model; then one that was tried, after a
pause. A try that found no connection counts only where the same endpoint would get the request again.

An answer may be the fault of the endpoint or of the request (`verdicts.is_suspect`). If another endpoint then answers
well, the first one has failed. If no other endpoint can take the request, it has failed if others answered other
requests well since its failure before.
"""

import random
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.upstream.breaker import Probe
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.recent_callers import CallerId
from gateway.upstream.status_verdict import ELSEWHERE, KEY_REFUSED, NOTHING_DONE, is_fault, is_suspect

#: The first pause before another request to the same endpoint, in seconds; each next one is twice as long. Half of it
#: is left to chance, so that requests that failed together do not come back together.
PAUSE_S: Final = 0.1
#: No pause is longer: a client waits.
LONGEST_PAUSE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A try whose answer may be its endpoint's fault, and the probe of a breaker that it was."""

    group: Group
    member: Member
    status: str
    probe: Probe | None


#: Where a try goes: an endpoint of an upstream, or (None) the queue of `home`.
_Place: TypeAlias = tuple[Group, Member | None]


@dataclass(frozen=True, slots=True)
class _NextTry:
    """The next try of a request: its place, where one was found, the pause before it, and the reason for it."""

    place: _Place | None
    pause_s: float
    reason: str


_FIRST: Final = _NextTry(None, 0.0, "")


class _AttemptedEndpoints:
    """The endpoints that were asked for one request of `caller`, also by a second try beside the first."""

    __slots__ = ("caller", "suspects", "tried", "unreached")

    def __init__(self, caller: CallerId | None) -> None:
        self.caller = caller
        self.tried: list[Member] = []
        self.unreached: list[Member] = []  # of these, those that took no connection
        self.suspects: list[_Suspect] = []

    @property
    def sent(self) -> int:
        """Return how many tries count, with those under way."""
        return len(self.tried) - len(self.unreached)

    def fail_suspects(self, witness: Member, model: str | None) -> None:
        """Let all that were suspected have failed, since another endpoint answers the same request well."""
        suspects = tuple(self.suspects)
        self.suspects.clear()
        for one in suspects:
            if one.member is witness:
                continue
            if one.status == "404" and model is not None:
                one.member.breaker.record_client_left(one.probe)
                one.group.note_missing_model(one.member, model)
            else:
                one.group.record_failure(one.member, one.probe, caller=self.caller)

    def clear_suspects(self) -> None:
        """End the doubts, since no other endpoint answers: the request may be at fault."""
        suspects = tuple(self.suspects)
        self.suspects.clear()
        is_only = len(self.tried) == 1
        for one in suspects:
            if is_only and one.member.answers.is_lone_failure(one.group.count_other_answers(one.member)):
                one.group.record_failure(one.member, one.probe, caller=self.caller)
            else:
                one.member.breaker.record_client_left(one.probe)


@dataclass(slots=True)
class _Limits:
    """The places of a request in the limits of the upstream that it goes to."""

    enter: Callable[[str], None] | None
    entered: Group | None = None  # where the request has its places
    refusal: GatewayError | None = None  # of the limits of its own upstream


_NO_LIMITS: Final = _Limits(None)


class Tries:
    """The tries of one request. `twice`: sending it twice is harmless. `sticky` and `model`: see `Group.choose`.

    `computes`: an answer is computed from its body, so a 404 is about the model or the path, and not about a stored
    object.

    `whole`: its client has sent all of it; if not yet, call `sent` then. `caller`: whose request it is.

    `fallbacks` are the ones that the caller may use; None: all. `enter` takes the places of the request in the limits
    of an upstream, by its name, in place of the places at the one before; it raises GatewayError where there is no
    room, and the upstream is passed over. `group` and `member` belong to the try under way; `member` is None between
    two. `skip` holds the endpoints of `home` that a wait in its queue is not for. `failure` is the error of the
    last try that failed: set it before `end_failed_try`.
    """

    __slots__ = (
        "_asked",
        "_computes",
        "_fallbacks",
        "_limits",
        "_next_try",
        "_probe",
        "_twice",
        "failure",
        "group",
        "home",
        "member",
        "model",
        "skip",
        "sticky",
        "whole",
    )

    def __init__(
        self,
        group: Group,
        *,
        twice: bool,
        computes: bool = False,
        whole: bool = True,
        sticky: bytes = b"",
        model: str | None = None,
        fallbacks: Sequence[Group] | None = None,
        enter: Callable[[str], None] | None = None,
        caller: CallerId | None = None,
    ) -> None:
        self.home = self.group = group
        self._fallbacks = group.fallbacks if fallbacks is None else fallbacks
        self._limits = _NO_LIMITS if enter is None else _Limits(enter)
        self.sticky = sticky
        self.model = model
        self.member: Member | None = None
        self.failure: GatewayError | None = None
        self.whole = whole
        self._twice = twice
        self._computes = computes
        self._asked = _AttemptedEndpoints(caller)
        self.skip: Sequence[Member] = ()
        self._next_try = _FIRST
        self._probe: Probe | None = None
        if caller is not None:
            for one in (group, *self._fallbacks):
                one.callers.note_request(caller, one.clock())
        group.budget.record_request()

    @property
    def pause_s(self) -> float:
        """Return the pause before the next try, in seconds."""
        return self._next_try.pause_s

    @property
    def count(self) -> int:
        """Return how many tries there were."""
        return len(self._asked.tried)

    def begin(self) -> Member | None:
        """Return the endpoint of the next try, with a place at it. None: await `home.place(self)` for one.

        Raises GatewayError if none can take it (`refused`): circuit_open, upstream_limited, overloaded,
        upstream_unavailable, or what `enter` raised for `home`. An UndecidedError of any upstream is raised at once:
        begin again once it is answered.
        """
        if self.home.queue.turns:
            self.home.serve_queue()  # a breaker or a pause may be over, and others wait for longer
        if (found := self._next_try.place) is not None:
            self._next_try = _NextTry(None, self._next_try.pause_s, self._next_try.reason)
        if found is None or found[1] is None or found[1].find_obstacle(self.home.clock(), whole=self.whole):
            found = self._choose_next()
        if found is None:
            raise self.build_refusal(self._limits.refusal or self.home.build_unavailable_error(self.model))
        group, member = found
        if member is not None:
            self.begin_endpoint_try(group, member)
        return member

    def build_refusal(self, why: GatewayError) -> GatewayError:
        """Return the error for a request that no endpoint takes: its last try's, with why no other followed, or why.

        The upstream's failure helps the client more than the gateway's lack of further endpoints.
        """
        if self.failure is None:
            return why
        error = self.failure.copy()
        error.message += f" It was not sent again: {why.message}"
        error.retry_after_s = error.retry_after_s or why.retry_after_s
        return error

    def use_place(self, member: Member) -> None:
        """Begin a try at an endpoint of the request's own upstream, for which it waited in the queue."""
        self.begin_endpoint_try(self.home, member)

    def begin_endpoint_try(self, group: Group, member: Member) -> None:
        """Begin a try at an endpoint, whose place is free."""
        if self._asked.tried:
            self.home.tally.retries[self._next_try.reason if group is self.home else "fallback"] += 1
        elif group is not self.home:
            self.home.tally.retries["fallback"] += 1
        self.group, self.member = group, member
        self._probe = group.take_place(member, whole=self.whole)
        if self.model is not None:
            member.lacking.note_trial(self.model, group.clock())
        self._asked.tried.append(member)

    def record_sent(self) -> None:
        """Note that the request is whole."""
        self.whole = True
        if self.member is not None and self._probe is not None:
            self.member.breaker.record_sent(self._probe, self.group.clock())

    def record_answer(self, status: str = "200") -> None:
        """Note that an answer began which goes to the client. It ends the doubts about the endpoints before."""
        member = self.member
        if member is None:
            return
        self._count_answer(member, status)
        if status < "4":
            member.answers.note_good()
            if self.model is not None:
                member.lacking.remove(self.model)
            if self._asked.suspects:
                self._asked.fail_suspects(member, self.model)
        if self._probe is not None:
            self.group.record_answer(member, probe=self._probe)

    def end(self, *, failed: bool | None, surely: bool = False) -> None:
        """End the try. `failed`: whether the endpoint was at fault; None: the end proves nothing about it. Idempotent.

        `surely`: no request can be at fault.
        """
        member, self.member = self.member, None
        if member is not None:
            caller = None if surely else self._asked.caller
            self.group.give_back(member, failed=failed, probe=self._probe, caller=caller)

    def end_failed_try(
        self,
        reason: str,
        *,
        possible: bool = True,
        excused: bool = False,
        awaited: bool = False,
        told_not: bool = False,
        pause_s: float | None = None,
        rival: bool = False,
    ) -> bool:
        """End a try without a good answer. Return whether another may follow: sleep `self.pause_s`, then `begin`.

        `reason` is `connect`, `reset`, `timeout` or a status. `possible`: the whole request is still here. `excused`: a
        failure is not the endpoint's fault: it closed an idle connection. `awaited`: neither is it, because the
        endpoint waited for a client that is slow with the body; the budget counts such tries apart. `told_not`:
        `x-should-retry: false`. `pause_s`: the pause that the endpoint requested; an excused one means this client.
        `rival`: another try of the request is under way (`beside`), so none follows.
        """
        member, excused = self.member, excused or awaited
        suspect = member is not None and self._end_bad(member, reason, excused=excused, pause_s=pause_s)
        if rival:
            return False
        follows = possible and not told_not and self._may_try_again(reason, member, awaited=awaited, suspect=suspect)
        if not follows:
            self._asked.clear_suspects()
        return follows

    def _end_bad(self, member: Member, reason: str, *, excused: bool, pause_s: float | None) -> bool:
        """End a try at an endpoint without a good answer. Return whether that is suspect, and nothing counts yet."""
        group, is_paused = self.group, pause_s is not None and not excused and _concerns_all(member, reason)
        if pause_s is not None and is_paused:
            member.pause(pause_s, group.clock(), limited=reason == "429")
        if reason.isdigit():
            self._count_answer(member, reason)
        if (
            not excused
            and self.home.has_others
            and is_suspect(reason, member.pool.endpoint, computes=self._computes, paused=is_paused)
        ):
            self.member = None
            self._asked.suspects.append(_Suspect(group, member, reason, self._probe))
            group.release_as_suspect(member)
            return True
        fault = is_fault(reason)
        if reason.isdigit() and fault is None and self._probe is not None:  # it answers, so others may ask it
            group.record_answer(member, probe=self._probe)
        self.end(failed=None if fault and excused else fault, surely=reason == "connect")
        if reason == "connect":
            self._asked.unreached.append(member)
        return False

    def _may_try_again(self, reason: str, member: Member | None, *, awaited: bool, suspect: bool) -> bool:
        """Return whether another try follows one that ended for this reason. It then has its place in the budget."""
        rules = self.home.rules.retry
        if rules is None or reason not in rules.on or self._asked.sent >= rules.tries:
            return False
        if reason in ELSEWHERE and not suspect:
            return False
        if not (self._twice or reason == "connect" or reason in NOTHING_DONE or reason in KEY_REFUSED):
            return False
        is_bounded = reason != "connect"
        apart = awaited or (reason == "429" and member is not None and not _concerns_all(member, reason))
        if is_bounded and not self.home.budget.has_room(apart=apart):
            self.home.tally.refused["budget"] += 1
            return False
        try:
            found = self._choose_next(elsewhere=reason in ELSEWHERE)
        except UndecidedError:
            found = self.home, None  # `begin` asks again, and waits for it
        if found is None:
            return False
        if is_bounded:
            self.home.budget.take_retry(apart=apart)
        is_new = bool(self.skip) if found[1] is None else found[1] not in self._asked.tried
        pause_s = min(PAUSE_S * 2.0 ** (len(self._asked.tried) - 1), LONGEST_PAUSE_S)
        pause_s *= 0.0 if is_new else random.uniform(0.5, 1.0)  # noqa: S311
        self._next_try = _NextTry(found, pause_s, reason)
        return True

    def _count_answer(self, member: Member, status: str) -> None:
        """Count an answer by its status."""
        member.answers.last_status = status
        self.group.tally.answers[member.name, status] += 1

    def begin_hedge(self) -> "Tries | None":
        """Return a second try of the same request beside the one under way (hedging), with a place; None: no room.

        A request that a fallback has gets none: its own upstream could not take it.
        """
        rules = self.home.rules.retry
        if not self._twice or self.group is not self.home or rules is None or self._asked.sent >= rules.tries:
            return None
        member = self.home.choose(self.sticky, self.model, without=self._asked.tried, whole=self.whole, having=True)
        if member is None or not self.home.budget.take_hedge():
            return None
        second = copy(self)  # `_asked` is that of both
        second._limits, second._next_try = copy(self._limits), _NextTry(None, 0.0, "hedge")
        second.begin_endpoint_try(self.home, member)
        return second

    def _choose_next(self, *, elsewhere: bool = False) -> _Place | None:
        """Return where the next try goes; None: none can take it. `elsewhere`: to no endpoint for the second time.

        Endpoints that were seen to lack the model come after all others.
        """
        home, tried = self.home, self._asked.tried
        if self._limits.refusal is not None:
            self._limits.refusal = None
        for having in (True, False) if self._knows_missing_models else (False,):
            member = home.choose(self.sticky, self.model, without=tried, whole=self.whole, having=having)
            if member is not None and self._limits.refusal is None and self._takes_upstream_place(home):
                return home, member
            if self._limits.refusal is None and self._may_wait(without=tried):
                return home, None
            for group in self._fallbacks:
                member = group.choose(self.sticky, self.model, without=tried, whole=self.whole, having=having)
                if member is not None and self._takes_upstream_place(group):
                    return group, member
        rules = home.rules.retry
        if elsewhere or not tried or self._limits.refusal is not None or rules is None or len(tried) >= rules.tries:
            return None
        member = home.choose(self.sticky, self.model, whole=self.whole)
        if member is not None and self._takes_upstream_place(home):
            return home, member
        return (home, None) if self._limits.refusal is None and self._may_wait(without=()) else None

    @property
    def _knows_missing_models(self) -> bool:
        """Return whether an endpoint was seen to lack a model."""
        if self.model is None:
            return False
        for group in (self.home, *self._fallbacks):
            for member in group.members:
                if member.lacking.models:
                    return True
        return False

    def _may_wait(self, *, without: Sequence[Member]) -> bool:
        """Return whether to wait for an endpoint of `home` that is busy, but for some; then its limits have room."""
        home = self.home
        if not (home.has_room and home.is_busy(self.model, without=without) and self._takes_upstream_place(home)):
            return False
        self.skip = tuple(without)
        return True

    def _takes_upstream_place(self, group: Group) -> bool:
        """Return whether the limits of an upstream have room; then the request has its places there, else as before."""
        limits = self._limits
        if limits.enter is None or group is limits.entered:
            return True
        try:
            limits.enter(group.name)
        except UndecidedError:
            raise
        except GatewayError as error:
            if group is self.home:
                limits.refusal = error
            return False
        limits.entered = group
        return True


def _concerns_all(member: Member, reason: str) -> bool:
    """Return whether an endpoint's requested pause is for all requests: a 429 may concern its client's key only."""
    return reason in NOTHING_DONE and (reason != "429" or member.pool.endpoint.api_key is not None)
