"""The WebSocket of events and decisions, through the real listener."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from functional.talking import closed_with
from functional.talking import handshake as handshake_of
from gateways import until

from gateway.api.events.subscribers import WAITING_MOST
from gateway.contracts.storage.journal import Change
from gateway.contracts.storage.store import Json
from tests.api.approval_pages import Desktop, going, opened
from tests.plugins.stores.records import event, new

WS = "/context/ws"
APPROVE: Json = {"type": "decide", "id": "ap_1", "decision": "approve"}


@dataclass
class Talk:
    """A WebSocket as a client has it."""

    socket: ClientWebSocketResponse

    async def say(self, message: Json) -> None:
        await self.socket.send_json(message)

    async def hear(self) -> Json:
        message: Json = await self.socket.receive_json(timeout=5)
        return message

    async def ask(self, message: Json) -> Json:
        await self.say(message)
        return await self.hear()

    async def code(self) -> int | None:
        """The code of the close that comes next."""
        message = await self.socket.receive(timeout=5)
        assert message.type is WSMsgType.CLOSE, message
        return self.socket.close_code


@asynccontextmanager
async def talking(desk: Desktop, path: str = WS, *, key: str = "boss") -> AsyncIterator[Talk]:
    async with desk.session.ws_connect(desk.url(path), headers={"X-Gateway-Key": key}) as socket:
        yield Talk(socket)


async def test_event_socket_sends_events_and_takes_decisions() -> None:
    """Whoever listens hears of a decision that another makes on the same page; the run goes on."""
    async with opened() as desk, talking(desk) as person, talking(desk, key="agent") as agent:
        answer = await person.ask({**APPROVE, "ref": {"n": [1]}, "reason": "fine", "sha256": "a" * 64})
        heard = await person.hear()
        if answer["type"] == "event":  # the event may overtake the answer
            answer, heard = heard, answer
        assert (answer["type"], answer["ref"], answer["status"]) == ("decision", {"n": [1]}, 200)
        view = answer["approval"]
        assert (view["state"], view["decided_by"], view["via"], view["comment"]) == (
            "approved",
            "bob",
            "websocket",
            "fine",
        )
        told = {"run_id": "run_1", "approval_id": "ap_1", "state": "approved", "via": "websocket"}
        event = {"type": "event", "seq": 1, "event": "approval.resolved", "run_id": "run_1", "data": told}
        assert heard == await agent.hear() == event
        assert desk.office.resumed == ["run_1"]


@pytest.mark.parametrize(
    ("key", "message", "status", "code"),
    [
        ("agent", APPROVE, 403, "scope_missing"),
        ("rival", APPROVE, 404, "approval_not_found"),
        ("spy", APPROVE, 404, "approval_not_found"),
        ("boss", {**APPROVE, "id": "ap_9"}, 404, "approval_not_found"),
        ("boss", {**APPROVE, "sha256": "f" * 64}, 409, "approval_stale"),
        ("boss", {**APPROVE, "decision": "yes"}, 400, "invalid_field"),
        ("boss", {**APPROVE, "force": True}, 400, "unknown_field"),
        ("boss", {"type": "decide", "decision": "approve"}, 400, "missing_field"),
    ],
)
async def test_invalid_socket_decision_returns_error_and_keeps_the_connection(
    key: str, message: Json, status: int, code: str
) -> None:
    """Its answer says why; nothing runs, and the talk goes on."""
    async with opened() as desk, talking(desk, key=key) as talk:
        answer = await talk.ask({**message, "ref": 7})
        assert (answer["type"], answer["ref"], answer["status"]) == ("decision", 7, status)
        assert answer["error"]["code"] == code
        assert desk.office.resumed == []
        assert await talk.ask({"type": "ping"}) == {"type": "pong"}


async def test_conflicting_socket_decision_returns_409() -> None:
    """The same one again is not."""
    async with opened() as desk, talking(desk) as talk:
        assert (await desk.post("/context/approvals/ap_1", {"decision": "approve"}))[0] == 200
        assert (await talk.hear())["event"] == "approval.resolved"
        assert (await talk.ask(APPROVE))["status"] == 200
        assert (await talk.ask({**APPROVE, "decision": "reject"}))["status"] == 409


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        '{"type": 1}',
        '{"type": "decided"}',
        '{"type": "ping", "x": 1}',
        '{"type": "ping", "type": "ping"}',
        "[" * 100_000,
        '{"id": "ap_1", "decision": "approve"}',
    ],
)
async def test_invalid_message_is_answered_with_an_error_and_connection_continues(text: str) -> None:
    """And the talk goes on."""
    async with opened() as desk, talking(desk) as talk:
        await talk.socket.send_str(text)
        answer = await talk.hear()
        assert answer["type"] == "error" and answer["error"]["code"] in (
            "invalid_json",
            "invalid_field",
            "unknown_field",
        )
        await talk.socket.send_bytes(b'{"type": "ping"}')
        assert (await talk.hear())["error"]["code"] == "invalid_json"
        assert await talk.ask({"type": "ping"}) == {"type": "pong"}


async def test_socket_message_over_the_size_limit_closes_with_1009() -> None:
    """Longer ones end the talk (1009)."""
    async with opened() as desk, talking(desk) as talk:
        ref = "x" * 1_000_000
        assert (await talk.ask({**APPROVE, "id": "ap_9", "ref": ref}))["ref"] == ref
        await talk.socket.send_str(" " * (1 << 20))
        assert await talk.code() == 1009


async def test_event_socket_sends_only_new_events_of_the_tenant() -> None:
    """What was before is not told, nor what is another's."""
    before = (new(events=(event(),)), going(run_id="run_2", tenant="other"))
    async with opened(*before) as desk, talking(desk, key="console") as talk, talking(desk, key="spy") as spy:
        there = await desk.office.store.run("run_2", tenant="other")
        assert there is not None
        other = event("step.started", run_id="run_2", tenant="other")
        await desk.office.store.write(Change(run=there, events=(other,)))
        await desk.office.happens(data=b'{"step":2}')
        assert (await talk.hear())["seq"] == 3
        assert (await spy.hear())["seq"] == 2


