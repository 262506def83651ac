"""A model's answer over real sockets: how its chunks come, and every way in which it breaks."""

import asyncio

import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.jsontext.value_count import VALUES_LIMIT
from gateway.model.apis.chat.answer import convert_to_chunk
from gateway.testing.ports import free_port
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_event, build_head, serve
from gateway.testing.scripts import build_chunk as framed
from tests.agent.models import SECRET, STREAM, chunk, exchange, failure, models, says, stream
from tests.scripted_replies import stepping


async def test_answer_chunks_are_emitted_on_arrival() -> None:
    """One at a time, whole, with everything that the upstream puts in; the connection is used again."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_request()
            await peer.send(STREAM + framed(build_event(orjson.dumps(chunk("a", custom=[1])))))
            await go.wait()
            await peer.send(
                framed(build_event(orjson.dumps(chunk(finish="stop")))) + framed(build_event(b"[DONE]")) + b"0\r\n\r\n"
            )

    async with models(script) as answering:
        reply = await answering.core(exchange())
        async with stepping(reply) as chunks:
            assert await anext(chunks) == chunk("a", custom=[1])
            go.set()
            assert [one async for one in chunks] == [chunk(finish="stop")]
        await reply.release()
        assert len(await answering.ask()) == 2
        assert len(answering.upstreams[0].connections) == 1
        assert answering.outcomes() == {"ok": 2}
        assert answering.groups[0].tally.first_byte.has_samples


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None, "obfuscation": "x7"},
        {"system_fingerprint": "fp", "service_tier": "default"},
    ],
)
async def test_text_only_chunk_is_emitted_as_plain_text(about: Json) -> None:
    """What stands around it in every chunk is nobody's concern; an empty one is one, too."""
    choice = {"index": 0, "delta": {"content": "\u00e9\n"}, "finish_reason": None, "logprobs": None}
    raw = stream({**about, "choices": [choice]}, chunk(""), chunk(finish="stop"))
    async with models(serve(raw)) as answering:
        assert (await answering.ask())[:-1] == ["\u00e9\n", ""]


@pytest.mark.parametrize(
    "more",
    [
        {"choices": [{"index": 0, "delta": {"content": "a", "role": "assistant"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "a", "tool_calls": []}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": ["a"]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "a"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": []}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "citations": [1]}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]},
        {"usage": {"prompt_tokens": 1}},
        {"citations": [1]},
        {"error": None},
    ],
)
async def test_chunk_with_extra_fields_is_emitted_whole(more: Json) -> None:
    """Whatever it is: stages below the loop may want it."""
    said = {**chunk("a"), **more}
    async with models(serve(stream(said, chunk(finish="stop")))) as answering:
        assert await answering.ask() == [said, chunk(finish="stop")]


@pytest.mark.parametrize(
    "raw",
    [
        stream(chunk("Hi"), chunk(finish="stop"), done=False),
        stream(chunk("Hi")),
        stream(chunk("Hi"), chunk(finish="stop"), {"choices": [], "usage": {"prompt_tokens": 1}}),
        stream(chunk("Hi"), chunk(finish="length"), chunk("late")),
        stream(chunk("Hi"), chunk(finish="stop"), {"choices": None, "usage": {"prompt_tokens": 1}}, {"id": "x"}),
        stream({"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}),
        stream({"choices": [{"index": 0, "delta": {"tool_calls": None}, "finish_reason": "stop"}], "error": None}),
    ],
)
async def test_answer_is_complete_with_a_finish_reason_or_done(raw: bytes) -> None:
    """By a finish reason or by `[DONE]`; usage may follow, or stand alone."""
    async with models(serve(raw)) as answering:
        assert await answering.ask()
        assert answering.outcomes() == {"ok": 1}


BROKEN_CHUNKS: list[Json | bytes] = [
    b"{",
    b"{no json}",
    b'{"choices": {}}',
    b'{"choices": [1]}',
    b'{"choices": [{"delta": []}]}',
    b'{"choices": [{"delta": "x"}]}',
    b'{"choices": [{"finish_reason": ["stop"]}]}',
    b'{"choices": [{"delta": {"tool_calls": 5}}]}',
    b'{"choices": [{"delta": {"tool_calls": [null]}}]}',
    b'{"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]}',
    b"{\xff\xfe",
    b'{"a":' * 3000,
]


async def test_event_with_too_many_values_raises_an_upstream_error() -> None:
    """It would hold up all others while it is parsed; a long text in an event is one value."""
    many = b'{"choices": [{"index": 0, "delta": {"x": [%b1]}}]}' % (b"1," * VALUES_LIMIT)
    async with models(says(stream(many))) as answering:
        with pytest.raises(GatewayError, match=f"holds more than {VALUES_LIMIT} values"):
            await answering.ask()
    text = "[1, 2], " * VALUES_LIMIT
    async with models(serve(stream(chunk(text), chunk(finish="stop")))) as answering:
        assert await answering.ask() == [text, chunk(finish="stop")]


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b"",
        b"keepalive",
        b": comment",
        b"{}",
        b'{"choices": [null]}',
        b'{"type": "ping"}',
    ],
)
async def test_keepalive_events_are_skipped_in_a_stream(data: bytes) -> None:
    """Servers send signs of life as events; the answer goes on behind them."""
    async with models(serve(stream(chunk("Hi"), data, chunk(" there"), chunk(finish="stop")))) as answering:
        told = await answering.ask()
    assert [one for one in told if isinstance(one, str) or one.get("choices")] == ["Hi", " there", chunk(finish="stop")]


