"""The inbox and the page of an approval: what a reader sees, and every way to decide."""

from pathlib import Path

from tests.console.browsing import key, served


async def test_an_approval_is_decided_in_the_inbox(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann", "context", "approve")) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        page = await ann.get("/console")
        assert "Call Ann" in page.main
        after = await ann.submit(page, "Approve the call of file_operations")
        assert after.status == 200 and "Nothing waits for you." in after.main
        decided = await ann.until(approval_id)
        assert (decided["decided_by"], decided["via"]) == ("ann", "console")
    assert (tmp_path / "files" / "note.txt").read_text() == "Call Ann"
