"""News for open pages: what arrives, for whom, and when they end."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gateway.console.event_hub import WAITING_MOST, OpenPage, PageView, format_sse_frame
from gateway.contracts.storage.journal import Change
from gateway.contracts.storage.store import StoreError
from gateway.plugins.stores.sqlite import SqliteStore
from tests.console.browsing import Browser, Json, News, key, served
from tests.plugins.stores.records import event

VIEW = PageView("en", True)


async def test_inbox_stream_adds_a_call_and_removes_decided_calls(tmp_path: Path) -> None:
    """For everybody of the tenant, in the language of each, with buttons for those who may decide."""
    keys = (key("ann", "context", "approve"), key("bob", "context"), key("eve", tenant="other"))
    async with served(tmp_path, *keys) as browser:
        ann, bob, eve = [await browser.signed_in(name) for name in ("ann", "bob", "eve")]
        other = await browser.signed_in("ann", language="zh")
        async with (
            ann.listening() as news,
            bob.listening() as watched,
            other.listening() as chinese,
            eve.listening() as far,
        ):
            for one in (news, watched, chinese, far):
                assert await one.next("count") == "0"
            approval_id = await ann.asks(operation="write", path="a.txt", content="<b>x</b>\u202e")
            card = await news.next("approval")
            assert approval_id in card and "Approve" in card and "&lt;b&gt;" in card and "\u202e" not in card
            assert await news.next("count") == "1"
            assert "<button" not in await watched.next("approval")
            assert "批准" in await chinese.next("approval")
            await ann.submit(await ann.get("/console"), "Reject the call of file_operations")
            assert await watched.next("resolved") == await news.next("resolved") == approval_id
            assert await news.next("count") == "0"
            await eve.asks()
            assert "note.txt" in await far.next("approval")


async def test_event_streams_of_others_recover_after_a_key_is_removed(tmp_path: Path) -> None:
    """Its page ends. Those of others have what happens, after they came back."""
    async with served(tmp_path, key("ann"), key("bob")) as browser:
        ann, bob = await browser.signed_in("ann"), await browser.signed_in("bob")
        async with ann.listening() as first:
            await first.next("count")
            async with bob.listening() as second:
                await second.next("count")
                await browser.reload(keys=[key("bob")])
                await bob.asks()
                for news in (first, second):
                    assert [name for name, _ in await rest(news) if name == "approval"] in ([], ["approval"])
        assert (await ann.get("/console/live", Accept="text/event-stream")).status == 401
        async with bob.listening() as again:
            assert await again.next("count") == "1"
            await bob.asks(operation="write", path="b.txt", content="x")
            assert "b.txt" in await again.next("approval")


async def test_event_stream_ends_with_its_session(tmp_path: Path) -> None:
    """Nothing is sent to a page whose reader has signed out elsewhere. Others of the same key have the news."""
    async with served(tmp_path, key("ann")) as browser:
        ann, other = await browser.signed_in("ann"), await browser.signed_in("ann")
        page = await ann.get("/console")
        async with ann.listening() as news, other.listening() as others:
            await news.next("count")
            await others.next("count")
            copy = Browser(ann.gateway, ann.folder, ann.config, ann.session, cookies=dict(ann.cookies))
            await ann.submit(page, "Sign out", follow=False)
            await browser.asks(key="ann-key")
            assert await rest(news) == []
            assert "note.txt" in await others.next("approval")
        assert (await copy.get("/console/live", Accept="text/event-stream")).status == 401


@pytest.mark.parametrize("now", [key("ann", tenant="other"), key("ann", "context"), key("ann", text="another")])
async def test_event_stream_ends_when_its_key_changes(tmp_path: Path, now: Json) -> None:
    """A key that is moved to another tenant sees no call of its old one."""
    async with served(tmp_path, key("ann"), key("bob"), key("eve", tenant="other")) as browser:
        ann, bob, eve = [await browser.signed_in(name) for name in ("ann", "bob", "eve")]
        async with ann.listening() as news, bob.listening() as watched:
            await news.next("count")
            await watched.next("count")
            await browser.reload(keys=[now, key("bob"), key("eve", tenant="other")])
            await eve.asks(operation="write", path="of-eve.txt", content="x")
            await bob.asks(operation="write", path="of-bob.txt", content="x")
            assert await rest(news) == []
            seen = await watched.any()  # its own call; or the end, as the events were followed in the name of ann
            assert seen is None or "of-bob.txt" in seen[1]


async def test_store_failure_ends_the_event_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head is out, so the browser comes back; what goes wrong stands in no answer."""
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        async with ann.listening() as news:
            await news.next("count")

            async def fail(*_: object) -> bool:
                raise StoreError("disk I/O error")

            monkeypatch.setattr(SqliteStore, "find_ended_sessions", fail)
            await ann.asks()
            with pytest.raises(aiohttp.ClientPayloadError):
                await rest(news)


