"""A person decides in a real browser: by mouse, by keyboard, on a phone, without scripts."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from gateways import config, key, until
from playwright.async_api import Browser, expect

from tests.console.browser import (
    BROWSER,
    DESKTOP,
    PHONE,
    Scheme,
    View,
    Visit,
    axe,
    fits,
    picture,
    read_values,
    visiting,
)
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER
Json = dict[str, object]


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    tools = {"file_operations": {"roots": [str(folder)], "write": True}}
    async with GatewayProcess(config(None, tools=tools, store=f"sqlite:///{tmp_path}/gateway.db")) as process:
        yield process


async def asked(gateway: GatewayProcess, content: str = "one\nTWO\nthree\n", *, conversation: str = "talk") -> Json:
    """A chat of a client that asks to write notes.txt: what it was answered."""
    call = f"tool file_operations {json.dumps({'operation': 'write', 'path': 'notes.txt', 'content': content})}"
    body = {"model": "demo", "messages": [{"role": "user", "content": call}]}
    headers = {"X-Context-Conversation": conversation}
    async with aiohttp.ClientSession(gateway.base_url) as client:
        answer = await client.post("/context/v1/chat/completions", json=body, headers=headers)
        found: Json = await answer.json()
        return found


async def states(gateway: GatewayProcess) -> list[tuple[str, str | None, str | None]]:
    """State, way and comment of each approval, the oldest first."""
    async with aiohttp.ClientSession(gateway.base_url) as client:
        listed = await (await client.get("/context/approvals")).json()
        return [(one["state"], one["via"], one["comment"]) for one in listed["data"]]


def written(tmp_path: Path) -> str:
    return (tmp_path / "files" / "notes.txt").read_text()


async def until_written(tmp_path: Path, text: str) -> None:
    await until(lambda: written(tmp_path) == text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_inbox_is_accessible_and_fits(
    gateway: GatewayProcess, visit: Visit, view: View, scheme: Scheme
) -> None:
    """Empty and with a call; the call's own page, and the form to edit it."""
    async with visit("/console", view=view, scheme=scheme) as page:
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        await axe(page)
        await asked(gateway)
        await expect(page.get_by_role("article")).to_have_count(1)
        await axe(page)
        await fits(page)
        await page.get_by_role("link", name="Edit, give a reason, remember").click()
        await expect(page.get_by_text("+", exact=True)).to_be_visible()
        await axe(page)
        await fits(page)


async def test_inbox_adds_and_removes_calls_live(gateway: GatewayProcess, visit: Visit) -> None:
    """With their number in the title. What another person decides goes away."""
    async with visit("/console") as page:
        await expect(page).to_have_title("Inbox – Twolane")
        await asked(gateway)
        card = page.get_by_role("article")
        await expect(card).to_contain_text("Waiting:")
        await expect(page).to_have_title("(1) Inbox – Twolane")
        approval_id = await card.get_attribute("id")
        async with aiohttp.ClientSession(gateway.base_url) as client:
            await client.post(f"/context/approvals/{approval_id}", json={"decision": "reject"})
        await expect(card).to_have_count(0)
        await expect(page).to_have_title("Inbox – Twolane")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()


#: Counts the tones of a page. What is heard of them is the browser's.
COUNT_TONES = """
window.tones = 0;
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function (...when) { window.tones += 1; return start.apply(this, when); };
"""


async def test_new_call_plays_a_sound_only_when_enabled(gateway: GatewayProcess, visit: Visit) -> None:
    """The choice stays in the browser; a decision makes no sound, nor does a page whose reader has pressed nothing."""
    async with visit("/console/runs") as page:
        await page.context.add_init_script(COUNT_TONES)
        await page.goto("/console")
        sound = page.get_by_role("button", name="Sound for new calls")
        await expect(sound).to_have_attribute("aria-pressed", "false")
        await asked(gateway)
        await expect(page.get_by_role("article")).to_have_count(1)
        assert await page.evaluate("tones") == 0
        await sound.click()
        await expect(sound).to_have_attribute("aria-pressed", "true")
        assert await page.evaluate("tones") == 1, "the reader hears what it will be"
        await page.reload()
        await expect(sound).to_have_attribute("aria-pressed", "true")
        await page.keyboard.press("j")
        await asked(gateway, "other\n", conversation="second")
        await expect(page.get_by_role("article")).to_have_count(2)
        await page.wait_for_function("tones === 1")
        await axe(page)
        approval_id = await page.get_by_role("article").first.get_attribute("id")
        async with aiohttp.ClientSession(gateway.base_url) as client:
            await client.post(f"/context/approvals/{approval_id}", json={"decision": "reject"})
        await expect(page.get_by_role("article")).to_have_count(1)
        assert await page.evaluate("tones") == 1
        await sound.click()
        await expect(sound).to_have_attribute("aria-pressed", "false")
        await asked(gateway, "third\n", conversation="third")
        await expect(page.get_by_role("article")).to_have_count(2)
        assert await page.evaluate("tones") == 1


