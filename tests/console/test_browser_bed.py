"""The browser that the console's tests use: it opens the front page, and notices each kind of fault."""

import pytest
from playwright.async_api import Browser, Page, Route

from tests.console import browser
from tests.console.browser import BROWSER, DESKTOP, PHONE, Language, Scheme, View, Visit, axe, fits, picture, visiting
from tests.support.gateway_process import GatewayProcess

pytestmark = BROWSER


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_front_page_is_accessible(visit: Visit, view: View, scheme: Scheme) -> None:
    """It asks for nothing from elsewhere, violates no policy, and fits the window."""
    async with visit("/", view=view, scheme=scheme) as page:
        assert await page.get_by_role("heading", level=1).inner_text() == "Twolane is running"
        assert await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
        assert page.viewport_size == {"width": view.width, "height": view.height}
        await axe(page)
        await fits(page)


async def test_browser_without_scripts_runs_no_page_script(visit: Visit) -> None:
    """The page's own scripts do not run; the test's do."""
    async with visit("/", scripts=False) as page:
        await page.set_content("<main><h1>Still</h1><script>document.title = 'moved'</script></main>")
        assert await page.title() == ""
        assert await page.get_by_role("heading").inner_text() == "Still"


@pytest.mark.parametrize(("language", "expected"), [("en", "en-US"), ("zh", "zh-CN")])
async def test_browser_language_is_visible_to_scripts_and_gateway(
    visit: Visit, language: Language, expected: str
) -> None:
    """As the browser's user has chosen: scripts and the gateway see it."""
    async with visit("/", language=language) as page:
        assert await page.evaluate("navigator.language") == expected
        async with page.expect_request("**/") as requested:
            await page.reload()
        assert (await (await requested.value).all_headers())["accept-language"].startswith(expected)


async def test_error_status_fails_the_visit_unless_expected(visit: Visit) -> None:
    """A page that answers 404 is a fault, unless the test says so."""
    async with visit("/nothing-here", expected=["status of 404"]) as page:
        assert page.url.endswith("/nothing-here")
    with pytest.raises(AssertionError, match="status of 404"):
        async with visit("/nothing-here"):
            pass
    with pytest.raises(AssertionError, match="did not happen: status of 404"):
        async with visit("/", expected=["status of 404"]):
            pass


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<script src='/own.js'></script>", "policy violated: script-src"),
        ("<p style='color: red'>inline</p>", "policy violated: style-src"),
        ("<script nonce='x'>console.error('said')</script>", "console error: said"),
        ("<script nonce='x'>throw new Error('thrown')</script>", "exception: thrown"),
        ("<script nonce='x'>eval('1')</script>", "policy violated: script-src"),
        ("<img alt='' src='http://elsewhere.example/x.png'>", "another origin: http://elsewhere.example/x.png"),
        ("<script nonce='x'>new WebSocket('ws://elsewhere.example/')</script>", "another origin: ws://elsewhere"),
    ],
)
async def test_page_faults_fail_the_visit(chromium: Browser, gateway: GatewayProcess, html: str, fault: str) -> None:
    """Each kind; a page of that kind stands in for one of the gateway's."""
    policy = "default-src 'none'; script-src 'nonce-x'; style-src 'self'; img-src *; connect-src *"

    async def answer(route: Route) -> None:
        await route.fulfill(body=html, content_type="text/html", headers={"Content-Security-Policy": policy})

    async def look() -> None:
        async with visiting(chromium, gateway.base_url) as page:
            await page.route("**/faulty", answer)
            await page.goto("/faulty")

    with pytest.raises(AssertionError, match=fault):
        await look()


async def test_axe_check_reports_accessibility_faults(visit: Visit) -> None:
    """Of each standard that it checks; where it could find none, it says so."""
    async with visit("/", scripts=False) as page:
        with pytest.raises(AssertionError, match="scripts=True"):
            await axe(page)
    async with visit("/") as page:
        for html, rule in (
            ("<img src='data:,'>", "image-alt"),
            ("<p style='color: #ddd; background: #fff'>pale</p>", "color-contrast"),
            ("<button style='width: 9px; height: 9px'>a</button><button style='width: 9px'>b</button>", "target-size"),
            ("<h4>deep</h4>", "heading-order"),
        ):
            await shown(page, f"<main><h1>Faulty</h1>{html}</main>")
            with pytest.raises(AssertionError, match=rule):
                await axe(page)


async def shown(page: Page, body: str) -> None:
    """A page of its own, which has no policy."""
    await page.goto("about:blank")
    await page.set_content(f"<!DOCTYPE html><html lang='en'><title>Faulty</title><body>{body}</body></html>")


async def test_fits_check_reports_content_wider_than_the_window(visit: Visit) -> None:
    """On a phone, which would scale the page or scroll it."""
    async with visit("/", view=PHONE) as page:
        await page.evaluate("document.querySelector('h1').textContent = 'wide'.repeat(3)")
        await fits(page)
        await shown(page, "<main><h1>Wide</h1><p style='width: 900px'>text</p></main>")
        with pytest.raises(AssertionError, match="900px"):
            await fits(page)


async def test_pictures_are_taken_on_request(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With TWOLANE_PICTURES=1, of the window, and no fault of the page's comes of it."""
    images = tmp_path_factory.mktemp("pictures") / "images"
    monkeypatch.setattr(browser, "IMAGES", images)
    async with visit("/", view=PHONE) as page:
        monkeypatch.delenv("TWOLANE_PICTURES", raising=False)
        await picture(page, "front")
        assert not images.exists()
        monkeypatch.setenv("TWOLANE_PICTURES", "1")
        await picture(page, "front")
    png = (images / "console-front.png").read_bytes()
    assert (png[:8], png[16:24]) == (b"\x89PNG\r\n\x1a\n", (390).to_bytes(4, "big") + (844).to_bytes(4, "big"))
