"""Several calls are decided at once, after a second look at each text that differs."""

from pathlib import Path

from tests.console.browsing import Browser, Seen, key, served

KEYS = (key("ann", "context", "approve"), key("bob", "context", "approve"), key("eve", tenant="other"))
LOOK, DECIDE = "/console/approvals/several", "/console/approvals/batch"


async def looked_at(ann: Browser, entries: list[str]) -> Seen:
    """The second look at the calls that were selected in the inbox."""
    return await ann.submit(await ann.get("/console"), "Look at them and decide", {"approval": entries})


def entries_of(page: Seen) -> list[str]:
    """The calls that the page names: in its form that approves, and in the one that rejects."""
    return [*dict.fromkeys(one.attributes["value"] for one in page.root.all("input", name="approval"))]


async def test_bulk_decision_decides_the_selected_pending_calls(tmp_path: Path) -> None:
    """Selecting decides nothing. One that was decided meanwhile is named; the others are decided."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        ids = [await ann.asks(operation="write", path=f"{i}.txt", content=f"text {i}") for i in range(5)]
        page = await ann.get("/console")
        entries = entries_of(page)
        assert [entry.partition(" ")[0] for entry in entries] == ids
        assert "Nothing was selected" in (await ann.submit(page, "Look at them and decide")).main
        look = await looked_at(ann, entries[:2])
        assert look.heading == "Decide on 2 calls" and entries_of(look) == entries[:2]
        assert "text 0" in look.main and "text 1" in look.main and "text 2" not in look.main
        assert (await ann.api().get("/context/summary")).json["pending"] == 5
        after = await ann.submit(look, "Reject 2 calls", {"reason": "no"})
        assert "Rejected: 2 calls. None of them runs." in after.main
        assert (await ann.until(ids[0], "rejected"))["comment"] == "no"
        late = await looked_at(ann, entries[2:])
        await ann.api().post(f"/context/approvals/{ids[2]}", {"decision": "reject"})
        partly = await ann.submit(late, "Approve 3 calls")
        assert partly.status == 409 and partly.main.startswith("Decisions 2 of the calls were decided.")
        assert ids[2] in partly.main and ids[3] not in partly.main
        for approval_id in ids[3:]:
            await ann.until(approval_id)


async def test_equal_calls_are_grouped_on_the_review_page(tmp_path: Path) -> None:
    """A text stands once, with its callers, users, conversations and each approval; other texts are other calls."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        same = {"operation": "write", "path": "a.txt", "content": "the same"}
        ids = [await ann.asks(**same), await ann.asks(**same, key="bob-key")]
        await ann.asks(operation="write", path="b.txt", content="the same ")
        look = await ann.get(f"{LOOK}?equal_to={ids[1]}")
        assert "2 equal calls of file_operations" in look.main and "All of them are equal." in look.main
        assert look.main.count('"the same"') == 1 and "b.txt" not in look.main
        assert "Asked by ann (1), bob (1)" in look.main
        assert [f"/console/approvals/{one}" in look.links for one in ids] == [True, True]
        every = await ann.get(LOOK)
        assert every.heading == "Decide on 3 calls" and "There are 2 different ones." in every.main
        assert "Decide on 1" not in (await ann.get(f"{LOOK}?q=b.txt")).main
        after = await ann.submit(look, "Approve 2 calls")
        assert "Approved: 2 calls. Their runs go on." in after.main
        assert len(entries_of(after)) == 1


async def test_review_page_contains_only_pending_calls_of_the_tenant(tmp_path: Path) -> None:
    """One that was decided is no part of it, one of another tenant is not there, and without an order nothing is."""
    async with served(tmp_path, *KEYS) as browser:
        ann, eve = [await browser.signed_in(name) for name in ("ann", "eve")]
        ids = [await ann.asks(operation="write", path=f"{i}.txt", content="x") for i in range(2)]
        foreign = await eve.asks()
        page = await ann.get("/console")
        await ann.api().post(f"/context/approvals/{ids[0]}", {"decision": "reject"})
        token = ("token", page.token)
        chosen = [("approval", f"{one} {'0' * 64}") for one in (*ids, foreign)]
        look = await ann.post(LOOK, [token, *chosen])
        assert look.heading == "Decide on one call" and "2 of the selected calls are decided already." in look.main
        assert foreign not in look.html and entries_of(look)[0].startswith(f"{ids[1]} ")
        stale = await ann.post(DECIDE, [token, ("decision", "approve"), *chosen])
        assert stale.status == 409
        for form in ([("decision", "approve"), ("approval", ids[1])], [("approval", f"{ids[1]} {'0' * 64}")]):
            assert (await ann.post(DECIDE, [token, *form])).status == 400
        assert (await ann.api().get("/context/summary")).json["pending"] == 1
        assert "Nothing was selected" in (await ann.post(DECIDE, [token, ("decision", "approve")])).main


async def test_bulk_decision_excludes_calls_that_the_page_omits(tmp_path: Path) -> None:
    """Of long texts only some stand on one page, which says so; its form has no others."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for number in range(3):
            await ann.asks(operation="write", path=f"{number}.txt", content="y" * 150_000)
        look = await ann.get(LOOK)
        assert look.heading == "Decide on one call" and len(entries_of(look)) == 1
        assert "What does not stand here is no part of your decision." in look.main
