"""What every store promises of the shares that gateways have of a limit."""

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from gateway.contracts.storage.journal import ConflictError
from gateway.contracts.storage.quota import QUOTA_GONE_S, QUOTA_LEASE_S, QuotaAnswer, ShareGrant, ShareRequest
from gateway.contracts.storage.store import Store

BEGAN_S = 1000.0
WINDOW_S = 61.0


def want(wanted: int, *, name: str = "key requests", limit: int = 10, **figures: float) -> ShareRequest:
    facts = {"held": 0, "used": 0, "needed": wanted, "lapse_s": WINDOW_S, **figures}
    return ShareRequest(name=name, limit=limit, wanted=wanted, **facts)  # type: ignore[arg-type]


class Asking:
    """A gateway that asks a store, at the time that it is told."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.turn = 0

    async def ask(self, *requests: ShareRequest, now_s: float = BEGAN_S) -> QuotaAnswer:
        self.turn += 1
        return await self.store.share_quota(self.name, requests, turn=self.turn, now_s=now_s)

    async def share(self, *requests: ShareRequest, now_s: float = BEGAN_S) -> ShareGrant:
        answer = await self.ask(*requests, now_s=now_s)
        return answer.grants[0]


async def test_shares_are_granted_from_what_is_free(store: Store) -> None:
    """Together they are no more than the limit, and each limit has its own."""
    one, other = Asking(store, "one"), Asking(store, "other")
    answer = await one.ask(want(6), want(3, name="key tokens", limit=4))
    assert [grant.share for grant in answer.grants] == [6, 3] and answer.gateways == 1
    assert await other.share(want(9, used=1)) == ShareGrant(name="key requests", share=4, free=0, used=0, spare=6)
    answer = await one.ask(want(8, held=6, used=6))
    assert answer.grants == [ShareGrant(name="key requests", share=6, free=0, used=1, spare=3)]
    assert answer.gateways == 2 and list(answer.lacking) == ["key requests"]  # the other wanted nine


async def test_share_that_is_given_back_is_free(store: Store) -> None:
    """Whoever lacked some gets it."""
    one, other = Asking(store, "one"), Asking(store, "other")
    await one.share(want(10, used=10))
    assert (await other.share(want(4))).share == 0
    assert (await one.share(want(7, held=7, used=7))).share == 7
    assert (await other.share(want(4))).share == 3
    assert list((await one.ask()).lacking) == ["key requests"]
    await other.ask(want(3, held=3, used=3))
    assert list((await one.ask()).lacking) == []
    await one.ask(want(0))
    assert await other.share(want(4, held=3, used=3)) == ShareGrant(
        name="key requests", share=4, free=6, used=0, spare=0
    )


async def test_what_would_only_be_liked_keeps_nobody_waiting(store: Store) -> None:
    """A gateway takes more than it needs, if there is some."""
    one, other = Asking(store, "one"), Asking(store, "other")
    await one.ask(want(6))
    assert (await other.share(want(9, needed=2))).share == 4
    assert list((await one.ask()).lacking) == []


async def test_what_a_gateway_holds_is_never_less(store: Store) -> None:
    """Also where a limit was lowered, or requests used more than they had reserved."""
    one, other = Asking(store, "one"), Asking(store, "other")
    await one.share(want(10))
    lowered = await one.share(want(10, held=10, limit=6))
    assert (lowered.share, lowered.free) == (10, -4)
    more = await other.share(want(2, held=2, used=2))
    assert (more.share, more.free) == (2, -2)


async def test_base_counts_once_as_the_highest_that_any_gateway_knows(store: Store) -> None:
    """It is what the ledger has, which each gateway reads at its own time."""
    one, other = Asking(store, "one"), Asking(store, "other")
    assert (await one.share(want(9, base=2))).share == 8
    await one.ask(want(3, held=3, used=3, base=7))
    assert (await other.share(want(5, base=2))).share == 0


async def test_requests_that_come_twice_change_nothing(store: Store) -> None:
    """Figures are absolute, so a gateway that lost the answer asks again."""
    one, other = Asking(store, "one"), Asking(store, "other")
    assert (await one.share(want(4))).share == (await one.share(want(4))).share == 4
    assert (await other.share(want(9))).share == 6


async def test_call_that_comes_late_changes_nothing(store: Store) -> None:
    """One that was given up may run all the same, behind a later one. It would take what is used by now."""
    one, other = Asking(store, "one"), Asking(store, "other")
    await one.ask()
    assert (await one.share(want(8))).share == 8
    for turn in (1, 2):
        with pytest.raises(ConflictError):
            await store.share_quota("one", [want(0)], turn=turn, now_s=BEGAN_S)
    assert (await other.share(want(8))).share == 2


async def test_share_of_a_gateway_that_is_gone_lapses(store: Store) -> None:
    """What it used of a window, when that has left it; what it had under way, at once."""
    one, other = Asking(store, "one"), Asking(store, "other")
    await one.ask(want(10), want(10, name="key concurrent", lapse_s=0))
    both = want(4), want(4, name="key concurrent", lapse_s=0)
    gone_s = BEGAN_S
    while gone_s < BEGAN_S + QUOTA_GONE_S:
        answer = await other.ask(*both, now_s=gone_s)
        assert [grant.share for grant in answer.grants] == [0, 0] and answer.gateways == 2
        gone_s += 1.5
    while gone_s < BEGAN_S + QUOTA_GONE_S + WINDOW_S:
        answer = await other.ask(*both, now_s=gone_s + 0.1)
        assert [grant.share for grant in answer.grants] == [0, 4] and answer.gateways == 1
        gone_s += 1.5
    assert (await other.share(*both, now_s=gone_s + 0.1)).share == 4
    assert list((await other.ask(now_s=gone_s + 1000)).lacking) == []


async def test_nobody_is_gone_because_the_place_was_away(store: Store) -> None:
    """The first that comes back does not take what the others have under way."""
    one, other = Asking(store, "one"), Asking(store, "other")
    running = want(10, name="key concurrent", lapse_s=0)
    await one.ask(running)
    await other.ask()
    back_s = BEGAN_S + 30
    assert (await other.share(running, now_s=back_s)).share == 0
    assert (await one.share(want(10, name="key concurrent", held=10, lapse_s=0), now_s=back_s + 1)).share == 10
    assert (await other.share(running, now_s=back_s + 2)).share == 0


@dataclass
class Replica:
    """A gateway with a limit of requests in a window, as the protocol has it, driven by a schedule."""

    asking: Asking
    share: int = 0
    sent_s: float = float("-inf")
    made: list[float] = field(default_factory=list)

    def used(self, now_s: float) -> int:
        return sum(then > now_s - WINDOW_S for then in self.made)

    def take(self, now_s: float) -> bool:
        if now_s - self.sent_s > QUOTA_LEASE_S or self.used(now_s) >= self.share:
            return False
        self.made.append(now_s)
        return True

    async def beat(self, wanted: int, limit: int, now_s: float, *, is_answer_lost: bool) -> None:
        used = self.used(now_s)
        self.share = max(min(self.share, used + wanted), used)  # it is lower here before it is lower there
        asked = want(used + wanted, limit=limit, held=self.share, used=used)
        granted = await self.asking.share(asked, now_s=now_s)
        if not is_answer_lost:
            self.share, self.sent_s = granted.share, now_s


@pytest.mark.parametrize("seed", range(6))
async def test_limit_is_kept_on_any_schedule(store: Store, seed: int) -> None:
    """Lost answers, gateways that die and new ones: never more in a window, and nearly all of it is given."""
    chance, limit = random.Random(seed), 40
    now_s, made, ended = BEGAN_S, [], 0
    replicas = [Replica(Asking(store, f"{seed} {number}")) for number in range(3)]
    for _ in range(900):
        now_s += chance.choice((0.0, 0.05, 0.2, 0.4))
        at = chance.randrange(3)
        if seed % 2 and chance.random() < 0.002:
            ended += 1
            replicas[at] = Replica(Asking(store, f"{seed} again {ended}"))
        replica = replicas[at]
        made += [now_s for _ in range(chance.randrange(4)) if replica.take(now_s)]
        await replica.beat(chance.randrange(4), limit, now_s, is_answer_lost=chance.random() < 0.1)
        assert sum(then > now_s - WINDOW_S for then in made) <= limit
    by_window: dict[int, int] = defaultdict(int)
    for then in made:
        by_window[int((then - BEGAN_S) / WINDOW_S)] += 1
    assert all(by_window[window] >= limit * (0.5 if ended else 0.9) for window in range(2))
