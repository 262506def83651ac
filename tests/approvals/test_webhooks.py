"""Notices of approvals: each webhook is told of each, signed, until it has heard; nobody waits for it."""

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import orjson
import pytest
from agent.doubles import samples
from aiohttp import web
from aiohttp.test_utils import TestServer
from api.approval_pages import Ledger, Wall
from gateways import until
from host_names import host_names
from unanswered_ports import refusing_port, silent_port
from yarl import URL

from gateway.approvals import webhooks
from gateway.approvals.view import build_approval_view
from gateway.approvals.webhooks import AT_ONCE, DUTY, DUTY_S, PATIENCE, WAITING, RetryPolicy, Webhooks, build_webhooks
from gateway.config import ConfigError
from gateway.config.schema.approvals import Notify
from gateway.config.values.secret import Secret
from gateway.contracts.storage.journal import Approval, Change
from gateway.contracts.storage.store import Json
from gateway.runs.event_feed import EventFeed
from gateway.telemetry.counters import ContextCounters
from tests.plugins.stores.records import approval, event, new, parked, run, step, write

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#: As many attempts as by default, without waiting.
EAGER = RetryPolicy(pauses_s=(0.0,) * len(PATIENCE.pauses_s), store_s=0.01, duty_s=0.01)


def asked(approval_id: str = "ap_1", run_id: str = "run_1", **changes: object) -> Change:
    """A run asks a person: the approval, and the event that tells of it."""
    waiting = approval(approval_id, run_id=run_id, **changes)
    facts = orjson.dumps(build_approval_view(waiting))
    told = event("approval.required", run_id=run_id, tenant=waiting.tenant, data=facts)
    return replace(parked(run_id, approval_id=approval_id, **changes), events=(told,))


@dataclass
class Receiver:
    """The operator's endpoint: it answers with `statuses`, the last one for ever. `held`: not before it is let go."""

    statuses: list[int] = field(default_factory=lambda: [204])
    heard: list[tuple[dict[str, str], Json]] = field(default_factory=list)
    elsewhere: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.heard.append((headers, {"raw": body, **(await request.json())}))
        await self.go.wait()
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async def other(self, _request: web.Request) -> web.Response:
        self.elsewhere += 1
        return web.Response()

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.heard]


class Listened(Ledger):
    """A store that counts how often somebody asks where its events end, to listen from there."""

    listeners = 0

    async def get_last_event(self) -> int:
        self.listeners += 1
        return await super().get_last_event()


@dataclass
class World:
    store: Listened
    feed: EventFeed
    receiver: Receiver
    url: str
    counters: ContextCounters = field(default_factory=ContextCounters)
    clock: Wall = field(default_factory=Wall)
    started: list[Webhooks] = field(default_factory=list)

    async def start(
        self,
        *urls: str,
        secret: str | None = SECRET,
        console_url: str | None = None,
        policy: RetryPolicy = EAGER,
        owner: str = "w1",
    ) -> Webhooks:
        notify = [Notify(webhook=Secret(url), secret=secret and Secret(secret)) for url in urls or (self.url,)]
        told = (notify, console_url, self.clock, self.counters)
        webhooks = Webhooks(self.store, self.feed, *told, owner=owner, policy=policy)
        self.started.append(webhooks)
        await webhooks.start()
        return webhooks

    async def write(self, *changes: Change) -> None:
        for change in changes:
            await self.store.write(change)
        self.feed.nudge()

    def counted(self, outcome: str) -> float:
        return samples(self.counters).get(("gateway_notices_total", (outcome,)), 0.0)


@asynccontextmanager
async def receiving(*statuses: int, held: bool = False) -> AsyncIterator[World]:
    """A store without anything in it, and a webhook."""
    store = Listened(":memory:")
    await store.open()
    feed, receiver = EventFeed(store), Receiver(list(statuses) or [204])
    if not held:
        receiver.go.set()
    app = web.Application()
    app.router.add_post("/hook", receiver.receive)
    app.router.add_route("*", "/elsewhere", receiver.other)
    async with TestServer(app) as server:
        world = World(store, feed, receiver, str(server.make_url("/hook?token=s3cret-token")))
        try:
            yield world
        finally:
            receiver.go.set()
            for webhooks in world.started:
                await webhooks.close()
            await feed.close()
            await store.close()


