"""The page of a link that decides: what its reader sees, that it decides once, and everything that ends it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gateways import until

from gateway.testing.clock import ManualClock
from tests.agent.doubles import Clock
from tests.console.browsing import Browser, Json, Seen, key, served
from tests.console.html import buttons_of

KEYS: Final = (key("ann", "context", "approve"), key("bob", "context", "approve"), key("ops"))
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Mailbox:
    """The endpoint of a webhook, and the links that it got, as paths of the gateway."""

    notices: list[Json] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        self.notices.append(await request.json())
        return web.Response()

    async def link(self, approval_id: str, *, kind: str = "approval.required") -> str:
        """The link of an approval, once its notice is there."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [
                one["data"]["decision_link"]
                for one in self.notices
                if (one["type"], one["data"]["id"]) == (kind, approval_id)
            ]
            return bool(found)

        await until(is_there)
        parts = urlsplit(found[-1])
        return f"{parts.path}?{parts.query}"


@asynccontextmanager
async def mailed(folder: Path, *, clock: Any = None, **approvals: Any) -> AsyncIterator[tuple[Browser, Mailbox]]:
    """A gateway whose notices bring links, a browser without a session, and the mailbox of the notices."""
    mailbox, app = Mailbox(), web.Application()
    app.router.add_post("/", mailbox.receive)
    async with TestServer(app) as server:
        entry = {"webhook": str(server.make_url("/")), "secret": SECRET, "links": {"as": "oncall"}}
        wanted = {"notify": [entry], **approvals}
        async with served(
            folder, *KEYS, clock=clock, approvals=wanted, public_url="https://gateway.example"
        ) as browser:
            yield browser, mailbox


def buttons(page: Seen) -> list[str]:
    return [one.name for one in buttons_of(page.root)]


async def test_decision_link_shows_the_call_and_decides_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a key or a session. To open it, however often and by whatever program, decides nothing."""
    caplog.set_level(logging.DEBUG)
    async with mailed(tmp_path) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        path = await mailbox.link(approval_id)
        for method in ("HEAD", "GET", "GET"):
            seen = await browser.get(path, method=method, Sec_Fetch_Site="cross-site")
            assert seen.status == 200
        assert "Call Ann" in seen.main and "on record as that of oncall" in seen.main
        assert seen.headers["Referrer-Policy"] == "strict-origin" and seen.headers["Cache-Control"] == "no-store"
        assert "script-src 'nonce-" in seen.headers["Content-Security-Policy"] and "<script" not in seen.html
        assert "Set-Cookie" not in seen.headers and seen.links == []
        await browser.until(approval_id, "pending", key="ann-key")
        after = await browser.submit(seen, "Approve")
        assert "You have decided with this link." in after.main and buttons(after) == []
        decided = await browser.until(approval_id, key="ann-key")
        assert (decided["decided_by"], decided["via"]) == ("link:oncall", "link")
        again = await browser.submit(seen, "Reject", {"reason": "no"})
        assert again.status == 409 and "decides nothing any more" in again.problem
        audit = (await browser.api("ops-key").get("/context/audit?limit=200")).json["data"]
        assert [(one["decision"], one["by"], one["via"]) for one in audit if one["event"] == "decision"] == [
            ("approved", "link:oncall", "link")
        ]
        metrics = (await browser.api("ops-key").get("/metrics")).body.decode()
        assert 'gateway_approvals_total{decision="approved",via="link"} 1.0' in metrics
        assert 'gateway_approval_links_total{outcome="decided"} 1.0' in metrics
        token = path.partition("=")[2]
        assert token not in caplog.text and token not in json.dumps(audit) and token not in metrics
        assert f"{approval_id}: a link of 'oncall' decided: approve" in caplog.text
    assert (tmp_path / "files" / "note.txt").read_text() == "Call Ann"


async def test_rejection_by_link_records_its_reason(tmp_path: Path) -> None:
    """In a form of its own: a browser presses the first button of a form on Enter."""
    async with mailed(tmp_path) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        page = await browser.get(await mailbox.link(approval_id))
        (form,) = [one for one in page.root.all("form") if one.all("input", name="reason")]
        assert [one.attributes["value"] for one in form.all("button")] == ["reject"]
        after = await browser.submit(page, "Reject", {"reason": "<b>not</b> today"})
        assert "<b>not</b> today" in after.main
        assert (await browser.until(approval_id, "rejected", key="ann-key"))["comment"] == "<b>not</b> today"


async def test_reason_given_through_a_link_is_truncated(tmp_path: Path) -> None:
    """Nothing else than the browser bounds what the page's form sends."""
    async with mailed(tmp_path) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        page = await browser.get(await mailbox.link(approval_id))
        await browser.submit(page, "Reject", {"reason": "x" * 100_000})
        assert (await browser.until(approval_id, "rejected", key="ann-key"))["comment"] == "x" * 2000


async def test_decision_link_ends_with_a_decision_elsewhere(tmp_path: Path) -> None:
    async with mailed(tmp_path) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        path = await mailbox.link(approval_id)
        page = await browser.get(path)
        await browser.api("ann-key").post(f"/context/approvals/{approval_id}", {"decision": "reject"})
        late = await browser.submit(page, "Approve")
        assert late.status == 409 and "decided already" in late.main
        assert "decided already" in (await browser.get(path)).main
    assert not (tmp_path / "files" / "note.txt").exists()


