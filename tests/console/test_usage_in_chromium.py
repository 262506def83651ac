"""Charts and tables that sort, in a real browser: accessible, and within the window, at every width."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from gateways import config
from playwright.async_api import expect

from gateway.contracts.storage.usage import StoredUsage
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.usage.ledger import format_day
from tests.console.browser import BROWSER, DESKTOP, PHONE, Scheme, View, Visit, axe, fits, picture
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER

#: Models by what one of them uses on a day; of eight, two share a part.
MODELS = ("gpt-4.1", "claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large", "qwen3-235b", "llama-4", "phi-4", "tiny")


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    store = SqliteStore(str(tmp_path / "gateway.db"))
    await store.open()
    await store.add_usage(used(), writer="w", number=1, now_s=1.0)
    await store.close()
    settings = config(None, store=f"sqlite:///{tmp_path}/gateway.db", usage={"enabled": True})
    async with GatewayProcess(settings) as process:
        yield process


def used() -> list[StoredUsage]:
    """What eight models were used for on twenty of the last thirty days."""
    found = []
    for ago in range(30):
        if ago % 3 == 2:
            continue
        day = format_day(time.time() - ago * 86400)
        for at, model in enumerate(MODELS):
            tokens = (len(MODELS) - at) * 1000 * (1 + (ago * 7 + at * 3) % 5)
            cost = tokens * (at + 1) * 4_000
            about = ("local", f"key-{at % 3}", model, "up", "context")
            found.append(StoredUsage(day, *about, "USD", 3, input=tokens, output=tokens // 4, cost=cost))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, View(640, 800), PHONE, View(320, 640)], ids=["1280", "640", "390", "320"])
async def test_usage_charts_show_models_and_keys_accessibly(
    gateway: GatewayProcess, visit: Visit, view: View, scheme: Scheme
) -> None:
    """Each part has a pattern and a label besides its colour, and the chart a table with its amounts."""
    async with visit("/console/usage", view=view, scheme=scheme) as page:
        charts = page.get_by_role("img")
        await expect(charts).to_have_count(3)
        by_model = page.get_by_role("figure", name="Tokens of each day by Model")
        await expect(by_model.get_by_role("listitem")).to_have_count(7)
        await expect(by_model.get_by_role("listitem").last).to_contain_text("others")
        fills = "all => new Set(all.map(one => getComputedStyle(one).fill)).size"
        assert await by_model.locator("svg.chart rect").evaluate_all(fills) == 7
        if view is DESKTOP and scheme == "light":
            await by_model.scroll_into_view_if_needed()
            await picture(page, "usage-by-model")
        await by_model.get_by_text("The chart as a table").click()
        await expect(by_model.get_by_role("row")).to_have_count(21)
        await axe(page)
        await fits(page)
        await page.goto("/console/usage?by=key&days=7&sort=-cost")
        by_key = page.get_by_role("figure", name="Cost of each day by Key, in USD")
        await expect(by_key.get_by_role("listitem")).to_have_count(3)
        await axe(page)
        await fits(page)


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_a_table_is_sorted_without_scripts(gateway: GatewayProcess, visit: Visit, view: View) -> None:
    """By links that the keyboard reaches and that a phone shows; the header says the order."""
    async with visit("/console/usage", view=view, scripts=False) as page:
        rows = page.locator("main table").last.locator("tbody th")
        await expect(rows.first).to_have_text("gpt-4.1")
        link = page.get_by_role("link", name="Model", exact=True)
        await link.focus()
        await expect(link).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(rows.first).to_have_text("claude-sonnet-4-5")
        await expect(page.locator("[aria-sort=ascending]")).to_have_text("Model")
        await page.get_by_role("link", name="Model", exact=True).click()
        await expect(rows.first).to_have_text("tiny")
        await expect(page.locator("[aria-sort=descending]")).to_have_text("Model")