async def test_new_approval_is_sent_to_the_webhook_signed() -> None:
    """With the call as a person is shown it, and where to decide."""
    async with receiving() as world:
        await world.start(console_url="https://gw.example/console")
        await world.write(asked())
        await until(lambda: world.counted("delivered"))
        ((headers, notice),) = world.receiver.heard
        raw = notice.pop("raw")
        assert notice == {
            "type": "approval.required",
            "timestamp": "1970-01-01T00:01:40Z",
            "data": {
                "id": "ap_1",
                "run_id": "run_1",
                "tool": "execute_command",
                "arguments": 'command: "make"',
                "left_out": None,
                "sha256": "a" * 64,
                "reason": "make is not on the list.",
                "rule": "unknown_command",
                "expires": "1970-01-01T00:16:40Z",
                "required_approvals": 1,
                "approved_by": [],
                "link": "https://gw.example/console/approvals/ap_1",
                "decision_link": None,
            },
        }
        assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("ap_1", "200")
        assert headers["content-type"] == "application/json" and headers["user-agent"] == "twolane"
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, b"ap_1.200." + raw, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"


async def test_webhook_without_a_secret_is_unsigned() -> None:
    """A receiver that knows no key gets no signature to trust."""
    async with receiving() as world:
        await world.start(secret=None)
        await world.write(asked())
        await until(lambda: world.counted("delivered"))
        assert "webhook-signature" not in world.receiver.heard[0][0] and world.receiver.ids == ["ap_1"]


async def test_events_other_than_approval_requests_send_no_webhook() -> None:
    """Only that somebody is asked."""
    async with receiving() as world:
        await world.start()
        await world.write(new(run(), events=(event("step.started"), event("run.finished", data=b"{}"))))
        await world.write(asked("ap_2", "run_2"))
        await until(lambda: world.counted("delivered"))
        assert world.receiver.ids == ["ap_2"]


async def test_unreadable_event_is_logged_and_the_next_notice_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """One that cannot be told is logged; the next is told."""
    async with receiving() as world:
        await world.start()
        await world.write(new(run(), events=(event("approval.required", data=b"{}"),)), asked("ap_2", "run_2"))
        await until(lambda: world.counted("delivered"))
        assert world.receiver.ids == ["ap_2"] and "no webhook reports an approval of run run_1" in caplog.text


async def test_failed_webhook_delivery_is_retried() -> None:
    """The same bytes under the same id, until they do; a redirection does not count, and is not followed."""
    async with receiving(500, 302, 429, 200) as world:
        await world.start()
        await world.write(asked())
        await until(lambda: world.counted("delivered"))
        assert world.receiver.ids == ["ap_1"] * 4 and world.receiver.elsewhere == 0
        assert len({notice["raw"] for _, notice in world.receiver.heard}) == 1


async def test_final_webhook_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Which names the place in the configuration and the approval, and no secret."""
    async with receiving(503) as world:
        await world.start()
        await world.write(asked())
        await until(lambda: world.counted("failed"))
        assert len(world.receiver.heard) == 8
        (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert record.getMessage() == "approvals.notify[0] is not told of ap_1: it answered 503"


async def test_webhook_answer_timeout_counts_as_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The attempt counts as failed."""
    async with receiving(held=True) as world:
        await world.start(policy=RetryPolicy(timeout_s=0.05, pauses_s=(0.0,)))
        await world.write(asked())
        await until(lambda: world.counted("failed"))
        assert len(world.receiver.heard) == 2
        assert "is not told of ap_1: it did not answer within 0.05 s" in caplog.text


async def test_webhook_answer_410_is_not_retried() -> None:
    """410 is not asked again."""
    async with receiving(410) as world:
        await world.start()
        await world.write(asked())
        await until(lambda: world.counted("gone"))
        assert len(world.receiver.heard) == 1


async def test_unreachable_webhook_does_not_block_the_other_webhooks(caplog: pytest.LogCaptureFixture) -> None:
    """Each webhook on its own; logs have no URL."""
    async with receiving() as world:
        with refusing_port() as port:
            await world.start(f"http://127.0.0.1:{port}/?token=s3cret-token", world.url)
            await world.write(asked())
            await until(lambda: world.counted("delivered") and world.counted("failed"))
        assert world.receiver.ids == ["ap_1"]
        assert "approvals.notify[0] is not told of ap_1: ClientConnectorError" in caplog.text
        said = "".join(record.getMessage() for record in caplog.records if record.name == "gateway")
        assert "s3cret-token" not in said and str(port) not in said


