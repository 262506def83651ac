"""Faults are survived on both event loops; what drives a gateway process needs one only."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

#: Modules whose tests run the gateway as a process of its own: it always has uvloop.
PROCESSES = frozenset(("test_data", "test_load", "test_memory", "test_store", "test_store_start"))


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.stem in PROCESSES:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
