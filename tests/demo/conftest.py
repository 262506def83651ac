"""A demo model that listens, and a client of it, on both event loops."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from event_loops import LOOPS, Factories

from gateway.demo.app import DemoModel, start_demo


def pytest_asyncio_loop_factories() -> Factories:
    return LOOPS


@pytest.fixture
async def demo() -> AsyncIterator[DemoModel]:
    model = await start_demo()
    yield model
    await model.close()


@pytest.fixture
async def client(demo: DemoModel) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(demo.base_url) as session:
        yield session
