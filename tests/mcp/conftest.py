"""The connections to MCP servers hold on both loops."""

from loops import LOOPS, Factories


def pytest_asyncio_loop_factories() -> Factories:
    return LOOPS
