"""A request goes to another endpoint while nothing of an answer went to the client, and only if that does no harm."""

import asyncio

import orjson
import pytest
from functional.several import BODY, CHAT, STORES, chat, several
from functional.through import ask, breathe, client_of, error_of, get, in_pieces, listener_of, post, through
from gateways import exchange, key, until

from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head, build_ok_answer, serve
from gateway.testing.upstream import FakeUpstream, Script

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BUSY = build_answer(503, b'{"error": "busy"}', [("X-Own", "yes")])


async def resets(peer: Peer) -> None:
    await peer.read_request()
    peer.reset()


async def silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_end(timeout_s=None)


def babbles(says: bytes) -> Script:
    """A script that answers with these bytes, whatever they are."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(says)
        await peer.wait_end(timeout_s=None)

    return script


async def cuts(peer: Peer) -> None:
    """Dies in the middle of an answer."""
    await peer.read_request()
    await peer.send(build_head(200, [("Content-Length", "10")]) + b"half")
    peer.close()


async def test_requests_are_balanced_by_weight_and_otherwise_unchanged() -> None:
    """By weight; each endpoint is sent its own Host, and all else as it came."""
    async with (
        several(serve(build_ok_answer()), serve(build_ok_answer()), each={"weight": 2}) as up,
        client_of(up.gateway) as client,
    ):
        for _ in range(6):
            assert (await exchange(client, chat(b"X-Mixed: Case"))).status == 200
        assert up.counts == [3, 3] and up.inflight == [0, 0]
        for endpoint in up.endpoints:
            request = endpoint.requests[0]
            assert request.raw_body == BODY and b"X-Mixed: Case\r\n" in request.raw_head
            assert request.list_values(b"host") == [f"127.0.0.1:{endpoint.port}".encode()]


async def forgets(peer: Peer) -> None:
    """Answers once, and is gone when it is asked again."""
    await peer.read_request()
    await peer.send(build_ok_answer())
    await peer.read_head()
    peer.reset()


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("rules", [{"retry": {"tries": 3}}, {"limits": {"concurrent": 9}}], ids=["retry", "no retry"])
async def test_stale_connections_do_not_use_up_the_tries(rules: dict[str, object], in_parts: bool) -> None:
    """Neither a client its answer nor a request its tries."""
    count = 5
    async with through(*[forgets] * count, serve(build_answer(200, b"fresh")), upstream=rules) as (gateway, upstream):
        clients = [await client_of(gateway) for _ in range(count)]
        for client in clients:
            await client.send(get())
        for client in clients:
            await client.read_response()
        assert len(upstream.connections) == count
        for client in clients:
            await client.send(chat()[: -1 if in_parts else None])
            if in_parts:
                await breathe()
                await client.send(chat()[-1:])
            assert (await client.read_response()).payload == b"fresh"
            client.close()
        assert len(upstream.connections) == count + 1
        assert gateway.metrics.get_upstream("up").retries == {"stale": 1}
        assert listener_of(gateway).router.groups[0].members[0].inflight == 0


@pytest.mark.parametrize("fails", [resets, serve(BUSY), serve(build_answer(502)), serve(build_answer(429))])
async def test_failed_request_is_answered_by_another_endpoint(fails: object) -> None:
    """The client sees one good answer, and each request once at the other."""
    async with several(fails, serve(build_answer(200, b"fine"))) as up, client_of(up.gateway) as client:  # type: ignore[arg-type]
        for _ in range(4):
            assert (await exchange(client, chat())).payload == b"fine"
        assert [request.raw_body for request in up.endpoints[1].requests] == [BODY] * 4
        assert up.inflight == [0, 0]


@pytest.mark.parametrize(
    ("fails", "request_", "status"),
    [
        (resets, post(BODY, STORES), 502),
        (resets, post(BODY, b"/v1/responses"), 502),
        (resets, post(BODY, b"/v1/threads/t/messages"), 502),
        (resets, post(BODY, b"/v1/threads/v1/messages"), 502),
        (resets, post(BODY, b"/v1/files/deployments/d/embeddings"), 502),
        (serve(build_answer(502)), post(BODY, STORES), 502),
        (serve(BUSY), post(BODY, STORES), 200),
        (resets, post(BODY, STORES, b"Idempotency-Key: k"), 200),
        (resets, post(BODY, STORES, method=b"PUT"), 200),
        (serve(build_answer(500)), post(BODY, STORES), 500),
        (serve(build_answer(500)), chat(), 200),
        (serve(build_answer(501)), chat(), 501),
    ],
)
async def test_nonidempotent_request_is_sent_once(fails: object, request_: bytes, status: int) -> None:
    """Unless the answer says that nothing was done, or its client made it safe."""
    async with several(fails, serve(build_ok_answer()), balance="least_loaded") as up:  # type: ignore[arg-type]
        assert (await ask(up.gateway, request_)).status == status
        assert up.counts == ([1, 0] if status >= 500 else [1, 1])


async def test_unsent_post_is_retried_on_the_next_endpoint() -> None:
    """An endpoint that refuses connections has done nothing (U4)."""
    async with several(serve(build_ok_answer()), serve(build_ok_answer())) as up:
        up.endpoints[0]._stop_listening()
        for _ in range(4):
            assert (await ask(up.gateway, post(BODY, STORES))).status == 200
        assert up.counts == [0, 4] and up.group.tally.retries["connect"] > 0


async def test_body_arriving_in_pieces_is_retried_whole() -> None:
    """Also one whose first endpoint resets in the middle of it."""

    async def reads_a_little(peer: Peer) -> None:
        await peer.read_some()
        peer.reset()

    body = bytes(range(256)) * 1024
    async with several(reads_a_little, serve(build_ok_answer())) as up, client_of(up.gateway) as client:
        await client.send(post(body, CHAT)[:5000])
        await until(lambda: up.endpoints[0].connections and up.endpoints[0].connections[0].ended != "open")
        await client.send(post(body, CHAT)[5000:])
        assert (await client.read_response()).status == 200
        assert up.endpoints[1].requests[0].raw_body == body


async def test_body_over_the_retry_buffer_is_not_retried() -> None:
    """And gets the answer that there is."""
    async with several(serve(BUSY), serve(build_ok_answer()), retry={"body": "1KiB"}) as up:
        assert (await ask(up.gateway, post(b"x" * 2000, CHAT))).status == 503
        assert (await ask(up.gateway, post(b"x" * 500, CHAT))).status == 200


async def test_failed_tries_relay_the_last_answer_unchanged() -> None:
    """Also when the very last try got no answer at all."""
    async with several(serve(BUSY), serve(BUSY)) as up:
        response = await ask(up.gateway, chat())
        assert response.raw == BUSY
    async with several(serve(BUSY), resets, retry={"tries": 2}) as up:
        response = await ask(up.gateway, chat())
        assert response.raw == BUSY
        assert up.inflight == [0, 0]


async def test_x_should_retry_false_prevents_a_retry() -> None:
    """`x-should-retry: false` ends it, in any case."""
    async with several(serve(build_answer(503, b"", [("X-Should-Retry", "FALSE")])), serve(build_ok_answer())) as up:
        assert (await ask(up.gateway, chat())).status == 503
        assert up.counts == [1, 0]


async def test_fragmented_head_is_retried_after_its_fields_arrive() -> None:
    """And its fields before a retry."""

    async def drips(peer: Peer) -> None:
        await peer.read_request()
        for piece in (b"HTTP", b"/1.1 50", b"3 Busy\r\nRetry-", b"After: 30\r\nContent-Length: 0\r\n\r\n"):
            await peer.send(piece)
            await breathe(20)
        await peer.wait_end(timeout_s=None)

    async with several(drips, serve(build_ok_answer())) as up:
        assert (await ask(up.gateway, chat())).status == 200
        assert up.group.members[0].find_obstacle(up.group.clock()) == "pausing"


@pytest.mark.parametrize("part", [b"HTTP", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 503 Busy\r\n"])
async def test_truncated_response_head_is_handled_as_a_reset(part: bytes) -> None:
    """As a reset: sent again if it may happen twice, since the client has no byte of it."""

    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(part)

    async with several(breaks_off, serve(build_ok_answer()), breaker={"failures": 1}) as up:
        assert (await ask(up.gateway, chat())).status == 200
        assert up.counts == [1, 1] and up.group.tally.retries == {"reset": 1}
        assert up.group.members[0].breaker.get_state(up.group.clock()) == "open"
    async with several(breaks_off, serve(build_ok_answer())) as up:
        assert (await ask(up.gateway, post(BODY, STORES))).status == 502 and up.counts == [1, 0]
        listener = listener_of(up.gateway)
        await until(lambda: listener.inflight == 0)


async def test_malformed_upstream_head_returns_upstream_error() -> None:
    """It is not waited for."""
    async with several(babbles(b"HTTP/1.1 200 OK\n\n{}"), retry={"tries": 1}) as up:
        assert error_of(await ask(up.gateway, chat()))["code"] == "upstream_error"


@pytest.mark.parametrize(
    "says",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n{}",
        b"HTTP/1.1 200 OK\r\nNo field\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_malformed_response_is_retried_on_another_endpoint(says: bytes) -> None:
    """As after a reset. Nothing of it went to the client; each further one is asked for again as well."""
    talks = babbles(says)
    async with several(talks, talks, serve(build_ok_answer()), breaker={"failures": 1}, retry={"tries": 3}) as up:
        assert (await ask(up.gateway, chat())).status == 200
        assert up.counts == [1, 1, 1] and up.group.tally.retries == {"reset": 2}
        assert [member.breaker.get_state(up.group.clock()) for member in up.group.members] == ["open", "open", "closed"]
    async with several(talks, serve(build_ok_answer())) as up:
        answered = await ask(up.gateway, post(BODY, STORES))
        assert (answered.status, error_of(answered)["code"]) == (502, "upstream_error") and up.counts == [1, 0]


async def test_request_is_not_retried_after_an_interim_response() -> None:
    """It has the beginning of an answer."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with (
        several(babbles(early + b"garbage\r\n\r\n"), serve(build_ok_answer())) as up,
        client_of(up.gateway) as client,
    ):
        await client.send(chat())
        assert await client.read_exactly(len(early)) == early
        assert (await client.read_response()).status == 502 and up.counts == [1, 0]


