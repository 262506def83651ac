"""Texts of strangers in a real browser: nothing of them runs or becomes an element, and all of them can be read."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from gateways import until_read
from playwright.async_api import Browser, Page, expect

from tests.approvals.test_escaping import read_back
from tests.console.browser import BROWSER, DESKTOP, PHONE, View, axe, fits, read_values, visiting
from tests.console.hostile import (
    HOSTILE,
    PLAIN,
    Json,
    api,
    asked,
    furnished,
    strange,
    tools_of,
    write_tools,
)

pytestmark = BROWSER
#: Elements that a text could bring, beside those of the page.
_TAGS = (
    "script,style,link,meta,base,img,svg,iframe,object,embed,a,button,form,input,select,textarea,dialog,details,article"
)
_ELEMENTS = f"""[...document.querySelectorAll("{_TAGS}")].map(element => element.localName)"""
_ATTACKS = """[...document.querySelectorAll("*")].flatMap(element => [...element.attributes])
  .filter(one => one.name.startsWith("on") || one.name.includes("hx-on") || /^\\s*(javascript|data):/i.test(one.value))
  .map(one => `${one.ownerElement.localName} ${one.name}=${one.value.slice(0, 80)}`)"""


#: The elements that stand to the left of the one before them in their parent, on the same line.
_MOVED = """selector => [...document.querySelectorAll(selector)].flatMap(parent => {
  const boxes = [...parent.children].filter(child => child.getClientRects().length)
    .map(child => [child.textContent, child.getClientRects()[0]]);
  return boxes.slice(1).filter(([, box], at) => {
    const before = boxes[at][1];
    return Math.abs(box.bottom - before.bottom) < 5 && box.left < before.left;
  }).map(([text]) => text);
})"""
#: The first list of arguments: of each its name, and the lines of its value as they are drawn.
_ARGUMENTS = """[...document.querySelector(".arguments").querySelectorAll("dt")].map(name => [name.innerText,
  [...name.nextElementSibling.querySelectorAll(".line")].filter(line => line.checkVisibility({
    opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true }) && line.getClientRects().length)
  .flatMap(line => line.matches(".many") ? line.innerText.split("\\n") : [line.innerText])])"""
#: What stands behind the first of many equal lines.
_COUNTED = re.compile(r"\\\{([0-9]+) more lines like this one\}")
#: The characters that stand to the left of the one before them, on the same line.
_DISORDER = """selector => [...document.querySelectorAll(selector)].flatMap(element => {
  const found = [], nodes = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let before = null;
  while (nodes.nextNode()) for (let at = 0; at < nodes.currentNode.length; at++) {
    const range = document.createRange();
    range.setStart(nodes.currentNode, at);
    range.setEnd(nodes.currentNode, at + 1);
    const [box] = range.getClientRects();
    if (!box || !box.width) continue;
    if (before && Math.abs(box.bottom - before.bottom) < 5 && box.left < before.left - 1)
      found.push(element.innerText.slice(0, 80) + " at " + range.toString());
    before = box;
  }
  return found;
})"""


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
    await read_values(page)
    for button in await page.locator("main button:visible").all():
        await button.click(trial=True)


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_hostile_text_runs_nothing_on_any_page(chromium: Browser, tmp_path: Path, view: View) -> None:
    """Nothing executes, no element comes of a text, the page stays accessible and as wide as the window."""
    elements: dict[str, dict[str, Counter[str]]] = {}
    seen: dict[str, bool] = {}
    for kind, texts in (("plain", PLAIN), ("hostile", HOSTILE)):
        elements[kind] = {}
        (tmp_path / kind).mkdir()
        async with (
            strange(tmp_path / kind, texts) as gateway,
            visiting(chromium, gateway.base_url, "/console", view=view) as page,
        ):
            pages = await furnished(gateway, texts)
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


#: Of every kind of value, and of everything that does not show.
EXACT: Json = {
    "several lines": HOSTILE.text,
    "one line": HOSTILE.line,
    HOSTILE.short: [HOSTILE.line, {HOSTILE.line[:90]: None, "n": [1, 1.5, True, False, "", [], {}]}],
    "spaces": " a" + " " * 500 + "b \n" + "\n" * 12 + " " * 9 + "\n\t\t",
    "astral": "\U000e0041\U000e0042\U0001f600\U0001d7ce",
    "שלום (1) a": "אבג 123 (x) دهو / b",
    "looks like a number": "1.0",
    "empty": "",
    "z\u200bero": "\u200b" * 500,
}


async def test_console_shows_exactly_the_arguments_that_run(chromium: Browser, tmp_path: Path) -> None:
    """Every line of every argument is visible, in its order, and reads back as the argument that is stored."""
    async with strange(tmp_path, PLAIN) as gateway:
        approval = await asked(gateway, "stranger.note", {**EXACT, "text": ""}, conversation="talk")
        for place in (f"/console/approvals/{approval['id']}", f"/console/runs/{approval['run_id']}"):
            async with visiting(chromium, gateway.base_url, place) as page:
                rows: list[tuple[str, list[str]]] = await page.evaluate(_ARGUMENTS)
                assert {_name(name): _value(lines) for name, lines in rows} == approval["arguments"]
                assert await page.evaluate(_DISORDER, ".exact .line, .arguments dt, h1, h2, h3 code") == []


def _name(shown: str) -> str:
    """The name that the page shows as it is, or as JSON."""
    found: str = json.loads(read_back(shown, json=True)) if shown.startswith('"') else shown
    return found


def _value(lines: list[str]) -> object:
    """The value whose lines the page shows: JSON if there is one line."""
    if len(lines) == 1:
        return json.loads(read_back(lines[0], json=True))
    found: list[str] = []
    for line in lines:
        counted = _COUNTED.fullmatch(line)
        found += found[-1:] * int(counted[1]) if counted else [read_back(line)]
    return "\n".join(found)


async def test_right_to_left_names_do_not_reorder_surrounding_text(chromium: Browser, tmp_path: Path) -> None:
    """Names from right to left do not change the place of what stands beside them."""
    async with strange(tmp_path, PLAIN) as gateway:
        body = {
            "model": "demo",
            "user": "אבג",
            "messages": [{"role": "user", "content": 'tool stranger.note {"text": "a", "ابت": "1", "دهو": 2}'}],
        }
        answer = await api(gateway, "/context/v1/chat/completions", body)
        (approval,) = answer["context"]["approvals"]
        await api(gateway, f"/context/approvals/{approval['id']}", {"decision": "reject", "reason": "אבג 123 דהו (x)"})
        for place in (f"/console/approvals/{approval['id']}", f"/console/runs/{approval['run_id']}"):
            async with visiting(chromium, gateway.base_url, place) as page:
                await expect(page.get_by_text("123").first).to_be_visible()
                assert await page.evaluate(_DISORDER, ".line, .arguments dt, h1, h2, h3 code") == []
                assert await page.evaluate(_MOVED, ".why, .who, .decided") == []


async def test_hostile_call_added_live_matches_the_reloaded_card(chromium: Browser, tmp_path: Path) -> None:
    """The news of an open inbox bring the same card as its next load, whatever the text."""
    async with (
        strange(tmp_path, PLAIN) as gateway,
        visiting(chromium, gateway.base_url, "/console") as page,
    ):
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        arguments = {**EXACT, "text": "a\r\rdata: x\r\n\r\nevent: resolved\ndata: ap_1\n\n"}
        approval = await asked(gateway, "stranger.note", arguments, conversation=HOSTILE.short, user=HOSTILE.short)
        card = page.locator(f"#{approval['id']}")
        await expect(card).to_be_visible()
        await harmless(page, "inbox")
        await usable(page, "inbox")
        drawn = await card.locator(".arguments").inner_text()
        await page.reload()
        assert await card.locator(".arguments").inner_text() == drawn
        await card.get_by_role("button", name="Reject the call of stranger.note").click()
        await expect(page.get_by_role("status")).to_contain_text("Rejected. The call does not run.")
        await expect(card).to_have_count(0)


async def test_long_arguments_and_results_keep_pages_small(chromium: Browser, tmp_path: Path) -> None:
    """Arguments of 100 kB, and a result of 10,000 lines: the pages stay small, and the buttons within reach."""
    result = "\n".join(f"<b>{number}</b> \u200b" for number in range(10_000))
    async with strange(tmp_path, PLAIN) as gateway:
        write_tools(tmp_path, [{**tools_of(PLAIN, description="")[0], "result": result}])
        await api(gateway, "/mcp/services/stranger/restart", {})
        padded = "\u202ex\n" * 9_000 + "\n" * 30_000 + "rm -rf /\ny\n" * 9_000
        long = {"text": "a\u200b<b>" * 20_000, "lines": padded}
        approval = await asked(gateway, "stranger.note", long, conversation="talk")
        async with visiting(chromium, gateway.base_url, "/console") as page:
            assert len(await page.content()) < 64_000
            assert await page.evaluate("document.querySelectorAll('*').length") < 3_000
            await page.get_by_role("link", name="stranger.note").click()
            await expect(page.get_by_role("contentinfo")).to_be_visible()  # the last of the page has arrived
            rows = await page.evaluate(_ARGUMENTS)
            assert {name: _value(lines) for name, lines in rows} == long
            assert len(await page.content()) < 40 * sum(map(len, long.values()))
            await read_values(page)
            await page.get_by_role("button", name="Approve", exact=True).click()
            await expect(page.get_by_role("status")).to_contain_text("Approved. The run goes on.")
            await page.goto(f"/console/runs/{approval['run_id']}")
            await expect(page.locator(".head .badge").first).to_have_text("completed")
            await expect(page.get_by_text("of 10\u202f000 lines").first).to_be_visible()
            assert len(await page.content()) < 100_000
            await usable(page, "run")


async def test_changed_tool_definitions_are_compared_and_accepted(chromium: Browser, tmp_path: Path) -> None:
    """The accepted and the present text beside each other, and accepted by one click."""
    async with strange(tmp_path, PLAIN) as gateway:
        write_tools(tmp_path, tools_of(HOSTILE, description=HOSTILE.text))
        await api(gateway, "/mcp/services/stranger/restart", {})
        await until_read(lambda: api(gateway, "/mcp/services/stranger"), lambda found: len(found["changed"]) == 2)
        async with visiting(chromium, gateway.base_url, "/console/services/stranger") as page:
            await page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            await harmless(page, "changed")
            await usable(page, "changed")
            await page.get_by_role("button", name="Accept the present definition of note").click()
            await expect(page.get_by_role("button", name="Accept the present definition")).to_have_count(1)
