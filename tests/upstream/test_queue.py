"""The queue of an upstream: places go to requests in their order, and a request that leaves takes none with it."""

import asyncio

import pytest
from upstream.groups import group, group_of, member

from gateway.contracts.errors import GatewayError
from gateway.testing.clock import ManualClock
from gateway.upstream.attempts import Tries
from gateway.upstream.breaker import BreakerRules
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group, RetryRules
from gateway.upstream.queue import QueueRules

CLOCK = ManualClock()


def one_place(*, size: int = 2, wait_s: float = 60.0) -> Group:
    return group_of(member("a", CLOCK, most=1), clock=CLOCK, queue=QueueRules(size=size, wait_s=wait_s))


async def waiting(of: Group, order: list[str], name: str) -> None:
    tries = Tries(of, twice=False)
    assert tries.begin() is None
    await of.wait_for_place(tries)
    order.append(name)
    await asyncio.sleep(0)
    tries.end(failed=False)


async def test_queue_serves_requests_in_order_and_refuses_when_full() -> None:
    """And one more than the queue holds is refused at once, with the time to come back."""
    of, order = one_place(), list[str]()
    first = Tries(of, twice=False)
    assert first.begin() is of.members[0]
    tasks = [asyncio.create_task(waiting(of, order, name)) for name in "xy"]
    await asyncio.sleep(0)
    with pytest.raises(GatewayError, match="as many requests as they may") as refused:
        Tries(of, twice=False).begin() or await of.wait_for_place(Tries(of, twice=False))
    assert (refused.value.code, refused.value.retry_after_s, of.queue_length) == ("overloaded", 1.0, 2)
    first.end(failed=False)
    await asyncio.gather(*tasks)
    assert (order, of.members[0].inflight) == (["x", "y"], 0)


async def test_cancelled_waiter_frees_its_place_in_the_queue() -> None:
    """Also when the endpoint's place was given at the same moment."""
    of = one_place()
    first, second = Tries(of, twice=False), Tries(of, twice=False)
    first.begin()
    leaving = asyncio.create_task(of.wait_for_place(second))
    await asyncio.sleep(0)
    first.end(failed=False)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (of.members[0].inflight, of.queue_length) == (0, 0)


async def test_queue_wait_timeout_error_names_the_setting() -> None:
    """And gives up the place in the queue."""
    of = one_place(wait_s=0.01)
    Tries(of, twice=False).begin()
    with pytest.raises(GatewayError, match=r"within 0\.01 s \(queue\.wait\)"):
        await of.wait_for_place(Tries(of, twice=False))
    assert (of.queue_length, of.tally.refused["wait"]) == (0, 1)


@pytest.mark.parametrize("goes_out", ["breaker", "health", "pause"])
@pytest.mark.parametrize("rented", [True, False])
async def test_queued_requests_fall_back_or_fail_when_endpoint_goes_out(goes_out: str, rented: bool) -> None:
    """At once: to a fallback, or with the error that a new request gets."""
    rules = BreakerRules(failures=1)
    queue, retry = QueueRules(size=2, wait_s=600.0), RetryRules(tries=1)
    of = group_of(member("a", CLOCK, most=1, breaker=rules), clock=CLOCK, queue=queue, retry=retry)
    of.fallbacks = (group("z", CLOCK),) if rented else ()
    first = Tries(of, twice=False)
    first.begin()
    waits = [asyncio.create_task(of.wait_for_place(Tries(of, twice=False))) for _ in range(2)]
    await asyncio.sleep(0)
    if goes_out == "health":
        of.apply_health_check(of.members[0], failing="it answered 500")
    else:
        first.end_failed_try("reset" if goes_out == "breaker" else "503", pause_s=9.0 if goes_out == "pause" else None)
    ends = await asyncio.gather(*waits, return_exceptions=True)
    codes = [end.name if isinstance(end, Member) else getattr(end, "code", end) for end in ends]
    assert codes == (["z", "z"] if rented else ["circuit_open"] * 2) and of.queue_length == 0