@pytest.mark.parametrize(("status", "key", "code"), [(503, None, "circuit_open"), (429, "k", "upstream_limited")])
async def test_paused_endpoint_answers_429_only_after_an_upstream_429(status: int, key: str | None, code: str) -> None:
    """Else others would think that they had asked too often."""
    busy = serve(build_answer(status, b"", [("Retry-After", "20")]))
    async with several(busy, api_key=key, retry={"tries": 1}) as up:
        assert (await ask(up.gateway, chat())).status == status
        refused = await ask(up.gateway, chat())
        assert refused.status == status and error_of(refused)["code"] == code
        assert refused.list_values(b"retry-after") in ([b"20"], [b"19"]) and up.counts == [1]
        assert status == 429 or "a requested a pause" in error_of(refused)["message"]


async def test_drain_during_a_retry_pause_relays_the_answer_at_hand() -> None:
    """The gateway stops while it pauses: nothing better comes any more."""
    async with (
        several(serve(BUSY), retry={"tries": 9}, settings={"limits": {"drain": "0s"}}) as up,
        client_of(up.gateway) as client,
    ):
        await client.send(chat())
        await up.endpoints[0].wait_requests(3)
        await until(lambda: up.inflight == [0])
        await up.gateway.gateway.drain()
        response = await client.read_response()
        assert response.status == 503 and response.list_values(b"x-own") == [b"yes"]
        assert up.inflight == [0]


