"""Waits of one length: each is over in its turn, unless it ended before."""

import asyncio
from collections.abc import Callable

from gateway.upstream.shared_timer import Waits


class Waiting:
    """A waiter, for which something may happen when its wait is over."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.over = asyncio.Event()
        self.then = then

    def on_timeout(self) -> None:
        self.over.set()
        self.then()


async def test_shared_timer_ends_each_wait_in_order_and_not_early() -> None:
    """Also those that begin while others wait, and after all were over."""
    waits, loop = Waits(0.03), asyncio.get_running_loop()
    for _ in range(2):
        began_s = loop.time()
        first, second, third = Waiting(), Waiting(), Waiting()
        waits.begin(first)
        waits.begin(second)
        await first.over.wait()
        assert loop.time() - began_s >= 0.029
        waits.begin(third)
        began_s = loop.time()
        await second.over.wait()
        await third.over.wait()
        assert loop.time() - began_s >= 0.029


async def test_cancelled_wait_never_fires() -> None:
    """A waiter that began after it is called."""
    waits, ended, last = Waits(0.01), Waiting(), Waiting()
    waits.begin(ended)
    waits.begin(last)
    waits.end(ended)
    waits.end(ended)
    await last.over.wait()
    assert not ended.over.is_set()


async def test_failing_timer_callback_does_not_stop_other_waits() -> None:
    """Its error is reported."""
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: failed.append(facts))

    def fail() -> None:
        raise RuntimeError("bad")

    waits, bad, good = Waits(0.01), Waiting(fail), Waiting()
    waits.begin(bad)
    waits.begin(good)
    await good.over.wait()
    assert bad.over.is_set() and [str(facts["exception"]) for facts in failed] == ["bad"]


async def test_wait_started_in_a_callback_does_not_delay_earlier_waits() -> None:
    """Waiters that were due before it are called before it."""
    waits, newest, order = Waits(0.2), Waiting(), list[str]()
    oldest = Waiting(lambda: waits.begin(newest))
    middle = Waiting(lambda: order.append("middle"))
    newest.then = lambda: order.append("newest")
    waits.begin(oldest)
    await asyncio.sleep(0.01)
    waits.begin(middle)
    await newest.over.wait()
    assert order == ["middle", "newest"]
