"""Notices of new approvals to the operator's webhooks. One worker sends them, for all gateways on its store.

1. No run waits for a notice: an event only starts a task, and that task sends the notice.
2. A notice is sent again until it arrives, its approval is decided, or its attempts are over. Its `webhook-id` is
   always the same, so that the receiver recognises it. The worker with the duty sends all pending
   approvals once it gets the duty: another worker may have sent them already.
3. Logs name a webhook by its place in the configuration: its URL is a secret.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, Protocol

import aiohttp
import orjson

from gateway.approvals.texts import build_approval_link
from gateway.approvals.view import build_approval_view
from gateway.approvals.webhook_message import (
    EVENT,
    PARTLY_APPROVED,
    build_approval_notice,
    build_message_id,
    build_webhook_headers,
    decode_webhook_key,
)
from gateway.config import ConfigError, Problem
from gateway.config.schema.approvals import Notify
from gateway.contracts.plugin import Clock, Counters
from gateway.contracts.storage.journal import RunEvent
from gateway.contracts.storage.store import Json, Store, StoreError
from gateway.net.resolver import Resolver
from gateway.runs.event_feed import EventFeed

log = logging.getLogger("gateway")

RESOLVED: Final = "approval.resolved"
#: Each pause between two attempts is up to a fifth shorter or longer.
JITTER: Final = 0.2
#: Of one webhook: notices that are not through, further ones of which only the ids are kept, and requests at once.
WAITING, LATE, AT_ONCE = 1000, 100_000, 4
#: Events of one query while looking for earlier approvals.
BATCH = 500
GONE = 410
#: One worker has the duty. Another one gets it if the first has not renewed it for so long, or gave it back.
DUTY, DUTY_S, DUTY_LOOK_S = "notices", 15.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The time limit of an answer, and the pauses between attempts and behind a failure of the store.

    By default eight attempts in more than ten minutes.
    """

    timeout_s: float = 10.0
    pauses_s: Sequence[float] = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
    store_s: float = 10.0
    duty_s: float = DUTY_LOOK_S


PATIENCE: Final = RetryPolicy()