async def test_after_the_first_byte_nothing_is_sent_again() -> None:
    """The answer is cut, as everywhere; the endpoint has failed."""
    async with several(cuts, serve(build_ok_answer()), breaker={"failures": 1}) as up, client_of(up.gateway) as client:
        await client.send(chat())
        with pytest.raises(EOFError):
            await client.read_response()
        assert up.counts == [1, 0] and up.inflight == [0, 0]
        assert up.group.members[0].breaker.get_state(up.group.clock()) == "open"


async def test_streams_are_relayed_chunk_by_chunk_after_a_retry() -> None:
    """Whole chunks go past, also from the second endpoint."""
    more = asyncio.Event()

    async def streams(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]))
        await peer.send(build_chunk(b"data: 1\n\n"))
        await more.wait()
        await peer.send(build_chunk(b"data: 2\n\n") + LAST_CHUNK)

    async with several(serve(BUSY), streams) as up, client_of(up.gateway) as client:
        await client.send(chat())
        await client.read_head()
        assert await client.read_some() == build_chunk(b"data: 1\n\n")
        assert up.inflight == [0, 1]
        more.set()
        await until(lambda: up.inflight == [0, 0])


async def test_client_disconnect_releases_its_slot_and_queue_place() -> None:
    """While it waits for the head, and while it waits in the queue."""
    async with several(silent, each={"concurrent": 1}, queue={"size": 1}) as up:
        async with client_of(up.gateway) as first, client_of(up.gateway) as second:
            await first.send(chat())
            await up.endpoints[0].wait_requests(1)
            await second.send(chat())
            await until(lambda: up.group.queue_length == 1)
            third = await ask(up.gateway, chat())
            assert third.status == 503 and error_of(third)["code"] == "overloaded"
            assert third.list_values(b"retry-after") == [b"1"]
            second.close()
            await until(lambda: up.group.queue_length == 0)
        await until(lambda: up.inflight == [0])


