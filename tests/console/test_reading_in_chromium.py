"""Readers who are elsewhere, use no mouse, see other colours, enlarge, print, or look at another window."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.console.browser import BROWSER, View, Visit, axe, fits, read_values
from tests.console.hostile import PLAIN, Json, api, asked, furnished, strange
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER

ENLARGED = View(640, 400)

#: In place of the system's notifications: a list of them. The window is not in front.
_RECORD = """
window.notes = [];
window.Notification = class {
  static permission = "granted";
  constructor(title, options) { Object.assign(this, { title, ...options }); window.notes.push(this); }
};
document.hasFocus = () => false;
"""
_NOTES = "window.notes.map(note => [note.title, note.body, note.tag])"
#: What has the focus: its name, whether a reader sees that it has, and whether it is within the window.
_FOCUSED = """(() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const within = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  one.dataset.visited = (one.dataset.visited || 0) + 1;
  return [`${one.localName} ${one.id} ${(one.ariaLabel || one.textContent).trim().slice(0, 40)}`, seen, within];
})()"""
#: What a reader who has only the keyboard never reaches.
_MISSED = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter(one =>
  one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.type !== "hidden" && one.tabIndex >= 0
  && !one.dataset.visited).map(one => one.outerHTML.slice(0, 120))"""


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with strange(tmp_path, PLAIN) as process:
        yield process


async def states(gateway: GatewayProcess) -> list[str]:
    """The state of each approval, the oldest first."""
    return [one["state"] for one in (await api(gateway, "/context/approvals"))["data"]]


def note(number: int) -> Json:
    return {"text": f"text {number}"}


async def test_desktop_notification_is_shown_once_per_new_call(gateway: GatewayProcess, visit: Visit) -> None:
    """Each new call once, in its order, while the page is not in front; a click on the notice opens the call."""
    await asked(gateway, "stranger.note", note(0), conversation="before")
    async with visit("/console") as page:
        await page.context.grant_permissions(["notifications"])
        await page.add_init_script(_RECORD)
        await page.reload()
        await expect(page.get_by_role("article")).to_have_count(1)
        approvals = [await asked(gateway, "stranger.note", note(i), conversation=f"talk {i}") for i in (1, 2, 3)]
        await expect(page).to_have_title("(4) Inbox – Twolane")
        await expect(page.get_by_role("article")).to_have_count(4)
        order = await page.evaluate("[...document.querySelectorAll('article')].map(card => card.id)")
        assert order[1:] == [approval["id"] for approval in approvals]
        notes = await page.evaluate(_NOTES)
        assert [(title, tag) for title, _, tag in notes] == [("stranger.note", one["id"]) for one in approvals]
        assert all(body.startswith("Waiting: ") for _, body, _ in notes)
        await expect(page.get_by_role("button", name="Notify me on the desktop")).to_be_hidden()
        await api(gateway, f"/context/approvals/{approvals[0]['id']}", {"decision": "reject"})
        await expect(page).to_have_title("(3) Inbox – Twolane")
        await page.evaluate("window.notes[1].onclick()")
        await expect(page).to_have_url(f"{gateway.base_url}/console/approvals/{approvals[1]['id']}")
        assert await states(gateway) == ["pending", "rejected", "pending", "pending"]


async def test_focused_page_shows_no_desktop_notification(gateway: GatewayProcess, visit: Visit) -> None:
    """The card is notice enough."""
    async with visit("/console") as page:
        await page.add_init_script(_RECORD.replace("() => false", "() => true"))
        await page.reload()
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        await asked(gateway, "stranger.note", note(1), conversation="talk")
        await expect(page.get_by_role("article")).to_have_count(1)
        assert await page.evaluate(_NOTES) == []


async def test_every_page_can_be_traversed_with_the_tab_key(gateway: GatewayProcess, visit: Visit) -> None:
    """From the skip link to the last control: each is reached, in the window, with an outline."""
    pages = await furnished(gateway, PLAIN)
    async with visit("/console") as page:
        for name, path in pages.items():
            await page.goto(f"/console{path}")
            await read_values(page)
            await page.keyboard.press("Tab")
            skip = page.get_by_role("link", name="Skip to the content")
            await expect(skip).to_be_focused()
            await expect(skip).to_be_in_viewport()
            faults = await _tabbed(page)
            assert faults == [], name
            await page.keyboard.press("Tab")  # begins anew
            await skip.focus()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("main")).to_be_focused()
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.closest('main, footer') !== null"), name


