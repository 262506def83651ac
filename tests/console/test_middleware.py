"""The way into the console: the sign-in and where it leads, cookies, languages, and requests that fit no page.

`test_security.py` has every page with every request that is not what it seems.
"""

from pathlib import Path
from urllib.parse import quote

import pytest

from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from tests.console.browsing import key, served

KEYS = (key("ann", "context", "approve"), key("eve", tenant="other"))


async def test_sign_in_returns_to_the_requested_page(tmp_path: Path) -> None:
    """With the query of the page. A blank around a pasted key is none of it."""
    async with served(tmp_path, *KEYS) as browser:
        page = await browser.get("/console/runs?state=running&kind=chat")
        assert page.status == 200 and page.path.startswith("/console/sign-in?back=")
        after = await browser.submit(page, "Sign in", {"key": " ann-key\n"})
        assert after.status == 200 and after.path == "/console/runs?state=running&kind=chat"
        assert after.heading == "Runs"


async def test_a_wrong_key_is_refused_on_the_same_page(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        page = await browser.get("/console/runs")
        for text in ("", "x", "ann", "ann-key2", "\U0001f600", "lent-x"):
            refused = await browser.submit(page, "Sign in", {"key": text}, follow=False)
            assert refused.status == 401 and refused.problem and not refused.cookies
            assert "value" not in refused.root.all("input", name="key")[0].attributes
        after = await browser.submit(refused, "Sign in", {"key": "ann-key"})
        assert after.heading == "Runs"


@pytest.mark.parametrize(
    "back",
    [
        *("//evil.example", "https://evil.example", "/\\evil.example", "@evil.example", ".evil.example", "x"),
        *(
            "/../v1/x",
            "/runs/../../v1",
            "/%2e%2E/v1",
            "/.%2e",
            "/./..",
            "/runs/..?x=1",
            "/a b",
            "/\r\nX: y",
            "/é",
            "/#x",
        ),
    ],
)
async def test_sign_in_never_redirects_outside_the_console(tmp_path: Path, back: str) -> None:
    async with served(tmp_path, *KEYS) as browser:
        page = await browser.get("/console/sign-in?back=/runs")
        form = page.form("Sign in")
        assert form.action.endswith("?back=/runs")
        seen = await browser.post(f"/console/sign-in?back={quote(back)}", {"key": "ann-key"}, follow=False)
        assert seen.status == 303 and seen.location in ("/console", "/console//evil.example")
        seen = await browser.post(
            "/console/language",
            {"token": (await browser.get("/console")).token, "language": "en", "back": back},
            follow=False,
        )
        assert seen.location in ("/console", "/console//evil.example")


async def test_session_cookie_is_scoped_to_the_console_and_secure(tmp_path: Path) -> None:
    """With a URL of https for people it travels by nothing else."""
    async with served(tmp_path, *KEYS) as browser:
        page = await browser.get("/console/sign-in")
        (cookie,) = (await browser.submit(page, "Sign in", {"key": "ann-key"}, follow=False)).cookies.values()
        assert (cookie.key, cookie["path"], cookie["samesite"]) == ("twolane_console", "/console", "Lax")
        assert cookie["httponly"] and not cookie["secure"] and not cookie["max-age"] and not cookie["expires"]
        await browser.reload(console={"url": "https://gw.example"})
        (cookie,) = (await browser.submit(page, "Sign in", {"key": "ann-key"}, follow=False)).cookies.values()
        assert cookie.key == "__Secure-twolane_console" and cookie["secure"] and cookie["path"] == "/console"
        assert (await browser.get("/console")).heading == "Inbox"


async def test_language_choice_overrides_the_browser_and_outlives_the_session(tmp_path: Path) -> None:
    """The choice stands above the browser's, and outlives the session."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/runs")
        chinese = await ann.submit(page, "中文")
        assert chinese.path == "/console/runs" and chinese.heading == "运行" and 'lang="zh-Hans"' in chinese.html
        out = await ann.submit(chinese, "退出登录")
        assert 'lang="zh-Hans"' in out.html
        refused = await ann.post("/console/language", {"language": "fr"})
        assert refused.status == 401
        german = await (await browser.signed_in("ann", language="zh-CN")).get("/console/runs")
        assert german.heading == "运行"
        bad = await ann.submit(out, "登录", {"key": "ann-key"})
        assert (await ann.post("/console/language", {"token": bad.token, "language": "fr"})).status == 400


async def test_unknown_console_paths_return_404(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for path in (
            "/console/missing",
            "/console/%2e%2e",
            "/console/runs%2fx",
            "/console/Runs",
            "/console//runs",
            "/console/.",
        ):
            seen = await ann.get(path, follow=False)
            assert seen.status == 404 and seen.heading == "Not possible", path
        for path in ("/console", "/console/", "/console//"):
            assert (await ann.get(path)).heading == "Inbox"
        assert (await ann.get("/consolex")).status == 404


async def test_unsupported_or_oversized_forms_are_refused_with_a_page(tmp_path: Path) -> None:
    """Another type, another charset, too large: a page says so."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        token = (await ann.get("/console")).token
        form = "application/x-www-form-urlencoded"
        for kind, status in (
            ("application/json", 415),
            ("multipart/form-data; boundary=x", 415),
            ("text/plain", 415),
            (f"{form}; charset=none-such", 400),
        ):
            seen = await ann.post("/console/language", {"token": token}, Content_Type=kind)
            assert (seen.status, seen.heading) == (status, "Not possible"), kind
        assert (
            await ann.post("/console/language", {"token": token}, Content_Type=f"{form}; charset=utf-16")
        ).status == 400
        large = await ann.post("/console/language", {"token": token, "x": "x" * 2_000_000})
        assert (large.status, large.heading) == (413, "Not possible")
        many = await ann.post("/console/language", [("token", token), *(("a", "b") for _ in range(10_000))])
        assert many.status in (400, 413)


@pytest.mark.parametrize("charset", ["punycode", "utf-7", "unicode_escape", "idna", "latin-1"])
async def test_form_in_a_charset_other_than_utf_8_is_refused(tmp_path: Path, charset: str) -> None:
    """A form needs no key, and the time of some decoders grows with the square of its length."""
    kind = f"application/x-www-form-urlencoded; charset={charset}"
    async with served(tmp_path, *KEYS) as browser:
        seen = await browser.post("/console/sign-in", {"key": "ann-key"}, Content_Type=kind, follow=False)
        assert (seen.status, seen.heading) == (400, "Not possible") and "not in UTF-8" in seen.main
        kind = 'application/x-www-form-urlencoded; charset="UTF-8"'
        assert (
            await browser.post("/console/sign-in", {"key": "ann-key"}, Content_Type=kind, follow=False)
        ).status == 303


async def test_store_failure_returns_a_503_page_without_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")

        async def fail(*_: object) -> bool:
            raise StoreError("disk I/O error")

        monkeypatch.setattr(SqliteStore, "find_ended_sessions", fail)
        seen = await ann.get("/console")
        assert (seen.status, seen.heading) == (503, "Not possible") and "store failed" in seen.main
        assert "disk" not in seen.html


async def test_unauthenticated_script_request_gets_401_without_redirect(tmp_path: Path) -> None:
    """A redirect would put the sign-in into the middle of the page."""
    async with served(tmp_path, *KEYS) as browser:
        for headers in ({"HX_Request": "true"}, {"Accept": "text/event-stream"}):
            seen = await browser.get("/console/live", follow=False, **headers)
            assert (seen.status, seen.location) == (401, "")
