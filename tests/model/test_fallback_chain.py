"""An answer that several may give, over real sockets: who is asked, in which order, and when nobody takes over."""

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk, Exchange
from gateway.contracts.storage.store import Json
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, serve
from gateway.testing.scripts import build_chunk as framed
from gateway.testing.upstream import Script
from tests.agent.models import HELLO, SECRET, STREAM, Models, chunk, exchange, models, stream
from tests.agent.models import says as sends
from tests.exchanges import changed
from tests.scripted_replies import told

FAST = {"fast": [("big", "up0"), ("small", "up1"), ("tiny", "up2")]}
PAIR = {"fast": FAST["fast"][:2]}
LIMITED = serve(build_answer(429, b"{}", [("Retry-After", "7")]))
BROKEN = serve(build_answer(503, b'{"error": {"message": "busy"}}'))
FINE = serve(HELLO)
NEVER = serve(build_answer(500, b"{}"))
#: A stream that ends before, and behind, its first chunk.
CUT = sends(STREAM)
HALF = sends(STREAM + framed(b"data: {"))
BEGUN = sends(STREAM + framed(b"data: " + orjson.dumps(chunk("Hel")) + b"\n\n"))


async def by(answering: Models, request: Exchange) -> tuple[list[Chunk], str, str]:
    """The answer, and who gave it."""
    reply = await answering.core(request)
    try:
        chunks = await told(reply)
    finally:
        await reply.release()
    assert reply.by is not None
    return chunks, reply.by.upstream, reply.by.model


@pytest.mark.parametrize(
    ("scripts", "requests"),
    [
        ((FINE, NEVER, NEVER), [1, 0, 0]),
        ((LIMITED, FINE, NEVER), [1, 1, 0]),
        ((BROKEN, LIMITED, FINE), [1, 1, 1]),
        ((CUT, FINE, NEVER), [1, 1, 0]),
        ((HALF, CUT, FINE), [1, 1, 1]),
        ((serve(build_answer(200, b"<html>", [("Content-Type", "text/html")])), FINE, NEVER), [1, 1, 0]),
        ((sends(b"HTTP/1.1 200 OK\r\nContent-Len"), FINE, NEVER), [1, 1, 0]),
    ],
)
async def test_next_candidate_answers_in_place_of_a_failing_one(
    scripts: tuple[Script, ...], requests: list[int]
) -> None:
    """Each is asked for its own model, once. Who answered is known at the end."""
    async with models(each=scripts, aliases=FAST) as answering:
        chunks, upstream, model = await by(answering, exchange(model="fast"))
        assert chunks[:2] == ["Hel", "lo"]
        assert answering.asked == requests
        last = sum(requests) - 1
        assert (upstream, model) == (f"up{last}", FAST["fast"][last][0])
        for up, (name, _) in zip(answering.upstreams, FAST["fast"], strict=True):
            assert [orjson.loads(request.payload)["model"] for request in up.requests] in ([], [name])


@pytest.mark.parametrize(
    "failure",
    [
        build_answer(400, b'{"error": "too long"}'),
        build_answer(401, b"{}"),
        build_answer(429, b"{}", [("x-should-retry", "false")]),
        build_answer(503, b"{}", [("X-Should-Retry", "False")]),
    ],
)
async def test_non_retryable_error_is_reported_without_trying_the_next_candidate(failure: bytes) -> None:
    """A request that is wrong, a client's wrong key, and what the upstream says is of no use to send again."""
    async with models(each=(serve(failure), NEVER), aliases=PAIR) as answering:
        with pytest.raises(GatewayError) as failed:
            await answering.ask(exchange(model="fast"))
        assert "'up0'" in failed.value.message and answering.asked == [1, 0]
        assert failed.value.settled is (b"hould" in failure)


async def test_request_is_not_resent_after_the_first_chunk() -> None:
    """The run has it: the answer is cut, as one of a single upstream is."""
    async with models(each=(BEGUN, NEVER), aliases=PAIR) as answering:
        reply = await answering.core(exchange(model="fast"))
        chunks: list[Chunk] = []
        with pytest.raises(GatewayError, match="in the middle of its answer"):
            await reply.stream(chunks.append)  # type: ignore[arg-type,func-returns-value]
        await reply.release()
        assert chunks == ["Hel"] and answering.asked == [1, 0]


async def test_failed_fallback_chain_reports_the_last_failure() -> None:
    """With its status and its pause."""
    async with models(each=(BROKEN, BROKEN, LIMITED), aliases=FAST) as answering:
        with pytest.raises(GatewayError) as failed:
            await answering.ask(exchange(model="fast"))
        assert failed.value.facts.status == 429 and failed.value.retry_after_s == 7
        assert "'up2' answered 429" in failed.value.message and answering.asked == [1, 1, 1]


async def test_refused_connection_falls_back_to_the_next_candidate() -> None:
    """The next one is asked."""
    async with models(each=(FINE, FINE), aliases=PAIR) as answering:
        await answering.upstreams[0].__aexit__(None, None, None)
        assert (await by(answering, exchange(model="fast")))[1] == "up1"


