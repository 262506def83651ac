"""The shares in the memory of all workers: words of counters, requests for more, and bells."""

import os

import pytest

from gateway.limits.share_memory import ANSWERS, EPOCH, REQUESTS, WORDS, ShareMemory


def test_words_of_a_counter_are_its_own() -> None:
    memory = ShareMemory(places=1, size=4)
    for number in range(4):
        memory.get_words(number)[:] = memoryview(bytes([number + 1]) * 8 * WORDS).cast("q")
    assert [memory.get_words(number)[0] & 0xFF for number in range(4)] == [1, 2, 3, 4]
    assert memory.header.tolist() == [0] * 8 and memory.copy_asks() == [bytes(32)]


def test_counter_that_becomes_anothers_has_no_share() -> None:
    """Those that know it look again: its numbers grow."""
    memory = ShareMemory(places=1, size=4)
    words = memory.get_words(2)
    words[REQUESTS], words[EPOCH], words[ANSWERS] = 7, 5, 3
    memory.clear(2)
    assert (words[REQUESTS], words[EPOCH], words[ANSWERS]) == (0, 6, 4)


def test_requests_for_more_are_summed_over_workers() -> None:
    """Since the last look, each counter for itself."""
    memory = ShareMemory(places=2, size=200)
    before = memory.copy_asks()
    memory.request_more(3, 0, requests=1, tokens=500)
    memory.request_more(3, 1, requests=2, tokens=0)
    memory.request_more(199, 1, requests=0, tokens=40)
    after = memory.copy_asks()
    assert memory.list_asks(before, after) == {3: (3, 500), 199: (0, 40)}
    assert memory.list_asks(after, memory.copy_asks()) == {}


def test_requests_for_more_may_be_very_many() -> None:
    """Their sum begins anew, and differences stay right."""
    memory = ShareMemory(places=1, size=1)
    known = memory.copy_asks()
    for _ in range(5):
        memory.request_more(0, 0, requests=(1 << 26) - 1, tokens=1 << 40)
        after = memory.copy_asks()
        assert memory.list_asks(known, after) == {0: ((1 << 26) - 1, (1 << 36) - 1)}
        known = after


def test_workers_wake_each_other() -> None:
    """However often one is rung, one look takes all of it. A worker alone has no bell."""
    memory = ShareMemory(places=2, size=1)
    for _ in range(3):
        memory.wake_worker(1)
    assert os.eventfd_read(memory.bells[1]) == 3
    memory.listen(1)
    with pytest.raises(BlockingIOError):
        os.eventfd_read(memory.bells[1])
    assert ShareMemory(places=1, size=1).bells == []
