"""The events of a run as a stream, over HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import ClientResponse
from gateways import until

from gateway.contracts.storage.journal import Change, RunEvent
from tests.api.approval_pages import Desktop, code_of, going, opened
from tests.plugins.stores.records import event, new, parked, run

EVENTS = "/context/runs/run_1/events"
STARTED = event(data=b'{"step":1}')
_FRAME = re.compile(rb"id: (\d+)\nevent: ([a-z.]+)\ndata: (.*)")


def ended(*events: RunEvent) -> Change:
    """A run that is over, and what happened in it."""
    return new(run(state="completed"), events=events)


@dataclass
class Stream:
    """An event stream as it is read."""

    response: ClientResponse

    async def block(self) -> bytes:
        """What stands before the next empty line; b"" at the end."""
        async with asyncio.timeout(120):
            found = await self.response.content.readuntil(b"\n\n")
        return found.removesuffix(b"\n\n")

    async def event(self) -> tuple[int, str, object]:
        frame = _FRAME.fullmatch(await self.block())
        assert frame is not None
        return int(frame[1]), frame[2].decode(), json.loads(frame[3])

    async def rest(self) -> list[tuple[int, str]]:
        """All that comes until the end."""
        async with asyncio.timeout(120):
            content = await self.response.content.read()
        return [(int(frame[1]), frame[2].decode()) for frame in _FRAME.finditer(content)]


@asynccontextmanager
async def reading(desk: Desktop, path: str = EVENTS, *, key: str = "agent", **headers: str) -> AsyncIterator[Stream]:
    sent = {"X-Gateway-Key": key, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with desk.session.get(desk.url(path), headers=sent) as response:
        assert response.status == 200, await response.text()
        yield Stream(response)


async def test_event_stream_sends_events_until_the_run_ends() -> None:
    """What was before, what comes, the end; under headers that nobody on the way holds them back for."""
    async with opened(parked()) as desk, reading(desk) as stream:
        assert stream.response.content_type == "text/event-stream"
        assert stream.response.headers["X-Accel-Buffering"] == "no"
        assert stream.response.headers["Cache-Control"] == "no-cache, no-transform"
        await until(lambda: bool(desk.office.events._open))
        await desk.office.happens(data=b'{"step":7}')
        assert await stream.event() == (1, "step.started", {"step": 7})
        await desk.post("/context/approvals/ap_1", {"decision": "approve"})
        seq, kind, data = await stream.event()
        assert (seq, kind) == (2, "approval.resolved") and isinstance(data, dict) and data["state"] == "approved"
        await desk.office.ends()
        assert await stream.event() == (3, "approval.resolved", {"approval_id": "ap_1", "state": "cancelled"})
        assert await stream.event() == (4, "run.finished", {"state": "completed"})
        assert await stream.rest() == []


@pytest.mark.parametrize(
    ("path", "headers", "seen"),
    [
        (EVENTS, {}, [1, 2, 3]),
        (f"{EVENTS}?after=1", {}, [2, 3]),
        (EVENTS, {"Last_Event_ID": "2"}, [3]),
        (f"{EVENTS}?after=0", {"Last_Event_ID": "2"}, [3]),
        (EVENTS, {"Last_Event_ID": "3"}, []),
        (f"{EVENTS}?after=99", {}, []),
    ],
)
async def test_event_stream_resumes_after_the_last_event_id(
    path: str, headers: dict[str, str], seen: list[int]
) -> None:
    """By the last id that it saw; a browser repeats its query, so the header is the last word (N27)."""
    async with opened(ended(STARTED, STARTED, STARTED)) as desk, reading(desk, path, **headers) as stream:
        assert [seq for seq, _ in await stream.rest()] == seen


async def test_long_event_history_is_streamed_completely_in_order() -> None:
    """However many there were, in order, each once."""
    async with opened(ended(*(STARTED,) * 1001)) as desk, reading(desk) as stream:
        assert [seq for seq, _ in await stream.rest()] == list(range(1, 1002))


async def test_event_stream_contains_only_events_of_its_run() -> None:
    """Not those of another, nor of another tenant's of the same id."""
    async with opened(parked(), going(run_id="run_2"), going(tenant="other")) as desk, reading(desk) as stream:
        store = desk.office.store
        for change in (going(run_id="run_2"), going(tenant="other")):
            there = await store.run(change.run.id, tenant=change.run.tenant)
            assert there is not None
            told = event("step.started", run_id=there.id, tenant=there.tenant)
            await store.write(Change(run=there, events=(told,)))
        await desk.office.ends()
        assert [kind for _, kind in await stream.rest()] == ["approval.resolved", "run.finished"]


