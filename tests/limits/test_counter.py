"""One counter: the window of a minute, corrections, waits; beside a plain model of the same."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.counter import MOST, Counter
from gateway.limits.shared import TICK_S, TICKS, SharedCounters

BEGAN_S = 5000.0


def _counters(places: int = 1) -> list[Counter]:
    memory = SharedCounters(places=places)
    number = memory.hold("key ci", place=0, now_s=0.0)
    assert number is not None
    return [Counter(memory, number, place=place) for place in range(places)]


def test_what_was_used_counts_for_a_minute_and_at_most_a_tick_longer():
    (counter,) = _counters()
    counter.add(3, BEGAN_S)

    assert counter.used(BEGAN_S + 60.0) == 3
    assert counter.used(BEGAN_S + 60.25) == 0


def test_all_workers_see_what_each_of_them_used():
    first, second = _counters(2)
    first.add(3, BEGAN_S)

    assert second.add(4, BEGAN_S + 30.0) == 7
    assert first.used(BEGAN_S + 30.1) == 7
    assert first.used(BEGAN_S + 61.0) == 4  # the second one has done nothing since


def test_more_than_fits_is_counted_as_the_most():
    (counter,) = _counters()
    counter.add(MOST, BEGAN_S)

    assert counter.add(10, BEGAN_S) == MOST


def test_a_correction_changes_what_was_added_then():
    (counter,) = _counters()
    counter.add(100, BEGAN_S)
    counter.correct(-60, since_s=BEGAN_S, now_s=BEGAN_S + 59.0)

    assert counter.used(BEGAN_S + 59.0) == 40
    assert counter.used(BEGAN_S + 60.25) == 0


def test_of_what_has_left_the_window_only_more_than_was_thought_counts():
    (counter,) = _counters()
    counter.add(100, BEGAN_S)
    counter.correct(-60, since_s=BEGAN_S, now_s=BEGAN_S + 90.0)
    assert counter.used(BEGAN_S + 90.0) == 0

    counter.correct(25, since_s=BEGAN_S, now_s=BEGAN_S + 90.0)
    assert counter.used(BEGAN_S + 90.0) == 25


def test_a_correction_takes_away_no_more_than_there_is():
    (counter,) = _counters()
    counter.add(5, BEGAN_S)
    counter.correct(-9, since_s=BEGAN_S, now_s=BEGAN_S)

    assert counter.used(BEGAN_S) == 0


def test_the_wait_is_until_enough_has_left_the_window():
    first, second = _counters(2)
    first.add(2, BEGAN_S)
    second.add(3, BEGAN_S + 10.0)

    assert first.wait_s(2, BEGAN_S + 20.0) == 40.25
    assert first.wait_s(3, BEGAN_S + 20.0) == 50.25
    assert first.used(BEGAN_S + 20.0 + first.wait_s(3, BEGAN_S + 20.0)) == 0


def test_what_is_under_way_is_counted_over_all_workers():
    first, second = _counters(2)

    assert (first.enter(), second.enter(), second.enter()) == (1, 2, 3)
    second.leave()
    assert first.present() == 2


steps = st.lists(
    st.tuples(
        st.integers(0, 2),  # who
        st.integers(0, 50),  # how much
        st.sampled_from((0.0, 0.1, 0.25, 1.0, 7.3, 59.9, 60.1, 200.0)),  # how much later
    ),
    max_size=40,
)


@given(steps)
def test_any_order_of_workers_and_times_gives_what_a_plain_list_gives(steps):
    counters, added, now_s = _counters(3), [], BEGAN_S
    for place, amount, later_s in steps:
        now_s += later_s
        tick = int(now_s / TICK_S)
        added.append((tick, amount))
        expected = sum(n for then, n in added if then > tick - TICKS)
        assert counters[place].add(amount, now_s) == expected
        assert [counter.used(now_s) for counter in counters] == [expected] * 3