async def test_done_marker_may_be_surrounded_by_blanks() -> None:
    raw = stream(chunk("Hi"), chunk(finish="stop"), b" [DONE]  ", done=False)
    async with models(serve(raw)) as answering:
        assert await answering.ask() == ["Hi", chunk(finish="stop")]


@pytest.mark.parametrize("index", [1, "0", None])
async def test_single_choice_is_renumbered_to_index_zero(index: object) -> None:
    """No more than one is ever asked for."""
    said = {"choices": [{"index": index, "delta": {"content": "a", "role": "assistant"}}]}
    async with models(serve(stream(said, chunk(finish="stop")))) as answering:
        (first, _) = await answering.ask()
    assert isinstance(first, dict) and first["choices"][0] == {**said["choices"][0], "index": 0}


@pytest.mark.parametrize("piece", ["tool_calls", "function_call"])
async def test_object_arguments_are_forwarded_and_duplicate_keys_refused(piece: str) -> None:
    """They are passed on as they are; with a key that is there twice the upstream has failed."""
    for arguments, fails in ((b'{"a": {"b": [1]}}', False), (b'{"a": 1, "a": 2}', True), (b"[1]", True)):
        call = b'{"name": "f", "arguments": %b}' % arguments
        delta = b'{"tool_calls": [{"index": 0, "function": %b}]}' % call
        data = b'{"choices": [{"index": 0, "delta": %b}]}' % (
            delta if piece == "tool_calls" else b'{"function_call": %b}' % call
        )
        async with models(says(stream(data, chunk(finish="stop")))) as answering:
            if fails:
                with pytest.raises(GatewayError, match=r"cannot be read|no chat completion chunk"):
                    await answering.ask()
            else:
                assert await answering.ask() == [orjson.loads(data), chunk(finish="stop")]


@pytest.mark.parametrize("data", BROKEN_CHUNKS)
async def test_malformed_chunk_is_reported_as_an_upstream_error(data: bytes) -> None:
    """What came before it has been passed on; the call ends with a 502 that names the upstream."""
    async with models(says(stream(chunk("Hi"), data))) as answering:
        reply = await answering.core(exchange())
        async with stepping(reply) as chunks:
            assert await anext(chunks) == "Hi"
            with pytest.raises(GatewayError) as failed:
                await anext(chunks)
        await reply.release()
        assert failed.value.code == "upstream_error" and "'up0'" in failed.value.message
        assert answering.outcomes() == {"error": 1}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Ty",
        STREAM,
        STREAM + framed(build_event(orjson.dumps(chunk("Hi")))),
        STREAM + framed(build_event(orjson.dumps(chunk("Hi")))) + b"40\r\ndata: {",
        STREAM + framed(build_event(orjson.dumps(chunk("Hi")))) + b"zz\r\n",
        stream(chunk("Hi"), done=False),
        stream(done=False),
        STREAM + framed(b"data: " + orjson.dumps(chunk("Hi"))) + b"0\r\n\r\n",
        build_head(200, [("Content-Type", "text/event-stream")]) + build_event(orjson.dumps(chunk("Hi"))),
    ],
)
async def test_broken_off_answer_raises_an_upstream_error(raw: bytes) -> None:
    """Cut anywhere, or ended without a finish reason: an error, and the connection is not used again."""
    async with models(says(raw)) as answering:
        await failure(answering, "upstream_error")
        assert answering.outcomes() == {"error": 1}
        await answering.upstreams[0].wait_open(0)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
