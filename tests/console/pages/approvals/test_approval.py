"""The page of one approval: what a reader sees, hostile content, and every way to decide."""

import json
import re
from pathlib import Path

import pytest
from gateways import until_read

from tests.console.browsing import Browser, Seen, key, served
from tests.console.html import buttons_of
from tests.mcp.misbehaving import command

KEYS = (key("ann", "context", "approve"), key("bob", "context"), key("eve", tenant="other"))
HOSTILE = (
    "</div></article><form method=post action=//evil.example><button>Approve</button></form>",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "{{ token }}{% raw %}",
    "safe\u202egnp.exe\u2066",
    "\x1b[2J\x1b[31mred\u200b\u2060\ufeff\0",
    "a\r\nb\rc\u2028d\x0b",
    "\" onmouseover=alert(1) x='",
    "раypal \U000e0041",
)


async def test_rejection_reason_has_its_own_form_and_is_recorded(tmp_path: Path) -> None:
    """In a form of its own, here and for several calls: a browser presses the first button of a form on Enter."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        for path in ("several", approval_id):
            page = await ann.get(f"/console/approvals/{path}")
            (form,) = [one for one in page.root.all("form") if one.all("input", name="reason")]
            assert [one.attributes["value"] for one in form.all("button")] == ["reject"]
        after = await ann.submit(page, "Reject", {"reason": "<b>not</b> today\u202e"})
        decided = await ann.until(approval_id, "rejected")
        assert after.path == f"/console/approvals/{approval_id}?done=rejected&run={decided['run_id']}"
        assert "Rejected. The call does not run." in after.main and "<b>not</b> today\\u{202e}" in after.main
        assert decided["comment"] == "<b>not</b> today\u202e"
        assert "Reject" not in [one.name for one in after.root.all("button")]
    assert not (tmp_path / "files" / "note.txt").exists()


async def test_approval_reason_is_shown_in_chinese(tmp_path: Path) -> None:
    """A sentence, with the assessor's own words behind it: on a card, on the call's page, and for several calls."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann", language="zh")
        approval_id = await ann.asks()
        for path in ("", f"/approvals/{approval_id}", "/approvals/several"):
            page = await ann.get(f"/console{path}")
            (why,) = [one.text for one in page.root.all("p") if one.attributes.get("class") == "why"]
            assert "没有规则允许此调用 : 此操作不是只读操作。" in why
            assert "The operation 'write' is not one that only reads. file.operation" in why


async def test_the_edited_call_runs_as_it_was_edited(tmp_path: Path) -> None:
    """As fields, and as JSON. The page then shows both, what runs first."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for path, edited in (("a.txt", {"field.content": "one\n<two>\n"}), ("b.txt", {"arguments": ""})):
            approval_id = await ann.asks(operation="write", path=path, content="first")
            if "arguments" in edited:
                wanted = {"operation": "write", "path": path, "content": "one\n<two>\n"}
                edited = {"arguments": json.dumps(wanted)}
            place = f"/console/approvals/{approval_id}?{'as=json' if 'arguments' in edited else 'edit=1'}"
            after = await ann.submit(await ann.get(place), "Approve the edited call", edited)
            assert after.status == 200 and "Approved. The run goes on." in after.main
            titles = [one.text for one in after.root.all("h2")]
            assert titles.index("Exactly this runs") < titles.index("The model had asked for")
            await ann.until(approval_id)
            assert (tmp_path / "files" / path).read_text() == "one\n<two>\n"


@pytest.mark.parametrize("text", ["{", "[]", '"a"', '{"a": 1, "a": 2}', ""])
async def test_invalid_json_edit_is_redisplayed_as_entered(tmp_path: Path, text: str) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        page = await ann.get(f"/console/approvals/{approval_id}?as=json")
        refused = await ann.submit(page, "Approve the edited call", {"arguments": text})
        assert refused.status == 422 and refused.problem
        (area,) = refused.root.all("textarea", name="arguments")
        assert area.raw_text.removeprefix("\n") == text or not text
        await ann.until(approval_id, "pending")


async def test_a_call_that_changed_meanwhile_is_not_decided(tmp_path: Path) -> None:
    """The decision is about what the page showed: another digest, an approval that was decided, are refused there."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        page = await ann.get(f"/console/approvals/{approval_id}")
        token = {"token": page.token, "decision": "approve"}
        for sha256 in ("", "0" * 64, "x"):
            refused = await ann.post(f"/console/approvals/{approval_id}", {**token, "sha256": sha256})
            assert refused.status in (400, 409, 422), sha256
            await ann.until(approval_id, "pending")
        listed = {**token, "approval": approval_id}
        assert (await ann.post("/console/approvals/batch", listed)).status in (400, 409)
        await ann.until(approval_id, "pending")
        await ann.submit(page, "Reject")
        late = await ann.submit(page, "Approve")
        assert late.status == 409 and late.problem
        await ann.until(approval_id, "rejected")


