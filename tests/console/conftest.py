"""One Chromium for all tests of a process, and a gateway with the demo model for each."""

from collections.abc import AsyncIterator
from functools import partial

import pytest_asyncio
from gateways import config
from playwright.async_api import Browser, async_playwright, expect

from tests.console.browser import PATIENCE_MS, Visit, launch, visiting
from tests.support.gateway_process import GatewayProcess


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def gateway() -> AsyncIterator[GatewayProcess]:
    """With the demo model and without keys; for other settings: `async with GatewayProcess(config(None, ...))`."""
    async with GatewayProcess(config(None)) as process:
        yield process


@pytest_asyncio.fixture(loop_scope="session")
async def visit(chromium: Browser, gateway: GatewayProcess) -> Visit:
    return partial(visiting, chromium, gateway.base_url)
