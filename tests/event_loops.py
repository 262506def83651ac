"""The event loops that tests run on: uvloop, as the gateway does, or those that TWOLANE_LOOPS names."""

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
import uvloop

Factories = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]

ONE: Factories = {"asyncio": asyncio.new_event_loop}
_BOTH: Factories = {**ONE, "uvloop": uvloop.new_event_loop}
#: Where a test must hold on every loop, unless it names one itself: CI names both (`asyncio,uvloop`).
LOOPS: Factories = {name: _BOTH[name] for name in os.environ.get("TWOLANE_LOOPS", "uvloop").split(",")}


def loops_of(item: pytest.Item) -> Factories:
    """Every loop, or those that the test's own mark chooses from."""
    marker = item.get_closest_marker("asyncio")
    return LOOPS if marker is None or "loop_factories" not in marker.kwargs else _BOTH
