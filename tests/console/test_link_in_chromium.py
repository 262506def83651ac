"""The page of a link that decides, in a real browser: light, dark, on a phone, in Chinese, without scripts."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from gateways import config, key, until
from playwright.async_api import Browser, expect

from tests.console.browser import BROWSER, DESKTOP, PHONE, Language, Scheme, View, axe, fits, visiting
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER
CHAT = "/context/v1/chat/completions"


@pytest.mark.parametrize(
    ("view", "scheme", "language"),
    [(DESKTOP, "light", "en"), (DESKTOP, "dark", "en"), (PHONE, "light", "en"), (PHONE, "dark", "zh")],
)
async def test_decision_link_pages_are_accessible_and_work_without_scripts(
    chromium: Browser, tmp_path: Path, view: View, scheme: Scheme, language: Language
) -> None:
    """Each page is accessible and fits; the form is sent, and the page behind it says so."""
    links: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        links.append((await request.json())["data"]["decision_link"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    async with TestServer(app) as mailbox:
        agent = {**key("agent", "context"), "name": "agent"}
        notify = [{"webhook": str(mailbox.make_url("/")), "links": {"as": "oncall"}}]
        (tmp_path / "files").mkdir()
        settings = config(
            None,
            keys=[agent],
            store=f"sqlite:///{tmp_path}/gateway.db",
            tools={"file_operations": {"roots": [str(tmp_path / "files")], "write": True}},
            public_url="https://gateway.example",
            approvals={"notify": notify, "require": [{"approvals": 2}]},
        )
        async with GatewayProcess(settings) as gateway:
            words = (
                'tool file_operations {"operation": "write", "path": "note.txt", "content": "Call Ann\\nsafe\u202egnp"}'
            )
            asking = {"model": "demo", "messages": [{"role": "user", "content": words}]}
            async with ClientSession(gateway.base_url, headers={"X-Gateway-Key": "agent"}) as session:
                assert (await session.post(CHAT, json=asking)).status == 200
            await until(lambda: bool(links))
            parts = urlsplit(links[0])
            path = f"{parts.path}?{parts.query}"
            async with visiting(
                chromium, gateway.base_url, path, view=view, scheme=scheme, language=language, scripts=False
            ) as page:
                approve = page.locator("button.good")
                await expect(approve).to_be_visible()
                await fits(page)
                await approve.click()
                await expect(page.locator("[role=status]")).to_be_visible()
                await expect(approve).to_have_count(0)
                assert "1" in await page.locator(".approvals").inner_text()
            async with visiting(chromium, gateway.base_url, path, view=view, scheme=scheme, language=language) as page:
                await axe(page)
                await fits(page)