async def test_queued_request_gets_the_next_slot_with_its_whole_body() -> None:
    """And its body, which came meanwhile, whole: it is longer than what is held."""
    go_on = asyncio.Event()

    async def slowly(peer: Peer) -> None:
        while True:
            await peer.read_request(timeout_s=None)
            await go_on.wait()
            await peer.send(build_ok_answer())

    async with several(slowly, each={"concurrent": 1}, queue={"wait": "2m"}, retry={"body": 500}) as up:
        body = b"x" * 300_000
        async with client_of(up.gateway) as first, client_of(up.gateway) as second:
            await first.send(chat())
            await up.endpoints[0].wait_requests(1)
            await second.send(post(body, CHAT)[:1000])
            await until(lambda: up.group.queue_length == 1)
            sending = asyncio.create_task(second.send(post(body, CHAT)[1000:]))
            await breathe(20)
            go_on.set()
            assert (await first.read_response()).status == 200
            await sending
            assert (await second.read_response()).status == 200
        assert up.endpoints[0].requests[1].raw_body == body


@pytest.mark.parametrize("then", [b"", BUSY, CONTINUE + BUSY], ids=["reset", "503", "two"])
@pytest.mark.parametrize("cut", [0, 12, 25])
async def test_suppressed_interim_answer_does_not_prevent_a_retry(then: bytes, cut: int) -> None:
    """A 100 for a client that did not ask to be invited, in one piece with what follows or not."""

    async def invites(peer: Peer) -> None:
        await peer.read_request()
        await in_pieces(peer, *((CONTINUE + then)[:cut], (CONTINUE + then)[cut:]))
        peer.reset()

    async with several(invites, serve(build_answer(200, b"fine"))) as up:
        response = await ask(up.gateway, chat())
        assert (response.payload, response.informational) == (b"fine", ())
        assert up.counts == [1, 1] and up.inflight == [0, 0]


async def test_endless_interim_answers_return_502() -> None:
    """Although nothing of it goes to the client."""

    async def floods(peer: Peer) -> None:
        await peer.read_request()
        while True:
            await peer.send(CONTINUE * 100)

    async with several(floods, retry={"tries": 1}) as up:
        assert (await ask(up.gateway, chat())).status == 502