async def test_silent_event_stream_sends_keepalive_comments() -> None:
    """By a comment, which no client takes for an event."""
    async with opened(keepalive_s=0.01) as desk, reading(desk) as stream:
        assert [await stream.block() for _ in range(3)] == [b": keep-alive"] * 3
        await desk.office.ends()


@pytest.mark.parametrize(
    ("path", "key", "headers", "expected"),
    [
        (EVENTS, "rival", {}, (404, "run_not_found")),
        ("/context/runs/run_9/events", "boss", {}, (404, "run_not_found")),
        (EVENTS, "reader", {}, (403, "scope_missing")),
        (EVENTS, "", {}, (401, "missing_api_key")),
        (f"{EVENTS}?from=1", "boss", {}, (400, "unknown_field")),
        (f"{EVENTS}?after=x", "boss", {}, (400, "invalid_field")),
        (EVENTS, "boss", {"Last-Event-ID": "x"}, (400, "invalid_header")),
    ],
)
async def test_invalid_event_stream_request_gets_an_error_response(
    path: str, key: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    """A plain answer says why."""
    async with opened() as desk:
        sent = {"X-Gateway-Key": key, **headers}
        async with desk.session.get(desk.url(path), headers=sent) as response:
            assert code_of((response.status, await response.json())) == expected


async def test_event_stream_ends_when_its_key_is_revoked() -> None:
    """What comes after is not for it any more (K5)."""
    async with opened() as desk, reading(desk) as stream:
        await until(lambda: bool(desk.office.events._open))
        await desk.office.happens()
        await stream.event()
        del desk.office.keys["agent"]
        await desk.office.happens()
        assert await stream.rest() == []


async def test_streams_end_when_the_gateway_stops() -> None:
    """A client goes on elsewhere from where it was."""
    async with opened() as desk, reading(desk) as stream:
        await until(lambda: bool(desk.office.events._open))
        await desk.office.events.close()
        assert await stream.rest() == []
        await desk.office.events.close()


async def test_store_failure_ends_the_event_stream() -> None:
    """Without an end of the run: the client comes back."""
    async with opened() as desk, reading(desk) as stream:
        await until(lambda: bool(desk.office.events._open))
        await desk.office.happens()
        await stream.event()
        desk.office.store.full = True
        for news in desk.office.events._open:
            news.set()
        assert await stream.rest() == []
        desk.office.store.full = False


async def test_disconnected_stream_client_is_released() -> None:
    """The page notices at once."""
    async with opened() as desk:
        async with reading(desk):
            await until(lambda: bool(desk.office.events._open))
        await until(lambda: not desk.office.events._open)
        await desk.lane.until_idle()


async def test_event_stream_over_http_1_0_is_unframed() -> None:
    """The end of the connection is the end of the stream."""
    async with opened(ended(STARTED)) as desk, desk.lane.client() as client:
        await client.send(f"GET {EVENTS} HTTP/1.0\r\nHost: gw\r\nX-Gateway-Key: agent\r\n\r\n".encode())
        _, _, body = (await client.read_rest()).partition(b"\r\n\r\n")
        assert body == b'id: 1\nevent: step.started\ndata: {"step":1}\n\n'


async def test_concurrent_event_streams_all_get_every_event() -> None:
    """Each gets all of it."""
    async with opened() as desk:

        async def read() -> list[str]:
            async with reading(desk) as stream:
                return [kind for _, kind in await stream.rest()]

        readers = [asyncio.create_task(read()) for _ in range(20)]
        await until(lambda: len(desk.office.events._open) == 20)
        await desk.office.happens()
        await desk.office.ends()
        assert await asyncio.gather(*readers) == [["step.started", "approval.resolved", "run.finished"]] * 20
