"""Addresses of the console, and what every page has of its visit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from gateway.console.feature_pages import collect_entries
from gateway.console.request import DONE, link, see_other
from tests.console.browsing import key, served


@given(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1), st.text(st.characters(exclude_categories=("Cs",)))
)
def test_link_escapes_its_segment_and_keeps_its_host(segment: str, value: str) -> None:
    """And to no other host, whatever a name looks like."""
    url = URL(link("runs", segment, after=value, state=None), encoded=True)
    assert url.raw_path.startswith("/console/runs/") and url.raw_path.count("/") == 3
    assert not url.host and dict(url.query) == {"after": value}


def test_see_other_redirects_to_an_uncached_console_page() -> None:
    answer = see_other("runs", "a/../b", done="cancelled")
    assert (answer.status, answer.headers["Location"]) == (303, "/console/runs/a%2F..%2Fb?done=cancelled")
    assert answer.headers["Cache-Control"] == "no-store"
    assert see_other().headers["Location"] == link() == "/console"


@pytest.mark.parametrize("scope", ["context", "approve", "admin"])
async def test_navigation_lists_exactly_the_pages_the_key_may_open(tmp_path: Path, scope: str) -> None:
    """Each entry opens, and the others are not there."""
    async with served(tmp_path, key("ann", scope)) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console")
        (nav,) = (one for one in page.root.all("nav") if one.attributes["aria-label"] == "Console")
        found = [one.attributes["href"] for one in nav.all("a")]
        assert found == ["/console" + entry.path for entry in collect_entries() if scope in entry.scopes]
        for path in found:
            opened = await ann.get(path)
            assert opened.status == 200, path
            (current,) = (one for one in opened.root.all("a", aria_current="page"))
            assert current.attributes["href"] == path


async def test_page_shows_only_known_messages_about_a_completed_action(tmp_path: Path) -> None:
    """The word in the address chooses among these; any other shows nothing."""
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        for word, text in DONE.items():
            assert text.format(7) in (await ann.get(f"/console/runs?done={word}&count=7")).main
        assert "hello" not in (await ann.get("/console/runs?done=all_approved&count=hello")).main
        for word in ("", "x", "%3Cb%3Ehello"):
            page = await ann.get(f"/console/runs?done={word}")
            assert page.status == 200 and "hello" not in page.main and not page.root.all(role="status")


async def test_page_frame_shows_pending_count_and_key_name(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann"), key("eve", tenant="other")) as browser:
        ann, eve = await browser.signed_in("ann"), await browser.signed_in("eve")
        await ann.asks()
        await ann.asks(operation="write", path="other.txt", content="x")
        page = await ann.get("/console/runs")
        assert "Key ann, tenant team" in page.text
        assert [one.attributes["data-count"] for one in page.root.all(id="pending")] == ["2"]
        assert "(2)" in page.root.all("title")[0].raw_text
        assert [one.attributes["data-count"] for one in (await eve.get("/console/runs")).root.all(id="pending")] == [
            "0"
        ]
