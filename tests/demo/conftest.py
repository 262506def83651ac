"""A demo model that listens, and a client of it, on both event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
import pytest
import uvloop

from gateway.demo.app import DemoModel, start_demo


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def demo() -> AsyncIterator[DemoModel]:
    model = await start_demo()
    yield model
    await model.close()


@pytest.fixture
async def client(demo: DemoModel) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(demo.base_url) as session:
        yield session
