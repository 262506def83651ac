"""The header fields of every page, as a browser gets them."""

import re
from pathlib import Path

from gateway.console.response_headers import build_page_headers, generate_nonce
from tests.console.browsing import Seen, key, served


def policy_of(page: Seen) -> dict[str, str]:
    parts = (part.partition(" ") for part in page.headers["Content-Security-Policy"].split("; "))
    return {name: value for name, _, value in parts}


async def test_content_security_policy_allows_only_scripts_with_the_page_nonce(tmp_path: Path) -> None:
    """The page of an error and the sign-in, too; each answer has a nonce of its own, which its elements carry."""
    nonces = set()
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        for person, path in (
            (ann, "/console"),
            (ann, "/console/missing"),
            (browser, "/console/sign-in"),
            (ann, "/console/runs"),
        ):
            page = await person.get(path)
            policy = policy_of(page)
            assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
            assert policy["form-action"] == policy["connect-src"] == policy["img-src"] == "'self'"
            (nonce,) = re.findall(r"^'nonce-([\w-]{20,})'$", policy["script-src"])
            assert policy["style-src"] == f"'nonce-{nonce}'" and nonce not in nonces
            nonces.add(nonce)
            loaded = [
                one
                for one in page.root.all()
                if one.tag in ("script", "style") or "stylesheet" in one.attributes.get("rel", "")
            ]
            assert loaded and all(one.attributes["nonce"] == nonce and not one.raw_text for one in loaded)
            assert not [
                one for one in page.root.all() if any(n == "style" or n.startswith("on") for n in one.attributes)
            ]
            assert page.headers["X-Frame-Options"] == "DENY" and page.headers["Cache-Control"] == "no-store"
            assert page.headers["X-Content-Type-Options"] == "nosniff"
            assert page.headers["Cross-Origin-Opener-Policy"] == page.headers["Cross-Origin-Resource-Policy"]


def test_nonce_contains_only_header_safe_characters() -> None:
    nonces = {generate_nonce() for _ in range(100)}
    assert len(nonces) == 100 and all(re.fullmatch(r"[\w-]{20,}", nonce) for nonce in nonces)
    assert build_page_headers("n")["Referrer-Policy"] == "same-origin"


async def test_cors_origins_cannot_use_console_sessions(tmp_path: Path) -> None:
    """Neither to read the token of a form nor to send one, though the cookie is sent on the same site."""
    async with served(tmp_path, key("ann"), cors=["https://app.example"]) as browser:
        ann = await browser.signed_in("ann")
        token = (await ann.get("/console")).token
        app = {"Origin": "https://app.example", "Sec_Fetch_Site": "same-site"}
        script = {**app, "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}
        for seen in (
            await ann.get("/console", **script),
            await ann.get("/console/live", **script),
            await ann.post("/console/sign-out", {"token": token}, **script),
            await ann.post("/console/sign-out", {"token": token}, **app),
            await browser.post("/console/sign-in", {"key": "ann-key"}, **app),
        ):
            assert (seen.status, seen.heading) == (403, "Not possible") and token not in seen.html
        assert (await ann.get("/console", Sec_Fetch_Site="cross-site")).heading == "Inbox"  # by a link
