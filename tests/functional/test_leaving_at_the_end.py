"""A client that leaves at the last event of a stream has a whole answer, and its upstream connection is kept.

The end of the body comes when the client has gone: openai-python leaves at `[DONE]`, Codex at `response.completed`.
"""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from features.usage.test_observer import Heard
from gateways import until
from lanes.assembled import assembled
from usage.shapes import CHAT, chat_stream, message_stream, response_stream

from gateway.lanes.passthrough.last_event import REST_BYTES
from gateway.testing.raw_connection import Peer, PendingConnection
from gateway.testing.scripts import LAST_CHUNK, build_chunk, build_head
from gateway.usage.tokens import RequestUsage, TokenCounts

from .through import client_of, listener_of, post, through

SSE = ("Content-Type", "text/event-stream")
CHUNKED = build_head(200, [SSE, ("Transfer-Encoding", "chunked")])
DONE = b"data: [DONE]\n\n"
LONG = b'event: response.completed\ndata: {"type":"response.completed","response":{"instructions":"%b"}}\n\n' % (
    b"Be brief. " * 9000
)


def chunks_of(stream: bytes) -> list[bytes]:
    return [build_chunk(event + b"\n\n") for event in stream.split(b"\n\n") if event]


#: What an upstream sends at a time, up to the end of the last event.
STREAMS: dict[str, list[bytes]] = {
    "chat": [CHUNKED, *chunks_of(chat_stream("Hel", "lo", usage=CHAT["usage"]))],
    "message": [CHUNKED, *chunks_of(message_stream("Hello"))],
    "response": [CHUNKED, *chunks_of(response_stream("Hello"))],
    "response failed": [CHUNKED, build_chunk(b'data: {"type": "response.failed"}\n\n')],
    "response incomplete": [CHUNKED, build_chunk(b'data: {"response": {}, "type": "response.incomplete"}\r\n\r\n')],
    "all at once": [CHUNKED + b"".join(chunks_of(chat_stream("Hello")))],
    "last events together": [CHUNKED, build_chunk(b"data: {}\n\n"), build_chunk(b"data: {}\n\n") + build_chunk(DONE)],
    "long last event": [CHUNKED, build_chunk(LONG)],
    "long last event, cut in its name": [
        CHUNKED,
        build_chunk(LONG)[:60],
        build_chunk(LONG)[60:70],
        build_chunk(LONG)[70:],
    ],
    "long last event in chunks": [CHUNKED, build_chunk(LONG[:9000]), build_chunk(LONG[9000:])],
}
#: Streams of which a part is missing, or seems to be there: a client that leaves then has left in the middle.
UNFINISHED: dict[str, list[bytes]] = {
    "no last event": [CHUNKED, build_chunk(b'data: {"choices":[]}\n\n')],
    "last event begins": [CHUNKED, build_chunk(LONG[:9000])],
    "said in a text": [CHUNKED, build_chunk(b'data: {"delta":"\\ndata: [DONE]\\n \\"type\\":\\"message_stop\\""}\n\n')],
}


