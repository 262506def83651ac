"""Metered passthrough: the client gets the same bytes, and the ledger hears of each request once."""

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import brotli
import pytest
from gateways import until
from lanes.assembled import assembled, keyring
from usage.shapes import CHAT, EMBEDDINGS, MESSAGE, RESPONSE, chat_stream, message_stream, response_stream, text

from gateway.testing.messages import Request
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import LAST_CHUNK, build_answer, build_chunk, build_head, build_ok_answer, serve
from gateway.testing.upstream import Script
from gateway.usage.codings import zstd
from gateway.usage.tokens import RequestUsage, Times, TokenCounts

BODY = b'{"model":"x","messages":[]}!'
MODEL = "gpt-4.1-2025-04-14"
TOLD = RequestUsage(TokenCounts(19, 4, 0, 10, 3))
STREAM = chat_stream("Hel", "lo", usage=CHAT["usage"], model=MODEL)
SSE = ("Content-Type", "text/event-stream")
CHUNKED = ("Transfer-Encoding", "chunked")


@dataclass
class Heard:
    """The requests that a ledger heard of."""

    usage: list[RequestUsage] = field(default_factory=list)
    who: list[tuple[str, ...]] = field(default_factory=list)
    times: list[Times | None] = field(default_factory=list)

    def __call__(
        self, usage: RequestUsage, key: str, tenant: str, model: str, upstream: str, lane: str, times: Times | None
    ) -> None:
        self.times.append(times)
        self.usage.append(usage)
        self.who.append((key, tenant, model, upstream, lane))


def post(path: bytes = b"/v1/chat/completions", *, version: bytes = b"1.1", more: bytes = b"") -> bytes:
    return b"POST %b HTTP/%b\r\nHost: gw\r\n%bContent-Length: %d\r\n\r\n%b" % (path, version, more, len(BODY), BODY)


def whole(body: bytes, *fields: tuple[str, str]) -> bytes:
    return build_answer(200, body, [("Content-Type", "application/json"), *fields])