@pytest.mark.parametrize("past", [3, 1200])
async def test_reconnecting_subscriber_gets_missed_events_then_new_ones(past: int) -> None:
    """From behind the last one that it saw, each once, then what comes."""
    async with opened(new(events=(event(),) * past)) as desk, talking(desk, f"{WS}?after=1") as talk:
        missed = [(await talk.hear())["seq"] for _ in range(past - 1)]
        assert missed == list(range(2, past + 1))
        await desk.office.happens()
        assert (await talk.hear())["seq"] == past + 1


async def test_subscriber_gets_each_event_once_during_concurrent_writes() -> None:
    """While events are written all the time."""
    async with opened(new(events=(event(),) * 700)) as desk:
        writing = asyncio.create_task(_write(desk, 300))
        async with talking(desk, f"{WS}?after=0") as talk:
            assert [(await talk.hear())["seq"] for _ in range(1000)] == list(range(1, 1001))
        await writing


async def _write(desk: Desktop, count: int) -> None:
    for _ in range(count):
        await desk.office.happens()


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [(WS, "reader", 403), (WS, "", 401), (f"{WS}?since=1", "boss", 400), (f"{WS}?after=x", "boss", 400)],
)
async def test_invalid_socket_handshake_is_refused_with_an_http_status(path: str, key: str, status: int) -> None:
    """A plain answer instead of the 101."""
    async with opened() as desk:
        with pytest.raises(WSServerHandshakeError) as caught:
            async with talking(desk, path, key=key):
                pass
        assert caught.value.status == status


async def test_event_socket_page_refuses_plain_http() -> None:
    """A plain request is told so."""
    async with opened() as desk:
        status, answer = await desk.get(WS)
        assert (status, answer["error"]["code"]) == (400, "invalid_header")


async def test_revoked_key_closes_the_event_socket() -> None:
    """With the next message, which does nothing, or with the next event (K5)."""
    async with opened() as desk, talking(desk) as boss, talking(desk, key="agent") as agent:
        del desk.office.keys["boss"]
        answer = await boss.ask(APPROVE)
        assert (answer["status"], answer["error"]["code"]) == (401, "missing_api_key")
        assert desk.office.resumed == []
        del desk.office.keys["agent"]
        await desk.office.happens()
        assert await boss.code() == await agent.code() == 1008