async def test_preview_shows_the_changed_lines_of_a_file(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        (tmp_path / "files" / "note.txt").write_text("one\n<two>\nthree\n")
        approval_id = await ann.asks(operation="write", path="note.txt", content="one\n<b>2</b>\u202e\nthree\n")
        page = await ann.get(f"/console/approvals/{approval_id}/preview")
        lines = [
            (one.attributes["class"].split()[1], one.raw_text)
            for one in page.root.all("span")
            if one.attributes.get("class", "").startswith("line ")
        ]
        assert [(kind, text.strip()) for kind, text in lines if kind in ("removed", "added")] == [
            ("removed", "−<two>"),
            ("added", "+<b>2</b>\\u{202e}"),
        ]
        assert "new file" not in page.main
        fresh = await ann.get(
            f"/console/approvals/{await ann.asks(operation='write', path='new.txt', content='a')}/preview"
        )
        assert "new.txt new file" in fresh.main and "+ a" in fresh.main and "\u2212" not in fresh.main
        part = await ann.get(f"/console/approvals/{approval_id}/preview", HX_Request="true")
        assert part.html.lstrip().startswith("<section") and "<two>" not in part.html


# Hostile content.


def assert_harmless(page: Seen) -> None:
    """No element, attribute or character of a stranger's: what reads HTML closes every element in its order."""
    root = page.root
    assert {
        one.attributes["action"].partition("?")[0].split("/")[1]
        for one in root.all("form")
        if "action" in one.attributes
    } == {"console"}
    assert not [one for one in root.all() if any(name.startswith("on") or name == "style" for name in one.attributes)]
    assert all(one.attributes.get("nonce") and "src" in one.attributes for one in root.all("script"))
    assert [one for one in root.all("img") if not one.attributes["src"].startswith("/console/static/")] == []
    assert not set(page.html) & set("\u202e\u2066\x1b\u200b\u2060\ufeff\0\u2028\x0b\U000e0041")


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_arguments_are_displayed_and_run_verbatim(tmp_path: Path, text: str) -> None:
    """Approving what the page shows, edited or not, runs exactly the model's characters."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for name, button in (("a.txt", "Approve"), ("b.txt", "Approve the edited call")):
            approval_id = await ann.asks(operation="write", path=name, content=text)
            place = f"/console/approvals/{approval_id}"
            for path in ("/console", place, f"{place}?edit=1", f"{place}?as=json", f"{place}/preview"):
                assert_harmless(await ann.get(path))
            page = await ann.get(f"{place}?edit=1")
            assert len([one for one in page.root.all("button") if one.name == "Approve"]) == 1
            await ann.submit(page, button)
            await ann.until(approval_id)
            assert (tmp_path / "files" / name).read_bytes() == text.encode()


async def test_misleading_names_are_escaped_on_approval_pages(tmp_path: Path) -> None:
    """The name of a tool, of an argument, of an end user and of a conversation."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for name in ("Approve", "<b>x</b>", "rm\u202e"):
            arguments = {"operation": "write", "path": "n.txt", "content": "x", name: name}
            words = f"tool file_operations {json.dumps(arguments)}"
            body = {"model": "demo", "user": "<i>u</i>\u202e", "messages": [{"role": "user", "content": words}]}
            await ann.api().post("/context/v1/chat/completions", body)
            assert_harmless(await ann.get("/console"))
        for approval in (await ann.api().get("/context/approvals?status=pending")).json["data"]:
            assert_harmless(await ann.get(f"/console/approvals/{approval['id']}?edit=1"))


async def test_empty_arguments_and_long_names_must_be_read_before_approval(tmp_path: Path) -> None:
    """A call without arguments, and a long name: Approve waits for both, and no name is cut where it is offered."""
    tool = {"name": "pause", "description": "Pauses.", "inputSchema": {"type": "object"}, "result": "done"}
    (tmp_path / "tools.json").write_text(json.dumps([tool]))
    program, *words = command("defined", tmp_path / "tools.json")
    async with served(tmp_path, *KEYS, mcp={"servers": {"odd": {"command": program, "args": words}}}) as browser:
        ann = await browser.signed_in("ann")
        await until_read(lambda: ann.get("/console/tools"), lambda page: "pause" in page.main)
        name = "long " * 40 + "end"
        for arguments in ({}, {name: 1}):
            asking = {"role": "user", "content": f"tool odd.pause {json.dumps(arguments)}"}
            answer = await ann.api().post("/context/v1/chat/completions", {"model": "demo", "messages": [asking]})
            approval_id = answer.json["context"]["approvals"][0]["id"]
            page = await ann.get(f"/console/approvals/{approval_id}")
            read = [one.text for one in page.root.all("div", class_="exact whole")]
            assert read == ([f'"{name}"', "1"] if arguments else ["(no arguments)"])
        inbox = await ann.get("/console")
        assert len(inbox.root.all("button", value="approve")) == 1 and "Read all arguments and decide" in inbox.main


async def test_large_arguments_are_cut_in_the_inbox_only(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        long, many = "x" * 100_000 + "<end>", "".join(f"line {i}\n" for i in range(10_000))
        for name, text in (("long.txt", long), ("many.txt", many)):
            approval_id = await ann.asks(operation="write", path=name, content=text)
            inbox = await ann.get("/console")
            assert re.search("more characters(?: in [0-9]+ lines)?, SHA-256", inbox.main) and len(inbox.html) < 40_000
            page = await ann.get(f"/console/approvals/{approval_id}")
            assert_harmless(page)
            assert text.split("\n")[-2 if "\n" in text else 0] in page.main and "more characters" not in page.main
            await ann.submit(page, "Approve the edited call")
            await ann.until(approval_id)
            assert (tmp_path / "files" / name).read_text() == text
            await decided(ann)


async def decided(ann: Browser) -> None:
    assert (await ann.api().get("/context/summary")).json["pending"] == 0


async def test_approval_can_be_assigned_and_annotated(tmp_path: Path) -> None:
    """To oneself or a name; page, inbox and search show it. Notes are text, and one without text says so."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        await ann.asks(operation="write", path="b.txt", content="another")
        place = f"/console/approvals/{approval_id}"
        mine = await ann.submit(await ann.get(place), "Assign to me")
        assert "Assigned. " in mine.main and "Assigned to ann" in mine.main
        noted = await ann.submit(mine, "Note it", {"text": "<b>ask</b> Zoe\u202e"})
        assert "<b>ask</b> Zoe\\u{202e} ann" in noted.main
        assert (await ann.submit(noted, "Note it", {"text": " "})).status == 400
        found = await ann.get("/console?assigned=me")
        assert [one.attributes["id"] for one in found.root.all("article")] == [approval_id]
        assert "Notes: 1. The last one, by ann: <b>ask</b> Zoe" in found.main
        assert "Assigned to zoe" in (await ann.submit(noted, "Assign", {"to": "zoe"})).main
        assert "Assigned to no one." in (await ann.submit(noted, "Assign", {"to": ""})).main
        page = await ann.get(place)
        await ann.api().post(f"/context/approvals/{approval_id}", {"decision": "reject"})
        late = await ann.submit(page, "Note it", {"text": "late"})
        assert late.status == 409 and "takes no more notes" in late.problem
        assert "Zoe" in late.main and "Note it" not in [one.name for one in buttons_of(late.root)]
        bob = await browser.signed_in("bob")
        assert "Note it" not in [one.name for one in buttons_of((await bob.get(place)).root)]
