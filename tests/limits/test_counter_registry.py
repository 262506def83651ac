"""The meters of a worker: one for each rule, and clear behaviour when there is no room for more."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.errors import GatewayError
from gateway.limits import shared_memory
from gateway.limits.counter_registry import UNUSED_S, Meters
from gateway.limits.limit_rule import LimitMeter
from gateway.limits.shared_memory import TICK_S, TICKS, SharedCounters
from gateway.testing.clock import ManualClock


def test_counter_registry_returns_the_same_meter_for_a_rule() -> None:
    meters = Meters(SharedCounters(places=1), place=0, clock=time.monotonic)
    assert meters.get_meter("key", "a") is meters.get_meter("key", "a")
    assert meters.get_meter("tenant", "a") is not meters.get_meter("key", "a")


def test_requests_are_refused_when_counters_run_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that have a place go on. The log says it once."""
    monkeypatch.setattr(shared_memory, "COUNTERS", 1)
    meters = Meters(SharedCounters(places=1), place=0, clock=time.monotonic)
    known = meters.get_meter("key", "a")
    known.count_requests(1, 0, time.monotonic())
    for name in "bc":
        with pytest.raises(GatewayError, match="no room to count"):
            meters.get_meter("key", name)
    assert meters.get_meter("key", "a") is known
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "there is no room to count further limits: requests of the key 'b', and perhaps of others, are refused until"
    )


def _worker(memory: SharedCounters, clock: ManualClock, place: int = 0) -> Meters:
    return Meters(memory, place=place, clock=clock)


def test_counters_of_unused_keys_are_reused_for_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 keys, each used once, those that nobody uses any more make room. Two workers see all of them."""
    monkeypatch.setattr(shared_memory, "COUNTERS", 1024)
    clock, memory = ManualClock(5000.0), SharedCounters(places=2)
    workers = [_worker(memory, clock, place) for place in range(2)]
    for number in range(20_000):
        clock.advance(0.2)
        for place, meters in enumerate(workers):
            assert meters.get_meter("key", str(number)).count_requests(0, 1, clock())[2] == place + 1
        if number % 100 == 0:
            for meters in workers:
                meters.release_unused()


def test_kept_meter_gets_counters_again_on_its_next_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets those of its own name, although another name has had its old ones meanwhile, and stays the only meter."""
    monkeypatch.setattr(shared_memory, "COUNTERS", 2)
    clock = ManualClock(5000.0)
    meters = _worker(SharedCounters(places=1), clock)
    kept = meters.get_meter("key", "a")
    kept.count_requests(0, 7, clock())
    clock.advance(UNUSED_S + TICK_S)
    others = [meters.get_meter("key", name) for name in "bc"]
    for other in others:
        assert other.count_requests(0, 3, clock())[2] == 3
    with pytest.raises(GatewayError, match="no room to count"):
        kept.count_requests(0, 1, clock())
    clock.advance(UNUSED_S + TICK_S)
    assert kept.count_requests(0, 1, clock())[2] == 1
    assert meters.get_meter("key", "a") is kept
    assert {other.get_used("tokens", clock()) for other in others if other is not others[0]} <= {0, 3}


def test_counters_in_use_are_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes, and whichever worker has it; a worker that died has nothing."""
    monkeypatch.setattr(shared_memory, "COUNTERS", 2)
    clock, memory = ManualClock(5000.0), SharedCounters(places=2)
    mine, other = _worker(memory, clock), _worker(memory, clock, 1)
    under_way = mine.get_meter("key", "long")
    under_way.count_requests(1, 0, clock())
    other.get_meter("key", "theirs").count_requests(0, 5, clock())
    clock.advance(3600.0)
    mine.get_meter("key", "theirs").count_requests(0, 2, clock())
    other.release_unused()
    with pytest.raises(GatewayError):
        mine.get_meter("key", "new")
    assert under_way.count_under_way() == 1
    clock.advance(UNUSED_S + TICK_S)
    again = _worker(memory, clock)  # in the place of `mine`, which was killed
    assert again.get_meter("key", "new").count_under_way() == 0


steps = st.lists(
    st.tuples(
        st.integers(0, 1),  # who
        st.sampled_from("abcdef"),
        st.integers(0, 5),  # how much
        st.sampled_from((0.0, 0.25, 7.3, 59.9, 61.0, 125.0)),  # how much later
        st.booleans(),  # all give back what they do not use
    ),
    max_size=60,
)


@given(steps)
def test_names_that_reuse_counters_never_count_each_other(
    steps: list[tuple[int, str, int, float, bool]],
) -> None:
    """What a name counts is what a plain list says, or there is no room for it; a plan may keep each meter."""
    clock = ManualClock(5000.0)
    memory = SharedCounters(places=2)
    memory.size = 3
    workers = [_worker(memory, clock, place) for place in range(2)]
    added: list[tuple[str, int, int]] = []
    plans: dict[tuple[int, str], LimitMeter] = {}
    for place, name, amount, later_s, tidies in steps:
        clock.advance(later_s)
        if tidies:
            for meters in workers:
                meters.release_unused()
        tick = int(clock() / TICK_S)
        expected = amount + sum(n for one, then, n in added if one == name and then > tick - TICKS)
        try:
            meter = plans.setdefault((place, name), workers[place].get_meter("key", name))
            assert meter.count_requests(0, amount, clock())[2] == expected
        except GatewayError:
            continue
        added.append((name, tick, amount))
