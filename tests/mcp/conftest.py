"""The connections to MCP servers hold on both loops."""

from collections.abc import AsyncIterator

import pytest
from event_loops import LOOPS, Factories

from tests.mcp.workers import Workers, opened


def pytest_asyncio_loop_factories() -> Factories:
    return LOOPS


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    async with opened() as made:
        yield made
