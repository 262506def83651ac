"""The clients that follow the events of their tenants: each event is sent to all of them together.

1. An event is encoded once for all clients.
2. Events within a short pause are sent together; the more clients, the longer the pause.
3. A client that keeps up is written to at once. Others have a queue of their own: see `Outbox`.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import orjson

from gateway.contracts.storage.journal import RunEvent
from gateway.contracts.storage.store import Json
from gateway.http.client_frames import build_frame_head
from gateway.runs.decision_messages import ADDED

#: A client that is so many events behind does not read.
WAITING_MOST: Final = 1000
#: Events wait for others that go with them: so long for each client, and at most so long.
PAUSE_EACH_S, PAUSE_MOST_S = 0.0002, 0.1
#: More than this at once goes through the lines, so that little stands in memory for a client that reads slowly.
FRAMES_BYTES: Final = 1 << 16
#: So many clients are written to before others have their turn.
AT_ONCE: Final = 200
#: The number of an event in its store, and its words.
Told = tuple[int, bytes]
_TEXT: Final = 0x81


class Outbox:
    """The queue of messages for one client of a tenant.

    `put_now` writes frames at once, if the client keeps up. `seen` is the number of the last event that was sent.
    """

    put_now: Callable[[bytes], bool]

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.seen = 0
        self.overfull = asyncio.Event()
        self._line: deque[Told | bytes] = deque()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()

    def send(self, told: Sequence[Told], frames: bytes) -> None:
        """Send new events, or queue them. `frames` contains all of them; b"" sends them one by one."""
        if self.overfull.is_set():
            return
        if frames and self._idle.is_set() and told[0][0] > self.seen and self.put_now(frames):
            self.seen = told[-1][0]
            return
        for one in told:
            self._put(one)

    def queue_reply(self, content: Json) -> None:
        self._put(orjson.dumps(content))

    async def wait_for_next(self) -> Told | bytes:
        """Wait for the next item and return it. Call it again only once that item is sent."""
        while not self._line:
            self._idle.set()
            self._news.clear()
            await self._news.wait()
        return self._line.popleft()

    async def wait_until_empty(self) -> None:
        """Wait until the queue is empty and its last item is sent."""
        await self._idle.wait()

    def _put(self, item: Told | bytes) -> None:
        self._idle.clear()
        self._line.append(item)
        self._news.set()
        if len(self._line) > WAITING_MOST:
            self._line.clear()
            self.overfull.set()


class Audience:
    """All clients of one worker. `keys` returns a value; once it is another, keys are checked anew.

    `_known` is the value at which the keys of a tenant's clients were checked last.
    """

    def __init__(self, keys: Callable[[], object]) -> None:
        self._keys = keys
        self._known: dict[str, object] = {}
        self._outboxes: defaultdict[str, dict[Outbox, None]] = defaultdict(dict)
        self._count = 0
        self._news: defaultdict[str, list[Told]] = defaultdict(list)
        self._telling: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self, outbox: Outbox) -> AsyncIterator[None]:
        """Send the events that `receive` receives to `outbox` until the context ends."""
        self._known.setdefault(outbox.tenant, self._keys())
        self._outboxes[outbox.tenant][outbox] = None
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            del self._outboxes[outbox.tenant][outbox]
            if not self._outboxes[outbox.tenant]:
                del self._outboxes[outbox.tenant], self._known[outbox.tenant]

    def receive(self, event: RunEvent) -> None:
        """Queue a new event of any tenant for its clients."""
        if event.tenant not in self._outboxes or event.type == ADDED:
            return
        self._news[event.tenant].append((event.seq, encode_event(event)))
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._news:
            await asyncio.sleep(min(self._count * PAUSE_EACH_S, PAUSE_MOST_S))
            news, self._news = self._news, defaultdict(list)
            keys = self._keys()
            for tenant, told in news.items():
                if tenant not in self._outboxes:
                    continue
                known, self._known[tenant] = self._known[tenant], keys
                frames = b"".join(_encode_frame(words) for _, words in told) if known == keys else b""
                if len(frames) > FRAMES_BYTES:
                    frames = b""
                for number, outbox in enumerate(list(self._outboxes[tenant])):
                    if number % AT_ONCE == AT_ONCE - 1:
                        await asyncio.sleep(0)
                    outbox.send(told, frames)


def encode_event(event: RunEvent) -> bytes:
    """Return an event as the JSON text that clients receive."""
    return orjson.dumps(
        {
            "type": "event",
            "seq": event.seq,
            "event": event.type,
            "run_id": event.run_id,
            "data": orjson.Fragment(event.data),
        }
    )


def _encode_frame(text: bytes) -> bytes:
    """Return a text as a WebSocket frame of a server (RFC 6455 section 5.2): whole, not masked, not compressed."""
    return build_frame_head(_TEXT, len(text)) + text
