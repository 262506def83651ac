"""Real pages in a real Chromium: opened, watched for faults, checked for accessibility, photographed.

A test file begins with `pytestmark = BROWSER`: one Chromium serves all of them, on one event loop. In a test, `visit`
(a fixture) opens a page of the gateway and yields Playwright's `Page`:

    async def test_something(visit: Visit) -> None:
        async with visit("/console", view=PHONE, scheme="dark") as page:
            await axe(page)

On leaving, a console error, an exception of the page's, a violation of its policy, or a request to another origin than
the gateway's fails the test.
"""

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, WebError

BROWSER: Final = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"
_AXE: Final = Path(__file__).with_name("node") / "node_modules" / "axe-core" / "axe.min.js"
#: Rules by conformance level, up to WCAG 2.2 AA, and the practices that axe recommends besides.
_RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
#: Not by default in axe, since it is of WCAG 2.2.
_ALSO: Final = {"target-size": {"enabled": True}}
#: As long as a test waits for anything: a machine that others use stands still now and then.
PATIENCE_MS: Final = 60_000
_PICTURE: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

#: Done once the page was drawn as it is now.
DRAWN: Final = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"

#: Whether the page's own script has run.
READY: Final = "() => 'ready' in document.documentElement.dataset"

Scheme = Literal["light", "dark"]
Language = Literal["en", "zh"]
_LOCALES: Final[dict[Language, str]] = {"en": "en-US", "zh": "zh-CN"}


@dataclass(frozen=True)
class View:
    """The size of a window, and whether it is a phone's: those scale the page, and are touched."""

    width: int
    height: int
    mobile: bool = False


DESKTOP: Final = View(1280, 800)
PHONE: Final = View(390, 844, mobile=True)


class Visit(Protocol):
    """The fixture `visit`: `visiting` with the Chromium and the gateway of the test."""

    def __call__(
        self,
        path: str = "/",
        *,
        view: View = DESKTOP,
        scheme: Scheme = "light",
        scripts: bool = True,
        language: Language = "en",
        zone: str = "UTC",
        expected: Sequence[str] = (),
    ) -> contextlib.AbstractAsyncContextManager[Page]: ...


@dataclass
class Watch:
    """The requests and the faults of every page of a browser context."""

    origin: str
    urls: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def begin(self, context: BrowserContext) -> None:
        context.on("request", self._on_request)
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("page", lambda page: page.on("websocket", lambda socket: self._on_url(socket.url)))

    def unexpected(self, expected: Sequence[str]) -> list[str]:
        """Return the faults that no pattern finds, and the patterns that find no fault."""
        more = [fault for fault in self.faults if not any(re.search(pattern, fault) for pattern in expected)]
        missing = [pattern for pattern in expected if not any(re.search(pattern, fault) for fault in self.faults)]
        return more + [f"expected, and did not happen: {pattern}" for pattern in missing]

    def _on_request(self, request: Request) -> None:
        self._on_url(request.url)

    def _on_url(self, url: str) -> None:
        self.urls.append(url)
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "about") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"request to another origin: {url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.faults.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _on_error(self, error: WebError) -> None:
        self.faults.append(f"exception: {error.error}")


#: Chromium writes some violations to the console itself; this writes all of them.
_REPORT_VIOLATIONS: Final = """
document.addEventListener('securitypolicyviolation', event => console.error(
  `policy violated: ${event.effectiveDirective} by ${event.blockedURI} ${event.sample}`));
"""


