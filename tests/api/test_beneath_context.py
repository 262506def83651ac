"""The rest of the API beneath the base URL of the context lane: passed through, or refused with the way out."""

import pytest
from functional.through import FINE, ask, error_of, get, post, through
from gateways import key

from gateway.testing.upstream import FakeUpstream

JSON = b"Content-Type: application/json"
STEERED = b"X-Context-Conversation: c"


@pytest.mark.parametrize("base", [b"/context/v1", b"/context"])
async def test_toolless_endpoints_pass_through_unchanged(base: bytes) -> None:
    """Whatever its method, body and type, byte for byte; X-Context-* has no effect and goes nowhere."""
    async with through(FINE) as (gateway, upstream):
        body = b'\x00{"input": "Hi"\xff'
        requests = [
            post(body, base + b"/embeddings?a=%20", STEERED),
            post(body, base + b"/audio/transcriptions", b"Content-Type: multipart/form-data; boundary=x"),
            post(body, base + b"/images/generations"),
            post(body, base + b"/moderations", b"Content-Encoding: gzip"),
            get(base + b"/models/org/name"),
            get(base + b"/files"),
            get(base + b"/files/file_1", method=b"DELETE"),
            get(base + b"/chat/completions/cc_1"),
        ]
        for request in requests:
            answer = await ask(gateway, request)
            assert (answer.status, answer.payload) == (200, b"fine")
            assert not answer.list_values(b"x-context-run-id")
        for request, seen in zip(requests, upstream.requests, strict=True):
            line = request.partition(b"\r\n")[0].split(b" ")
            assert (seen.method, seen.target) == (line[0], line[1].replace(base, b"/v1", 1))
            assert seen.payload == request.partition(b"\r\n\r\n")[2]
            assert b"x-context" not in seen.raw_head.lower()


@pytest.mark.parametrize("base", [b"/context/v1", b"/context"])
@pytest.mark.parametrize(
    "path",
    [
        *(b"/completions", b"/audio/../Responses"),
        *(
            b"/embeddings/..%2fresponses",
            b"/files/../responses",
            b"/threads/t_1/runs",
            b"/chat//completions",
        ),
    ],
)
async def test_generating_endpoint_beneath_context_is_refused(base: bytes, path: bytes) -> None:
    """Once, with a status that no client repeats; the error says what the lane speaks, and the way out."""
    async with through() as (gateway, upstream):
        answer = await ask(gateway, post(b"{}", base + path, JSON))
        error = error_of(answer)
        assert (answer.status, error["code"]) == (400, "unsupported_endpoint")
        assert "/context/v1/chat/completions" in error["message"] and "/v1'" in error["message"]
        assert not upstream.requests


async def test_a_realtime_session_is_refused() -> None:
    """It is a WebSocket, and generates."""
    async with through() as (gateway, upstream):
        lines = (
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Key: eA==",
            b"Sec-WebSocket-Version: 13",
        )
        answer = await ask(gateway, get(b"/context/v1/realtime?model=m", *lines))
        assert (answer.status, error_of(answer)["code"]) == (400, "unsupported_endpoint")
        assert not upstream.connections


@pytest.mark.parametrize("path", [b"/context/v1/../x", b"/context/v1/files/../../x", b"/context/v1/%2e%2e/x"])
async def test_path_outside_the_api_returns_404(path: bytes) -> None:
    """However it is spelled."""
    async with through() as (gateway, upstream):
        answer = await ask(gateway, get(path))
        assert (answer.status, error_of(answer)["code"]) == (404, "unknown_route")
        assert not upstream.requests


async def test_context_scope_allows_only_stateless_passthrough_calls() -> None:
    """Not for what stores or deletes something at the upstream, however its path is spelled."""
    keys = [key("talker", "context"), key("passer")]
    async with through(FINE, keys=keys) as (gateway, upstream):

        async def status(path: bytes, *lines: bytes) -> int:
            return (await ask(gateway, post(b"{}", b"/context/v1" + path, JSON, *lines))).status

        talker, passer = b"X-Gateway-Key: talker", b"X-Gateway-Key: passer"
        for path in (b"/embeddings", b"/moderations", b"/audio/speech", b"/images/edits", b"/models/org/m"):
            assert (await status(path), await status(path, b"X-Gateway-Key: no")) == (401, 401)
            assert (await status(path, talker), await status(path, passer)) == (200, 200)
        passed = len(upstream.requests)
        for path in (b"/files", b"/batches", b"/embeddings/../files", b"/models/../files", b"/models/%2e%2e/files"):
            assert await status(path, talker) == 403
        assert len(upstream.requests) == passed
        assert await status(b"/files", passer) == 200
        assert not any(b"talker" in request.raw_head for request in upstream.requests)


@pytest.mark.parametrize(
    ("first", "second", "named", "target"),
    [
        ({}, {}, None, b"1 /v1/embeddings"),
        ({}, {}, "two", b"2 /v1/embeddings"),
        ({}, {"base": "/api"}, "two", b"2 /api/embeddings"),
        ({}, {"paths": ["/v1/embeddings"]}, "one", b"2 /v1/embeddings"),
        ({"paths": ["/one/"]}, {"paths": ["/two/"]}, None, b"1 /v1/embeddings"),
        ({"paths": ["/one/"], "base": "/api"}, {"paths": ["/two/"]}, None, b"1 /api/embeddings"),
        ({"paths": ["/one/"]}, {"paths": ["/two/"], "base": "/api"}, "two", b"2 /api/embeddings"),
    ],
)
async def test_beneath_context_request_is_routed_by_path_then_lane_upstream(
    first: dict[str, object], second: dict[str, object], named: str | None, target: bytes
) -> None:
    """To the route of this path, else to the lane's upstream, else to the route of the API, else to the first."""
    async with FakeUpstream(FINE) as one, FakeUpstream(FINE) as two:
        upstreams = [
            {"name": name, "base_url": fake.base_url + str(facts.get("base", "")), "paths": facts.get("paths", [])}
            for name, fake, facts in (("one", one, first), ("two", two, second))
        ]
        async with through(upstreams=upstreams, context={"upstream": named}) as (gateway, _):
            assert (await ask(gateway, post(b"{}", b"/context/v1/embeddings"))).status == 200
            seen = [b"%d " % n + request.target for n, fake in ((1, one), (2, two)) for request in fake.requests]
            assert seen == [target]
