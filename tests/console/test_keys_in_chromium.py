"""The pages of keys in a real browser: by keyboard alone, on a phone, in the dark and in Chinese, without faults."""

from pathlib import Path

import pytest
from gateways import config, key
from playwright.async_api import Browser, Page, expect

from tests.console.browser import BROWSER, DESKTOP, PHONE, Language, Scheme, View, axe, fits, visiting
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER
ROOT = "root-key"


def settings(folder: Path) -> str:
    root = {**key(ROOT, "admin", "context", "approve"), "name": "root"}
    return config(None, keys=[root], runtime_keys={"enabled": True}, store=f"sqlite:///{folder}/gateway.db")


async def checked(page: Page) -> None:
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await axe(page)
    await fits(page)


@pytest.mark.parametrize(
    ("view", "scheme", "language"),
    [(DESKTOP, "light", "en"), (DESKTOP, "dark", "en"), (PHONE, "light", "en"), (PHONE, "dark", "zh")],
)
async def test_key_pages_work_by_keyboard_and_are_accessible(
    chromium: Browser, tmp_path: Path, view: View, scheme: Scheme, language: Language
) -> None:
    """From the sign-in to a revoked key, with the keyboard alone; each page is accessible and fits."""
    async with (
        GatewayProcess(settings(tmp_path)) as gateway,
        visiting(chromium, gateway.base_url, "/console", view=view, scheme=scheme, language=language) as page,
    ):
        await page.locator("input[name=key]").fill(ROOT)
        await page.keyboard.press("Enter")
        await expect(page.locator("nav")).to_be_visible()
        await page.goto("/console/keys/new")
        await checked(page)
        await page.locator("#name").fill("ci")
        await page.locator("#name").press("Enter")
        made = page.locator("#key")
        await expect(made).to_be_focused()
        assert (await made.input_value()).startswith("sk-")
        await checked(page)
        await page.goto("/console/keys")
        await checked(page)
        await page.locator("tbody a").first.focus()
        await page.keyboard.press("Enter")
        await checked(page)
        for number, heading in ((0, "rotate"), (1, "revoke")):
            await page.locator("main summary").nth(number).focus()
            await page.keyboard.press("Enter")
            await expect(page.locator(f"form[action$={heading}] button")).to_be_visible()
        await checked(page)
        await page.locator("form[action$=revoke] button").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator(".state-revoked")).to_be_visible()
        await checked(page)
