"""One counter: the window of a minute, corrections, waits; beside a plain model of the same."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.counter import BUSY, MOST, Counter
from gateway.limits.shared_memory import LAST, TICK_S, TICKS, SharedCounters
from gateway.testing.clock import ManualClock

from .limiting import BEGAN_S, counters


def began(places: int = 1) -> tuple[ManualClock, list[Counter]]:
    clock = ManualClock(BEGAN_S)
    return clock, counters(clock, places=places)


def test_usage_counts_for_a_minute_and_at_most_a_tick_longer():
    _, (counter,) = began()
    counter.count_requests(1, 3, BEGAN_S)

    assert (counter.get_used("requests", BEGAN_S + 60.0), counter.get_used("tokens", BEGAN_S + 60.0)) == (1, 3)
    assert (counter.get_used("requests", BEGAN_S + 60.25), counter.get_used("tokens", BEGAN_S + 60.25)) == (0, 0)


def test_every_worker_counts_the_usage_of_all_workers():
    _, (first, second) = began(2)
    first.count_requests(1, 3, BEGAN_S)

    assert second.count_requests(1, 4, BEGAN_S + 30.0) == (2, 2, 7)
    assert first.get_used("tokens", BEGAN_S + 30.1) == 7
    assert first.get_used("tokens", BEGAN_S + 61.0) == 4  # the second one has done nothing since


def test_counter_saturates_at_its_maximum():
    _, (counter,) = began()
    counter.count_requests(0, MOST, BEGAN_S)

    assert counter.count_requests(0, 10, BEGAN_S) == (0, 0, MOST)


def test_correction_applies_to_the_tick_of_the_original_count():
    clock, (counter,) = began()
    counter.count_requests(2, 100, BEGAN_S)
    then = counter.tick
    clock.advance(59.0)
    counter.correct_tick(-1, -60, then)

    assert (counter.get_used("requests", clock()), counter.get_used("tokens", clock())) == (1, 40)
    assert counter.get_used("tokens", BEGAN_S + 60.25) == 0


def test_correction_after_the_window_counts_only_increases():
    clock, (counter,) = began()
    counter.count_requests(0, 100, BEGAN_S)
    then = counter.tick
    clock.advance(90.0)
    counter.correct_tick(-1, -60, then)
    assert (counter.get_used("requests", clock()), counter.get_used("tokens", clock())) == (0, 0)

    counter.correct_tick(0, 25, then)
    assert counter.get_used("tokens", clock()) == 25


def test_correction_never_makes_a_counter_negative():
    _, (counter,) = began()
    counter.count_requests(0, 5, BEGAN_S)
    counter.correct_tick(-1, -9, counter.tick)

    assert (counter.get_used("requests", BEGAN_S), counter.get_used("tokens", BEGAN_S)) == (0, 0)


def test_wait_lasts_until_enough_usage_has_left_the_window():
    """Of requests and of tokens, each for itself."""
    _, (first, second) = began(2)
    first.count_requests(0, 2, BEGAN_S)
    first.count_requests(1, 0, BEGAN_S + 5.0)
    second.count_requests(0, 3, BEGAN_S + 10.0)

    assert first.wait_s("tokens", 2, BEGAN_S + 20.0) == 40.25
    assert first.wait_s("tokens", 3, BEGAN_S + 20.0) == 50.25
    assert first.wait_s("requests", 1, BEGAN_S + 20.0) == 45.25
    assert first.get_used("tokens", BEGAN_S + 20.0 + first.wait_s("tokens", 3, BEGAN_S + 20.0)) == 0


def test_concurrent_requests_are_counted_over_all_workers():
    _, (first, second) = began(2)

    assert [one.count_requests(1, 0, BEGAN_S)[0] for one in (first, second, second)] == [1, 2, 3]
    second.end_requests()
    assert first.count_under_way() == 2


class Stopped:
    """The row of another worker. Behind its last read in a look, this worker is stopped, and `meanwhile` happens."""

    def __init__(self, row: memoryview) -> None:
        self._row = row
        self.meanwhile: Callable[[], object] | None = None

    def __getitem__(self, at: int) -> int:
        value = self._row[at]
        if at == LAST and self.meanwhile is not None:
            self.meanwhile, meanwhile = None, self.meanwhile
            meanwhile()
        return value


def test_batched_reservation_rechecks_usage_of_other_workers():
    """It was stopped between its look and that, and another has filled the limit meanwhile."""
    memory, most = SharedCounters(places=2), (10**6, 1000, 10**6)
    number = memory.hold_counter("key ci", place=0, now_s=0.0)
    row = Stopped(memory.get_row(number, 1))
    counter = Counter(lambda _: (memory.get_row(number, 0), (row,)), lambda: BEGAN_S)
    other = Counter(lambda _: memory.get_rows(number, 1), lambda: BEGAN_S)
    for _ in range(BUSY - 1):
        counter.count_requests(1, 0, BEGAN_S, most)
    row.meanwhile = lambda: other.count_requests(1000 - BUSY, 0, BEGAN_S, most)
    assert counter.count_requests(1, 0, BEGAN_S, most) is None
    assert counter.ahead == 0
    assert other.get_used("requests", BEGAN_S) == 1000


def test_successor_of_a_killed_worker_continues_its_counts_within_the_tick():
    """It takes the place of a worker that was killed just before."""
    memory = SharedCounters(places=1)
    (dead,) = counters(lambda: BEGAN_S, memory=memory)
    dead.count_requests(1, 5, BEGAN_S)
    memory.adopt_place(0)
    (successor,) = counters(lambda: BEGAN_S, memory=memory)

    assert successor.count_requests(1, 2, BEGAN_S) == (1, 2, 7)
    successor.correct_tick(-1, -3, successor.tick)
    assert successor.count_requests(1, 2, BEGAN_S) == (2, 2, 6)


steps = st.lists(
    st.tuples(
        st.integers(0, 2),  # who
        st.integers(0, 50),  # how much
        st.sampled_from((0.0, 0.1, 0.25, 1.0, 7.3, 59.9, 60.1, 200.0)),  # how much later
    ),
    max_size=40,
)


@given(steps)
def test_counts_match_a_plain_list_for_any_operation_order(steps):
    (clock, workers), added = began(3), []
    for place, amount, later_s in steps:
        clock.advance(later_s)
        tick = int(clock() / TICK_S)
        added.append((tick, amount))
        window = [n for then, n in added if then > tick - TICKS]
        assert workers[place].count_requests(1, amount, clock()) == (len(added), len(window), sum(window))
        assert [one.get_used("tokens", clock()) for one in workers] == [sum(window)] * 3
        assert [one.get_used("requests", clock()) for one in workers] == [len(window)] * 3