async def test_failed_notice_is_not_retried_after_the_decision() -> None:
    """It would wake somebody for nothing."""
    async with receiving(500, held=True) as world:
        await world.start()
        await world.write(asked())
        await until(lambda: world.receiver.heard)
        await world.store.decide_approval(write())
        world.receiver.go.set()
        await until(lambda: world.counted("obsolete"))
        assert len(world.receiver.heard) == 1


async def test_notice_waiting_for_a_slot_is_dropped_once_decided() -> None:
    """A webhook takes a few at once; the others wait behind them, perhaps for minutes."""
    names = [str(number) for number in range(1, AT_ONCE + 2)]
    async with receiving(held=True) as world:
        await world.start()
        await world.write(*(asked(f"ap_{name}", f"run_{name}") for name in names))
        await until(lambda: len(world.receiver.heard) == AT_ONCE)
        (waiting,) = {f"ap_{name}" for name in names} - set(world.receiver.ids)
        await world.store.decide_approval(write(waiting))
        world.receiver.go.set()
        await until(lambda: world.counted("obsolete") and world.counted("delivered") == AT_ONCE)
        assert waiting not in world.receiver.ids


async def test_pending_approvals_are_resent_identically_at_every_start() -> None:
    """Of all tenants, with the id and the bytes of the first time; what was decided is not."""
    async with receiving() as world:
        await world.write(
            asked(), asked("ap_2", "run_2", tenant="other"), asked("ap_3", "run_3"), asked("ap_4", "run_4")
        )
        await world.store.decide_approval(write("ap_3"))
        await world.store.decide_approval(replace(write("ap_4"), events=(_resolved("ap_4"),)))
        for times in (1, 2):
            webhooks = await world.start()
            await until(lambda times=times: world.counted("delivered") == 2 * times)
            await webhooks.close()
        assert sorted(world.receiver.ids) == ["ap_1", "ap_1", "ap_2", "ap_2"]
        assert len({notice["raw"] for _, notice in world.receiver.heard}) == 2


def _resolved(approval_id: str) -> object:
    return event("approval.resolved", data=b'{"approval_id":"%s"}' % approval_id.encode())


async def test_replacement_approval_is_notified_and_the_replaced_one_is_not() -> None:
    """The one that it replaces is not told at the next start."""
    async with receiving() as world:
        await world.write(asked())
        fresh: Approval = approval("ap_2")
        told = asked("ap_2").events
        await world.store.reissue("ap_1", fresh, events=told)
        await world.start()
        await until(lambda: world.counted("delivered"))
        assert world.receiver.ids == ["ap_2"]


async def test_store_failure_at_start_is_retried_until_notices_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    """What waited before is told once it answers."""
    async with receiving() as world:
        await world.write(asked())
        world.store.full = True
        await world.start()
        await until(lambda: "the store failed: database or disk is full" in caplog.text)
        world.store.full = False
        await until(lambda: world.counted("delivered"))


