"""Who waits for events hears of each, from whichever process it came; nobody waits, nobody asks the store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack

import pytest
from gateways import until, until_still

from gateway.contracts.storage.journal import Change, RunEvent
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs import event_feed as module
from gateway.runs.event_feed import BATCH, EventFeed
from tests.plugins.stores.records import event, new, run


class Watched(SqliteStore):
    """A store that notes how often it is asked for events; `broken`: it cannot say."""

    asked = 0
    broken = False

    async def list_events(
        self, *, after: int, tenant: str | None = None, run_id: str | None = None, limit: int
    ) -> Sequence[RunEvent]:
        self.asked += 1
        self._check()
        return await super().list_events(after=after, tenant=tenant, run_id=run_id, limit=limit)

    async def get_last_event(self) -> int:
        self._check()
        return await super().get_last_event()

    def _check(self) -> None:
        if self.broken:
            raise StoreError("disk I/O error")


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    made = Watched(":memory:")
    await made.open()
    for run_id in ("run_1", "run_2"):
        await made.write(new(run(run_id)))
    yield made
    await made.close()


@pytest.fixture
async def feed(store: Watched) -> AsyncIterator[EventFeed]:
    made = EventFeed(store)
    yield made
    await made.close()


async def happens(store: SqliteStore, *kinds: str, run_id: str = "run_1") -> None:
    await store.write(Change(run=run(run_id), events=tuple(event(kind, run_id=run_id) for kind in kinds)))


async def test_event_feed_delivers_events_in_order(store: Watched, feed: EventFeed) -> None:
    """Also where another process wrote it, which nobody here is told of; nothing of before."""
    await happens(store, "before")
    heard: list[str] = []
    async with feed.subscribe(lambda one: heard.append(one.type)):
        await happens(store, "a", "b")
        await until(lambda: len(heard) == 2)
        await happens(store, "c")
        feed.nudge()
        await until(lambda: len(heard) == 3)
    assert heard == ["a", "b", "c"]


async def test_nudged_event_feed_delivers_at_once(
    store: Watched, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However rarely the store is looked at."""
    monkeypatch.setattr(module, "LOOK_S", 3600.0)
    heard = asyncio.Event()
    async with feed.subscribe(lambda _: heard.set(), run_id="run_1"):
        await happens(store, "a")
        feed.nudge()
        await asyncio.wait_for(heard.wait(), 120)


async def test_run_subscriber_receives_only_events_of_its_run(store: Watched, feed: EventFeed) -> None:
    """Several may wait for the same one."""
    heard: dict[str, list[str]] = {"first": [], "second": [], "other": [], "all": []}
    async with AsyncExitStack() as stack:
        for name, run_id in (("first", "run_1"), ("second", "run_1"), ("other", "run_2"), ("all", None)):
            told = heard[name]
            await stack.enter_async_context(
                feed.subscribe(lambda one, told=told: told.append(one.run_id), run_id=run_id)  # type: ignore[misc]
            )
        await happens(store, "a")
        await happens(store, "b", run_id="run_2")
        feed.nudge()
        await until(lambda: len(heard["all"]) == 2)
    assert heard == {"first": ["run_1"], "second": ["run_1"], "other": ["run_2"], "all": ["run_1", "run_2"]}