async def test_unstreamed_answer_to_a_stream_request_is_an_upstream_error(content_type: str | None) -> None:
    """Whatever it holds."""
    headers = [] if content_type is None else [("Content-Type", content_type)]
    async with models(serve(build_answer(200, orjson.dumps(chunk("Hi")), headers))) as answering:
        error = await failure(answering, "upstream_error")
        assert "'up0'" in error.message and "stream" in error.message


async def test_stream_error_reports_the_upstream_message_without_its_key() -> None:
    """Without its key, even where the words are cut."""
    for words in ("The key " + SECRET.decode() + " is spent.", "x" * 1990 + SECRET.decode()):
        async with models(says(stream(chunk("Hi"), {"error": {"message": words}})), api_key=SECRET) as answering:
            error = await failure(answering, "upstream_error")
            assert words[:8] in error.message
            assert SECRET[:10].decode() not in error.message and len(error.message) < 2200


async def test_silent_upstream_raises_a_timeout() -> None:
    """Before the head and within the answer."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end()

    async def stops(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM + framed(build_event(orjson.dumps(chunk("Hi")))))
        await peer.wait_end()

    for script, limits in ((silent, {"first_byte_s": 0.05}), (stops, {"idle_s": 0.05})):
        async with models(script, **limits) as answering:
            await failure(answering, "upstream_timeout")
            assert answering.outcomes() == {"timeout": 1}
            await answering.upstreams[0].wait_open(0)


async def test_unreachable_upstream_is_counted_as_a_connect_failure() -> None:
    """502, and the outcome says that no request went out."""
    async with models(port=free_port()) as answering:
        error = await failure(answering, "upstream_error")
        assert "'up0' could not be reached" in error.message
        assert answering.outcomes() == {"connect": 1}


async def test_a_released_reply_ends_its_connection() -> None:
    """At once, and twice is once: the upstream need not go on."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM + framed(build_event(orjson.dumps(chunk("Hi")))))
        await peer.wait_end()

    async with models(endless) as answering:
        reply = await answering.core(exchange())
        async with stepping(reply) as chunks:
            await anext(chunks)
            await reply.release()
            await reply.release()
            await answering.upstreams[0].wait_open(0)
        assert answering.outcomes() == {"cancelled": 1}


async def test_reply_released_under_its_reader_is_counted_as_cancelled() -> None:
    """The reader gets an error; the metric says that the call was cancelled."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM + framed(build_event(orjson.dumps(chunk("Hi")))))
        await peer.wait_end()

    async with models(endless) as answering:
        reply = await answering.core(exchange())
        async with stepping(reply) as chunks:
            await anext(chunks)
            waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            await reply.release()
            with pytest.raises(GatewayError):
                await waiting
        assert answering.outcomes() == {"cancelled": 1}


async def test_call_cancelled_before_the_answer_closes_its_connection() -> None:
    """Whoever waited has left."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end()

    async with models(silent) as answering:
        asking = asyncio.create_task(answering.ask())
        await answering.upstreams[0].wait_requests(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await answering.upstreams[0].wait_open(0)
        assert answering.outcomes() == {"cancelled": 1}


async def test_final_error_event_needs_no_blank_line() -> None:
    """Other items that are unfinished there are cut."""
    begun = build_event(orjson.dumps(chunk("Hi")))
    for last, words in (
        (b'data: {"error": {"message": "No device."}}', "No device."),
        (b'data: {"err', "finish reason"),
    ):
        async with models(serve(build_answer(200, begun + last, [("Content-Type", "text/event-stream")]))) as answering:
            with pytest.raises(GatewayError, match=words):
                await answering.ask()


async def test_single_tool_call_object_is_accepted_as_a_list() -> None:
    """In a stream, and in a whole answer."""
    call = b'{"index": 0, "id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}'
    data = b'{"choices": [{"index": 0, "delta": {"tool_calls": %b}}]}' % call
    async with models(says(stream(data, chunk(finish="stop")))) as answering:
        (first, _) = await answering.ask()
    assert isinstance(first, dict) and first["choices"][0]["delta"]["tool_calls"] == [orjson.loads(call)]
    whole = convert_to_chunk({"choices": [{"message": {"tool_calls": {"id": "1"}}}]})
    assert whole is not None and whole["choices"][0]["delta"]["tool_calls"] == [{"index": 0, "id": "1"}]