async def test_unrenderable_event_ends_the_event_streams(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of another version, say. Pages come back with what the API has; they do not stay open without news."""
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        approval = await ann.asks()
        run_id = (await ann.api().get(f"/context/approvals/{approval}")).json["run_id"]
        async with ann.listening() as news:
            assert await news.next("count") == "1"
            store = browser.gateway.gateway._shared.store
            run = await store.run(run_id, tenant="team")
            assert run is not None
            strange = event("approval.required", run_id=run_id, tenant="team", data=b'{"id":"ap_1"}')
            await store.write(Change(run=run, events=(strange,)))
            assert await rest(news) == []
        assert "could not show an event" in caplog.text
        async with ann.listening() as again:
            assert await again.next("count") == "1"
            await ann.asks(operation="write", path="b.txt", content="x")
            assert "b.txt" in await again.next("approval")


async def test_event_stream_ends_when_the_gateway_drains(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        async with ann.listening() as news:
            await news.next("count")
            draining = asyncio.create_task(browser.gateway.gateway.drain())
            assert await rest(news) == []
            await draining


async def test_head_request_for_the_event_stream_returns_at_once(tmp_path: Path) -> None:
    async with served(tmp_path, key("ann")) as browser:
        ann = await browser.signed_in("ann")
        seen = await ann.get("/console/live", method="HEAD")
        assert (seen.status, seen.body) == (200, b"") and seen.headers["Content-Type"].startswith("text/event-stream")


async def rest(news: News) -> list[tuple[str, str]]:
    found = []
    while (event := await news.any()) is not None:
        found.append(event)
    return found


async def test_event_stream_of_a_slow_reader_is_ended() -> None:
    page = OpenPage(VIEW, None)  # type: ignore[arg-type]
    for i in range(WAITING_MOST):
        page.add_news(b"%d " % i)
    assert (await page.wait_for_news()).split() == [b"%d" % i for i in range(WAITING_MOST)]
    for _ in range(WAITING_MOST + 1):
        page.add_news(b"x")
    assert await page.wait_for_news() == b""


async def test_take_waits_for_and_returns_all_pending_events() -> None:
    page = OpenPage(VIEW, None)  # type: ignore[arg-type]
    taking = asyncio.create_task(page.wait_for_news())
    await asyncio.sleep(0)
    page.add_news(b"a")
    page.add_news(b"b")
    assert await taking == b"ab"
    page.add_news(b"")
    assert await page.wait_for_news() == b""


def test_multi_line_text_becomes_one_sse_event() -> None:
    assert (
        format_sse_frame("approval", "<p>\r\n</p>\n\nx")
        == b"event: approval\ndata: <p>\ndata: </p>\ndata: \ndata: x\n\n"
    )
    assert format_sse_frame("count", "") == b"event: count\ndata: \n\n"


async def test_open_event_streams_do_not_count_towards_concurrency_limits(tmp_path: Path) -> None:
    """`limits.concurrent` bounds what is under way: pages that only listen, and those that left, are not."""
    async with served(tmp_path, limits={"concurrent": 2}) as browser:
        await browser.get("/console")
        async with browser.listening() as one, browser.listening() as two, browser.listening() as three:
            for news in (one, two, three):
                await news.next("count")
            assert (await browser.api().get("/v1/models")).status == 200
        for _ in range(3):
            assert (await browser.api().get("/v1/models")).status == 200