@pytest.mark.parametrize("rented", [True, False])
async def test_queued_request_proceeds_at_once_when_the_breaker_opens(rented: bool) -> None:
    """As a new request would, and not after all of `queue.wait`."""
    go_on = asyncio.Event()

    async def fails(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        peer.reset()

    async with FakeUpstream(serve(build_answer(200, b"rented"))) as other:
        rules = {
            "queue": {"wait": "1h"},
            "breaker": {"failures": 1, "open": "1h"},
            "retry": {"tries": 1},
            "api_key": "K",
        }
        rules |= {"fallback": ["rented"]} if rented else {}
        more = [{"name": "rented", "base_url": other.base_url, "paths": ["/rented/v1/"], "api_key": "R"}]
        async with (
            several(fails, each={"concurrent": 1}, more=more, **rules) as up,
            client_of(up.gateway) as first,
            client_of(up.gateway) as second,
        ):
            await first.send(chat())
            await up.endpoints[0].wait_requests(1)
            await second.send(chat())
            await until(lambda: up.group.queue_length == 1)
            go_on.set()
            response = await second.read_response()
            assert response.payload == b"rented" if rented else error_of(response)["code"] == "circuit_open"


async def test_pipelined_requests_without_endpoint_are_refused_without_recursion() -> None:
    """A thousand of them, without a thousand calls inside each other."""
    async with several(resets, breaker={"failures": 1, "open": "1h"}, retry={"tries": 1}) as up:
        assert (await ask(up.gateway, chat())).status == 502
        async with client_of(up.gateway) as client:
            sending = asyncio.create_task(client.send(get() * 1000))
            for _ in range(1000):
                response = await client.read_response()
                assert response.status == 503 and error_of(response)["code"] == "circuit_open"
            await sending


async def test_fallback_upstream_answers_when_no_endpoint_can() -> None:
    """With its own path, and its name in the access log."""
    async with (
        several(serve(build_ok_answer(b"other"))) as other,
        several(
            resets,
            more=[{"name": "other", "base_url": f"{other.endpoints[0].base_url}/other/v1"}],
            fallback=["other"],
            breaker={"failures": 1},
        ) as up,
    ):
        for _ in range(2):
            assert (await ask(up.gateway, chat())).payload == b"other"
        assert len(up.endpoints[0].connections) == 1
        assert {request.target for request in other.endpoints[0].requests} == {b"/other/v1/chat/completions"}
        await until(lambda: up.gateway.get_log().count('"event":"request"') == 2)
        logged = [orjson.loads(line) for line in up.gateway.get_log().splitlines()]
        facts = [(one["upstream"], one["tries"]) for one in logged if one["event"] == "request"]
        assert facts == [("other", 2), ("other", 1)]


async def test_websocket_holds_a_slot_until_upgrade_and_is_not_retried() -> None:
    """It is never sent twice."""

    async def switches(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        await peer.wait_end(timeout_s=None)

    handshake = (b"Connection: Upgrade", b"Upgrade: websocket")
    async with several(switches) as up, client_of(up.gateway) as client:
        await client.send(get(b"/v1/realtime", *handshake))
        assert (await client.read_head()).startswith(b"HTTP/1.1 101 ")
        assert await client.read_some() == b"hi" and up.inflight == [0]
    async with several(resets, serve(build_ok_answer())) as up:
        assert (await ask(up.gateway, get(b"/v1/realtime", *handshake))).status == 502


async def test_a_conversation_keeps_its_endpoint() -> None:
    """The field that names it does not go on."""
    async with several(*[serve(build_ok_answer())] * 3, balance="sticky") as up, client_of(up.gateway) as client:
        for _ in range(6):
            await exchange(client, chat(b"X-Context-Mode: passthrough", b"X-Context-Conversation: c1"))
        assert sorted(up.counts) == [0, 0, 6]
        (used,) = [endpoint for endpoint in up.endpoints if endpoint.requests]
        assert used.requests[0].list_values(b"x-context-conversation") == []


@pytest.mark.parametrize("path", [CHAT, b"/context" + CHAT], ids=["passthrough", "context"])
async def test_server_errors_for_a_single_key_eject_no_endpoint(path: bytes) -> None:
    """The server has no model for it at the moment. Others go on."""
    fine = b'{"choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}'
    some = serve(lambda request: BUSY if b"down" in request.raw_body else build_answer(200, fine))
    scopes = ["passthrough", "context"]
    keys = [{**key(f"sk-{name}"), "name": name, "scopes": scopes} for name in ("ann", "ben")]
    asks = b'{"model": "up", "messages": [{"role": "user", "content": "x"}]}'
    down = asks.replace(b"up", b"down")
    async with several([some] * 9, [some] * 9, settings={"keys": keys}) as up:
        json = b"Content-Type: application/json"
        for _ in range(20):
            assert (await ask(up.gateway, post(down, path, json, b"X-Gateway-Key: sk-ben"))).status in (502, 503)
            assert (await ask(up.gateway, post(asks, path, json, b"X-Gateway-Key: sk-ann"))).status == 200
        assert not up.group.tally.ejections


async def test_request_waits_for_the_share_of_its_upstream() -> None:
    """Where gateways share the limits of upstreams. Without room there it goes to the fallback, which has its own."""
    limited = {"requests_per_minute": 2}
    async with FakeUpstream(serve(build_answer(200, b"second"))) as second:
        more = [{"name": "second", "base_url": second.base_url, "paths": ["/second/"], "limits": limited}]
        settings: dict[str, object] = {"limits": {"shared": True}}
        async with (
            several(
                serve(build_answer(200, b"first")), more=more, settings=settings, fallback=["second"], limits=limited
            ) as up,
            client_of(up.gateway) as client,
        ):
            answers = []
            for _ in range(5):
                await client.send(chat())
                answers.append(await client.read_response())
    assert [one.payload for one in answers[:4]] == [b"first", b"first", b"second", b"second"]
    assert answers[4].status == 429