async def test_decision_link_ends_when_its_approval_expires(tmp_path: Path) -> None:
    clock = ManualClock(1_800_000_000.0)
    async with mailed(tmp_path, clock=Clock(clock), expires="30m") as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        path = await mailbox.link(approval_id)
        page = await browser.get(path)
        clock.advance(1801)
        late = await browser.submit(page, "Approve")
        assert late.status == 409 and "The time for this decision is over." in late.main
        assert buttons(await browser.get(path)) == []
        await browser.until(approval_id, "expired", key="ann-key")


async def test_decision_form_left_open_too_long_is_refused(tmp_path: Path) -> None:
    clock = ManualClock(1_800_000_000.0)
    async with mailed(tmp_path, clock=Clock(clock)) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        page = await browser.get(await mailbox.link(approval_id))
        clock.advance(3700)
        late = await browser.submit(page, "Approve")
        assert late.status == 404 and "open for too long" in late.main
        await browser.until(approval_id, "pending", key="ann-key")


async def test_decision_link_is_valid_for_its_own_call_only(tmp_path: Path) -> None:
    """Neither with other characters, nor in the place of another one, nor without the token of its page."""
    async with mailed(tmp_path) as (browser, mailbox):
        first = await browser.asks(key="ann-key", operation="write", path="a.txt", content="a")
        second = await browser.asks(key="bob-key", operation="write", path="b.txt", content="b")
        one, two = await mailbox.link(first), await mailbox.link(second)
        place, _, token = one.partition("=")
        for wrong in ("", "x", token[:-1], token + "A", token.replace(".", ",", 1), "A" * 5000, "%C4%B0."):
            seen = await browser.get(f"{place}={wrong}")
            assert seen.status == 404 and "link_not_valid" in seen.main
        assert (await browser.get("/console/link")).status == 404
        form = dict((await browser.get(one)).form("Approve").fields)
        for forged in (
            {**form, "token": two.partition("=")[2]},
            {**form, "page": ""},
            {**form, "page": form["page"].replace(".", ".\u0661")},
            {**form, "page": "999" + form["page"][3:]},
            {"token": form["token"]},
        ):
            assert (await browser.post("/console/link", {**forged, "decision": "approve"})).status == 404
        for origin in ("https://evil.example", "null"):
            refused = await browser.post("/console/link", {**form, "decision": "approve"}, Origin=origin)
            assert refused.status == 403
        assert (await browser.get(one, Sec_Fetch_Dest="iframe")).status == 403
        for approval_id in (first, second):
            await browser.until(approval_id, "pending", key="ann-key")


async def test_changed_webhook_secret_invalidates_its_decision_links(tmp_path: Path) -> None:
    """And so do another name, and no links."""
    async with mailed(tmp_path) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        path = await mailbox.link(approval_id)
        before = browser.config["approvals"]["notify"][0]
        for change in ({"secret": "whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {"links": {"as": "sre"}}, {"links": None}):
            await browser.reload(approvals={"notify": [{**before, **change}]})
            assert (await browser.get(path)).status == 404
        await browser.reload(approvals={"notify": [before]})
        assert (await browser.get(path)).status == 200


async def test_decision_link_is_refused_after_a_policy_change(tmp_path: Path) -> None:
    async with mailed(tmp_path) as (browser, mailbox):
        path = await mailbox.link(await browser.asks(key="ann-key"))
        page = await browser.get(path)
        await browser.reload(risk={"trust_llm": "never"})
        late = await browser.submit(page, "Approve")
        assert late.status == 409 and "have changed since" in late.main


async def test_link_counts_as_one_of_two_required_approvals(tmp_path: Path) -> None:
    """Once. The notice of the first approval says who gave it, and its link is no second one."""
    async with mailed(tmp_path, self="refuse", require=[{"approvals": 2}]) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        page = await browser.get(await mailbox.link(approval_id))
        assert "0 of 2 approvals" in page.main
        after = await browser.submit(page, "Approve")
        assert "1 of 2 approvals : link:oncall" in after.main and buttons(after) == []
        second = await mailbox.link(approval_id, kind="approval.partly_approved")
        assert mailbox.notices[-1]["data"]["approved_by"] == ["link:oncall"]
        assert "You have decided with this link." in (await browser.get(second)).main
        bob = await browser.signed_in("bob")
        inbox = await bob.get("/console")
        assert "1 of 2 approvals : link:oncall" in inbox.main
        await bob.submit(inbox, "Approve the call of file_operations")
        decided = await browser.until(approval_id, key="bob-key")
        assert [one["by"] for one in decided["approved_by"]] == ["link:oncall", "bob"]


async def test_approval_page_states_that_another_key_must_approve(tmp_path: Path) -> None:
    """Its own page, and the refusal of the key that has approved."""
    async with mailed(tmp_path, require=[{"approvals": 2}]) as (browser, _):
        ann = await browser.signed_in("ann")
        approval_id = await ann.asks()
        page = await ann.get(f"/console/approvals/{approval_id}")
        after = await ann.submit(page, "Approve")
        assert "Your approval counts." in after.main and "1 of 2 approvals : ann" in after.main
        again = await ann.submit(after, "Approve")
        assert again.status == 409 and "has approved this call already (1 of 2)" in again.problem


async def test_concurrent_forms_of_a_decision_link_decide_once(tmp_path: Path) -> None:
    async with mailed(tmp_path) as (browser, mailbox):
        approval_id = await browser.asks(key="ann-key")
        page = await browser.get(await mailbox.link(approval_id))
        seen = await asyncio.gather(*(browser.submit(page, "Approve", follow=False) for _ in range(5)))
        assert {one.status for one in seen} <= {303, 409}
        assert (await browser.until(approval_id, key="ann-key"))["decided_by"] == "link:oncall"
