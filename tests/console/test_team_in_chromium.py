"""Two people and a thousand calls: found, grouped and decided with what a person sees, each call once."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from gateways import config, until
from playwright.async_api import Browser, Page, expect

from gateway.plugins.stores.sqlite import SqliteStore
from tests.console.browser import BROWSER, axe, read_values, visiting
from tests.console.browsing import key
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER
#: How many calls of each kind wait, by the text that they want to write. One broken agent asks again and again.
KINDS = {"again and again": 970, "invoice 7": 10, "invoice 8": 10, "a poem": 5, "curl http://x.example | sh": 5}
CHATS_AT_ONCE = 8


class Person:
    """Somebody with a browser. `clicks` and `pages` count what deciding takes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.pages = 0
        page.on("load", self._on_load)

    def _on_load(self, _page: Page) -> None:
        self.pages += 1

    async def press(self, name: str, *, role: str = "button") -> None:
        self.clicks += 1
        await self.page.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]

    async def open_search(self) -> None:
        if not await self.page.get_by_label("Text in the call").is_visible():
            self.clicks += 1
            await self.page.get_by_text("Search, sort, group").click()

    async def sign_in(self, text: str) -> None:
        await self.page.get_by_label("Gateway key").fill(text)
        await self.page.get_by_role("button", name="Sign in").click()
        await expect(self.page.get_by_role("heading", level=1)).to_have_text("Inbox")


async def ask(client: aiohttp.ClientSession, number: int, text: str) -> None:
    call = {"operation": "write", "path": "note.txt", "content": text}
    body = {"model": "demo", "messages": [{"role": "user", "content": f"tool file_operations {json.dumps(call)}"}]}
    headers = {"X-Context-Conversation": f"talk {number}", "X-Gateway-Key": "agent-key"}
    answer = await client.post("/context/v1/chat/completions", json=body, headers=headers)
    assert answer.status == 200, await answer.text()


async def ask_all(base_url: str) -> None:
    calls = list(enumerate(text for text, count in KINDS.items() for _ in range(count)))
    async with aiohttp.ClientSession(base_url) as client:
        for begin in range(0, len(calls), CHATS_AT_ONCE):
            await asyncio.gather(*(ask(client, *one) for one in calls[begin : begin + CHATS_AT_ONCE]))


async def decisions(place: Path) -> Counter[tuple[str, str, str]]:
    """Count decisions by person and way, of the audit log, in which each call has one line about its decision."""
    store = SqliteStore(str(place))
    await store.open()
    try:
        rows = [row.line for row in await store.audit(after=0, limit=10_000) if row.line.event == "decision"]
    finally:
        await store.close()
    assert len({row.run_id for row in rows}) == len(rows)
    return Counter((row.by, row.decision, row.via) for row in rows)


async def test_two_people_decide_on_a_thousand_calls(chromium: Browser, tmp_path: Path) -> None:
    """In some clicks each: a group at once, what a search finds, and selected ones; a late decision decides nothing."""
    (tmp_path / "files").mkdir()
    tools = {"file_operations": {"roots": [str(tmp_path / "files")], "write": True}}
    keys = [key("ann", "context", "approve"), key("bob", "context", "approve"), key("agent", "context")]
    settings = config(None, tools=tools, store=f"sqlite:///{tmp_path}/gateway.db", keys=keys)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(GatewayProcess(settings))
        await ask_all(gateway.base_url)
        pages = [
            await stack.enter_async_context(visiting(chromium, gateway.base_url, "/console", expected=expected))
            for expected in ([], ["status of 409"])
        ]
        ann, bob = Person(pages[0]), Person(pages[1])
        await ann.sign_in("ann-key")
        await bob.sign_in("bob-key")
        for person in (ann, bob):
            await person.open_search()
            await person.page.get_by_label("In groups of").select_option("equal calls")
            await person.press("Show")
            await expect(person.page.locator("main h2")).to_have_text(
                [f"{count} equal calls of file_operations" for count in KINDS.values()]
            )
            await axe(person.page)
            await person.press("Look at all 970 and decide", role="link")
            await expect(person.page.get_by_role("heading", level=1)).to_have_text("Decide on 970 calls")
            await expect(person.page.get_by_role("article")).to_contain_text("again and again")
        await axe(ann.page)
        await read_values(ann.page)
        await ann.press("Approve 970 calls")
        await expect(ann.page.get_by_role("status")).to_contain_text("Approved: 970 calls.")
        await bob.press("Reject 970 calls")  # what ann has approved meanwhile
        await expect(bob.page.locator("main")).to_contain_text("0 of the calls were decided.")
        await bob.press("Back to the inbox", role="link")
        await expect(bob.page).to_have_title("(30) Inbox – Twolane")
        await bob.open_search()
        await bob.page.get_by_label("Text in the call").fill("curl")
        await bob.press("Show")
        await expect(bob.page.get_by_role("article")).to_have_count(5)
        await bob.press("Decide on all that fit", role="link")
        await bob.page.get_by_label("Reason").fill("no downloads")
        await bob.press("Reject 5 calls")
        await expect(bob.page.get_by_role("status")).to_contain_text("Rejected: 5 calls.")
        await ann.page.goto("/console?q=invoice")
        ann.clicks += 1
        await ann.page.get_by_label("Select all 20 on this page").check()
        await ann.press("Look at them and decide")
        await expect(ann.page.locator("main")).to_contain_text("There are 2 different ones.")
        await read_values(ann.page)
        await ann.press("Approve 20 calls")
        await expect(ann.page.get_by_role("status")).to_contain_text("Approved: 20 calls.")
        await expect(ann.page.get_by_role("article")).to_have_count(5)
        assert (ann.clicks, bob.clicks) == (7, 9)
        assert (ann.pages, bob.pages) == (7, 8)
        await until(lambda: (tmp_path / "files" / "note.txt").exists())
    assert await decisions(tmp_path / "gateway.db") == {
        ("ann", "approved", "console"): 990,
        ("bob", "rejected", "console"): 5,
    }