async def test_hanging_webhook_queues_a_bounded_number_and_drops_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So many wait for it. Of more the ids are kept, and they come later, unless decided by then. Others are lost."""
    monkeypatch.setattr(webhooks, "LATE", 3)
    async with receiving(held=True) as world:
        await world.start()
        many = [approval(f"ap_{i}", step=i) for i in range(WAITING + 5)]
        events = tuple(e for one in many for e in asked(one.id, step=one.step).events)
        steps = tuple(step(one.step, state="requested", approval_id=one.id) for one in many)
        await world.write(new(run(state="awaiting_approval"), steps=steps, approvals=tuple(many), events=events))
        await until(lambda: world.counted("dropped") == 2)
        await until(lambda: len(world.receiver.heard) == 4)
        await world.store.decide_approval(write(f"ap_{WAITING + 1}"))
        world.receiver.go.set()
        await until(lambda: world.counted("delivered") == WAITING + 2, timeout_s=120)
        assert caplog.text.count("gets further approvals later") == 1
    assert {f"ap_{WAITING}", f"ap_{WAITING + 2}"} <= set(world.receiver.ids)


async def test_notice_queued_behind_hanging_deliveries_is_dropped_once_decided() -> None:
    """The others hang at its webhook."""
    async with receiving(held=True) as world:
        await world.start()
        for i in range(5):
            await world.write(asked(f"ap_{i}", run_id=f"run_{i}"))
        await until(lambda: len(world.receiver.heard) == 4)
        (late,) = {f"ap_{i}" for i in range(5)} - set(world.receiver.ids)
        await world.store.decide_approval(write(late))
        world.receiver.go.set()
        await until(lambda: world.counted("delivered") == 4 and world.counted("obsolete") == 1)
        assert late not in world.receiver.ids


async def test_webhook_tries_all_addresses_of_a_receiver() -> None:
    """Of which one is silent; so is the name server of another receiver, whose lookup waits."""
    async with receiving() as world:
        url = URL(world.url)
        assert url.port is not None
        with (
            silent_port("127.0.0.2", url.port),
            host_names({"hooks.example": ["127.0.0.2", "127.0.0.1"], "silent.example": None}),
        ):
            named = [str(url.with_host(f"{name}.example")) for name in ("silent", "hooks")]
            await world.start(*named, policy=PATIENCE)
            await world.write(asked())
            await until(lambda: world.counted("delivered"))
            assert world.receiver.ids == ["ap_1"]


async def test_closing_cancels_deliveries_in_flight_and_is_idempotent() -> None:
    """At once, and twice is as good as once."""
    async with receiving(held=True) as world:
        webhooks = await world.start()
        await world.write(asked())
        await until(lambda: world.receiver.heard)
        await webhooks.close()
        await webhooks.close()
        await world.write(asked("ap_2", "run_2"))
        assert world.receiver.ids == ["ap_1"] and world.counted("delivered") == 0


async def test_one_of_several_gateways_sends_each_webhook() -> None:
    """Each approval once, whoever issued it; another one goes on when that one ends."""
    async with receiving() as world:
        first = await world.start(owner="one")
        await until(lambda: first._catching_up)
        second, third = await world.start(owner="two"), await world.start(owner="three")
        await world.write(asked("ap_1"), asked("ap_2", "run_2"))
        await until(lambda: len(world.receiver.heard) == 2)
        await world.write(asked("ap_3", "run_3"))
        await until(lambda: world.counted("delivered") == 3)
        assert world.receiver.ids == ["ap_1", "ap_2", "ap_3"] and not second._catching_up and not third._catching_up
        await first.close()
        await until(lambda: second._catching_up or third._catching_up)
        await until(lambda: len(world.receiver.heard) == 6)  # what is pending is told again, by the same ids


async def test_worker_that_lost_its_lease_stops_sending_webhooks() -> None:
    """By a worker that stood still for so long that another one took it."""
    async with receiving() as world:
        first = await world.start(owner="one")
        await until(lambda: first._catching_up)
        world.clock.now_s += DUTY_S + 1
        now_s = world.clock.time()
        assert await world.store.take_duty(DUTY, owner="two", now_s=now_s, until_s=now_s + DUTY_S)
        await until(lambda: not world.feed._of_all)
        await world.write(asked())
        world.clock.now_s += DUTY_S + 1
        await until(lambda: world.receiver.heard)
        assert world.receiver.ids == ["ap_1"]


async def test_store_has_no_event_listener_without_webhooks() -> None:
    """The store is not asked for events that nobody would be told of."""
    async with receiving() as world:
        webhooks = Webhooks(world.store, world.feed, (), None, world.clock, world.counters, owner="w1")
        await webhooks.start()
        assert world.store.listeners == 0
        await webhooks.close()
        await world.start()
        await until(lambda: world.store.listeners > 0)


def test_invalid_webhook_secrets_are_reported_by_position_without_their_value() -> None:
    """All of them, and never the secret itself."""
    notify = [Notify(webhook=Secret("http://x/"), secret=Secret(s)) for s in ("whsec_???", "fine", "whsec_")]
    with pytest.raises(ConfigError) as caught:
        build_webhooks(notify)
    assert "approvals.notify[0].secret" in str(caught.value) and "approvals.notify[2].secret" in str(caught.value)
    assert "???" not in str(caught.value)


def test_a_webhook_does_not_show_its_url() -> None:
    """Nor its key."""
    (webhook,) = build_webhooks([Notify(webhook=Secret("http://x/?token=s3cret"), secret=Secret("another"))])
    assert repr(webhook) == "Webhook('approvals.notify[0]')"


def test_webhook_retry_pauses_double_over_about_ten_minutes() -> None:
    """Eight of them, each pause twice the one before."""
    pauses_s = PATIENCE.pauses_s
    assert len(pauses_s) == 7 and 540 < sum(pauses_s) < 700
    assert all(later == 2 * earlier for earlier, later in pairwise(pauses_s))
