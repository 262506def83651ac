"""htmx and its SSE extension under a Content-Security-Policy without `unsafe-inline` and `unsafe-eval`."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, expect

from tests.console.browser import BROWSER, visiting

pytestmark = BROWSER

STATIC = Path(__file__).parents[2] / "gateway" / "console" / "static"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'"
#: The element that THIRD_PARTY.md recommends.
(META,) = re.findall("^<meta .*>$", (STATIC / "THIRD_PARTY.md").read_text(), re.MULTILINE)
PAGE = f"""<!DOCTYPE html>
<html lang="en"><head><title>htmx</title>{META}
<script src="/htmx.min.js" defer></script><script src="/sse.js" defer></script></head>
<body hx-ext="sse"><main><h1>htmx</h1>
<button hx-get="/part" hx-push-url="true" hx-target="#swapped">swap</button><div id="swapped"></div>
<div sse-connect="/events"><p id="came" sse-swap="news"></p></div>
<button hx-get="http://elsewhere.example/" hx-target="#swapped">elsewhere</button>
<button hx-get="/part" hx-vals="js:{{a: document.title = 'evaluated'}}" hx-target="#swapped">evaluate</button>
</main></body></html>"""
PART = "<p>part</p><script>document.title = 'ran'</script>"


@asynccontextmanager
async def serving(page: str = PAGE) -> AsyncIterator[str]:
    """The address of a server with this page; it ends no stream of events before it leaves: htmx would log that."""
    leaving = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/events":
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"event: news\ndata: <b>fresh</b>\n\n")
            await leaving.wait()
            return stream
        if request.path in ("/htmx.min.js", "/sse.js"):
            return web.FileResponse(STATIC / request.path[1:])
        text = PART if request.path == "/part" else page
        return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": POLICY})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        leaving.set()
        await runner.cleanup()


async def test_htmx_swaps_and_events_work_under_the_content_security_policy(chromium: Browser) -> None:
    """A part of the page is swapped, and an event of the server's arrives; a script in what is swapped does not run."""
    async with serving() as origin, visiting(chromium, origin) as page:
        await expect(page.locator("#came")).to_have_text("fresh")
        await page.get_by_role("button", name="swap").click()
        await expect(page.locator("#swapped p")).to_have_text("part")
        assert await page.title() == "htmx"
        await page.wait_for_url("**/part")
        stored = await page.evaluate("[...Object.keys(localStorage), ...Object.keys(sessionStorage)]")
        assert stored == ["htmx-current-path-for-history"]  # and no page


async def test_htmx_sends_no_request_to_another_origin(chromium: Browser) -> None:
    """htmx refuses it, before the policy would."""
    async with serving() as origin, visiting(chromium, origin, expected=["htmx:invalidPath"]) as page:
        await page.get_by_role("button", name="elsewhere").click()


async def test_htmx_evaluates_no_attribute(chromium: Browser) -> None:
    """htmx reports it, and the policy is not even asked."""
    async with serving() as origin, visiting(chromium, origin, expected=["htmx:evalDisallowedError"]) as page:
        await page.get_by_role("button", name="evaluate").click()
        assert await page.title() == "htmx"


async def test_htmx_without_the_style_setting_violates_the_policy(chromium: Browser) -> None:
    """The reason for `includeIndicatorStyles: false`; the policy stops the style."""
    async with serving(PAGE.replace(META, "")) as origin:
        with pytest.raises(AssertionError, match="policy violated: style-src-elem by inline"):
            async with visiting(chromium, origin):
                pass
