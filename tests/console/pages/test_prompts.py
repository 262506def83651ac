"""The pages of prompts: what a reader sees, the form that stores one, and texts that no browser returns as they are."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.console.browsing import Browser, key, served

HOSTILE = "You review.\n<script>alert(1)</script>\n</textarea><b>x</b>\n\n  - last  "
PROMPTS = {"prompts": {"house": {"text": "The house.\nSecond line."}}}
KEYS = (key("ann", "context", "admin"), key("bob", "context"), key("eve", "context", "admin", tenant="other"))


async def stored(browser: Browser, prompt_id: str, text: str) -> dict[str, Any]:
    answer = await browser.api().sent("PUT", f"/v1/system-prompts/{prompt_id}", {"text": text})
    assert answer.status == 200, answer.body
    return answer.json


async def text_of(browser: Browser, prompt_id: str) -> str:
    text: str = (await browser.api().get(f"/v1/system-prompts/{prompt_id}")).json["text"]
    return text


async def test_prompt_list_shows_source_and_version(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS, **PROMPTS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "reviewer", "one")
        await stored(ann, "reviewer", "two")
        page = await ann.get("/console/prompts")
        rows = {row.all("th")[0].text: row.text for row in page.root.all("tr")[1:]}
        assert list(rows) == ["default", "house", "reviewer"]
        assert rows["house"] == "house configured – 23 –" and "stored 2 3" in rows["reviewer"]
        eve = await browser.signed_in("eve")
        assert "reviewer" not in (await eve.get("/console/prompts")).main
        assert (await eve.get("/console/prompts/reviewer")).status == 404


async def test_a_new_prompt_is_stored_and_shown_exactly(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS, **PROMPTS) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/prompts")
        shown = await ann.submit(page, "Store", {"id": "reviewer", "field.text": HOSTILE})
        assert (shown.status, shown.heading) == (200, "reviewer stored")
        assert "Saved." in shown.main and "<script>alert" not in shown.html
        assert await text_of(ann, "reviewer") == HOSTILE


@pytest.mark.parametrize("prompt_id", ["house", "taken"])
async def test_new_prompt_never_replaces_an_existing_prompt(tmp_path: Path, prompt_id: str) -> None:
    async with served(tmp_path, *KEYS, **PROMPTS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "taken", "as it was")
        before = await text_of(ann, prompt_id)
        page = await ann.get("/console/prompts")
        refused = await ann.submit(page, "Store", {"id": prompt_id, "field.text": "mine"})
        assert refused.status == 409 and "There is a prompt with this id already" in refused.problem
        assert dict(refused.form("Store").fields)["field.text"] == "mine"
        assert await text_of(ann, prompt_id) == before


@pytest.mark.parametrize(("prompt_id", "text"), [("no name/at all", "x"), ("..", "x"), ("empty", ""), (" ", "x")])
async def test_rejected_prompt_form_keeps_its_input(tmp_path: Path, prompt_id: str, text: str) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/prompts")
        refused = await ann.submit(page, "Store", {"id": prompt_id, "field.text": text})
        assert refused.status in (400, 404, 422) and refused.problem
        fields = dict(refused.form("Store").fields)
        assert (fields["id"], fields["field.text"]) == (prompt_id, text)
        assert len((await ann.api().get("/v1/system-prompts")).json["data"]) == 1


async def test_prompt_form_without_a_text_field_stores_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "there", "as it was")
        token = (await ann.get("/console/prompts")).token
        new = await ann.post("/console/prompts", {"token": token, "id": "new"})
        old = await ann.post("/console/prompts/there", {"token": token, "version": "1"})
        assert [answer.status for answer in (new, old)] == [422, 422]
        assert "load its page again" in new.problem and "load its page again" in old.problem
        assert await text_of(ann, "there") == "as it was"


async def test_prompt_text_over_the_limit_is_refused_with_its_input(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "long", "short")
        refused = await ann.submit(await ann.get("/console/prompts/long"), "Save", {"field.text": "x" * 262_145})
        assert refused.status == 413 and "262144" in refused.problem
        assert len(dict(refused.form("Save").fields)["field.text"]) == 262_145
        assert await text_of(ann, "long") == "short"


async def test_an_edited_prompt_is_stored_to_the_character(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "reviewer", "\nbegins with an empty line")
        page = await ann.get("/console/prompts/reviewer")
        assert dict(page.form("Save").fields)["field.text"] == "\nbegins with an empty line"
        saved = await ann.submit(page, "Save", {"field.text": "\n" + HOSTILE})
        assert "Saved." in saved.main and await text_of(ann, "reviewer") == "\n" + HOSTILE


@pytest.mark.parametrize("text", ["one\r\ntwo", "zero\u200bwidth", "nul\0", "\u202ebackwards", "tag\U000e0041"])
async def test_prompt_with_invisible_characters_is_edited_as_json(tmp_path: Path, text: str) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "odd", text)
        page = await ann.get("/console/prompts/odd")
        assert "\\u{" in page.main or "\\r" in page.main
        assert dict(page.form("Save").fields)["field.text"].isascii()
        await ann.submit(page, "Save")
        assert await text_of(ann, "odd") == text
        bad = await ann.submit(await ann.get("/console/prompts/odd"), "Save", {"field.text": "no JSON"})
        assert bad.status == 422 and "JSON" in bad.problem
        assert await text_of(ann, "odd") == text


@pytest.mark.parametrize("text", ["-" * 80, "می\u200cخواهم", "👩\u200d💻", "हिन्दी", "a\tb  c", "\\n is no line end"])
async def test_prompt_with_visible_characters_is_edited_as_plain_text(tmp_path: Path, text: str) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "plain", text)
        page = await ann.get("/console/prompts/plain")
        assert dict(page.form("Save").fields)["field.text"] == text
        await ann.submit(page, "Save")
        assert await text_of(ann, "plain") == text


async def test_concurrently_changed_prompt_is_not_overwritten(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "reviewer", "one")
        page = await ann.get("/console/prompts/reviewer")
        await stored(ann, "reviewer", "theirs")
        refused = await ann.submit(page, "Save", {"field.text": "mine"})
        assert refused.status == 409 and "Another person has changed this prompt" in refused.problem
        assert "theirs" in refused.main and await text_of(ann, "reviewer") == "theirs"
        assert dict(refused.form("Save").fields)["field.text"] == "mine"
        # The form has the version that its reader sees now.
        await ann.submit(dataclasses.replace(refused, path="/console/prompts/reviewer"), "Save")
        assert await text_of(ann, "reviewer") == "mine"


async def test_configured_prompt_is_read_only_and_names_its_setting(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS, **PROMPTS) as browser:
        ann = await browser.signed_in("ann")
        page = await ann.get("/console/prompts/house")
        assert "change it under 'prompts' there" in page.main and "Second line." in page.main
        assert not page.root.all("textarea")
        token = {"token": page.token, "field.text": "mine", "version": "None"}
        refused = await ann.post("/console/prompts/house", token)
        assert refused.status == 409 and "configuration" in refused.problem
        assert (await ann.post("/console/prompts/house/delete", token)).status == 409


async def test_a_prompt_is_deleted(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await stored(ann, "reviewer", "one")
        page = await ann.get("/console/prompts/reviewer")
        after = await ann.submit(page, "Delete this prompt")
        assert after.path.startswith("/console/prompts?") and "Deleted." in after.main
        assert "reviewer" not in after.main
        assert (await ann.submit(page, "Delete this prompt")).status == 404


async def test_key_without_admin_scope_cannot_change_prompts(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann, bob = await browser.signed_in("ann"), await browser.signed_in("bob")
        await stored(ann, "reviewer", "one")
        listed, page = await bob.get("/console/prompts"), await bob.get("/console/prompts/reviewer")
        assert "New prompt" not in listed.main and not page.root.all("textarea")
        fields = {"token": page.token, "id": "x", "field.text": "x", "version": "1"}
        for path in ("/console/prompts", "/console/prompts/reviewer", "/console/prompts/reviewer/delete"):
            assert (await bob.post(path, fields)).status == 403
        assert await text_of(ann, "reviewer") == "one"


async def test_enhanced_prompt_page_shows_size_and_omitted_tools(tmp_path: Path) -> None:
    chain = [{"use": "prompt_enhancer", "with": {"max_tokens": 400}}, {"use": "agent_loop"}]
    async with served(tmp_path, *KEYS, **PROMPTS) as browser:
        ann = await browser.signed_in("ann")
        enhanced = (await ann.api().get("/v1/system-prompts/house/enhanced")).json
        page = await ann.get("/console/prompts/house/enhanced")
        size = f"{len(enhanced['text']):,}".replace(",", " ")
        assert size in page.main and "Tools left out none" in page.main
        assert "The house." in page.main and "file_operations" in page.main
        await ann.reload(chains={"assistant": chain})
        omitted = (await ann.api().get("/v1/system-prompts/house/enhanced")).json["omitted_tools"]
        small = await ann.get("/console/prompts/house/enhanced")
        assert omitted and all(name in small.main for name in omitted)
        assert "raise 'max_tokens'" in small.main
        await ann.reload(chains={"assistant": [{"use": "agent_loop"}]})
        none = await ann.get("/console/prompts/house/enhanced")
        assert none.status == 404 and "prompt_enhancer" in none.main