async def test_approve_button_runs_the_call_and_records_the_console(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """One click in the inbox; the call runs, and the record names the console."""
    await asked(gateway)
    async with visit("/console") as page:
        await page.get_by_role("button", name="Approve the call of file_operations").click()
        await expect(page.get_by_role("status")).to_contain_text("Approved. The run goes on.")
    await until_written(tmp_path, "one\nTWO\nthree\n")
    ((state, via, _),) = await states(gateway)
    assert via == "console" and state in ("approved", "executing", "done")


async def test_edited_call_runs_with_the_edited_arguments(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """In a form of the tool's schema."""
    await asked(gateway)
    async with visit("/console") as page:
        await page.get_by_role("link", name="Edit, give a reason, remember").click()
        await page.get_by_label("content", exact=True).fill("edited\n  by hand")
        await read_values(page)
        await page.get_by_role("button", name="Approve the edited call").click()
        await expect(page.get_by_role("heading", name="The model had asked for")).to_be_visible()
    await until_written(tmp_path, "edited\n  by hand")


async def test_invalid_edit_is_reported_on_the_form(gateway: GatewayProcess, visit: Visit, tmp_path: Path) -> None:
    """On the same page, with what was entered; nothing was decided."""
    await asked(gateway)
    async with visit("/console", expected=["status of 422"]) as page:
        await page.get_by_role("link", name="Edit, give a reason, remember").click()
        await page.get_by_role("link", name="Edit as JSON").click()
        await page.get_by_label("Arguments, as JSON").fill('{"operation": "burn"')
        await page.get_by_role("button", name="Approve the edited call").click()
        await expect(page.get_by_role("alert")).to_contain_text("this is not JSON")
        await expect(page.get_by_label("Arguments, as JSON")).to_have_value('{"operation": "burn"')
        await axe(page)
    assert [state for state, *_ in await states(gateway)] == ["pending"]


async def test_rejection_from_the_call_page_records_its_reason(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """The reason reaches the record, and nothing runs."""
    await asked(gateway)
    async with visit("/console") as page:
        await page.get_by_role("link", name="Edit, give a reason, remember").click()
        await page.get_by_label("Reason").fill("not on a Friday")
        await page.get_by_role("button", name="Reject", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("Rejected. The call does not run.")
        await expect(page.get_by_text("not on a Friday")).to_be_visible()
    assert await states(gateway) == [("rejected", "console", "not on a Friday")]
    assert written(tmp_path) == "one\ntwo\nthree\n"


async def test_remembered_decision_approves_the_same_call_again(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """For the conversation: the same call runs again without asking."""
    await asked(gateway, "kept\n")
    async with visit("/console") as page:
        await page.get_by_role("link", name="Edit, give a reason, remember").click()
        await page.get_by_label("Remember").select_option("the same call in this conversation")
        await page.get_by_role("button", name="Approve", exact=True).click()
        await until_written(tmp_path, "kept\n")
        await asked(gateway, "kept\n")  # it brings the answer of the run that waited
        (tmp_path / "files" / "notes.txt").write_text("changed since")
        await asked(gateway, "kept\n")
        assert written(tmp_path) == "kept\n"
        await page.goto("/console/remembered")
        await expect(page.get_by_text("file_operations")).to_be_visible()


async def test_batch_rejection_applies_to_the_selected_calls(gateway: GatewayProcess, visit: Visit) -> None:
    """Two of three, with one reason."""
    for number in range(3):
        await asked(gateway, f"text {number}", conversation=f"talk {number}")
    async with visit("/console") as page:
        boxes = page.get_by_role("checkbox", name="Select the call of file_operations")
        await boxes.nth(0).check()
        await boxes.nth(2).check()
        await expect(page.locator("#batch")).to_contain_text("Selected calls: 2")
        await page.get_by_role("button", name="Look at them and decide").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Decide on 2 calls")
        await axe(page)
        await page.get_by_label("Reason").fill("both")
        await page.get_by_role("button", name="Reject 2 calls").click()
        await expect(page.get_by_role("status")).to_have_text("Rejected: 2 calls. None of them runs.")
        await expect(page.get_by_role("article")).to_have_count(1)
    assert [(state, comment) for state, _, comment in await states(gateway)] == [
        ("rejected", "both"),
        ("pending", None),
        ("rejected", "both"),
    ]


async def test_inbox_can_be_used_by_keyboard_alone(gateway: GatewayProcess, visit: Visit, tmp_path: Path) -> None:
    """`?` lists the keys; j and k move, x selects, e opens the form, a approves, r rejects."""
    for number in range(3):
        await asked(gateway, f"text {number}", conversation=f"talk {number}")
    async with visit("/console") as page:
        press = page.keyboard.press
        await press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("approve the call")
        await axe(page)
        await press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        for keys, current in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
            await press(keys)
            await expect(page.get_by_role("article").nth(current)).to_be_focused()
        await press("x")
        await expect(page.get_by_role("article").nth(1).get_by_role("checkbox")).to_be_checked()
        await press("x")
        await press("r")
        await expect(page.get_by_role("article")).to_have_count(2)
        await press("j")
        await press("e")
        await expect(page.get_by_label("content", exact=True)).to_be_visible()
        await page.locator("h1").click()
        await press("a")
        await expect(page.get_by_role("status")).to_contain_text("Approved. The run goes on.")
    await until_written(tmp_path, "text 0")
    assert [state for state, *_ in await states(gateway)][1:] == ["rejected", "pending"]


async def test_decision_applies_only_to_the_focused_call(gateway: GatewayProcess, visit: Visit) -> None:
    """Not on one that came into its place: by a decision elsewhere, a double click, or a key that is held down."""
    for number in range(4):
        await asked(gateway, f"text {number}", conversation=f"talk {number}")
    async with visit("/console") as page, aiohttp.ClientSession(gateway.base_url) as client:
        cards = page.get_by_role("article")
        first, second = [await cards.nth(number).get_attribute("id") for number in (0, 1)]
        approve = page.get_by_role("button", name="Approve the call of file_operations")
        box = await approve.first.bounding_box()
        assert box is not None
        at = (box["x"] + 5, box["y"] + 5)
        await page.mouse.move(*at)
        await client.post(f"/context/approvals/{first}", json={"decision": "reject"})
        await expect(cards).to_have_count(3)
        await page.mouse.click(*at)
        assert page.url.endswith("/console")
        await page.mouse.move(0, 0)
        await expect(page.locator(f"[id='{second}'] header")).to_be_in_viewport()
        await page.mouse.click(*at)
        await expect(page.get_by_role("status")).to_be_visible()
        await page.mouse.move(*at)
        await page.mouse.down(click_count=2)
        await page.mouse.up(click_count=2)
        await expect(cards).to_have_count(2)
        await page.keyboard.press("a")
        await expect(cards.first).to_be_focused()
        chosen = await cards.first.get_attribute("id")
        await page.mouse.move(0, 0)
        await client.post(f"/context/approvals/{chosen}", json={"decision": "reject"})
        await expect(cards).to_have_count(1)
        await page.keyboard.press("a")
        await expect(cards.first).to_be_focused()
        await page.keyboard.down("a")
        await expect(page.get_by_role("status")).to_be_visible()
        await asked(gateway, "text 4", conversation="talk 4")
        await expect(cards).to_have_count(1)
        await page.keyboard.press("j")
        for _ in range(5):
            await page.keyboard.down("a")  # without a release: the browser repeats it
        await expect(cards.first).to_be_focused()
    assert [state for state, *_ in await states(gateway)].count("rejected") == 2
    assert [state for state, *_ in await states(gateway)][-1] == "pending"


async def test_approve_shortcut_focuses_the_button_of_the_edited_call(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """`a` leads to the button of the edited call."""
    await asked(gateway)
    async with visit("/console") as page:
        await page.get_by_role("link", name="Edit, give a reason, remember").click()
        await page.get_by_label("content", exact=True).fill("mine")
        await page.locator("h1").click()
        await page.keyboard.press("a")
        await expect(page.get_by_role("button", name="Approve the edited call")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("Approved. The run goes on.")
    await until_written(tmp_path, "mine")


async def test_inbox_without_scripts_allows_every_decision(
    gateway: GatewayProcess, visit: Visit, tmp_path: Path
) -> None:
    """Approve in the inbox, reject on the call's own page, edit, and a batch."""
    for number in range(4):
        await asked(gateway, f"text {number}", conversation=f"talk {number}")
    async with visit("/console", scripts=False) as page:
        await page.get_by_role("button", name="Approve the call of file_operations").first.click()
        await expect(page.get_by_role("status")).to_contain_text("Approved. The run goes on.")
        await page.get_by_role("link", name="Edit, give a reason, remember").first.click()
        await page.get_by_label("Reason").fill("no")
        await page.get_by_role("button", name="Reject", exact=True).click()
        await page.goto("/console")
        await page.get_by_role("link", name="Edit, give a reason, remember").first.click()
        await page.get_by_role("link", name="What it changes").click()
        await expect(page.get_by_text("notes.txt")).to_be_visible()
        await page.go_back()
        await page.get_by_label("content", exact=True).fill("mine")
        await page.get_by_role("button", name="Approve the edited call").click()
        await page.goto("/console")
        await page.get_by_role("checkbox").check()
        await page.get_by_role("button", name="Look at them and decide").click()
        await page.get_by_role("button", name="Reject", exact=True).click()
        await expect(page.get_by_role("article")).to_have_count(0)
    await until_written(tmp_path, "mine")
    assert [state for state, *_ in await states(gateway)][1::2] == ["rejected", "rejected"]


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
async def test_enter_in_the_reason_field_rejects(gateway: GatewayProcess, visit: Visit, *, scripts: bool) -> None:
    """On the call's own page, and on that of several: a browser presses the first button of the form.

    Behind an edit it decides nothing.
    """
    for number in range(3):
        await asked(gateway, f"text {number}", conversation=f"talk {number}")
    async with visit("/console", scripts=scripts) as page:
        await page.get_by_role("link", name="Edit, give a reason, remember").first.click()
        if scripts:
            await read_values(page)
        await page.get_by_role("textbox", name="path").fill("other.txt")
        await page.get_by_role("textbox", name="path").press("Enter")
        await page.get_by_label("Reason").fill("too early")
        await page.get_by_label("Reason").press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("Rejected. The call does not run.")
        await page.goto("/console/approvals/several")
        if scripts:
            await read_values(page)
        await page.get_by_label("Reason").fill("not these")
        await page.get_by_label("Reason").press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("Rejected: 2 calls. None of them runs.")
    comments = [(state, comment) for state, _, comment in await states(gateway)]
    assert comments == [("rejected", "too early"), ("rejected", "not these"), ("rejected", "not these")]


async def test_user_can_sign_in_and_out(chromium: Browser, tmp_path: Path) -> None:
    """With a gateway key; a wrong one is refused; a link to an approval leads there after the sign-in."""
    keys = [{**key("s3cret", "approve", "context"), "name": "ann", "tenant": "team"}]
    async with GatewayProcess(config(None, keys=keys, store=f"sqlite:///{tmp_path}/gateway.db")) as gateway:
        at = partial(visiting, chromium, gateway.base_url)
        async with at("/console/runs?state=failed", expected=["status of 401"]) as page:
            await axe(page)
            await picture(page, "sign-in")
            await page.get_by_label("Gateway key").fill("guess")
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("alert")).to_have_text("This is no gateway key: check it.")
            await axe(page)
            await page.get_by_label("Gateway key").fill("s3cret")
            await page.get_by_role("button", name="Sign in").click()
            assert page.url == f"{gateway.base_url}/console/runs?state=failed"
            await expect(page.get_by_role("contentinfo")).to_contain_text("Key ann, tenant team")
            (cookie,) = await page.context.cookies()
            assert cookie["httpOnly"] and cookie["sameSite"] == "Lax" and cookie["path"] == "/console"
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_label("Gateway key")).to_be_visible()
            await page.context.add_cookies([cookie])
            await page.goto("/console")
            await expect(page.get_by_label("Gateway key")).to_be_visible()


async def test_inbox_is_shown_in_chinese_or_the_chosen_language(gateway: GatewayProcess, visit: Visit) -> None:
    """By the browser's language, or by choice."""
    await asked(gateway)
    async with visit("/console", language="zh") as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("待办")
        await axe(page)
        await page.get_by_role("button", name="English").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")


async def test_approved_call_links_to_its_run(gateway: GatewayProcess, visit: Visit) -> None:
    """From the decision in the inbox one click leads to the run that goes on."""
    await asked(gateway)
    async with visit("/console") as page:
        await expect(page.get_by_role("link", name="See what the run does")).to_have_count(0)
        await page.get_by_role("button", name="Approve the call of file_operations").click()
        await page.get_by_role("link", name="See what the run does").click()
        await expect(page.locator(".head .badge").first).to_have_text("completed")


async def test_open_call_page_is_updated_after_a_decision_elsewhere(gateway: GatewayProcess, visit: Visit) -> None:
    """Of another person's. It offers no decision any more, and its next load says who decided and what became of it."""
    await asked(gateway)
    async with visit("/console") as page, aiohttp.ClientSession(gateway.base_url) as client:
        await page.get_by_role("article").get_by_role("link").first.click()
        await read_values(page)
        await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_enabled()
        approval_id = page.url.rpartition("/")[2]
        await client.post(f"/context/approvals/{approval_id}", json={"decision": "approve"})
        await expect(page.get_by_text("This call was decided meanwhile")).to_be_visible()
        for button in await page.locator("[name=decision]").all():
            await expect(button).to_be_disabled()
        await page.get_by_role("link", name="See what became of it").click()
        await expect(page.locator(".decided")).to_contain_text("approved by")
        await page.reload()
        await expect(page.locator(".decided")).to_contain_text("the call has run")


async def test_inbox_reports_a_lost_gateway_and_recovers(gateway: GatewayProcess, visit: Visit) -> None:
    """Its decisions are not sent into nothing; it recovers by itself, and the call is decided then."""
    await asked(gateway)
    lost = ["ERR_|Failed to load resource|htmx:sseError|\\[object"]
    async with visit("/console", expected=lost) as page:
        approve = page.get_by_role("button", name="Approve the call of file_operations")
        await expect(approve).to_be_enabled()
        await gateway.stop()
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("No connection to the gateway since")
        await approve.click()
        assert page.url.endswith("/console")
        await expect(page.get_by_role("article")).to_have_count(1)
        await gateway.start()
        await expect(alert).to_be_hidden()
        await approve.click()
        await expect(page.get_by_role("status")).to_contain_text("Approved. The run goes on.")


async def test_link_to_a_call_or_run_can_be_copied(gateway: GatewayProcess, visit: Visit) -> None:
    """For a colleague: without what the page said last. Where no script runs there is no such button."""
    await asked(gateway)
    async with visit("/console") as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        approval_id = await page.get_by_role("article").get_attribute("id")
        run = await page.get_by_role("link", name="run run_").first.get_attribute("href")
        for place, path in (
            (f"/console/approvals/{approval_id}", f"{approval_id}?done=noted"),
            (run, f"../runs/{str(run).rpartition('/')[2]}?done=resumed"),
        ):
            await page.goto(f"/console/approvals/{path}")
            await page.get_by_role("button", name="Copy the link").click()
            await expect(page.get_by_role("button", name="Copied")).to_be_visible()
            assert await page.evaluate("navigator.clipboard.readText()") == f"{gateway.base_url}{place}"
    async with visit(f"/console/approvals/{approval_id}", scripts=False) as page:
        await expect(page.get_by_role("button", name="Copy the link")).to_be_hidden()