class DecisionLinks(Protocol):
    """The links that decide (`gateway.approvals.links`): without any, their code is not loaded."""

    async def prepare(self) -> None: ...

    def build_address(self, console_url: str, entry: Notify, view: Json, *, tenant: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """The notice for a webhook: the same bytes each time."""

    approval_id: str
    tenant: str
    message_id: str
    body: bytes


class Webhook:
    """One receiver. `place` is its place in the configuration; without a `key` nothing is signed."""

    def __init__(self, place: str, url: str, key: bytes | None, entry: Notify) -> None:
        self.place = place
        self.url = url
        self.entry = entry
        self._key = key
        self.room = asyncio.Semaphore(AT_ONCE)
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self.late: dict[str, str] = {}  # approvals whose notices found no place, and their tenants
        self.sending_late: asyncio.Task[None] | None = None
        self.has_places = asyncio.Event()

    def __repr__(self) -> str:
        return f"Webhook({self.place!r})"

    def begin(self, event: WebhookEvent, delivery: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(delivery)
        self.waiting[event.message_id] = task
        task.add_done_callback(lambda _: self._remove_delivered(event))

    def _remove_delivered(self, event: WebhookEvent) -> None:
        del self.waiting[event.message_id]
        if len(self.waiting) <= WAITING // 2:
            self.has_places.set()

    def build_headers(self, event: WebhookEvent, *, now_s: float) -> Mapping[str, str]:
        """Return the headers of an attempt at this time."""
        headers = build_webhook_headers(event.body, message_id=event.message_id, key=self._key or b"", now_s=now_s)
        return {name: value for name, value in headers.items() if self._key or name != "webhook-signature"}


def build_webhooks(notify: Sequence[Notify]) -> list[Webhook]:
    """Return the configured webhooks. Raises ConfigError with every secret that cannot sign."""
    webhooks: list[Webhook] = []
    problems: list[Problem] = []
    for i, entry in enumerate(notify):
        place = f"approvals.notify[{i}]"
        try:
            key = None if entry.secret is None else decode_webhook_key(entry.secret.reveal())
        except ValueError as error:
            problems.append(Problem("configuration", f"{place}.secret", str(error)))
            continue
        if entry.webhook is not None:
            webhooks.append(Webhook(place, entry.webhook.reveal(), key, entry))
    if problems:
        raise ConfigError(tuple(problems))
    return webhooks


class Webhooks:
    """The webhooks of one configuration, for the worker `owner`. Raises ConfigError like `build_webhooks`."""

    def __init__(
        self,
        store: Store,
        feed: EventFeed,
        notify: Sequence[Notify],
        console_url: str | None,
        clock: Clock,
        counters: Counters,
        *,
        owner: str,
        policy: RetryPolicy = PATIENCE,
        links: DecisionLinks | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._feed = feed
        self._webhooks = build_webhooks(notify)
        self._console_url = console_url
        self._clock = clock
        self._counters = counters
        self._patience = policy
        self._links = links
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._on_duty = False

    async def start(self) -> None:
        """Start to send notices of new and pending approvals, unless another worker does that."""
        if self._webhooks:
            await self._check_duty()
            self._serving = asyncio.get_running_loop().create_task(self._run_duty_loop())

    async def close(self) -> None:
        """Stop all notices. The next worker with the duty sends the notices of pending approvals. Idempotent."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
        await self._end_duty()
        if self._session is not None:
            await self._session.close()

    async def _run_duty_loop(self) -> None:
        """Check the duty again and again, and give it back at the end."""
        try:
            while True:
                await asyncio.sleep(self._patience.duty_s)
                await self._check_duty()
        finally:
            if self._on_duty:
                with suppress(StoreError):
                    await self._take_duty(-1.0)

    async def _check_duty(self) -> None:
        """Take or renew the duty, and begin or end sending with it; log failures of the store."""
        try:
            has_duty = await self._take_duty(DUTY_S)
            if has_duty and not self._on_duty:
                await self._begin_duty()
            elif self._on_duty and not has_duty:
                await self._end_duty()
            self._on_duty = has_duty
        except StoreError as error:
            log.error("the store failed: %s", error)

    async def _take_duty(self, for_s: float) -> bool:
        now_s = self._clock.time()
        return await self._store.take_duty(DUTY, owner=self._owner, now_s=now_s, until_s=now_s + for_s)

    async def _begin_duty(self) -> None:
        """Start to listen and to catch up. Raises StoreError."""
        if self._links is not None:
            await self._links.prepare()
        await self._stack.enter_async_context(self._feed.subscribe(self._receive))
        # From behind the start of listening: an approval is sent twice rather than not at all.
        last = await self._store.get_last_event()
        self._catching_up = asyncio.get_running_loop().create_task(self._catch_up(last))

    async def _end_duty(self) -> None:
        """Stop listening, and cancel all deliveries under way."""
        await self._stack.aclose()
        tasks = [task for webhook in self._webhooks for task in webhook.waiting.values()]
        if self._catching_up is not None:
            tasks.append(self._catching_up)
        for webhook in self._webhooks:
            webhook.late.clear()
            if webhook.sending_late is not None:
                tasks.append(webhook.sending_late)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _receive(self, event: RunEvent) -> None:
        """Send the notices for an event of a new or partly approved approval; log any failure."""
        if event.type not in (EVENT, PARTLY_APPROVED):
            return
        try:
            self._enqueue(orjson.loads(event.data), tenant=event.tenant)
        except Exception:  # it would end the event feed, on which runs wait
            log.exception("no webhook reports an approval of run %s", event.run_id)

    def _enqueue(self, view: Json, *, tenant: str) -> None:
        """Start a delivery to each webhook that has none of this notice under way."""
        for webhook in self._webhooks:
            self._enqueue_notice(webhook, view, tenant=tenant)

    def _enqueue_notice(self, webhook: Webhook, view: Json, *, tenant: str) -> None:
        """Begin a delivery, or put it off if too many wait; count it as dropped beyond LATE."""
        event = self._build_notice_event(webhook, view, tenant=tenant)
        if event.message_id in webhook.waiting:
            return
        if len(webhook.waiting) < WAITING:
            webhook.begin(event, self._deliver(webhook, event))
        elif len(webhook.late) < LATE:
            webhook.late[event.approval_id] = tenant
            if webhook.sending_late is None or webhook.sending_late.done():
                log.error("%s gets further approvals later: %d notices are not delivered yet", webhook.place, WAITING)
                webhook.sending_late = asyncio.get_running_loop().create_task(self._send_late(webhook))
        else:
            self._record_undelivered(
                webhook, event, "dropped", why=f"{WAITING + LATE} other notices are not through yet"
            )

    async def _send_late(self, webhook: Webhook) -> None:
        """Send notices that found no place, as far as their approvals are pending once there are places again."""
        while webhook.late:
            webhook.has_places.clear()
            await webhook.has_places.wait()
            while webhook.late and len(webhook.waiting) < WAITING:
                approval_id, tenant = next(iter(webhook.late.items()))
                try:
                    approval = await self._store.get_approval(approval_id, tenant=tenant)
                except StoreError as error:
                    log.error("the store failed: %s", error)
                    await asyncio.sleep(self._patience.store_s)
                    continue
                webhook.late.pop(approval_id, None)
                if approval is not None and approval.state == "pending":
                    self._enqueue_notice(webhook, build_approval_view(approval), tenant=tenant)

    async def _catch_up(self, last: int) -> None:
        """Send notices of approvals that were pending before this worker began to listen."""
        while True:
            try:
                asked = await self._list_pending(last)
                for approval_id, tenant in asked.items():
                    approval = await self._store.get_approval(approval_id, tenant=tenant)
                    if approval is not None and approval.state == "pending":
                        self._enqueue(build_approval_view(approval), tenant=tenant)
                return
            except StoreError as error:
                log.error("the store failed: %s", error)
                await asyncio.sleep(self._patience.store_s)

    async def _list_pending(self, last: int) -> Mapping[str, str]:
        """Return the approvals that were requested and not decided by the event `last`, and their tenants."""
        found: dict[str, str] = {}
        seen = 0
        while seen < last and (events := await self._store.list_events(after=seen, limit=BATCH)):
            for event in events:
                if event.type == EVENT:
                    found[str(orjson.loads(event.data)["id"])] = event.tenant
                elif event.type == RESOLVED:
                    found.pop(str(orjson.loads(event.data)["approval_id"]), None)
            seen = events[-1].seq
        return found

    # One notice.

    def _build_notice_event(self, webhook: Webhook, view: Json, *, tenant: str) -> WebhookEvent:
        """Return the notice of an approval as `build_approval_view` shows it, for one webhook."""
        approval_id, url, decision_link = str(view["id"]), self._console_url, None
        link = None if url is None else build_approval_link(url, approval_id)
        if self._links is not None and url is not None:
            decision_link = self._links.build_address(url, webhook.entry, view, tenant=tenant)
        body = build_approval_notice(view, link=link, decision_link=decision_link)
        return WebhookEvent(approval_id, tenant, build_message_id(view), body)

    async def _deliver(self, webhook: Webhook, event: WebhookEvent) -> None:
        """Post a notice, with pauses and retries, and count how it ended."""
        why = ""
        for pause_s in (0.0, *self._patience.pauses_s):
            await asyncio.sleep(pause_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - no secret
            why = why or ("it waited behind other notices" if webhook.room.locked() else "")
            async with webhook.room:
                if why and not await self._is_pending(event):  # looked at last: it may have waited for room
                    self._record_undelivered(webhook, event, "obsolete", why=why)
                    return
                status, why = await self._post(webhook, event)
            if 200 <= status < 300:
                self._counters.count("notices", outcome="delivered")
                return
            if status == GONE:
                self._record_undelivered(webhook, event, "gone", why=why)
                return
        self._record_undelivered(webhook, event, "failed", why=why)

    async def _is_pending(self, event: WebhookEvent) -> bool:
        try:
            approval = await self._store.get_approval(event.approval_id, tenant=event.tenant)
        except StoreError:
            return True  # rather sent once too often
        return approval is not None and approval.state == "pending"

    async def _post(self, webhook: Webhook, event: WebhookEvent) -> tuple[int, str]:
        """Send one attempt. Return the status, 0 if there was none, and a text for the log."""
        headers = webhook.build_headers(event, now_s=self._clock.time())
        try:
            async with self._get_http_session().post(
                webhook.url, data=event.body, headers=headers, allow_redirects=False
            ) as response:
                return response.status, f"it answered {response.status}"
        except TimeoutError:
            return 0, f"it did not answer within {self._patience.timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return 0, type(error).__name__  # their texts have the URL

    def _get_http_session(self) -> aiohttp.ClientSession:
        """Return the HTTP session of all webhooks, which is made at its first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._patience.timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "twolane"},
                # A connection that was idle could be closed already.
                connector=aiohttp.TCPConnector(force_close=True, resolver=Resolver()),
                trust_env=False,
            )
        return self._session

    def _record_undelivered(self, webhook: Webhook, event: WebhookEvent, outcome: str, *, why: str) -> None:
        """Count and log a notice that ended without having arrived."""
        self._counters.count("notices", outcome=outcome)
        if outcome == "obsolete":
            log.info("%s was not told of %s before it was decided (%s)", webhook.place, event.approval_id, why)
        else:
            log.error("%s is not told of %s: %s", webhook.place, event.approval_id, why)