async def test_key_moved_to_another_tenant_closes_the_event_socket() -> None:
    """With the next event: it is of the tenant that was the key's."""
    async with opened() as desk, talking(desk) as boss:
        desk.office.keys["boss"] = replace(desk.office.keys["boss"], tenant="other")
        await desk.office.happens()
        assert await boss.code() == 1008


async def test_revoked_key_gets_no_events_after_another_tenants_event() -> None:
    """Each tenant's clients are checked after a change, whoever's event comes first."""
    async with (
        opened(new(events=(event(),)), going(run_id="run_2", tenant="other")) as desk,
        talking(desk) as boss,
        talking(desk, key="spy") as spy,
    ):
        await desk.office.happens()
        assert (await boss.hear())["seq"] == 2
        del desk.office.keys["boss"]
        there = await desk.office.store.run("run_2", tenant="other")
        assert there is not None
        other = event("step.started", run_id="run_2", tenant="other")
        await desk.office.store.write(Change(run=there, events=(other,)))
        desk.office.feed.nudge()
        assert (await spy.hear())["seq"] == 3
        await desk.office.happens()
        assert await boss.code() == 1008


async def test_stopping_gateway_closes_all_sockets_with_1001() -> None:
    """With 1001, once."""
    async with opened() as desk, talking(desk) as one, talking(desk) as other:
        await until(lambda: len(desk.office.sockets._open) == 2)
        closing = asyncio.create_task(desk.office.sockets.close())
        assert await one.code() == await other.code() == 1001
        await closing
        await until(lambda: not desk.office.sockets._open)
        await desk.office.sockets.close()


async def test_closed_socket_is_removed_from_the_open_set() -> None:
    """Nothing of it is left."""
    async with opened() as desk:
        async with talking(desk):
            await until(lambda: bool(desk.office.sockets._open))
        await until(lambda: not desk.office.sockets._open)
        await desk.lane.until_idle()


async def test_store_failure_closes_the_event_socket_with_1011(caplog: pytest.LogCaptureFixture) -> None:
    """With 1011, and a line in the log."""
    async with opened() as desk:
        desk.office.store.full = True
        async with talking(desk, f"{WS}?after=0") as talk:
            assert await talk.code() == 1011
        desk.office.store.full = False
        assert "a page failed in its WebSocket" in caplog.text


async def test_socket_decision_with_a_full_store_returns_507() -> None:
    """The answer says so; afterwards all is well."""
    async with opened() as desk, talking(desk) as talk:
        await talk.ask({"type": "ping"})
        desk.office.store.full = True
        answer = await talk.ask(APPROVE)
        assert (answer["status"], answer["error"]["code"]) == (507, "store_full")
        desk.office.store.full = False
        assert (await talk.ask(APPROVE))["status"] == 200


@pytest.mark.parametrize("reads_at_last", [True, False])
async def test_slow_subscriber_is_disconnected_without_delaying_others(reads_at_last: bool) -> None:
    """Once too many events wait: it costs no memory, and others are served meanwhile."""
    hello = handshake_of(b"X-Gateway-Key: boss").replace(b"/context/talk", WS.encode())
    large = tuple(event(data=b'{"text":"%b"}' % (b"x" * 65_536)) for _ in range(100))
    async with opened() as desk, desk.lane.client(rcvbuf=4096) as sleeper, talking(desk, key="agent") as talk:
        await sleeper.send(hello)
        assert (await sleeper.read_head()).startswith(b"HTTP/1.1 101 ")
        there = await desk.office.store.run("run_1", tenant="acme")
        assert there is not None
        await desk.office.store.write(Change(run=there, events=large))
        assert [(await talk.hear())["seq"] for _ in large] == list(range(1, 101))
        for _ in range(3):
            await desk.office.store.write(Change(run=there, events=(event(),) * (WAITING_MOST // 2)))
            desk.office.feed.nudge()
            for _ in range(WAITING_MOST // 2):
                await talk.hear()
        if reads_at_last:
            assert await closed_with(sleeper) == 1013
            sleeper.close()
        await until(lambda: len(desk.office.sockets._open) == 1)
        assert await talk.ask({"type": "ping"}) == {"type": "pong"}
