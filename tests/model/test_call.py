"""One call of the model over real sockets: what goes out, where it goes, and what an upstream that refuses becomes."""

from contextlib import suppress
from dataclasses import replace

import orjson
import pytest

from gateway.contracts.caller import LOCAL
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.model.listing import LIST_LIMIT_BYTES, ListingClient
from gateway.testing.raw_connection import Peer
from gateway.testing.scripts import build_answer, build_head, serve
from gateway.testing.scripts import build_chunk as framed
from tests.agent.models import HELLO, SECRET, Models, exchange, failure, models


async def listing(answering: Models, *, header: bytes = b"", used: bytes = b"authorization") -> tuple[int, str, bytes]:
    """The list of models, for a client that puts its credential into the header `used`."""
    credential = used + b": sk-client\r\n"
    return await answering.core.fetch_models(ListingClient(LOCAL, lines=header, credential=credential, header=used))


# The request.


async def test_model_request_streams_with_usage_and_keeps_the_body() -> None:
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


async def test_client_headers_are_forwarded_unchanged() -> None:
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
async def test_upstream_key_replaces_the_client_credential(
    auth_header: bytes | None, used: bytes, name: bytes, value: bytes
) -> None:
    """In `auth_header`, else where the client put its own, of which nothing goes out."""
    async with models(serve(HELLO), api_key=SECRET, auth_header=auth_header) as answering:
        asked = exchange(credential=b"Authorization: Bearer sk-client\r\nx-api-key: sk-client\r\n")
        await answering.ask(replace(asked, origin=replace(asked.origin, credential_header=used)))
        await listing(answering, used=used)
        requests = answering.upstreams[0].requests
    assert len(requests) == 2
    for request in requests:
        assert request.list_values(name) == [value]
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


async def test_configured_model_replaces_the_client_model() -> None:
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


async def test_unknown_model_goes_to_the_first_upstream() -> None:
    """Where every upstream has `models`; it says itself what it does not know."""
    async with models(serve(HELLO), patterns=(("a",), ("b",))) as answering:
        for body in ({"model": "c"}, {"model": None}, {"model": {"x": 1}}, {}):
            assert answering.core.list_candidates(body).upstream == "up0"


async def test_configured_upstream_or_model_overrides_the_requested_model() -> None:
    """`context.upstream`; and `context.model` is what patterns are matched with."""
    async with models(serve(HELLO), patterns=PATTERNS, fixed="up1") as answering:
        assert answering.core.list_candidates({"model": "gpt-5"}).upstream == "up1"
    async with models(serve(HELLO), patterns=PATTERNS, model="gpt-5") as answering:
        assert answering.core.list_candidates({"model": "claude-x"}).upstream == "up0"


async def test_missing_upstream_error_names_the_configuration_section() -> None:
    """It names the section."""
    async with models(patterns=()) as answering:
        error = await failure(answering, "upstream_unavailable")
        assert "'upstreams'" in error.message


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
async def test_upstream_error_status_maps_to_a_client_error(status: int, code: str, outcome: str) -> None:
    """With the upstream's name, status and words; a redirect is not followed."""
    body = b'{"error": {"message": "Because."}}'
    raw = build_answer(status, b"" if status == 204 else body, [("Location", "http://127.0.0.1:1/")])
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
        ([("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")], 0),
        ([("Retry-After", "Wed, 21 Oct 2015 07:28:30 GMT"), ("Date", "Wed, 21 Oct 2015 07:28:00 GMT")], 30),
        ([("Retry-After", "Wed, 21 Oct 2215 07:28:00 GMT")], 60),
        ([("Retry-After", "20"), ("retry-after-ms", "5")], 0.005),
        ([("Retry-After", "20"), ("retry-after-ms", "soon")], 20),
        ([("retry-after-ms", "9" * 40)], 60),
    ],
)
async def test_retry_after_follows_the_upstream_up_to_a_minute(
    fields: list[tuple[str, str]], retry_after_s: float | None
) -> None:
    """As it says, to the millisecond, and never longer than a minute."""
    async with models(serve(build_answer(429, b"{}", fields))) as answering:
        assert (await failure(answering, "upstream_limited")).retry_after_s == retry_after_s


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "plain words"}', "plain words"),
        (b'{"error": {"message": 5}}', ""),
        (b'{"message": "elsewhere"}', "elsewhere"),
        (b"<html>Bad gateway</html>", ""),
        (b"[]", ""),
        (b"", ""),
        (b"\xff", ""),
        (b'{"error": {"message": "' + b"x" * 200_000 + b'"}}', ""),
    ],
)
async def test_error_message_omits_unreadable_upstream_error_bodies(body: bytes, words: str) -> None:
    """What is no message is not told, nor a part of an answer that was cut."""
    async with models(serve(build_answer(400, body))) as answering:
        error = await failure(answering, "upstream_rejected")
        assert words in error.message
        assert len(error.message) < 100


async def test_upstream_error_message_has_its_key_masked() -> None:
    """Some upstreams do."""
    body = orjson.dumps({"error": {"message": f"Incorrect API key: {SECRET.decode()}."}})
    async with models(serve(build_answer(401, body)), api_key=SECRET) as answering:
        error = await failure(answering, "upstream_refused")
        assert "Incorrect API key: ***." in error.message


# The list of models.


async def test_model_list_is_forwarded_from_the_upstream() -> None:
    """Status, type and body as they come, asked with the same credentials."""
    raw = build_answer(200, b'{"data": []}', [("Content-Type", "application/json; charset=utf-8")])
    async with models(serve(raw), api_key=SECRET) as answering:
        listed = await listing(answering, header=b"X-One: 1\r\n")
        (request,) = answering.upstreams[0].requests
    assert listed == (200, "application/json; charset=utf-8", b'{"data": []}')
    assert request.method == b"GET" and request.list_values(b"x-one") == [b"1"]
    assert request.list_values(b"authorization") == [b"Bearer " + SECRET]


async def test_model_list_error_is_forwarded() -> None:
    """It is the upstream's answer."""
    async with models(serve(build_answer(404, b"nothing"))) as answering:
        assert await listing(answering) == (404, "application/json", b"nothing")


async def test_endless_model_list_is_refused() -> None:
    """502, which says how much is; the connection is closed."""

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(build_head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]))
        with suppress(ConnectionError):
            while True:
                await peer.send(framed(b" " * 65536))

    async with models(endless) as answering:
        with pytest.raises(GatewayError) as failed:
            await listing(answering)
        assert failed.value.code == "upstream_error" and str(LIST_LIMIT_BYTES) in failed.value.message
        await answering.upstreams[0].wait_open(0)
    whole = build_answer(200, b" " * LIST_LIMIT_BYTES)
    async with models(serve(whole)) as answering:
        assert len((await listing(answering))[2]) == LIST_LIMIT_BYTES
