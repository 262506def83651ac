"""The clock of the store, which all its gateways go by, whatever the clocks of their machines say."""

import logging

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.server.store.clock import StoreClock
from gateway.testing.clock import ManualClock


class SkewedClock(ManualClock):
    """A clock whose Unix time is off by a difference, which may change; its monotonic time is not."""

    def __init__(self, start_s: float, *, skew_s: float = 0.0) -> None:
        super().__init__(start_s)
        self.skew_s = skew_s

    def time(self) -> float:
        return self.monotonic() + self.skew_s


class TimedStore(SqliteStore):
    """A store with the time of `clock` and `ahead_s`, whose answer takes `trip_s` each way; or one that is away."""

    def __init__(self, clock: ManualClock, ahead_s: float, *, trip_s: float = 0.0) -> None:
        super().__init__(":memory:")
        self.ahead_s, self.trip_s, self.is_away = ahead_s, trip_s, False
        self._server_clock = clock

    async def read_clock(self) -> float:  # type: ignore[override]  # another store than its base has a clock
        if self.is_away:
            raise StoreError("the server is away")
        self._server_clock.advance(self.trip_s)
        now_s = self._server_clock.monotonic() + self.ahead_s
        self._server_clock.advance(self.trip_s)
        return now_s


async def test_time_is_that_of_the_store() -> None:
    """Between two looks it goes on, also if somebody sets the clock of the machine."""
    own = SkewedClock(1000.0, skew_s=300.0)
    clock = StoreClock(own)
    assert clock.time() == 1300.0
    await clock.read_store_time(TimedStore(own, 0.0))
    assert clock.time() == 1000.0
    own.advance(7.0)
    own.skew_s = -4000.0
    assert (clock.time(), clock.monotonic()) == (1007.0, 1007.0)


async def test_store_without_a_clock_leaves_the_time_to_the_machine() -> None:
    own = SkewedClock(1000.0, skew_s=300.0)
    clock, store = StoreClock(own), SqliteStore(":memory:")
    await clock.read_store_time(store)
    own.skew_s = 20.0
    assert clock.time() == 1020.0


async def test_time_that_may_be_right_does_not_jump() -> None:
    """An answer that took long is no reason to change it. One that excludes it changes it as little as possible."""
    own = SkewedClock(1000.0)
    clock = StoreClock(own)
    await clock.read_store_time(TimedStore(own, 50.0))
    await clock.read_store_time(TimedStore(own, 50.4, trip_s=0.5))
    assert clock.time() - own.monotonic() == pytest.approx(50.0)
    await clock.read_store_time(TimedStore(own, 51.0, trip_s=0.5))
    assert clock.time() - own.monotonic() == pytest.approx(50.5)
    await clock.read_store_time(TimedStore(own, 49.0))
    assert clock.time() - own.monotonic() == pytest.approx(49.0)


async def test_store_that_is_away_changes_no_time() -> None:
    own = SkewedClock(1000.0, skew_s=300.0)
    clock, store = StoreClock(own), TimedStore(own, 0.0)
    await clock.read_store_time(store)
    store.is_away = True
    with pytest.raises(StoreError):
        await clock.read_store_time(store)
    assert clock.time() == 1000.0


@pytest.mark.parametrize(("skew_s", "words"), [(300.0, "300.0 s ahead of"), (-2.0, "2.0 s behind")])
async def test_skew_of_the_machine_is_logged_once(skew_s: float, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """And again when it comes back."""
    caplog.set_level(logging.WARNING)
    own = SkewedClock(1000.0, skew_s=skew_s)
    clock, store = StoreClock(own), TimedStore(own, 0.0)
    await clock.read_store_time(store)
    await clock.read_store_time(store)
    assert len(caplog.messages) == 1 and words in caplog.messages[0]
    own.skew_s = 0.5
    await clock.read_store_time(store)
    own.skew_s = skew_s
    await clock.read_store_time(store)
    assert len(caplog.messages) == 2
