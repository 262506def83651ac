"""One call of the model over real sockets: what goes out, what comes back, and every way in which it breaks."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import orjson
import pytest

from gateway.contracts import Json
from gateway.errors import GatewayError
from gateway.pipeline.model import LIST_LIMIT_BYTES
from gateway.testing.peer import Peer
from gateway.testing.ports import free_port
from gateway.testing.scripts import answer, event, head, serve
from gateway.testing.scripts import chunk as framed
from tests.telling import stepping

from .models import HELLO, STREAM, Models, chunk, exchange, models, says, stream

SECRET = b"sk-the-upstreams-own-key"


async def failure(answering: Models, code: str) -> GatewayError:
    with pytest.raises(GatewayError) as failed:
        await answering.ask()
    assert failed.value.code == code
    assert SECRET.decode() not in failed.value.message
    return failed.value


async def listing(answering: Models, *, header: bytes = b"", used: bytes = b"authorization") -> tuple[int, str, bytes]:
    """The list of models, for a client that puts its credential into the header `used`."""
    credential = used + b": sk-client\r\n"
    return await answering.core.models(header=header, credential=credential, credential_header=used)


# The request.


async def test_the_request_that_goes_out() -> None:
    """The body as the stages left it, streamed and with usage, whatever the client asked for."""
    body: Json = {"temperature": 0.5, "stream": False, "stream_options": {"x": 1}, "metadata": {"é": [1, None]}}
    async with models(serve(HELLO)) as answering:
        await answering.ask(exchange(**body))
        (request,) = answering.upstreams[0].requests
    assert (request.method, request.target, request.version) == (b"POST", b"/v1/chat/completions", b"HTTP/1.1")
    assert orjson.loads(request.payload) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        **body,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert {name.lower(): value for name, value in request.headers} == {
        b"host": b"up.example",
        b"accept": b"text/event-stream",
        b"content-type": b"application/json",
        b"content-length": str(len(request.payload)).encode(),
    }


async def test_the_clients_headers_go_on_as_they_came() -> None:
    """In their case and order; its own credential too, where the upstream has none."""
    async with models(serve(HELLO)) as answering:
        await answering.ask(exchange(b"X-One: 1\r\nx-TWO: 2\r\n", b"Authorization: Bearer sk-client\r\n"))
        (request,) = answering.upstreams[0].requests
    assert b"\r\nX-One: 1\r\nx-TWO: 2\r\nAuthorization: Bearer sk-client\r\n" in request.raw_head


@pytest.mark.parametrize(
    ("auth_header", "used", "name", "value"),
    [
        (None, b"authorization", b"authorization", b"Bearer " + SECRET),
        (None, b"x-api-key", b"x-api-key", SECRET),
        (b"authorization", b"x-api-key", b"authorization", b"Bearer " + SECRET),
        (b"api-key", b"authorization", b"api-key", SECRET),
    ],
)
async def test_the_upstreams_own_key_replaces_the_clients(
    auth_header: bytes | None, used: bytes, name: bytes, value: bytes
) -> None:
    """In `auth_header`, else where the client put its own, of which nothing goes out."""
    async with models(serve(HELLO), api_key=SECRET, auth_header=auth_header) as answering:
        asked = exchange(credential=b"Authorization: Bearer sk-client\r\nx-api-key: sk-client\r\n")
        await answering.ask(replace(asked, credential_header=used))
        await listing(answering, used=used)
        requests = answering.upstreams[0].requests
    assert len(requests) == 2
    for request in requests:
        assert request.values(name) == [value]
        assert b"sk-client" not in request.raw_head and request.raw_head.count(SECRET) == 1


@pytest.mark.parametrize(
    ("base_path", "chat", "listed"),
    [
        (b"", b"/v1/chat/completions", b"/v1/models"),
        (b"/v1", b"/v1/chat/completions", b"/v1/models"),
        (b"/openai/v2", b"/openai/v2/chat/completions", b"/openai/v2/models"),
    ],
)
async def test_a_base_url_with_a_path_replaces_v1(base_path: bytes, chat: bytes, listed: bytes) -> None:
    """For chat and for the list of models."""
    async with models(serve(HELLO), base_path=base_path) as answering:
        await answering.ask()
        await listing(answering)
        assert [request.target for request in answering.upstreams[0].requests] == [chat, listed]


async def test_the_configured_model_replaces_the_clients() -> None:
    """`context.model`."""
    async with models(serve(HELLO), model="ours") as answering:
        await answering.ask(exchange(model="theirs"))
        assert orjson.loads(answering.upstreams[0].requests[0].payload)["model"] == "ours"


# Which upstream.

PATTERNS = (("gpt-*",), ("claude-*", "o?"), ())


@pytest.mark.parametrize(
    ("model", "index"), [("gpt-5", 0), ("claude-x", 1), ("o3", 1), ("o33", 2), ("GPT-5", 2), ("", 2)]
)
async def test_the_upstream_is_chosen_by_the_patterns_of_its_models(model: str, index: int) -> None:
    """The first whose `models` fit; else the first without any."""
    async with models(serve(HELLO), patterns=PATTERNS) as answering:
        await answering.ask(exchange(model=model))
        assert [len(upstream.requests) for upstream in answering.upstreams] == [int(i == index) for i in range(3)]


async def test_a_model_that_nobody_names_goes_to_the_first() -> None:
    """Where every upstream has `models`; it says itself what it does not know."""
    async with models(serve(HELLO), patterns=(("a",), ("b",))) as answering:
        for body in ({"model": "c"}, {"model": None}, {"model": {"x": 1}}, {}):
            assert answering.core.target_of(body) is answering.targets[0]


async def test_the_configured_upstream_is_asked_for_every_model() -> None:
    """`context.upstream`; and `context.model` is what patterns are matched with."""
    async with models(serve(HELLO), patterns=PATTERNS, fixed="up1") as answering:
        assert answering.core.target_of({"model": "gpt-5"}) is answering.targets[1]
    async with models(serve(HELLO), patterns=PATTERNS, model="gpt-5") as answering:
        assert answering.core.target_of({"model": "claude-x"}) is answering.targets[0]


async def test_without_an_upstream_there_is_a_word_about_it() -> None:
    """It names the section."""
    async with models(patterns=()) as answering:
        error = await failure(answering, "upstream_unavailable")
        assert "'upstreams'" in error.message


# The answer.


async def test_chunks_come_as_they_are_sent() -> None:
    """One at a time, whole, with everything that the upstream puts in; the connection is used again."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.read_request()
            await peer.send(STREAM + framed(event(orjson.dumps(chunk("a", custom=[1])))))
            await go.wait()
            await peer.send(framed(event(orjson.dumps(chunk(finish="stop")))) + framed(event(b"[DONE]")) + b"0\r\n\r\n")

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
        assert answering.targets[0].tally.first_byte.used


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None, "obfuscation": "x7"},
        {"system_fingerprint": "fp", "service_tier": "default"},
    ],
)
async def test_a_chunk_with_nothing_but_a_text_comes_as_the_text(about: Json) -> None:
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
        {"choices": [{"index": 1, "delta": {"content": "a"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": []}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "citations": [1]}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]},
        {"usage": {"prompt_tokens": 1}},
        {"citations": [1]},
        {"error": None},
    ],
)
async def test_a_chunk_that_says_more_comes_whole(more: Json) -> None:
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
async def test_a_whole_answer_is_one_that_says_that_it_ends(raw: bytes) -> None:
    """By a finish reason or by `[DONE]`; usage may follow, or stand alone."""
    async with models(serve(raw)) as answering:
        assert await answering.ask()
        assert answering.outcomes() == {"ok": 1}


BROKEN_CHUNKS: list[Json | bytes] = [
    b"{",
    b"no json",
    b"[]",
    b'"text"',
    b'{"choices": {}}',
    b'{"choices": [1]}',
    b'{"choices": [{"delta": []}]}',
    b'{"choices": [{"delta": "x"}]}',
    b'{"choices": [{"finish_reason": ["stop"]}]}',
    b'{"choices": [{"delta": {"tool_calls": 5}}]}',
    b'{"choices": [{"delta": {"tool_calls": [null]}}]}',
    b'{"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]}',
    b"\xff\xfe",
    b'{"a":' * 3000,
]


@pytest.mark.parametrize("data", BROKEN_CHUNKS)
async def test_an_event_that_is_no_chunk_is_the_upstreams_fault(data: bytes) -> None:
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
        STREAM + framed(event(orjson.dumps(chunk("Hi")))),
        STREAM + framed(event(orjson.dumps(chunk("Hi")))) + b"40\r\ndata: {",
        STREAM + framed(event(orjson.dumps(chunk("Hi")))) + b"zz\r\n",
        stream(chunk("Hi"), done=False),
        stream(done=False),
        STREAM + framed(b"data: " + orjson.dumps(chunk("Hi"))) + b"0\r\n\r\n",
        head(200, [("Content-Type", "text/event-stream")]) + event(orjson.dumps(chunk("Hi"))),
    ],
)
async def test_an_answer_that_breaks_off_never_looks_whole(raw: bytes) -> None:
    """Cut anywhere, or ended without a finish reason: an error, and the connection is not used again."""
    async with models(says(raw)) as answering:
        await failure(answering, "upstream_error")
        assert answering.outcomes() == {"error": 1}
        await answering.upstreams[0].wait_open(0)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
