"""The colours of the pages: chosen with a form, kept in a cookie, written by the server."""

from pathlib import Path

import pytest

from gateway.console.theme import COOKIE, choose_theme
from tests.console.browsing import Seen, key, served


@pytest.mark.parametrize(
    ("text", "theme"), [("light", "light"), ("dark", "dark"), ("system", None), ("", None), (None, None)]
)
def test_theme_accepts_only_known_names(text: str | None, theme: str | None) -> None:
    assert choose_theme(text) == theme


def theme_of(page: Seen) -> str | None:
    (root,) = page.root.all("html")
    return root.attributes.get("data-theme")


async def test_theme_choice_is_kept_in_a_cookie(tmp_path: Path) -> None:
    """For every page, the sign-in and refusals too, until they leave it to the system; another word is refused."""
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/runs")
        assert theme_of(page) is None
        dark = await ann.submit(page, "Dark")
        assert (dark.path, theme_of(dark)) == ("/console/runs", "dark")
        assert theme_of(await ann.get("/console/none")) == "dark"
        pressed = {one.name: one.attributes["aria-pressed"] for one in dark.root.all("button", name="theme")}
        assert pressed == {"As the system": "false", "Light": "false", "Dark": "true"}
        assert (await ann.post("/console/theme", {"token": page.token, "theme": "<b>"})).status == 400
        await ann.submit(dark, "Sign out")
        assert theme_of(await ann.get("/console/sign-in")) == "dark"
        again = await browser.signed_in("ann")
        again.cookies[COOKIE] = 'dark"><b>'
        assert theme_of(await again.get("/console")) is None
        again.cookies[COOKIE] = "light"
        assert theme_of(await again.submit(await again.get("/console"), "As the system")) is None
        assert COOKIE not in again.cookies
