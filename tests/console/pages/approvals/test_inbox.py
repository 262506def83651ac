"""The inbox: what waits is found, sorted and grouped, and decided from its card."""

from pathlib import Path

import pytest

from tests.console.browsing import Browser, Seen, key, served
from tests.console.html import buttons_of

KEYS = (
    key("ann", "context", "approve"),
    key("bob", "context", "approve"),
    key("kim", "context"),
    key("eve", tenant="other"),
)


async def test_an_approval_is_decided_in_the_inbox(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        page = await ann.get("/console")
        assert "Call Ann" in page.main
        after = await ann.submit(page, "Approve the call of file_operations")
        assert after.status == 200 and "Nothing waits for you." in after.main
        decided = await ann.until(approval_id)
        assert (decided["decided_by"], decided["via"]) == ("ann", "console")
    assert (tmp_path / "files" / "note.txt").read_text() == "Call Ann"


async def looked_at(ann: Browser, page: Seen, entries: list[str]) -> Seen:
    return await ann.submit(page, "Look at them and decide", {"approval": entries})


async def test_decision_notice_links_to_its_run(tmp_path: Path) -> None:
    """From the inbox, from the page of the approval, and from several decisions on one run."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        ids = [await ann.asks(operation="write", path=f"{i}.txt", content="x") for i in range(5)]
        runs = [(await ann.until(approval_id, "pending"))["run_id"] for approval_id in ids]
        page = await ann.get("/console")
        entries = [one.attributes["value"] for one in page.root.all("input", name="approval")]
        decided = [
            await ann.submit(page, "Approve the call of file_operations", action=f"/console/approvals/{ids[0]}"),
            await ann.submit(await ann.get(f"/console/approvals/{ids[1]}"), "Approve"),
            await ann.submit(await looked_at(ann, page, entries[2:3]), "Approve"),
        ]
        for run_id, after in zip(runs, decided, strict=False):
            (notice,) = after.root.all(role="status")
            assert notice.text == "Approved. The run goes on. See what the run does"
            assert [link.attributes["href"] for link in notice.all("a")] == [f"/console/runs/{run_id}"]
        several = await ann.submit(await looked_at(ann, page, entries[3:]), "Approve 2 calls")
        assert [notice.text for notice in several.root.all(role="status")] == ["Approved: 2 calls. Their runs go on."]


async def test_key_without_approve_scope_sees_calls_without_buttons(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann, kim, eve = [await browser.signed_in(name) for name in ("ann", "kim", "eve")]
        approval_id = await ann.asks()
        for path in ("/console", f"/console/approvals/{approval_id}"):
            page = await kim.get(path)
            assert "Call Ann" in page.main
            assert not [one for one in page.root.all("button") if "pprove" in one.name or "eject" in one.name]
        assert "Nothing waits for you." in (await eve.get("/console")).main


@pytest.mark.parametrize("content", ["x" * 2_001, "\n" * 24, "short"], ids=["long", "many lines", "short"])
async def test_truncated_card_offers_no_approval_in_the_inbox(tmp_path: Path, content: str) -> None:
    """The page of the approval shows all of it before somebody approves. Rejecting needs no more reading."""
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks(operation="write", path="a.txt", content=content)
        page = await ann.get("/console")
        names = [one.name for one in buttons_of(page.root)]
        assert ("Approve the call of file_operations" in names) is (content == "short")
        assert ("Read all arguments and decide" in page.main) is (content != "short")
        assert bool(page.root.all("input", name="approval")) is (content == "short")
        assert "Reject the call of file_operations" in names
        assert "Approve" in [one.name for one in buttons_of((await ann.get(f"/console/approvals/{approval_id}")).root)]


async def three_kinds(ann: Browser) -> list[str]:
    """Two calls of ann, and one of bob."""
    mine = [("a.txt", '100% "same"'), ("b.txt", "other")]
    ids = [await ann.asks(operation="write", path=path, content=content) for path, content in mine]
    return [*ids, await ann.asks(operation="write", path="c.txt", content="of bob", key="bob-key")]


def headings_of(page: Seen) -> list[str]:
    (main,) = page.root.all("main")
    return [one.text for one in main.all("h2")]


def cards_of(page: Seen) -> list[str]:
    return [one.attributes["id"] for one in page.root.all("article")]


async def test_inbox_search_filters_by_text_tool_caller_and_age(tmp_path: Path) -> None:
    """By a text in the call, tool, caller and age; the form keeps what was entered, and nothing found says so."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        same, other, of_bob = await three_kinds(ann)
        for query, found in (
            ({"q": '100% "same"'}, [same]),
            ({"q": "OTHER"}, [other]),
            ({"q": of_bob}, [of_bob]),
            ({"caller": "bob"}, [of_bob]),
            ({"tool": "file_operations", "order": "newest"}, [of_bob, other, same]),
            ({"order": "oldest"}, [same, other, of_bob]),
            ({"age": "300"}, []),
            ({"age": "7"}, [same, other, of_bob]),
        ):
            page = await ann.submit(await ann.get("/console"), "Show", query)
            assert cards_of(page) == found, query
            assert ("No call that waits fits." in page.main) is not found
            for name, value in query.items():
                if name in ("q", "tool", "caller"):
                    (field,) = page.root.all("input", name=name)
                    assert field.attributes["value"] == value
        refused = await ann.get("/console?q=" + "x" * 300)
        assert refused.status == 400 and "200 characters at most" in refused.problem


async def test_inbox_pagination_keeps_the_filter(tmp_path: Path) -> None:
    """The way to further ones has the filter."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for number in range(52):
            await ann.asks(operation="write", path=f"{number}.txt", content="many")
        await ann.asks(operation="write", path="z.txt", content="few")
        page = await ann.get("/console?q=many&order=oldest")
        (further,) = [one for one in page.links if "after=" in one]
        rest = await ann.get(f"/console{further}")
        assert (len(cards_of(page)), len(cards_of(rest))) == (50, 2)
        assert "few" not in page.main + rest.main


async def test_inbox_groups_equal_calls_tools_and_callers_with_counts(tmp_path: Path) -> None:
    """Equal calls with their text, a tool, a caller; each leads to its calls, in what was narrowed."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await three_kinds(ann)
        await ann.asks(operation="write", path="a.txt", content='100% "same"', key="bob-key")
        page = await ann.get("/console?group=call")
        headings = headings_of(page)
        assert headings[0] == "2 equal calls of file_operations" and len(headings) == 3
        assert '100% \\"same\\"' in page.main
        (equal, *_) = [one for one in page.links if "equal_to=" in one and "several" not in one]
        assert len(cards_of(await ann.get(equal))) == 2
        by_caller = await ann.get("/console?group=caller&tool=file_operations")
        assert headings_of(by_caller) == ["2 calls, asked by ann", "2 calls, asked by bob"]
        assert "There are 2 different ones." in by_caller.main
        (of_bob,) = [one for one in by_caller.links if "caller=bob" in one and "several" in one]
        assert "tool=file_operations" in of_bob
        assert "Decide on 2 calls" in (await ann.get(of_bob)).main
        assert headings_of(await ann.get("/console?group=tool")) == ["4 calls of file_operations"]
