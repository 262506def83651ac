"""The list of runs in a real browser: times in the reader's zone, and no column out of sight."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from gateways import config
from playwright.async_api import expect

from tests.console.browser import BROWSER, DESKTOP, Visit, axe
from tests.console.hostile import chat
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """With a tool whose calls wait for a person."""
    tools = {"file_operations": {"roots": [str(tmp_path)], "write": True}}
    async with GatewayProcess(config(None, tools=tools)) as process:
        yield process


async def test_runs_filter_uses_the_time_zone_of_the_browser(gateway: GatewayProcess, visit: Visit) -> None:
    """The address has them in UTC, so that a link means the same elsewhere. Without scripts the form says UTC."""
    async with visit("/console/runs", zone="Asia/Tokyo") as page:
        await page.get_by_label("Begun since", exact=True).fill("2026-01-31T08:30")
        await page.get_by_role("button", name="Show").click()
        await expect(page).to_have_url(re.compile("since=2026-01-30T23%3A30"))
        await expect(page.get_by_label("Begun since", exact=True)).to_have_value("2026-01-31T08:30")
        await expect(page.get_by_label("Begun until", exact=True)).to_have_value("")
        await axe(page)
    async with visit("/console/runs?since=2026-01-30T23:30", zone="Asia/Tokyo", scripts=False) as page:
        await expect(page.get_by_label("Begun since (UTC)")).to_have_value("2026-01-30T23:30")


@pytest.mark.parametrize("scripts", [True, False])
async def test_runs_table_fits_the_desktop_window(gateway: GatewayProcess, visit: Visit, scripts: bool) -> None:
    """Of a list with long ids, at a desk."""
    call = 'tool file_operations {"operation": "write", "path": "a.txt", "content": "x"}'
    for number in range(2):
        await chat(gateway, call, {"X-Context-Conversation": f"ticket-2026-11-30-0001234567890-invoice-{number}"})
    async with visit("/console/runs", view=DESKTOP, scripts=scripts) as page:
        table = page.locator(".scroll:has(.runs)")
        await expect(table.locator("tbody tr")).to_have_count(2)
        assert await table.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