async def _tabbed(page: Page) -> list[object]:
    """Press Tab to the end of the page: what was focused unseen or outside of the window, or was never reached."""
    faults: list[object] = []
    for _ in range(2_000):
        focused = await page.evaluate(_FOCUSED)
        if focused is None:
            break
        what, seen, within = focused
        faults += [] if seen and within else [what]
        await page.keyboard.press("Tab")
    else:
        faults.append("the focus never leaves the page")
    missed: list[object] = await page.evaluate(_MISSED)
    return faults + missed


async def test_keyboard_help_dialog_traps_the_focus(gateway: GatewayProcess, visit: Visit) -> None:
    """As a dialog does; Escape closes it, and the focus is back where it was."""
    async with visit("/console/runs") as page:
        opener = page.get_by_role("button", name="Keyboard")
        await opener.focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Keyboard")
        await expect(dialog).to_be_visible()
        for _ in range(6):
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.closest('main, header, footer') === null")
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(opener).to_be_focused()


async def test_typing_in_fields_triggers_no_keyboard_shortcut(gateway: GatewayProcess, visit: Visit) -> None:
    """In a line, a field, a choice and a dialog; with Ctrl they are the browser's; held down, none acts."""
    approval = await asked(gateway, "stranger.note", note(1), conversation="talk")
    async with visit(f"/console/approvals/{approval['id']}?edit=1") as page:
        for field in (page.get_by_label("Reason"), page.locator("[name='field.text']")):
            await field.fill("")
            await field.press_sequentially("jkarex?")
            await expect(field).to_have_value("jkarex?")
        await page.get_by_label("Remember").focus()
        for key in "arx":
            await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await page.get_by_role("heading", level=1).click()
        await page.keyboard.press("Control+a")
        await page.keyboard.press("?")
        await page.keyboard.press("a")
        await page.keyboard.press("Escape")
        await page.goto("/console")
        await page.keyboard.press("a")  # chooses the call, whose reader has not been there
        await expect(page.get_by_role("article")).to_be_focused()
        await page.get_by_role("checkbox").check()
        await page.get_by_text("Search, sort, group").click()
        search = page.get_by_label("Text in the call")
        await search.press_sequentially("jkarex?")
        await expect(search).to_have_value("jkarex?")
        held = "new KeyboardEvent('keydown', {key: 'a', repeat: true, bubbles: true})"
        await page.get_by_role("article").focus()
        await page.evaluate(f"document.activeElement.dispatchEvent({held})")
    assert await states(gateway) == ["pending"]


async def test_keyboard_shortcuts_can_be_turned_off(gateway: GatewayProcess, visit: Visit) -> None:
    """In one browser, for every page; and on again."""
    await asked(gateway, "stranger.note", note(1), conversation="talk")
    async with visit("/console") as page:
        await page.keyboard.press("?")
        await axe(page)
        await page.get_by_label("Use these keys in this browser").uncheck()
        await page.get_by_role("button", name="Close").click()
        await page.reload()
        for key in "jaar?":
            await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await expect(page.get_by_role("article")).not_to_be_focused()
        await page.get_by_role("button", name="Keyboard").click()
        await page.get_by_label("Use these keys in this browser").check()
        await page.keyboard.press("Escape")
        await page.locator("h1").click()
        await page.keyboard.press("j")
        await expect(page.get_by_role("article")).to_be_focused()
    assert await states(gateway) == ["pending"]