async def test_an_answer_that_is_no_stream_is_the_upstreams_fault(content_type: str | None) -> None:
    """Whatever it holds."""
    headers = [] if content_type is None else [("Content-Type", content_type)]
    async with models(serve(answer(200, orjson.dumps(chunk("Hi")), headers))) as answering:
        error = await failure(answering, "upstream_error")
        assert "'up0'" in error.message and "stream" in error.message


async def test_an_error_within_the_stream_is_told_in_the_upstreams_words() -> None:
    """Without its key, even where the words are cut."""
    for words in ("The key " + SECRET.decode() + " is spent.", "x" * 1990 + SECRET.decode()):
        async with models(says(stream(chunk("Hi"), {"error": {"message": words}})), api_key=SECRET) as answering:
            error = await failure(answering, "upstream_error")
            assert words[:8] in error.message
            assert SECRET[:10].decode() not in error.message and len(error.message) < 2200


async def test_silence_is_a_timeout() -> None:
    """Before the head and within the answer."""

    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_end()

    async def stops(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM + framed(event(orjson.dumps(chunk("Hi")))))
        await peer.wait_end()

    async with models(silent, stops, first_byte_s=0.05, idle_s=0.05) as answering:
        await failure(answering, "upstream_timeout")
        await failure(answering, "upstream_timeout")
        assert answering.outcomes() == {"timeout": 2}
        await answering.upstreams[0].wait_open(0)