async def test_many_subscribers_share_one_store_query(
    store: Watched, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked once for all of them, and each hears of everything."""
    monkeypatch.setattr(module, "LOOK_S", 3600.0)
    counts = [0] * 500

    def counting(i: int) -> Callable[[RunEvent], None]:
        def count(_event: RunEvent) -> None:
            counts[i] += 1

        return count

    async with AsyncExitStack() as stack:
        for i in range(len(counts)):
            await stack.enter_async_context(feed.subscribe(counting(i), run_id="run_1"))
        before = store.asked
        await happens(store, "a", "b")
        feed.nudge()
        await until(lambda: counts == [2] * 500)
        assert store.asked - before <= 2


async def test_feed_queries_the_store_only_with_subscribers(
    store: Watched, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before nor afterwards; and it begins anew for the next who waits."""
    monkeypatch.setattr(module, "LOOK_S", 0.005)
    assert store.asked == 0
    before = asyncio.all_tasks()
    async with feed.subscribe(lambda _: None):
        await until(lambda: store.asked > 1)
        assert asyncio.all_tasks() > before
    await until(lambda: asyncio.all_tasks() == before)
    heard: list[str] = []
    await happens(store, "meanwhile")
    async with feed.subscribe(lambda one: heard.append(one.type)):
        await happens(store, "a")
        await until(lambda: bool(heard))
    assert heard == ["a"]


async def test_event_feed_delivers_more_events_than_one_query_returns(store: Watched, feed: EventFeed) -> None:
    """Each once, in order."""
    heard: list[str] = []
    kinds = [f"e{i}" for i in range(2 * BATCH + 7)]
    async with feed.subscribe(lambda one: heard.append(one.type)):
        await happens(store, *kinds)
        feed.nudge()
        await until(lambda: len(heard) == len(kinds))
    assert heard == kinds


async def test_event_feed_loses_nothing_during_a_store_failure(
    store: Watched, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written meanwhile is heard afterwards; the store is left alone in between."""
    monkeypatch.setattr(module, "STORE_PAUSE_S", 3600.0)
    monkeypatch.setattr(module, "LOOK_S", 0.002)
    heard: list[str] = []
    async with feed.subscribe(lambda one: heard.append(one.type)):
        await until(lambda: store.asked > 0)
        store.broken = True
        await happens(store, "a")
        asked = await until_still(lambda: store.asked)
        assert heard == []
        monkeypatch.setattr(module, "STORE_PAUSE_S", 0.005)
        feed.nudge()
        await until(lambda: store.asked > asked + 1)
        assert heard == []
        store.broken = False
        await until(lambda: bool(heard))
    assert heard == ["a"]


async def test_failed_subscription_raises_store_error_and_can_be_repeated(store: Watched, feed: EventFeed) -> None:
    """It would miss something; the next one begins as if nothing had been."""
    store.broken = True
    with pytest.raises(StoreError):
        async with feed.subscribe(lambda _: None, run_id="run_1"):
            raise AssertionError
    store.broken = False
    heard: list[str] = []
    async with feed.subscribe(lambda one: heard.append(one.type), run_id="run_1"):
        await happens(store, "a")
        await until(lambda: bool(heard))


async def test_failing_subscriber_does_not_affect_others(store: Watched, feed: EventFeed) -> None:
    """Whatever it raised, the others go on hearing."""
    heard: list[str] = []

    def fails(_event: RunEvent) -> None:
        raise KeyError

    async with feed.subscribe(fails), feed.subscribe(lambda one: heard.append(one.type)):
        for kind in "ab":
            await happens(store, kind)
            feed.nudge()
        await until(lambda: heard == ["a", "b"])


async def test_ended_subscription_does_not_affect_others_of_its_run(store: Watched, feed: EventFeed) -> None:
    """Of the same run, too."""
    heard: list[str] = []
    async with feed.subscribe(lambda one: heard.append(one.type), run_id="run_1"):
        async with feed.subscribe(lambda _: None, run_id="run_1"):
            pass
        await happens(store, "a")
        await until(lambda: heard == ["a"])


async def test_closed_event_feed_delivers_nothing(store: Watched) -> None:
    """Twice is once, and before anybody waited it is nothing."""
    feed, before = EventFeed(store), asyncio.all_tasks()
    await feed.close()
    heard: list[str] = []
    async with feed.subscribe(lambda one: heard.append(one.type)):
        assert asyncio.all_tasks() > before
        await feed.close()
        await feed.close()
        await happens(store, "a")
        feed.nudge()
        assert asyncio.all_tasks() == before, "no task is left that could deliver it"
    assert heard == []