def executable() -> str:
    """The system's Chromium: Playwright's own is a download that the requirement files do not pin."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "the browser tests need Chromium: on Debian, apt-get install chromium"
    return found


async def launch(playwright: Playwright) -> Browser:
    """Without its sandbox, which root cannot have and containers often lack: it opens this gateway's pages only.

    No name is resolved, so that nothing can leave the machine.
    """
    return await playwright.chromium.launch(
        executable_path=executable(),
        chromium_sandbox=False,
        args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--force-color-profile=srgb"],
        timeout=PATIENCE_MS,
    )


@contextlib.asynccontextmanager
async def visiting(
    browser: Browser,
    origin: str,
    path: str = "/",
    *,
    view: View = DESKTOP,
    scheme: Scheme = "light",
    scripts: bool = True,
    language: Language = "en",
    zone: str = "UTC",
    expected: Sequence[str] = (),
) -> AsyncIterator[Page]:
    """A page with a profile of its own; each of `expected` is a pattern for faults that must happen.

    Chromium writes each answer from 400 on to the console: such a page needs `expected=["status of 404"]`.
    """
    context = await browser.new_context(
        base_url=origin,
        viewport={"width": view.width, "height": view.height},
        device_scale_factor=1,
        is_mobile=view.mobile,
        has_touch=view.mobile,
        color_scheme=scheme,
        reduced_motion="reduce",
        java_script_enabled=scripts,
        locale=_LOCALES[language],
        timezone_id=zone,
    )
    context.set_default_timeout(PATIENCE_MS)
    watch = Watch(origin)
    watch.begin(context)
    try:
        await context.add_init_script(_REPORT_VIOLATIONS)
        page = await context.new_page()
        await page.goto(path)
        yield page
        for opened in context.pages:
            await _settled(opened, scripts=scripts)
    finally:
        await context.close()
    faults = watch.unexpected(expected)
    assert not faults, "\n".join(faults)


async def _settled(page: Page, *, scripts: bool) -> None:
    """Return when the page's events so far have arrived here: they come in their order, and this after them."""
    await page.evaluate("new Promise(resolve => setTimeout(resolve))" if scripts else "0")


async def read_values(page: Page) -> None:
    """Bring the end of each value into view: Approve is off before."""
    for value in await page.locator(".exact.whole").all():
        await value.evaluate("one => one.scrollIntoView({block: 'end'})")
        await page.evaluate(DRAWN)
    await page.evaluate("window.scrollTo(0, 0)")


async def axe(page: Page) -> None:
    """Fail if axe-core finds anything against WCAG up to 2.2 AA, or against its own recommendations.

    It is a script, whose promises and timers do nothing where scripts are off.
    """
    assert not await page.evaluate("matchMedia('(scripting: none)').matches"), "axe needs a visit with scripts=True"
    await page.evaluate(_axe_source())
    found: dict[str, Any] = await page.evaluate(
        "options => axe.run(document, options)",
        {"runOnly": {"type": "tag", "values": _RULES}, "rules": _ALSO, "resultTypes": ["violations"]},
    )
    assert found["passes"], f"axe-core found nothing to check at {page.url}"
    violations = "\n\n".join(map(_told, found["violations"]))
    assert not violations, violations


@cache
def _axe_source() -> str:
    assert _AXE.exists(), f"{_AXE.relative_to(ROOT)} is missing: `make test-browser` installs it (npm ci)"
    return _AXE.read_text(encoding="utf-8")


def _told(violation: dict[str, Any]) -> str:
    places = [f"{' '.join(map(str, node['target']))}: {node['failureSummary']}" for node in violation["nodes"]]
    return "\n".join([f"{violation['id']} ({violation['impact']}): {violation['help']}", *places])


async def fits(page: Page) -> None:
    """Fail if the page is wider than the window: readers would have to scroll in two directions (WCAG 1.4.10)."""
    width, wide = await page.evaluate(
        "[document.documentElement.scrollWidth, [...document.querySelectorAll('body *')].filter(element =>"
        " element.getBoundingClientRect().right > screen.width).map(element => element.outerHTML.slice(0, 120))]"
    )
    assert page.viewport_size is not None
    limit = page.viewport_size["width"]
    assert width <= limit, f"{page.url} is {width} pixels wide in a window of {limit}: " + "\n".join(wide)


async def picture(page: Page, name: str) -> None:
    """Write the window to docs/images/console-NAME.png if TWOLANE_PICTURES is 1; otherwise do nothing."""
    assert _PICTURE.fullmatch(name), f"a picture's name is of small letters, digits and hyphens: {name!r}"
    if os.environ.get("TWOLANE_PICTURES") == "1":
        IMAGES.mkdir(exist_ok=True)
        # A caret that is hidden would take a style element, which the pages' policy forbids.
        path = IMAGES / f"console-{name}.png"
        await page.screenshot(path=path, animations="disabled", caret="initial", scale="css")
