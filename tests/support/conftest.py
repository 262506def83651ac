"""Everything here holds on both event loops."""

from event_loops import LOOPS, Factories


def pytest_asyncio_loop_factories() -> Factories:
    return LOOPS