def deflated(body: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(body) + coder.flush()


def framed(body: bytes, *fields: tuple[str, str]) -> Iterator[tuple[str, list[bytes]]]:
    """An answer in all framings, cut into what is sent at a time."""
    for kind in ("application/json", "text/event-stream"):
        about = [("Content-Type", kind), *fields]
        length = ("Content-Length", str(len(body)))
        yield f"length, {kind}", [build_head(200, [*about, length]) + body]
        yield f"length in pieces, {kind}", [build_head(200, [*about, length]) + body[:20], body[20:50], body[50:]]
        yield f"length, head apart, {kind}", [build_head(200, [*about, length]), body]
        yield f"head in pieces, {kind}", [b"HTTP/1.1 200", build_head(200, [*about, length])[12:] + body]
        yield f"one chunk, {kind}", [build_head(200, [*about, CHUNKED]) + build_chunk(body) + LAST_CHUNK]
        parts = [body[i : i + 90] for i in range(0, len(body), 90)]
        yield f"whole chunks, {kind}", [build_head(200, [*about, CHUNKED]), *map(build_chunk, parts), LAST_CHUNK]
        odd = b"".join(map(build_chunk, parts)) + LAST_CHUNK
        yield (
            f"chunks cut anywhere, {kind}",
            [build_head(200, [*about, CHUNKED]), odd[:1], odd[1:77], odd[77:200], odd[200:]],
        )
        yield f"until the end of the connection, {kind}", [build_head(200, about) + body[:30], body[30:]]


def events_of(stream: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in stream.split(b"\n\n") if event]


ANSWERS = {
    f"{name}, {framing}": (pieces, usage)
    for name, body, fields, usage in (
        ("whole", text(CHAT), (), TOLD),
        ("stream", STREAM, (), TOLD),
        ("gzip", gzip.compress(STREAM), (("Content-Encoding", "gzip"),), TOLD),
        ("brotli", brotli.compress(STREAM), (("Content-Encoding", "br"),), TOLD),
        ("zstd", zstd.compress(STREAM), (("Content-Encoding", "zstd"),), TOLD),
        ("members", b"".join(map(gzip.compress, events_of(STREAM))), (("Content-Encoding", "gzip"),), TOLD),
        ("byte order mark", b"\xef\xbb\xbf" + text(CHAT), (), TOLD),
        ("cut emoji", text(CHAT).replace(b"Hello!", rb"Hello \ud83d"), (), TOLD),
        ("deflate", deflated(text(CHAT)), (("content-encoding", "deflate"),), TOLD),
    )
    for framing, pieces in framed(body, *fields)
}


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize(("pieces", "usage"), ANSWERS.values(), ids=ANSWERS)
async def test_metering_preserves_bytes_for_every_framing_and_coding(
    pieces: list[bytes], usage: RequestUsage, version: bytes
) -> None:
    """The bytes that reach the client are those of a lane without a meter."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        for piece in pieces:
            await peer.send(piece)
        await peer.half_close()

    heard = Heard()
    told = []
    for recorded in (None, heard):
        async with assembled(script, recorded=recorded) as lane, lane.client() as client:
            await client.send(post(version=version, more=b"Connection: close\r\n"))
            told.append(await client.read_rest())
            await lane.until_idle()
    assert told[0] == told[1] and told[0]
    assert heard.usage == [usage]
    assert heard.who == [("local", "local", MODEL, "up", "passthrough")]


@pytest.mark.parametrize(
    ("answered", "streamed"),
    [
        (whole(text(CHAT)), 0),
        (whole(text({**CHAT, "x": "y" * 20_000})), 0),
        (build_head(200, [SSE, CHUNKED]) + build_chunk(STREAM) + LAST_CHUNK, 1),
        (build_head(200, [SSE, CHUNKED]) + build_chunk(STREAM[: len(STREAM) // 2]) + LAST_CHUNK, 0),
    ],
)
async def test_model_answer_times_are_recorded(answered: bytes, streamed: int) -> None:
    """Its first byte comes before its end; tokens have a time only in a stream that says them."""
    heard = Heard()
    async with assembled(serve(answered), recorded=heard) as lane:
        async with lane.client() as client:
            await client.send(post() * 2)
            for _ in range(2):
                assert (await client.read_response()).status == 200
        await lane.until_idle()
    assert sum(usage.requests for usage in heard.usage) == 2
    for usage, times in zip(heard.usage, heard.times, strict=True):
        assert times is not None
        assert len(times.first_byte_s) == len(times.duration_s) == usage.requests
        assert all(0 < came <= ended for came, ended in zip(times.first_byte_s, times.duration_s, strict=True))
        assert len(times.token_s) == streamed * usage.requests


async def test_answers_without_a_model_have_no_recorded_times() -> None:
    """An error, a look, and an answer that names no model."""

    def answered(request: Request) -> bytes:
        return build_answer(500, text(CHAT)) if b"/messages" in request.target else build_ok_answer()

    heard = Heard()
    async with assembled(serve(answered), recorded=heard) as lane:
        look = b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n\r\n"
        async with lane.client() as client:
            for request in (post(b"/v1/messages"), look, post()):
                await client.send(request)
                await client.read_response()
        await lane.until_idle()
    assert heard.times == [None] * 3


def in_step(events: list[bytes]) -> tuple[Script, asyncio.Queue[int]]:
    """A stream whose events are chunks, each sent when the client has the one before; the queue lets them go."""
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [SSE, CHUNKED]))
        for event in events:
            await seen.get()
            await peer.send(build_chunk(event))
        await seen.get()
        await peer.send(LAST_CHUNK)

    return script, seen


def filling(count: int) -> list[bytes]:
    about = b'{"model":"%b","choices":[{"delta":{"content":"word"}}]}' % MODEL.encode()
    return [b"data: %b\n\n" % about] * count


@pytest.mark.parametrize("coding", [None, "gzip"])
async def test_long_chunked_stream_is_metered_from_its_end(coding: str | None) -> None:
    """They go past the exchange; the end of what passed, and the rest that did not, are read in their order."""
    first, *rest = events_of(STREAM)
    sent = [first, *filling(300), *rest]
    coder = zlib.compressobj(wbits=31)
    if coding is not None:
        sent = [coder.compress(event) + coder.flush(zlib.Z_SYNC_FLUSH) for event in sent]
    script, seen = in_step(sent)

    async def coded(peer: Peer) -> None:
        send = peer.send
        if coding is not None:
            about = build_head(200, [SSE, CHUNKED])
            compressed = build_head(200, [SSE, CHUNKED, ("Content-Encoding", "gzip")])
            peer.send = lambda data: send(compressed if data == about else data)  # type: ignore[method-assign,misc,assignment]
        await script(peer)

    heard = Heard()
    async with assembled(coded, recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        for number, event in enumerate(sent):
            seen.put_nowait(number)
            await client.read_until(build_chunk(event))
            if number in (2, 100, 250):
                lane.later(1)
        seen.put_nowait(0)
        await client.read_until(LAST_CHUNK)
        await lane.until_inflight(0)
        assert heard.usage == [TOLD]


async def test_a_stream_without_usage_is_estimated() -> None:
    """By the texts of its last events, and the length of all; the input by the bytes of the request."""
    script, seen = in_step([*filling(400), b"data: [DONE]\n\n"])
    heard = Heard()
    async with assembled(script, recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        for number in range(402):
            seen.put_nowait(number)
            await client.read_until(b"\r\n")
        await client.read_until(LAST_CHUNK)
        await lane.until_inflight(0)
    ((tokens, *marks),) = heard.usage
    assert tokens.input == len(BODY) // 4 and 390 <= tokens.output <= 440
    assert marks == [False, False, True, False, 1]


NONE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
ZEROS = {
    "a whole answer": text({**CHAT, "usage": NONE}),
    "a long one": text({"id": "c" * 9000, **CHAT, "usage": NONE}),
    "a stream": chat_stream("word", "word", usage=NONE),
    "a Response": text({**RESPONSE, "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}}),
    "a message": text({**MESSAGE, "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0}}),
    "a Gemini answer": b'{"candidates":[{}],"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":0}}',
}


@pytest.mark.parametrize("body", ZEROS.values(), ids=ZEROS)
async def test_zero_prompt_tokens_are_replaced_by_an_estimate(body: bytes) -> None:
    """Some servers write zeros where they do not count. No limit of tokens would ever stop their clients."""
    heard = Heard()
    async with assembled(serve(whole(body)), recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        await client.read_response()
        await lane.until_inflight(0)
        lane.usage_batch.read()
    ((tokens, *marks),) = heard.usage
    assert (tokens.input, tokens.output > 0) == (len(BODY) // 4, True)
    assert marks == [False, False, True, False, 1]


async def test_missing_prompt_tokens_are_estimated_beside_reported_output() -> None:
    """The tokens that the upstream says stand, and the rest is estimated."""
    heard = Heard()
    told = {**CHAT, "usage": {"prompt_tokens": 0, "completion_tokens": 3}}
    async with assembled(serve(whole(text(told))), recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        await client.read_response()
        await lane.until_inflight(0)
        lane.usage_batch.read()
    assert heard.usage == [RequestUsage(TokenCounts(len(BODY) // 4, output=3), estimated=True)]


CUT = {
    "a stream": (
        chat_stream("word", "word", "word")[:-14],
        RequestUsage(TokenCounts(7, 0, 0, 3), cut=True, estimated=True),
    ),
    "a stream that says its tokens": (
        chat_stream("a", "b", always=True)[:-14],
        RequestUsage(TokenCounts(19, 0, 0, 2), cut=True),
    ),
    "a message": (
        message_stream("abcd" * 8, ends=False),
        RequestUsage(TokenCounts(125, 20, 10, 8), cut=True, estimated=True),
    ),
    "a stream without names": (
        chat_stream("word", "word", model="")[:-14],
        RequestUsage(TokenCounts(7, 0, 0, 2), cut=True, estimated=True),
    ),
    "nothing but its head": (b"", RequestUsage(TokenCounts(7), cut=True, estimated=True)),
}


@pytest.mark.parametrize("who", ["client", "upstream"])
@pytest.mark.parametrize(("stream", "usage"), CUT.values(), ids=CUT)
async def test_cut_answer_is_recorded_as_cut(stream: bytes, usage: RequestUsage, who: str) -> None:
    """By its upstream, or by a client that leaves."""
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [SSE, CHUNKED]) + build_chunk(stream))
        if who == "client":
            await peer.wait_end()
        else:
            await left.wait()

    heard = Heard()
    async with assembled(script, recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        await client.read_until(build_chunk(stream) or b"\r\n\r\n")
        if who == "client":
            client.close()
        left.set()
        await lane.until_idle()
    assert heard.usage == [usage]


async def test_disconnect_before_sending_records_no_tokens() -> None:
    """The upstream never heard of it."""
    heard = Heard()
    async with assembled(serve(build_ok_answer()), recorded=heard) as lane:
        lane.pool.connect = lambda: asyncio.Event().wait()  # type: ignore[method-assign,assignment]
        async with lane.client() as client:
            await client.send(post())
            await until(lambda: bool(lane.listener.inflight))
        await lane.until_idle()
    assert heard.usage == [RequestUsage(cut=True)]


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
@pytest.mark.parametrize("chunked", [True, False])
async def test_upstream_error_is_recorded_as_rejected(status: int, chunked: bool) -> None:
    """Whatever the upstream writes into its error."""
    heard = Heard()
    error = build_answer(status, text(CHAT), chunked=chunked)
    async with assembled(serve(error), recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        assert (await client.read_response()).status == status
    assert heard.usage == [RequestUsage(rejected=True)]
    assert heard.who == [("local", "local", "", "up", "passthrough")]


@pytest.mark.parametrize("status", [204, 205, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("body", [b"", b"<html>elsewhere", b"x" * 100_000])
async def test_redirect_or_empty_answer_records_no_tokens(status: int, body: bytes) -> None:
    """A server sends the client elsewhere, or has no content for it."""
    heard = Heard()
    said = build_answer(status, b"" if status in (204, 304) else body, [("Location", "/v1/chat/completions/")])
    async with assembled(serve(said), recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        assert (await client.read_response()).status == status
    assert heard.usage == [RequestUsage()]


@pytest.mark.parametrize("status", [307, 404, 503])
async def test_abandoned_non_success_answer_records_no_tokens(status: int) -> None:
    heard, said = Heard(), build_head(status, [("Content-Length", "9")])

    async def stops(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(said)
        await peer.wait_end()

    async with assembled(stops, recorded=heard) as lane:
        async with lane.client() as client:
            await client.send(post())
            await client.read_exactly(len(said))
        await lane.until_idle()
    assert heard.usage == [RequestUsage(cut=True)]


async def test_unanswered_request_is_recorded_as_rejected() -> None:
    """The client gets an error of ours."""
    heard = Heard()

    async def leaves(peer: Peer) -> None:
        await peer.read_request()

    async with assembled(leaves, recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        assert (await client.read_response()).status == 502
    assert heard.usage == [RequestUsage(rejected=True)]


OLLAMA = text(
    {
        "model": "llama3",
        "message": {"role": "assistant", "tool_calls": [{"function": {"arguments": {"eval_count": 1}}}]},
        "done": True,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 5,
        "eval_count": 298,
    }
)
GEMINI = text(
    {
        "candidates": [
            {"content": {"parts": [{"functionCall": {"args": {"usageMetadata": {"promptTokenCount": 1}}}}]}}
        ],
        "usageMetadata": {
            "promptTokenCount": 10,
            "toolUsePromptTokenCount": 5,
            "cachedContentTokenCount": 3,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 4,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
        },
        "modelVersion": "gemini-2.5-flash",
    }
)
PATHS = [
    (b"/v1/completions", b"{}", RequestUsage(TokenCounts(7, 0, 0, 1), estimated=True)),
    (b"/v1/responses", text(RESPONSE), RequestUsage(TokenCounts(36, 6, 0, 87, 5))),
    (b"/v1/responses", response_stream("a"), RequestUsage(TokenCounts(36, 6, 0, 87, 5))),
    (b"/v1/messages?beta=true", text(MESSAGE), RequestUsage(TokenCounts(125, 20, 10, 12))),
    (b"/v1/messages", message_stream("a"), RequestUsage(TokenCounts(125, 20, 10, 12))),
    (b"/v1/messages/count_tokens", b'{"input_tokens":14}', RequestUsage()),
    (b"/v1/embeddings", text(EMBEDDINGS), RequestUsage(TokenCounts(8))),
    (b"/v1/embeddings", b'{"data":[[1,2,3]]}', RequestUsage(TokenCounts(7), estimated=True)),
    (
        b"/v1/audio/transcriptions",
        b'{"text":"hi","usage":{"input_tokens":4,"output_tokens":2}}',
        RequestUsage(TokenCounts(4, 0, 0, 2)),
    ),
    (
        b"/v1/audio/transcriptions",
        b'{"text":"four words of speech"}',
        RequestUsage(TokenCounts(1, 0, 0, 8), estimated=True),
    ),
    (b"/v1/audio/speech", b"\xff\xf3" * 50, RequestUsage(TokenCounts(7), estimated=True)),
    (b"/v1/images/generations", b'{"data":[{"b64_json":"iVBO"}]}', RequestUsage(TokenCounts(7), estimated=True)),
    (b"/v1/images/edits", b'{"data":[{"b64_json":"iVBO"}]}', RequestUsage(TokenCounts(1), estimated=True)),
    (
        b"/v1/images/edits",
        b'{"data":[],"usage":{"input_tokens":40,"output_tokens":9}}',
        RequestUsage(TokenCounts(40, 0, 0, 9)),
    ),
    (b"/v1/files", b'{"id":"file-1"}', RequestUsage()),
    (b"/v1/api/chat", OLLAMA, RequestUsage(TokenCounts(26, 0, 0, 298))),
    (
        b"/v1/api/chat",
        b'{"model":"m","message":{"content":"a"},"done":false}\n' + OLLAMA,
        RequestUsage(TokenCounts(26, 0, 0, 298)),
    ),
    (b"/v1/api/generate", OLLAMA[:-50], RequestUsage(TokenCounts(7, 0, 0, 38), estimated=True)),
    (b"/v1/api/generate", b'{"response":"","eval_count":4}', RequestUsage(TokenCounts(7, 0, 0, 4), estimated=True)),
    (b"/v1/api/embed", b'{"embeddings":[[0.1]],"prompt_eval_count":8}', RequestUsage(TokenCounts(8))),
    (b"/v1/v1beta/models/g:generateContent", GEMINI, RequestUsage(TokenCounts(15, 3, 0, 9, 4))),
    (
        b"/v1/v1beta/models/g:streamGenerateContent",
        b"[%b,\r\n%b]\n" % (GEMINI, GEMINI),
        RequestUsage(TokenCounts(15, 3, 0, 9, 4)),
    ),
    (
        b"/v1/models/g:streamGenerateContent?alt=sse",
        b"data: %b\r\n\r\n" % GEMINI,
        RequestUsage(TokenCounts(15, 3, 0, 9, 4)),
    ),
    (b"/v1/models/g:embedContent", b'{"embedding":{"values":[1]}}', RequestUsage(TokenCounts(7), estimated=True)),
    (b"/v1/complete", b'{"completion":"four words of text"}', RequestUsage(TokenCounts(7, 0, 0, 9), estimated=True)),
    (
        b"/v1/generate",
        b'[{"generated_text":"four words of text"}]',
        RequestUsage(TokenCounts(7, 0, 0, 11), estimated=True),
    ),
    (b"/v1/threads/t/runs", b'{"id":"run_1","usage":null}', RequestUsage(TokenCounts(7, 0, 0, 7), estimated=True)),
    (b"/v1/%74hreads/t/runs", b'{"id":"run_1","usage":null}', RequestUsage(TokenCounts(7, 0, 0, 7), estimated=True)),
    (b"/v1/threads/t/messages", b'{"id":"msg_1"}', RequestUsage()),
    (b"/v1/threads/../messages", b'{"id":"msg_1"}', RequestUsage(TokenCounts(7, 0, 0, 4), estimated=True)),
]


@pytest.mark.parametrize(("path", "body", "usage"), PATHS)
async def test_usage_estimation_depends_on_the_path(path: bytes, body: bytes, usage: RequestUsage) -> None:
    """Where a model answers, what is not said is estimated; elsewhere it is nothing."""
    heard = Heard()
    async with assembled(serve(whole(body)), recorded=heard) as lane, lane.client() as client:
        await client.send(post(path))
        await client.read_response()
    assert heard.usage == [usage]


async def test_get_of_a_stored_response_records_no_tokens() -> None:
    """GET of a stored response, and of anything else, is a request without tokens."""
    heard = Heard()
    async with assembled(serve(whole(text(RESPONSE))), recorded=heard) as lane, lane.client() as client:
        await client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: gw\r\n\r\n")
        await client.read_response()
    assert heard.usage == [RequestUsage()]


STORED = [
    (b"/v1/responses/%b/cancel", text({**RESPONSE, "id": "one_1"}), True),
    (b"/v1/responses/%b/cancel/", text({**RESPONSE, "id": "one_1", "x": "x" * 100_000}), True),
    (b"/v1/chat/completions/%b", text({**CHAT, "id": "one_1"}), True),
    (b"/v1/chat/completions/%b?x=y", text({**CHAT, "x": {"id": "other"}, "id": "one_1"}), True),
    (b"/v1/threads/t/runs/%b", text({**CHAT, "id": "one_1"}), True),
    (b"/v1/chat/completions/%b", text({**CHAT, "id": "new"}), False),
    (b"/v1/chat/completions/%b", text({**CHAT, "id": "new", "metadata": {"id": "one_1"}}), False),
    (b"/v1/chat/completions/%b", text({**CHAT, "id": "one_12"}), False),
]


@pytest.mark.parametrize(("path", "body", "is_repeated"), STORED)
async def test_post_repeating_a_stored_answer_records_no_tokens(path: bytes, body: bytes, is_repeated: bool) -> None:
    """It has the id that its path names. A server that reads such a path as another one makes an answer of its own."""
    heard = Heard()
    async with assembled(serve(whole(body)), recorded=heard) as lane, lane.client() as client:
        await client.send(post(path % b"one_1"))
        await client.read_response()
    ((tokens, *marks),) = heard.usage
    assert (not any(tokens)) is is_repeated and marks == [False, False, False, False, 1]


UPLOADS = {
    "speech": (b"/v1/audio/speech", b'{"type":"speech.audio.delta","audio":"%b"}' % (b"A" * 4000), 2000, 0),
    "a transcript": (b"/v1/audio/transcriptions", b'{"type":"transcript.text.delta","delta":"word"}', 8, 2),
    "a translation": (b"/v1/audio/translations", b'{"type":"transcript.text.delta","delta":"word"}', 8, 2),
    "an edit": (b"/v1/images/edits", b'{"type":"image_edit.partial_image","b64_json":"%b"}' % (b"A" * 4000), 8, 0),
    "a variation": (b"/v1/Images/Variations/", b'{"b64_json":"AAAA"}', 8, 0),
}


@pytest.mark.parametrize(("path", "event", "asked", "answered"), UPLOADS.values(), ids=UPLOADS)
async def test_cut_audio_or_image_stream_is_estimated(path: bytes, event: bytes, asked: int, answered: int) -> None:
    """Before it says its tokens: a file has fewer of them than a text of its length."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [SSE, CHUNKED]) + build_chunk(b"data: %b\n\n" % event) * 2)

    heard = Heard()
    async with assembled(script, recorded=heard) as lane, lane.client() as client:
        await client.send(b"POST %b HTTP/1.1\r\nHost: gw\r\nContent-Length: 8000\r\n\r\n" % path + b"x" * 8000)
        await client.read_rest()
        await lane.until_idle()
    assert heard.usage == [RequestUsage(TokenCounts(asked, 0, 0, answered), cut=True, estimated=True)]


async def test_requests_are_recorded_once_with_their_key() -> None:
    """Over one connection, with one plan, in any order."""
    heard = Heard()

    def by_size(request: Request) -> bytes:
        return whole(text({**CHAT, "usage": {"prompt_tokens": len(request.payload), "completion_tokens": 1}}))

    keys = keyring("ann", "bob")
    async with assembled(serve(by_size), keys=keys, recorded=heard, api_key=b"k") as lane, lane.client() as client:
        for size, key in enumerate(["ann", "ann", "bob"], 1):
            line = b"Authorization: Bearer %b\r\nContent-Length: %d" % (key.encode(), size)
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\n%b\r\n\r\n%b" % (line, b"x" * size))
            await client.read_response()
    assert heard.usage == [RequestUsage(TokenCounts(3, 0, 0, 2), requests=2), RequestUsage(TokenCounts(3, 0, 0, 1))]
    assert [who[:2] for who in heard.who] == [("ann", "ann"), ("bob", "bob")]


async def test_a_websocket_is_a_request_without_tokens() -> None:
    """Nothing of what passes in a tunnel is looked at."""
    heard = Heard()
    switched = build_head(101, [("Connection", "Upgrade"), ("Upgrade", "websocket")])
    asked = b"GET /v1/realtime HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(switched)
        await peer.wait_end()

    async with assembled(script, recorded=heard) as lane:
        async with lane.client() as client:
            await client.send(asked + b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n")
            await client.read_head()
        await lane.until_idle()
    assert heard.usage == [RequestUsage()]


@pytest.mark.parametrize("coding", ["compress", "gzip, br"])
async def test_undecodable_answer_is_estimated_at_one_token_per_byte(coding: str) -> None:
    """It may be any text, and compressed it is much shorter than that."""
    heard = Heard()
    said = whole(b"\x8b" * 40_000, ("Content-Encoding", coding))
    async with assembled(serve(said), recorded=heard) as lane, lane.client() as client:
        await client.send(post())
        await client.read_response()
    assert heard.usage == [RequestUsage(TokenCounts(7, 0, 0, 40_000), estimated=True)]
