"""Faults are survived on both event loops; what drives a gateway process needs one only."""

import pytest
from event_loops import ONE, Factories, loops_of

#: Modules whose tests run the gateway as a process of its own: it always has uvloop.
PROCESSES = frozenset(("test_data", "test_load", "test_memory", "test_store", "test_store_start"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Factories:
    return ONE if item.path.stem in PROCESSES else loops_of(item)
