"""Texts of strangers in a real browser: nothing of them runs or becomes an element, and all of them can be read."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.testing.run import GatewayProcess
from tests.console.browser import BROWSER, DESKTOP, PHONE, View, axe, fits, visiting
from tests.console.hostile import HOSTILE, PLAIN, Texts, furnished, settings

pytestmark = BROWSER

#: Elements that a text could bring, beside those of the page.
_TAGS = "script,style,link,meta,base,img,svg,iframe,object,embed,a,button,form,input,select,textarea,dialog,details,article"
_ELEMENTS = f"""[...document.querySelectorAll("{_TAGS}")].map(element => element.localName)"""
_ATTACKS = """[...document.querySelectorAll("*")].flatMap(element => [...element.attributes])
  .filter(one => one.name.startsWith("on") || one.name.includes("hx-on") || /^\\s*(javascript|data):/i.test(one.value))
  .map(one => `${one.ownerElement.localName} ${one.name}=${one.value.slice(0, 80)}`)"""


@asynccontextmanager
async def having(folder: Path, texts: Texts) -> AsyncIterator[tuple[GatewayProcess, dict[str, str]]]:
    """A gateway with these texts, and its pages."""
    folder.mkdir()
    async with GatewayProcess(settings(folder, texts)) as gateway:
        yield gateway, await furnished(gateway, folder, texts)


async def harmless(page: Page, name: str) -> None:
    """Fail if something of a text ran, or could."""
    assert await page.evaluate("window.hacked === undefined"), name
    assert await page.evaluate(_ATTACKS) == [], name


async def usable(page: Page, name: str) -> None:
    """Fail if the page is wider than the window or inaccessible, or if its frame is not where it belongs."""
    try:
        await axe(page)
        await fits(page)
    except AssertionError as fault:
        raise AssertionError(f"{name}: {fault}") from None
    for place in ("banner", "main", "contentinfo"):
        await expect(page.get_by_role(place)).to_have_count(1)  # type: ignore[arg-type]
    await page.get_by_role("link", name="Inbox").click(trial=True)
    for button in await page.locator("main button:visible").all():
        await button.click(trial=True)


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_every_page(chromium: Browser, tmp_path: Path, view: View) -> None:
    """Nothing executes, no element comes of a text, the page stays accessible and as wide as the window."""
    elements: dict[str, dict[str, Counter[str]]] = {}
    seen: dict[str, bool] = {}
    for kind, texts in (("plain", PLAIN), ("hostile", HOSTILE)):
        elements[kind] = {}
        async with (
            having(tmp_path / kind, texts) as (gateway, pages),
            visiting(chromium, gateway.base_url, "/console", view=view) as page,
        ):
            dialogs: list[str] = []
            page.on("dialog", lambda dialog, seen=dialogs: seen.append(dialog.message))
            for name, path in pages.items():
                await page.goto(f"/console{path}")
                if name == "approval-preview":
                    await expect(page.get_by_role("heading", name="What it changes")).to_be_visible()
                await page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
                if texts is HOSTILE:
                    seen[name] = "window.hacked" in await page.evaluate("document.body.innerText")
                    await harmless(page, name)
                    await usable(page, name)
                elements[kind][name] = Counter(await page.evaluate(_ELEMENTS))
            assert dialogs == []
    assert elements["hostile"] == elements["plain"]
    assert [name for name, found in seen.items() if not found] == ["prompts", "playground", "status"]