async def test_times_are_shown_in_the_time_zone_of_the_browser(gateway: GatewayProcess, visit: Visit) -> None:
    """In the zone of the browser, also in parts that arrive later; UTC is in the tooltip, and without scripts."""
    async with visit("/console", zone="Pacific/Kiritimati") as page:
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        approval = await asked(gateway, "stranger.note", note(1), conversation="talk")
        for path in ("", f"/approvals/{approval['id']}", f"/runs/{approval['run_id']}", "/runs", "/memories?user=ann"):
            if path:
                await page.goto(f"/console{path}")
            for time in await page.locator("main time").all():
                iso = await time.get_attribute("datetime")
                wanted = await page.evaluate(
                    "iso => new Intl.DateTimeFormat('en-US', {dateStyle: 'medium', timeStyle: 'medium',"
                    " timeZone: 'Pacific/Kiritimati'}).format(new Date(iso))",
                    iso,
                )
                await expect(time).to_have_text(wanted)
                assert iso is not None
                await expect(time).to_have_attribute("title", f"{iso[:19].replace('T', ' ')} UTC")
    async with visit("/console", zone="Pacific/Kiritimati", scripts=False) as page:
        await expect(page.locator("main time").first).to_contain_text("UTC")


@pytest.mark.parametrize("view", [ENLARGED, View(320, 256)], ids=["200 %", "400 %"])
async def test_pages_reflow_at_200_and_400_percent_zoom(gateway: GatewayProcess, visit: Visit, view: View) -> None:
    """A window of 1280 pixels at 200 % and at 400 %: one direction to scroll, nothing covered, no fault."""
    pages = await furnished(gateway, PLAIN)
    async with visit("/console", view=view) as page:
        for name, path in pages.items():
            await page.goto(f"/console{path}")
            try:
                await fits(page)
                await axe(page)
            except AssertionError as fault:
                raise AssertionError(f"{name}: {fault}") from None
        await page.goto("/console")
        await page.get_by_role("button", name="Reject the call of file_operations").click()
        await expect(page.get_by_role("status")).to_contain_text("Rejected. The call does not run.")


async def test_pages_remain_readable_with_forced_colors(gateway: GatewayProcess, visit: Visit) -> None:
    """Each thing that colour shows has another sign too: the page that is open, hidden characters, added lines."""
    write = {"operation": "write", "path": "read.txt", "content": "a\u200bb"}
    approval = await asked(gateway, "file_operations", write, conversation="talk")
    async with visit(f"/console/approvals/{approval['id']}") as page:
        await page.emulate_media(forced_colors="active")
        await expect(page.get_by_role("heading", name="What it changes")).to_be_visible()
        await axe(page)
        await expect(page.get_by_role("link", name="Inbox")).to_have_css("border-top-style", "solid")
        await expect(page.get_by_role("link", name="Runs")).to_have_css("border-top-style", "none")
        await expect(page.locator(".exact mark").first).to_have_css("border-bottom-style", "dotted")
        await expect(page.locator(".difference .sign").first).to_be_visible()
        for button in await page.locator("button:visible:not(.plain)").all():
            await expect(button).not_to_have_css("border-top-style", "none")


async def test_reduced_motion_setting_disables_animations(gateway: GatewayProcess, visit: Visit) -> None:
    """A new card is lit up for a moment only where movement is welcome."""
    async with visit("/console") as page:
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        await asked(gateway, "stranger.note", note(1), conversation="talk")
        card = page.locator("article.fresh")
        await expect(card).to_have_css("animation-name", "none")
        await page.emulate_media(reduced_motion="no-preference")
        await expect(card).to_have_css("animation-name", "fresh")


async def test_printed_approval_page_shows_the_whole_call_without_controls(
    gateway: GatewayProcess, visit: Visit
) -> None:
    """All of the call, and nothing to press."""
    lines = [f"line {number}" for number in range(300)]
    text = json.dumps("\n".join(lines))
    approval = await asked(gateway, "stranger.note", {"text": json.loads(text)}, conversation="talk")
    async with visit(f"/console/approvals/{approval['id']}") as page:
        await page.emulate_media(media="print")
        shown, whole = await page.evaluate(
            "(one => [one.clientHeight, one.scrollHeight])(document.querySelector('.exact'))"
        )
        assert shown == whole
        for place in ("banner", "contentinfo", "button"):
            assert await page.get_by_role(place).count() == 0  # type: ignore[arg-type]
        await expect(page.get_by_text("line 299", exact=True)).to_be_visible()