async def test_an_upstream_that_is_not_there_is_counted_as_that() -> None:
    """502, and the outcome says that no request went out."""
    async with models(port=free_port()) as answering:
        error = await failure(answering, "upstream_error")
        assert "'up0' could not be reached" in error.message
        assert answering.outcomes() == {"connect": 1}


async def test_a_released_reply_ends_its_connection() -> None:
    """At once, and twice is once: the upstream need not go on."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM + framed(event(orjson.dumps(chunk("Hi")))))
        await peer.wait_end()

    async with models(endless) as answering:
        reply = await answering.core(exchange())
        async with stepping(reply) as chunks:
            await anext(chunks)
            await reply.release()
            await reply.release()
            await answering.upstreams[0].wait_open(0)
        assert answering.outcomes() == {"cancelled": 1}


async def test_a_reply_that_is_released_under_its_reader_is_not_the_upstreams_fault() -> None:
    """The reader gets an error; the metric says that the call was cancelled."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM + framed(event(orjson.dumps(chunk("Hi")))))
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


async def test_a_call_that_is_cancelled_before_the_answer_ends_its_connection() -> None:
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


# Refusals.


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (400, "upstream_rejected", "ok"),
        (401, "upstream_refused", "ok"),
        (402, "upstream_rejected", "ok"),
        (403, "upstream_refused", "ok"),
        (404, "upstream_rejected", "ok"),
        (413, "upstream_rejected", "ok"),
        (429, "upstream_limited", "ok"),
        (500, "upstream_error", "error"),
        (503, "upstream_error", "error"),
        (302, "upstream_error", "error"),
        (204, "upstream_error", "error"),
    ],
)
async def test_an_error_answer_becomes_an_error_that_clients_know(status: int, code: str, outcome: str) -> None:
    """With the upstream's name, status and words; a redirect is not followed."""
    body = b'{"error": {"message": "Because."}}'
    raw = answer(status, b"" if status == 204 else body, [("Location", "http://127.0.0.1:1/")])
    async with models(serve(raw)) as answering:
        error = await failure(answering, code)
        assert f"'up0' answered {status}" in error.message
        assert ("Because." in error.message) == (status != 204)
        assert answering.outcomes() == {outcome: 1}