class Parts:
    """An upstream that sends each part when its client has read the one before, and `rest` when the client has left."""

    def __init__(self, parts: Sequence[bytes], rest: bytes = LAST_CHUNK) -> None:
        self.body = b"".join(parts)[len(CHUNKED) :]
        self._parts = [parts[0][len(CHUNKED) :], *parts[1:]]
        self._rest = rest
        self._read: asyncio.Queue[None] = asyncio.Queue()
        self._left: asyncio.Queue[None] = asyncio.Queue()

    async def script(self, peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await peer.send(CHUNKED + self._parts[0])
            for part in self._parts[1:]:
                await self._read.get()
                await peer.send(part)
            await self._left.get()
            await peer.send(self._rest)

    async def leave(self, connecting: PendingConnection, how: str, tally: Mapping[str, int]) -> None:
        """Ask, read all parts, and leave. Returns when the gateway knows it."""
        ended = sum(tally.values())
        async with connecting as client:
            await client.send(post(b"{}", b"/v1/chat/completions"))
            await client.read_head()
            assert await client.read_exactly(len(self._parts[0])) == self._parts[0]
            for part in self._parts[1:]:
                self._read.put_nowait(None)
                assert await client.read_exactly(len(part)) == part
            if how == "half_close":
                await client.half_close()
            else:
                getattr(client, how)()
            await until(lambda: sum(tally.values()) > ended)
        self._left.put_nowait(None)


@pytest.mark.parametrize("is_metered", [False, True])
@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("parts", STREAMS.values(), ids=STREAMS)
async def test_client_leaving_at_the_last_event_counts_as_a_whole_answer(
    parts: list[bytes], how: str, is_metered: bool
) -> None:
    """Its connection carries the next request, and its usage is not cut."""
    upstream, heard = Parts(parts), Heard()
    async with assembled(upstream.script, recorded=heard if is_metered else None) as lane:
        outcomes = lane.metrics.get_upstream("up").outcomes
        for _ in range(3):
            await upstream.leave(lane.client(), how, outcomes)
            await until(lambda: lane.pool.idle)
        await lane.until_idle()
        assert outcomes == {"ok": 3}
        assert [line["status"] for line in lane.log] == [200, 200, 200]
        assert lane.metrics.client_disconnects == 0
        assert len(lane.upstream.connections) == 1
    assert [usage.cut for usage in heard.usage] == [False] * (3 * is_metered)


async def test_client_leaving_at_the_last_event_keeps_full_token_counts() -> None:
    """The last event of a Response says them."""
    upstream, heard = Parts(STREAMS["response"]), Heard()
    async with assembled(upstream.script, recorded=heard) as lane:
        await upstream.leave(lane.client(), "close", lane.metrics.get_upstream("up").outcomes)
        await lane.until_idle()
    assert heard.usage == [RequestUsage(TokenCounts(36, 6, 0, 87, 5))]


@pytest.mark.parametrize("parts", UNFINISHED.values(), ids=UNFINISHED)
async def test_client_leaving_before_the_last_event_is_cancelled(parts: list[bytes]) -> None:
    """Its upstream connection ends with it."""
    upstream = Parts(parts)
    async with assembled(upstream.script) as lane:
        outcomes = lane.metrics.get_upstream("up").outcomes
        await upstream.leave(lane.client(), "close", outcomes)
        await lane.upstream.wait_open(0)
        assert outcomes == {"cancelled": 1}
        assert [line["status"] for line in lane.log] == [499]


@pytest.mark.parametrize(
    "rest",
    [b"", b"no chunk", build_chunk(bytes(REST_BYTES)), LAST_CHUNK + b"HTTP/1.1 200 OK\r\n"],
    ids=["none", "broken", "long", "too much"],
)
async def test_unfinished_body_after_the_last_event_closes_the_upstream_connection(rest: bytes) -> None:
    """Its client has its answer all the same."""
    upstream = Parts(STREAMS["chat"], rest)
    async with assembled(upstream.script) as lane:
        outcomes = lane.metrics.get_upstream("up").outcomes
        await upstream.leave(lane.client(), "close", outcomes)
        await lane.upstream.wait_open(0)
        assert outcomes == {"ok": 1}
        assert not lane.pool.idle


async def test_close_delimited_body_ends_with_its_connection_at_the_last_event() -> None:
    """It has no end that could be waited for but this one."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [SSE]) + DONE)
        await peer.wait_end()

    async with assembled(script) as lane:
        async with lane.client() as client:
            await client.send(post(b"{}"))
            await client.read_until(DONE)
        await lane.upstream.wait_open(0)
        await lane.until_idle()
        assert lane.metrics.get_upstream("up").outcomes == {"ok": 1}


async def test_endpoint_place_is_released_when_a_client_leaves_at_the_end() -> None:
    """The endpoint has answered well, and its place is free again."""
    upstream = Parts(STREAMS["chat"])
    rules = {"retry": {"tries": 2}, "limits": {"concurrent": 1}}
    async with through(upstream.script, upstream=rules) as (gateway, fake):
        for _ in range(3):
            outcomes = gateway.metrics.get_upstream("up").outcomes
            await upstream.leave(client_of(gateway), "close", outcomes)
            pool = listener_of(gateway).router.groups[0].members[0].pool
            await until(lambda pool=pool: pool.idle)
        assert outcomes == {"ok": 3}
        assert len(fake.connections) == 1
