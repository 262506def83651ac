"""The page of upstreams in a real browser, while one of their endpoints fails."""

from pathlib import Path

import aiohttp
import pytest
from gateways import config
from playwright.async_api import Browser, expect

from gateway.testing.scripts import build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream
from tests.console.browser import BROWSER, DESKTOP, PHONE, Language, Scheme, View, axe, fits, picture, visiting
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER
#: Where nobody listens.
GONE = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("view", "scheme", "language"),
    [(DESKTOP, "light", "en"), (DESKTOP, "dark", "zh"), (PHONE, "dark", "en"), (PHONE, "light", "zh")],
)
async def test_upstreams_page_shows_a_failing_endpoint_live(
    chromium: Browser, tmp_path: Path, view: View, scheme: Scheme, language: Language
) -> None:
    """Its breaker opens, and the page says so by itself; it is accessible, and fits the window."""
    async with FakeUpstream(serve(build_ok_answer()), serve(build_ok_answer())) as well:
        endpoints = [{"name": "first", "url": GONE}, {"name": "second", "url": f"{well.base_url}/v1"}]
        rules = {"breaker": {"failures": 1, "open": "1h", "longest": "1h"}, "fallback": ["rented"]}
        upstreams = [
            {"name": "own", "endpoints": endpoints, **rules},
            {"name": "rented", "base_url": GONE, "paths": ["/r/v1/"]},
        ]
        async with (
            GatewayProcess(config(None, upstreams=upstreams, store=f"sqlite:///{tmp_path}/gateway.db")) as gateway,
            visiting(
                chromium, gateway.base_url, "/console/status/upstreams", view=view, scheme=scheme, language=language
            ) as page,
        ):
            first = page.get_by_role("row").filter(has_text="first")
            await expect(first.locator(".badge.state-running")).to_be_visible()
            async with aiohttp.ClientSession(gateway.base_url) as client:
                for _ in range(4):
                    async with client.get("/v1/models") as response:
                        assert response.status == 200
            await expect(first.locator(".badge.state-error")).to_be_visible()
            await expect(first).to_contain_text("60 min")
            await axe(page)
            await fits(page)
            if language == "en":
                await picture(page, "upstreams" + ("-phone" if view.mobile else ""))