@pytest.mark.parametrize(
    ("fields", "retry_after_s"),
    [
        ([], None),
        ([("Retry-After", "20")], 20),
        ([("Retry-After", "86400")], 60),
        ([("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
        ([("Retry-After", "20"), ("retry-after-ms", "5")], 0.005),
        ([("Retry-After", "20"), ("retry-after-ms", "soon")], 20),
        ([("retry-after-ms", "9" * 40)], 60),
    ],
)
async def test_how_long_an_upstream_wants_to_be_left_alone(
    fields: list[tuple[str, str]], retry_after_s: float | None
) -> None:
    """As it says, to the millisecond, and never longer than a minute."""
    async with models(serve(answer(429, b"{}", fields))) as answering:
        assert (await failure(answering, "upstream_limited")).retry_after_s == retry_after_s


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "plain words"}', "plain words"),
        (b'{"error": {"message": 5}}', ""),
        (b'{"message": "elsewhere"}', ""),
        (b"<html>Bad gateway</html>", ""),
        (b"[]", ""),
        (b"", ""),
        (b"\xff", ""),
        (b'{"error": {"message": "' + b"x" * 200_000 + b'"}}', ""),
    ],
)
async def test_an_error_answer_may_hold_anything(body: bytes, words: str) -> None:
    """Only a message in one of the known shapes is told, and no more of it than people read."""
    async with models(serve(answer(400, body))) as answering:
        error = await failure(answering, "upstream_rejected")
        assert words in error.message
        assert len(error.message) < 100


async def test_an_error_answer_that_repeats_the_key_is_told_without_it() -> None:
    """Some upstreams do."""
    body = orjson.dumps({"error": {"message": f"Incorrect API key: {SECRET.decode()}."}})
    async with models(serve(answer(401, body)), api_key=SECRET) as answering:
        error = await failure(answering, "upstream_refused")
        assert "Incorrect API key: ***." in error.message


# The list of models.


async def test_the_list_of_models_is_the_upstreams() -> None:
    """Status, type and body as they come, asked with the same credentials."""
    raw = answer(200, b'{"data": []}', [("Content-Type", "application/json; charset=utf-8")])
    async with models(serve(raw), api_key=SECRET) as answering:
        listed = await listing(answering, header=b"X-One: 1\r\n")
        (request,) = answering.upstreams[0].requests
    assert listed == (200, "application/json; charset=utf-8", b'{"data": []}')
    assert request.method == b"GET" and request.values(b"x-one") == [b"1"]
    assert request.values(b"authorization") == [b"Bearer " + SECRET]


async def test_an_error_of_the_list_of_models_passes_on() -> None:
    """It is the upstream's answer."""
    async with models(serve(answer(404, b"nothing"))) as answering:
        assert await listing(answering) == (404, "application/json", b"nothing")


async def test_a_list_of_models_without_an_end_is_not_read() -> None:
    """502, which says how much is; the connection is closed."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]))
        with suppress(ConnectionError):
            while True:
                await peer.send(framed(b" " * 65536))

    async with models(endless) as answering:
        with pytest.raises(GatewayError) as failed:
            await listing(answering)
        assert failed.value.code == "upstream_error" and str(LIST_LIMIT_BYTES) in failed.value.message
        await answering.upstreams[0].wait_open(0)
    whole = answer(200, b" " * LIST_LIMIT_BYTES)
    async with models(serve(whole)) as answering:
        assert len((await listing(answering))[2]) == LIST_LIMIT_BYTES
