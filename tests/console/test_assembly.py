"""The console put together: every page has an address of its own, and none can be entered before it is built."""

import re
from pathlib import Path

from gateway.console.assembly import compile_templates
from gateway.console.request import ENTRIES
from tests.console.browsing import key, served


async def test_each_address_has_one_page(tmp_path: Path) -> None:
    """Of each method; a path that fits two pages would show the first one's. Scopes are those of keys."""
    async with served(tmp_path, key("ann")) as browser:
        await browser.get("/console/sign-in")
        pages = (await browser.gateway.gateway._built.console._assembled.get()).console.pages
        places = [(page.method, re.sub(r"\{\w+\}", "{}", page.path)) for page in pages]
        assert len(set(places)) == len(places)
        assert {("GET", entry.path) for entry in ENTRIES} <= set(places)
        assert {method for method, _ in places} == {"GET", "POST"}
        assert {scope for page in pages for scope in page.scopes} == {"context", "approve", "admin"}
        assert all(page.scopes for page in pages)


async def test_entries_of_the_navigation_have_the_scopes_of_their_pages(tmp_path: Path) -> None:
    """The inbox is open to operators as well: it leads them to theirs."""
    async with served(tmp_path, key("ann")) as browser:
        await browser.get("/console/sign-in")
        pages = (await browser.gateway.gateway._built.console._assembled.get()).console.pages
        scopes = {page.path: set(page.scopes) for page in pages if page.method == "GET"}
        for entry in ENTRIES:
            assert set(entry.scopes) <= scopes[entry.path], entry
            assert entry.path == "" or set(entry.scopes) == scopes[entry.path], entry


def test_console_templates_are_compiled_at_the_start() -> None:
    assert "base.html" in {str(name[1]) for name in compile_templates()._environment.cache or ()}
