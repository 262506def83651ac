"""The memory that workers share: names, rows, and what a dead worker leaves."""

import os

from gateway.limits import shared_memory
from gateway.limits.shared_memory import SharedCounters

from .limiting import counters


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


def test_counter_name_has_the_same_number_in_every_worker():
    memory = SharedCounters(places=2)
    mine = memory.hold_counter("key ci requests", place=0, now_s=0.0)

    assert _in_child(lambda: memory.hold_counter("key ci requests", place=0, now_s=0.0)) == mine % 256
    assert memory.hold_counter("key other requests", place=0, now_s=0.0) != mine


def test_counter_names_have_distinct_numbers():
    memory = SharedCounters(places=1)
    numbers = [memory.hold_counter(f"key {n}", place=0, now_s=0.0) for n in range(1000)]

    assert len(set(numbers)) == 1000
    assert numbers == [memory.hold_counter(f"key {n}", place=0, now_s=0.0) for n in range(1000)]


def test_full_shared_memory_assigns_no_number_to_a_new_name(monkeypatch):
    monkeypatch.setattr(shared_memory, "COUNTERS", 4)
    memory = SharedCounters(places=1)

    assert None not in [memory.hold_counter(name, place=0, now_s=0.0) for name in "abcd"]
    assert memory.hold_counter("e", place=0, now_s=0.0) is None
    assert memory.hold_counter("a", place=0, now_s=0.0) is not None


def test_successor_of_killed_worker_keeps_usage_and_clears_inflight_requests():
    memory = SharedCounters(places=2)
    mine, other = counters(lambda: 101.0, memory=memory)

    def die() -> None:
        other.count_requests(1, 7, 100.0)
        os.kill(os.getpid(), 9)

    assert _in_child(die) == -9
    assert (mine.get_used("tokens", 101.0), mine.get_used("requests", 101.0), mine.count_under_way()) == (7, 1, 1)
    memory.adopt_place(1)
    assert (mine.get_used("tokens", 101.0), mine.get_used("requests", 101.0), mine.count_under_way()) == (7, 1, 0)


def test_concurrent_requests_survive_replacement_of_another_worker():
    memory = SharedCounters(places=2)
    mine, _ = counters(lambda: 100.0, memory=memory)
    mine.count_requests(1, 0, 100.0)
    memory.adopt_place(1)

    assert mine.count_under_way() == 1


def test_concurrent_worker_writes_lose_nothing_and_never_exceed_a_limit():
    limit, tries = 5000, 4000
    workers, pids = counters(lambda: 100.0, places=4), []
    for counter in workers:
        pid = os.fork()
        if not pid:
            for _ in range(tries):
                _, made, used = counter.count_requests(1, 2, 100.0)
                if made > limit or used > 2 * limit:
                    counter.correct_tick(-1, -2, counter.tick)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4

    used = workers[0].get_used("requests", 100.0)
    assert limit - 8 <= used <= limit
    assert workers[0].get_used("tokens", 100.0) == 2 * used
