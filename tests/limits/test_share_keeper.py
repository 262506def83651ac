"""Gateways that share limits: what they let in together, and what happens when one of them or the store is away."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.contracts.allowance import Allowance
from gateway.contracts.caller import KeyBounds
from gateway.contracts.errors import GatewayError, UndecidedError
from gateway.contracts.storage.quota import QUOTA_GONE_S, QUOTA_LEASE_S
from gateway.limits.reservation import Reservation
from gateway.limits.share_keeper import BEAT_S
from gateway.limits.share_memory import CONCURRENT, REQUESTS
from gateway.limits.shared_memory import TICK_S, WINDOW_S
from gateway.model.hooks import wait_for_room
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.plugins.stores.sqlite.file import IN_MEMORY

from .sharing import share_limits

LIMIT = 200


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = SqliteStore(IN_MEMORY)
    await store.open()
    yield store
    await store.close()


async def test_gateway_alone_may_use_all_with_a_few_calls(store: SqliteStore) -> None:
    """It takes most of the rest each time."""
    fleet = await share_limits(store, 1, requests_per_minute=LIMIT)
    (gateway,) = fleet.gateways
    assert len(await fleet.admitted(gateway, 2 * LIMIT)) == LIMIT
    assert fleet.place.calls <= 8


async def test_gateways_together_let_in_no_more_than_the_limit(store: SqliteStore) -> None:
    """Gateways that come first leave nothing to the others, and nothing is left over."""
    fleet = await share_limits(store, requests_per_minute=LIMIT)
    counts = [len(await fleet.admitted(gateway, LIMIT // 2)) for gateway in fleet.gateways]
    assert sum(counts) == LIMIT and counts[0] == LIMIT // 2


async def test_full_limit_is_refused_without_calls(store: SqliteStore) -> None:
    """After one that found that nobody has any left, until the next beat."""
    fleet = await share_limits(store, requests_per_minute=LIMIT)
    for gateway in fleet.gateways:
        await fleet.admitted(gateway, LIMIT)
    calls = fleet.place.calls
    refused = [await fleet.take(fleet.gateways[0]) for _ in range(100)]
    assert {one.code for one in refused if isinstance(one, GatewayError)} == {"rate_limit_exceeded"}
    assert fleet.place.calls <= calls + 1
    error = refused[-1]
    assert isinstance(error, GatewayError)
    assert error.fields["x-ratelimit-limit-requests"] == str(LIMIT)
    assert error.fields["x-ratelimit-remaining-requests"] == "0"


async def test_what_a_gateway_does_not_use_goes_to_one_that_lacks_it(store: SqliteStore) -> None:
    """Within a beat: the request waits, and is not refused."""
    fleet = await share_limits(store, requests_per_minute=LIMIT)
    first, second, _ = fleet.gateways
    assert len(await fleet.admitted(first, 1)) == 1
    assert first.share(REQUESTS, fleet.caller) > 100
    began_s = fleet.clock()
    assert len(await fleet.admitted(second, LIMIT)) == LIMIT - 1
    assert fleet.clock() - began_s <= 4 * BEAT_S
    assert first.share(REQUESTS, fleet.caller) == 1


async def test_window_that_slides_gives_room_to_all(store: SqliteStore) -> None:
    """Another gateway may use now the part that one used a minute ago."""
    fleet = await share_limits(store, 2, requests_per_minute=LIMIT)
    first, second = fleet.gateways
    assert len(await fleet.admitted(first, LIMIT)) == LIMIT
    for _ in range(int((WINDOW_S + TICK_S) / BEAT_S) + 1):
        await fleet.beat(BEAT_S)
    assert len(await fleet.admitted(second, LIMIT)) == LIMIT
    assert len(await fleet.admitted(first, 5)) == 0


@pytest.mark.parametrize("seed", range(3))
async def test_limits_are_kept_and_given_on_any_schedule(seed: int, store: SqliteStore) -> None:
    """Three gateways with ten times the load, unevenly spread: requests, tokens and requests under way."""
    chance = random.Random(seed)
    fleet = await share_limits(store, requests_per_minute=120, tokens_per_minute=2400, concurrent=12)
    made: list[tuple[float, int]] = []
    under_way: list[tuple[Reservation, int]] = []
    weights, best = [chance.choice((1, 3, 9)) for _ in fleet.gateways], {"requests": 0, "tokens": 0, "concurrent": 0}
    for step in range(500):
        if step % 100 == 0:
            weights = [chance.choice((1, 3, 9)) for _ in fleet.gateways]
        (gateway,) = chance.choices(fleet.gateways, weights)
        tokens = chance.choice((5, 20, 25))
        taken = await fleet.take(gateway, tokens)
        now_s = fleet.clock()
        if isinstance(taken, Reservation):
            made.append((now_s, max(place.reserved for place in taken.places)))
            under_way.append((taken, made[-1][1]))
        while under_way and chance.random() < 0.5:
            ended, reserved = under_way.pop(chance.randrange(len(under_way)))
            ended.close(tokens=reserved)
        window = [used for then, used in made if then > now_s - WINDOW_S]
        assert len(window) <= 120 and sum(window) <= 2400 and len(under_way) <= 12
        best = {
            "requests": max(best["requests"], len(window)),
            "tokens": max(best["tokens"], sum(window)),
            "concurrent": max(best["concurrent"], len(under_way)),
        }
        await fleet.beat(chance.choice((0.01, 0.03, 0.1)))
    assert best["requests"] >= 118 or best["tokens"] >= 2340 or best["concurrent"] == 12


async def test_lost_answer_changes_nothing(store: SqliteStore) -> None:
    """A grant whose answer was lost is not used, and the gateway requests it again."""
    fleet = await share_limits(store, 2, requests_per_minute=LIMIT)
    first, second = fleet.gateways
    fleet.place.loses_answers = True
    rules = first.limiter.list_caller_rules(fleet.caller)
    with pytest.raises(UndecidedError):
        first.limiter.reserve_places(rules)
    await first.keeper.exchange_shares()
    assert first.share(REQUESTS, fleet.caller) == 0
    fleet.place.loses_answers = False
    await fleet.beat()
    assert len(await fleet.admitted(first, 20)) == 20
    assert len(await fleet.admitted(second, LIMIT)) == LIMIT - 20


async def test_place_that_is_away_closes_shared_limits(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    """As long as the lease lasts, what is here is used. Then nothing is let in, until the store is back."""
    fleet = await share_limits(store, 2, requests_per_minute=LIMIT)
    gateway, _ = fleet.gateways
    assert len(await fleet.admitted(gateway, 2)) == 2
    fleet.place.fails = True
    await fleet.beat(QUOTA_LEASE_S - 1.0)
    assert len(await fleet.admitted(gateway, 2)) == 2
    await fleet.beat(1.25)
    error = await fleet.take(gateway)
    assert isinstance(error, GatewayError) and (error.code, error.retry_after_s) == ("overloaded", 1.0)
    assert caplog.text.count("does not answer") == 1
    fleet.place.fails = False
    await fleet.beat()
    assert len(await fleet.admitted(gateway, LIMIT)) == LIMIT - 4
    assert caplog.text.count("the store answers") == 1


async def test_first_worker_that_stands_still_closes_shared_limits(store: SqliteStore) -> None:
    """Other workers would wait for ever."""
    fleet = await share_limits(store, 1, requests_per_minute=LIMIT)
    (gateway,) = fleet.gateways
    await fleet.admitted(gateway, 1)
    fleet.clock.advance(QUOTA_LEASE_S + 1.0)
    with pytest.raises(GatewayError) as refused:
        gateway.limiter.reserve_places(gateway.limiter.list_caller_rules(fleet.caller))
    assert refused.value.code == "overloaded" and not isinstance(refused.value, UndecidedError)


async def test_share_of_a_gateway_that_died_comes_free(store: SqliteStore) -> None:
    """Its requests under way at once, and its part of the minute when that is over."""
    fleet = await share_limits(store, 2, requests_per_minute=LIMIT, concurrent=10)
    dead, other = fleet.gateways
    assert len(await fleet.admitted(dead, 9)) == 9
    fleet.gateways.remove(dead)
    own = await fleet.admitted(other, 5)
    assert len(own) == 1
    passed_s = 0.0
    while passed_s <= QUOTA_GONE_S:
        await fleet.beat()
        passed_s += BEAT_S
    places = own + await fleet.admitted(other, 20)
    assert len(places) == 10 and other.share(CONCURRENT, fleet.caller) == 10
    for place in places:
        place.close()
    while passed_s <= QUOTA_GONE_S + WINDOW_S + 2.0:
        await fleet.beat()
        passed_s += BEAT_S
    came = 0
    for _ in range(LIMIT + 5):
        if isinstance(taken := await fleet.take(other), Reservation):
            came += 1
            taken.close()
    assert came == LIMIT


async def test_gateway_that_ends_leaves_what_it_does_not_use(store: SqliteStore) -> None:
    """The next one need not wait until it is forgotten."""
    fleet = await share_limits(store, 1, requests_per_minute=LIMIT, concurrent=10)
    (ending,) = fleet.gateways
    (place,) = await fleet.admitted(ending, 1)
    place.close()
    await ending.keeper.close()
    fleet.gateways.remove(ending)
    successor = await fleet.add()
    came = 0
    for _ in range(LIMIT):
        if isinstance(taken := await fleet.take(successor), Reservation):
            came += 1
            taken.close()
    assert came == LIMIT - 1


async def test_keeper_that_follows_a_dead_one_goes_on(store: SqliteStore) -> None:
    """The first worker was killed: its successor has the shares that are in memory, and no more."""
    fleet = await share_limits(store, 2, requests_per_minute=LIMIT)
    gateway, other = fleet.gateways
    assert len(await fleet.admitted(gateway, 50)) == 50
    gateway.keeper = gateway.make_keeper()
    assert gateway.share(REQUESTS, fleet.caller) == 50
    assert len(await fleet.admitted(other, LIMIT)) == LIMIT - 50
    assert len(await fleet.admitted(gateway, 1)) == 0


async def test_lower_limit_is_kept_by_all_together(store: SqliteStore) -> None:
    """After a reload: each gives back what it has beyond, when others ask."""
    fleet = await share_limits(store, 2, requests_per_minute=LIMIT)
    first, second = fleet.gateways
    assert len(await fleet.admitted(first, 40)) == 40
    fleet.caller = replace(fleet.caller, bounds=KeyBounds(limits=Allowance(requests_per_minute=100)))
    assert len(await fleet.admitted(second, LIMIT)) == 60
    assert len(await fleet.admitted(first, 5)) == 0


async def test_all_workers_of_a_gateway_use_its_share(store: SqliteStore) -> None:
    """A worker that finds none left rings for the first one, which answers."""
    fleet = await share_limits(store, 2, workers=2, requests_per_minute=LIMIT)
    gateway, other = fleet.gateways
    for meters in gateway.workers.meters:
        assert meters.shares is not None
        meters.shares.open()
    limiter = gateway.workers.limiters[1]

    async def admitted_there() -> bool:
        try:
            await wait_for_room(lambda: limiter.reserve_places(limiter.list_caller_rules(fleet.caller)))
        except GatewayError:
            return False
        return True

    keeping = asyncio.create_task(gateway.keeper.run())
    assert await admitted_there()
    assert len(await fleet.admitted(other, LIMIT // 4)) == LIMIT // 4
    found = [await admitted_there() for _ in range(LIMIT // 2)]
    assert all(found)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    for meters in gateway.workers.meters:
        assert meters.shares is not None
        meters.shares.close()
    assert len(await fleet.admitted(gateway, LIMIT)) == LIMIT - 1 - LIMIT // 2 - LIMIT // 4


@pytest.mark.parametrize("budget", ["tokens_per_day", "cost_per_month"])
async def test_budget_is_shared(store: SqliteStore, budget: str) -> None:
    """Requests under way count at once everywhere. Each gateway may let in the last request that does not fit."""
    tokens = 30
    most = 100 * tokens
    fleet = await share_limits(store, 3, **{budget: most if budget.startswith("tokens") else most / 1e6})
    fleet.know_spent(0)
    places = [await fleet.admitted(gateway, 60, tokens) for gateway in fleet.gateways]
    count = sum(map(len, places))
    assert 98 <= count <= 102 and len(places[0]) == 60
    refused = await fleet.take(fleet.gateways[0], tokens)
    assert isinstance(refused, GatewayError) and refused.code == "rate_limit_exceeded"


async def test_budget_that_is_stored_counts_once(store: SqliteStore) -> None:
    """Usage goes from the memory of a gateway to the store, and all read it there: the rest stays the same."""
    tokens = 30
    fleet = await share_limits(store, 2, tokens_per_day=100 * tokens)
    fleet.know_spent(0)
    sent = 0
    for _ in range(20):
        for gateway in fleet.gateways:
            for place in await fleet.admitted(gateway, 3, tokens):
                sent += 1
                place.close(tokens=tokens)
        fleet.know_spent(sent * tokens)
        await fleet.beat(1.0)
    assert 98 <= sent <= 102
    refused = await fleet.take(fleet.gateways[0], tokens)
    assert isinstance(refused, GatewayError) and refused.code == "insufficient_quota"
