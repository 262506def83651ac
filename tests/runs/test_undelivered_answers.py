"""Answers that workers owe: each knows of those of the others, also of one that was killed."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from gateways import until

from gateway.contracts.errors import GatewayError
from gateway.runs.live import LiveRuns
from gateway.runs.undelivered_answers import JOINABLE_S, OwedAnswers, SharedAnswers
from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock

from .living import Work, exchange, request_key, whole

FAILS = GatewayError("upstream_unavailable", "It is away.")


@contextmanager
def beside(shared: SharedAnswers, does: Callable[[OwedAnswers], object]) -> Iterator[int]:
    """Run another worker, at place 1, until it is killed. Yields its process id once it has done this."""
    ready = multiprocessing.Event()

    def work() -> None:
        does(OwedAnswers(shared, place=1, clock=time.monotonic))
        ready.set()
        signal.pause()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    try:
        assert ready.wait(60) and process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


@pytest.fixture
def shared() -> SharedAnswers:
    return SharedAnswers(places=2)


def test_owed_answer_of_a_worker_is_visible_to_other_workers(shared: SharedAnswers) -> None:
    """Not while its client is there, and not once the answer was told."""
    clock = ManualClock()
    clock.advance(1.0)
    one = OwedAnswers(shared, place=0, clock=clock)

    def does(other: OwedAnswers) -> None:
        for name in ("left", "read", "told"):
            other.begin(name)
        other.note_lost_client("left")
        other.note_lost_client("told")
        other.mark_delivered("told")

    with beside(shared, does):
        now_s = time.monotonic()
        clock.advance(now_s - clock())
        assert [one.has(name) for name in ("left", "read", "told", "never")] == [True, False, False, False]
        one.mark_delivered("left")
        assert not one.has("left")


def test_answer_is_owed_for_the_join_window_of_its_run(shared: SharedAnswers) -> None:
    with beside(shared, lambda other: (other.begin("left"), other.note_lost_client("left"))):
        clock = ManualClock()
        one = OwedAnswers(shared, place=0, clock=clock)
        clock.advance(time.monotonic())
        assert one.has("left")
        clock.advance(JOINABLE_S + 1)
        assert not one.has("left")


def test_unfinished_answer_of_a_killed_worker_is_owed(shared: SharedAnswers) -> None:
    """At once, and by its successor from then on."""
    one = OwedAnswers(shared, place=0, clock=time.monotonic)
    with beside(shared, lambda other: other.begin("read")) as pid:
        assert not one.has("read")
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert one.has("read")
    successor = OwedAnswers(shared, place=1, clock=time.monotonic)
    assert one.has("read") and successor.has("read")
    successor.mark_delivered("read")
    assert not one.has("read")


def test_answer_of_a_living_workers_client_is_that_clients(shared: SharedAnswers) -> None:
    """Under way or delivered; not once its client or its worker is lost, and not after the join window."""
    clock = ManualClock(100.0)
    one = OwedAnswers(shared, place=0, clock=clock)
    assert not one.is_clients("a")
    one.begin("a")
    assert one.is_clients("a") and not one.has("a")
    one.mark_delivered("a")
    assert one.is_clients("a") and not one.has("a")
    clock.advance(JOINABLE_S + 1)
    assert not one.is_clients("a")
    one.begin("b")
    one.note_lost_client("b")
    assert one.has("b") and not one.is_clients("b")
    with beside(shared, lambda killed: killed.begin("c")) as process:
        assert one.is_clients("c")
        os.kill(process, signal.SIGKILL)
    assert one.has("c") and not one.is_clients("c")


def test_single_worker_gateway_stores_no_owed_answers() -> None:
    alone = OwedAnswers(SharedAnswers(places=1), place=0, clock=time.monotonic)
    alone.begin("left")
    alone.note_lost_client("left")
    assert not alone.has("left")


@pytest.mark.parametrize("ends", ["fails", "cut", "whole"])
async def test_unmarked_repeat_is_recognised_by_another_worker(ends: str, shared: SharedAnswers) -> None:
    """If its run failed behind an effect, or its client left it; not if the client had the whole answer."""
    clock = ManualClock()
    clock.advance(1.0)
    owed = [OwedAnswers(shared, place=place, clock=clock) for place in range(2)]
    here, there = (LiveRuns(clock=Clock(clock), owed=one) for one in owed)
    work = Work(error=FAILS if ends == "fails" else None)
    run = here.begin(exchange(), request_key(), work)
    here.join(run)
    await until(lambda: run.marks.effects)
    if ends == "cut":
        here.remove_client(run, whole=False)
    work.go.set()
    await asyncio.wait_for(run.wait_until_ended(), 120)
    if ends != "cut":
        if ends == "whole":
            await whole(run)
        here.remove_client(run, whole=True)
    assert there.mark_as_repeat(request_key()).repeats == (ends != "whole")
    await here.close()
    await there.close()