async def test_a_clients_own_credential_goes_to_the_first_upstream_only() -> None:
    """It was sent for that one. An upstream with a key of its own is sent that."""
    aliases = {"fast": [("big", "up0"), ("small", "up1"), ("small", "up0")]}
    async with models(each=(BROKEN, BROKEN), aliases=aliases) as answering:
        with pytest.raises(GatewayError):
            await answering.ask(exchange(credential=b"Authorization: Bearer sk-client\r\n", model="fast"))
        sent = [[r.list_values(b"authorization") for r in upstream.requests] for upstream in answering.upstreams]
        assert sent == [[[b"Bearer sk-client"], [b"Bearer sk-client"]], [[]]]
    async with models(each=(BROKEN, FINE), aliases=aliases, api_key=SECRET) as answering:
        await answering.ask(exchange(credential=b"Authorization: Bearer sk-client\r\n", model="fast"))
        for upstream in answering.upstreams:
            assert upstream.requests[0].list_values(b"authorization") == [b"Bearer " + SECRET]


async def test_released_reply_does_not_fall_back() -> None:
    """A reply that was released ends: nothing is sent for it any more."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM)
        await peer.wait_end()

    async with models(each=(silent, NEVER), aliases=PAIR) as answering:
        reply = await answering.core(exchange(model="fast"))
        await reply.release()
        with pytest.raises(GatewayError, match="given up"):
            await told(reply)
        assert answering.asked == [1, 0]
        assert answering.outcomes() == {"cancelled": 1}


async def test_fallback_also_answers_with_a_non_streamed_completion() -> None:
    """What is no chat completion did not begin one."""
    whole = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    async with models(
        each=(serve(build_answer(200, b"{}")), serve(build_answer(200, orjson.dumps(whole)))), aliases=PAIR
    ) as made:
        chunks, upstream, _ = await by(made, exchange(model="fast"))
        assert upstream == "up1" and chunks[0]["choices"][0]["delta"] == {"content": "Hello"}  # type: ignore[index]


async def test_learnt_quirk_applies_to_one_model_only() -> None:
    """The next candidate is asked with usage again, and the refusal of a style is no failure."""
    refuses_options = build_answer(400, b'{"error": {"message": "stream_options is not supported"}}')

    async def picky(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(refuses_options)
        await peer.read_request()
        await peer.send(build_answer(503, b"{}"))

    async with models(each=(picky, FINE), aliases=PAIR) as answering:
        await answering.ask(exchange(model="fast"))
        first, second = (upstream.requests for upstream in answering.upstreams)
        assert ["stream_options" in orjson.loads(request.payload) for request in [*first, *second]] == [
            True,
            False,
            True,
        ]


@pytest.mark.parametrize("role", [{"role": "assistant"}, {"role": "assistant", "content": "", "tool_calls": []}])
async def test_stream_with_only_a_role_may_still_fall_back(role: Json) -> None:
    """Servers send that at once, and die while they think. Nothing of it is passed on."""
    first = b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": role}]}) + b"\n\n"
    async with models(each=(sends(STREAM + framed(first)), FINE), aliases=PAIR) as answering:
        chunks, upstream, _ = await by(answering, exchange(model="fast"))
        assert (chunks[:2], upstream, answering.asked) == (["Hel", "lo"], "up1", [1, 1])


@pytest.mark.parametrize(
    "delta", [{"content": "Hel"}, {"reasoning": "Hm"}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}]
)
async def test_text_reasoning_or_tool_call_prevents_fallback(delta: Json) -> None:
    """What came before it is passed on with it. Where nobody reads the answer before its end, nothing begins it."""
    sent = [{"choices": [{"index": 0, "delta": one}]} for one in ({"role": "assistant"}, delta)]
    half = sends(STREAM + b"".join(framed(b"data: " + orjson.dumps(one) + b"\n\n") for one in sent))
    async with models(each=(half, FINE), aliases=PAIR) as answering:
        reply = await answering.core(exchange(model="fast"))
        chunks: list[Chunk] = []
        with pytest.raises(GatewayError, match="in the middle of its answer"):
            await reply.stream(chunks.append)  # type: ignore[arg-type,func-returns-value]
        await reply.release()
        assert len(chunks) == 2 and answering.asked == [1, 0]
        for unseen in ({"streams": False}, {"workflow": {"definition": {}}}):
            chunks, upstream, _ = await by(answering, changed(exchange(model="fast"), **unseen))
            assert (chunks[:2], upstream) == (["Hel", "lo"], "up1")


@pytest.mark.parametrize("events", [[], [{"choices": [], "usage": None}]])
async def test_empty_stream_falls_back_and_is_an_error_without_fallback(events: list[Json]) -> None:
    """The next one is asked; if there is none, the client hears of it."""
    async with models(each=(serve(stream(*events)), FINE), aliases=PAIR) as answering:
        assert (await by(answering, exchange(model="fast")))[1] == "up1"
        with pytest.raises(GatewayError, match="its answer is empty") as failed:
            await answering.ask()
        assert failed.value.code == "upstream_error"


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408])
async def test_gateway_key_or_model_refusal_falls_back_to_the_next_candidate(status: int) -> None:
    """The gateway's own key is wrong, or the name of a model that the operator wrote."""
    failure = serve(build_answer(status, b'{"error": "no"}'))
    async with models(each=(failure, serve(HELLO)), aliases=PAIR, api_key=b"sk-own") as answering:
        chunks, upstream, model = await by(answering, exchange(model="fast"))
        assert (chunks[:2], upstream, model) == (["Hel", "lo"], "up1", "small") and answering.asked == [1, 1]
    async with models(each=(failure, failure), aliases=PAIR, api_key=b"sk-own") as answering:
        with pytest.raises(GatewayError) as failed:
            await answering.ask(exchange(model="fast"))
        assert failed.value.facts.status == status and "'up1'" in failed.value.message
