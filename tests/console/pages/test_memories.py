"""The pages of memories: whose are shown, and the deletion of one or of all."""

from pathlib import Path

from tests.console.browsing import CHAT, Browser, key, served

KEYS = (
    key("ann", "context"),
    key("bob", "context"),
    key("root", "admin"),
    key("eve", "context", "admin", tenant="other"),
)
TEA, DOGS = "I like <b>tea</b>", "I have two\u202e dogs"


async def remembers(browser: Browser, text: str, *, user: str | None = None) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": f"Remember that {text}."}]}
    answer = await browser.api().post(CHAT, body if user is None else {**body, "user": user})
    assert answer.json["context"]["memory"]["kept"], answer.body


async def test_memories_of_an_end_user_are_found_by_its_id(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await remembers(ann, TEA, user="carol")
        await remembers(ann, DOGS)
        own = await ann.get("/console/memories")
        assert "Of requests with the key ann that name no end user" in own.main
        assert "two\\u{202e} dogs" in own.main and "tea" not in own.main
        page = await ann.submit(own, "Show", {"user": "carol"})
        assert "Of the end user carol" in page.main and TEA in page.main and "dogs" not in page.main
        assert "<b>tea" not in page.html
        assert "No memories." in (await ann.get("/console/memories?user=nobody")).main


async def test_only_operators_see_memories_of_another_key(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann, bob, root = [await browser.signed_in(name) for name in ("ann", "bob", "root")]
        await remembers(ann, DOGS)
        assert "or of the key" not in (await bob.get("/console/memories")).main
        refused = await bob.get("/console/memories?key=ann")
        assert refused.status == 403 and refused.problem and "dogs" not in refused.html
        page = await root.submit(await root.get("/console/memories"), "Show", {"key": "ann"})
        assert "dogs" in page.main
        both = await root.get("/console/memories?key=ann&user=carol")
        assert both.status == 400 and "not both" in both.problem
        eve = await browser.signed_in("eve")
        assert "No memories." in (await eve.get("/console/memories?key=ann")).main


async def test_memory_can_be_deleted_and_the_filter_is_kept(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await remembers(ann, DOGS, user="carol")
        await remembers(ann, TEA, user="carol")
        page = await ann.get("/console/memories?user=carol")
        newest = (await ann.api().get("/context/memories?user=carol")).json["data"][0]
        after = await ann.submit(page, "Delete", action=f"/console/memories/{newest['id']}/")
        assert "Deleted." in after.main and "Of the end user carol" in after.main
        assert "tea" not in after.main and "dogs" in after.main
        again = await ann.submit(page, "Delete", action=f"/console/memories/{newest['id']}/")
        assert again.status == 404


async def test_all_memories_are_deleted_after_a_confirmation_page(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await remembers(ann, TEA, user="carol & dan")
        await remembers(ann, DOGS)
        page = await ann.get("/console/memories?user=carol+%26+dan")
        (place,) = (link for link in page.links if link.startswith("/console/memories/delete"))
        question = await ann.get(place)
        assert question.heading == "Delete all memories?" and "Of the end user carol & dan" in question.main
        assert (await ann.api().get("/context/memories?user=carol+%26+dan")).json["data"]
        after = await ann.submit(question, "Delete all memories")
        assert "Deleted." in after.main and "No memories." in after.main
        assert "dogs" in (await ann.get("/console/memories")).main
        # The reader's own key is named, so that what the question asks is what goes.
        own = await ann.get("/console/memories/delete")
        assert "Of requests with the key ann that name no end user" in own.main
        assert "No memories." in (await ann.submit(own, "Delete all memories")).main


async def test_delete_form_without_an_owner_deletes_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await remembers(ann, DOGS)
        page = await ann.get("/console/memories")
        refused = await ann.post("/console/memories/delete", {"token": page.token})
        assert refused.status == 400 and "whose memories" in refused.main
        other = await ann.post("/console/memories/delete", {"token": page.token, "key": "bob"})
        assert other.status == 403
        assert "dogs" in (await ann.get("/console/memories")).main
        assert "No memories." in (await ann.get("/console/memories/delete?user=nobody")).main


async def test_memory_list_is_paged(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for number in range(51):
            await remembers(ann, f"number {number} is my number", user="carol")
        page = await ann.get("/console/memories?user=carol")
        (further,) = (link for link in page.links if "after=" in link)
        rest = await ann.get("/console/memories" + further)
        assert "number 0 is" in rest.main and "number 50 is" not in rest.main
