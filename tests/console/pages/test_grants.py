"""The page of lasting decisions: grants, conversations that ask before each call, and the end of either."""

from pathlib import Path

from tests.console.browsing import CHAT, Browser, key, served

KEYS = (key("ann", "context", "approve"), key("bob", "context"), key("eve", "context", "approve", tenant="other"))
WRITE = 'tool file_operations {"operation":"write","path":"a.txt","content":"x","risk_level":"high"}'


async def says(browser: Browser, text: str, conversation: str) -> dict[str, object]:
    """The `context` of the answer to a message in a conversation."""
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    headers = {"X-Gateway-Key": browser.key, "X-Context-Conversation": conversation}
    async with browser.session.post(browser.gateway.base_url + CHAT, json=body, headers=headers) as response:
        assert response.status == 200, await response.read()
        context: dict[str, object] = (await response.json()).get("context", {})
        return context


async def grants(browser: Browser, conversation: str, *, remember: str = "conversation") -> str:
    """The id of the run of a call that was approved, and is remembered."""
    (approval,) = (await says(browser, WRITE, conversation))["approvals"]  # type: ignore[misc]
    decision = {"decision": "approve", "sha256": approval["sha256"], "remember": remember}
    assert (await browser.api().post(f"/context/approvals/{approval['id']}", decision)).status == 200
    run_id: str = approval["run_id"]
    return run_id


async def test_grants_are_listed_and_revoked(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        assert (await ann.get("/console/remembered")).main.count("None.") == 2
        await grants(ann, "<b>one</b>")
        run_id = await grants(ann, "two", remember="run")
        page = await ann.get("/console/remembered")
        assert "file_operations" in page.main and "<b>one</b>" in page.main and "end of the run" in page.main
        assert f"/console/runs/{run_id}" in page.links
        listed = (await ann.api().get("/context/grants")).json["data"]
        (lasting,) = (grant for grant in listed if grant["conversation"] is not None)
        after = await ann.submit(page, "Revoke", action=f"/console/remembered/grants/{lasting['id']}")
        assert "Revoked. The gateway asks again." in after.main and "<b>one</b>" not in after.main
        assert (await says(ann, f"{WRITE} again", "<b>one</b>"))["status"] == "awaiting_approval"
        again = await ann.submit(page, "Revoke", action=f"/console/remembered/grants/{lasting['id']}")
        assert again.status == 404


async def test_conversation_with_ask_before_is_listed_and_revocable(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        await says(ann, "Ask me before each call, please.", "careful")
        page = await ann.get("/console/remembered")
        assert "careful" in page.main
        after = await ann.submit(page, "Revoke")
        assert "ask only where the gate does" in after.main and "careful" not in after.main
        assert (await ann.api().get("/context/asks")).json["data"] == []


async def test_key_without_approve_scope_cannot_revoke_grants(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann, bob, eve = [await browser.signed_in(name) for name in ("ann", "bob", "eve")]
        await grants(ann, "one")
        (grant,) = (await ann.api().get("/context/grants")).json["data"]
        page = await bob.get("/console/remembered")
        assert "one" in page.main and "Revoke" not in page.main
        for person, status in ((bob, 403), (eve, 404)):
            token = {"token": (await person.get("/console/remembered")).token}
            for kind in ("grants", "asks"):
                assert (await person.post(f"/console/remembered/{kind}/{grant['id']}", token)).status == status
        assert "None." in (await eve.get("/console/remembered")).main
        assert (await ann.api().get("/context/grants")).json["data"] == [grant]


async def test_grants_and_asks_lists_are_paged_separately(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        for number in range(51):
            await says(ann, "Ask me before each call, please.", f"conversation-{number}")
        page = await ann.get("/console/remembered")
        (further,) = (link for link in page.links if "after=" in link)
        assert "list=asks" in further
        rest = await ann.get(further)
        assert len(rest.root.all("tr")) == 2 and "without being asked again" not in rest.main
        assert "/console/remembered" in rest.links
