"""The memory that workers share: names, rows, and what a dead worker leaves."""

import os

from gateway.limits import shared
from gateway.limits.counter import Counter
from gateway.limits.shared import SharedCounters


def _in_child(work) -> int:
    """Run `work` in a process of its own, as a worker is. Return its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_name_has_the_same_number_in_every_worker():
    memory = SharedCounters(places=2)
    mine = memory.hold("key ci requests", place=0, now_s=0.0)

    assert _in_child(lambda: memory.hold("key ci requests", place=0, now_s=0.0)) == mine % 256
    assert memory.hold("key other requests", place=0, now_s=0.0) != mine


def test_many_names_all_have_numbers_of_their_own():
    memory = SharedCounters(places=1)
    numbers = [memory.hold(f"key {n}", place=0, now_s=0.0) for n in range(1000)]

    assert len(set(numbers)) == 1000
    assert numbers == [memory.hold(f"key {n}", place=0, now_s=0.0) for n in range(1000)]


def test_a_name_has_no_number_once_there_is_no_room(monkeypatch):
    monkeypatch.setattr(shared, "COUNTERS", 4)
    memory = SharedCounters(places=1)

    assert None not in [memory.hold(name, place=0, now_s=0.0) for name in "abcd"]
    assert memory.hold("e", place=0, now_s=0.0) is None
    assert memory.hold("a", place=0, now_s=0.0) is not None


def test_a_killed_worker_leaves_what_it_used_and_its_successor_clears_what_it_had_under_way():
    memory = SharedCounters(places=2)
    number = memory.hold("key ci", place=0, now_s=0.0)
    mine = Counter(memory, number, place=0)

    def die() -> None:
        other = Counter(memory, number, place=1)
        other.add(7, 100.0)
        other.enter()
        os.kill(os.getpid(), 9)

    assert _in_child(die) == -9
    assert (mine.used(101.0), mine.present()) == (7, 1)
    memory.adopt(1)
    assert (mine.used(101.0), mine.present()) == (7, 0)


def test_what_a_worker_has_under_way_survives_that_another_one_takes_its_place():
    memory = SharedCounters(places=2)
    number = memory.hold("key ci", place=0, now_s=0.0)
    mine = Counter(memory, number, place=0)
    mine.enter()
    memory.adopt(1)

    assert mine.present() == 1


def test_workers_that_write_at_the_same_time_lose_nothing_and_never_exceed_a_limit():
    memory = SharedCounters(places=4)
    number = memory.hold("key ci", place=0, now_s=0.0)
    limit, tries = 5000, 4000
    pids = []
    for place in range(4):
        pid = os.fork()
        if not pid:
            counter, taken = Counter(memory, number, place=place), 0
            for _ in range(tries):
                if counter.add(1, 100.0) > limit:
                    counter.correct(-1, since_s=100.0, now_s=100.0)
                else:
                    taken += 1
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4

    used = Counter(memory, memory.hold("key ci", place=0, now_s=0.0), place=0).used(100.0)
    assert limit - 8 <= used <= limit
