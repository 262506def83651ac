"""Answers for pages of other sites, asked of a gateway in this process."""

import json

import pytest
from functional.through import ask, get, post, through
from gateways import key

from gateway.testing.scripts import build_answer, serve
from tests.e2e.models import says
from tests.e2e.talking import talking

ORIGIN = b"https://chat.example"
PREFLIGHT = (b"Access-Control-Request-Method: POST", b"Access-Control-Request-Headers: authorization,x-stainless-os")


@pytest.mark.parametrize(
    "target", [b"/v1/chat/completions", b"/context/v1/chat/completions", b"/mcp/services", b"/v1/x"]
)
@pytest.mark.parametrize("keys", [[], [key("k")]])
async def test_preflight_from_allowed_origin_gets_cors_headers_without_a_key(target: bytes, keys: list[object]) -> None:
    """In every lane, without a key, which a browser does not send here; nothing goes upstream."""
    async with through(cors=["https://chat.example"], keys=keys) as (gateway, upstream):
        for private in ((), (b"Access-Control-Request-Private-Network: true",)):
            request = get(target, b"Origin: " + ORIGIN, *PREFLIGHT, *private, method=b"OPTIONS")
            answer = await ask(gateway, request)
            assert (answer.status, answer.payload) == (204, b"")
            assert answer.list_values(b"access-control-allow-origin") == [ORIGIN]
            assert answer.list_values(b"access-control-allow-headers") == [b"authorization,x-stainless-os"]
            assert b"POST" in answer.list_values(b"access-control-allow-methods")[0]
            assert answer.list_values(b"access-control-allow-private-network") == ([b"true"] if private else [])
            assert not answer.list_values(b"access-control-allow-credentials")
        assert not upstream.requests


async def test_origins_not_configured_are_refused() -> None:
    """Refused without keys; by default there is none."""
    for cors in ([], ["https://chat.example"]):
        async with through(cors=cors) as (gateway, upstream):
            request = get(b"/v1/x", b"Origin: https://evil.example", *PREFLIGHT, method=b"OPTIONS")
            answer = await ask(gateway, request)
            assert answer.status == 403 and not answer.list_values(b"access-control-allow-origin")
            assert not upstream.requests


async def test_allowed_origin_may_read_gateway_answers_and_errors() -> None:
    """Errors included, in both lanes."""
    async with through(cors=["https://chat.example"]) as (gateway, upstream):
        own = await ask(gateway, get(b"/health/live", b"Origin: " + ORIGIN))
        wrong = await ask(gateway, post(b"{", b"/context/v1/chat/completions", b"Origin: " + ORIGIN))
        passed = await ask(gateway, get(b"/v1/x", b"Origin: " + ORIGIN))
        assert (own.status, wrong.status, passed.status) == (200, 415, 200)
        for answer in (own, wrong):
            assert answer.list_values(b"access-control-allow-origin") == [ORIGIN]
            assert answer.list_values(b"vary") == [b"Origin"]
        assert passed.list_values(b"access-control-allow-origin") == [ORIGIN]
        assert upstream.requests[0].list_values(b"origin") == [ORIGIN]
        plain = await ask(gateway, get(b"/health/live"))
        assert not plain.list_values(b"access-control-allow-origin")


HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/context/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_allowed_origin_may_read_chats(path: str, *, stream: bool) -> None:
    """Whole and streamed, in both lanes, with the ids of ours that a page may need."""
    body = json.dumps({"model": "m", "messages": HI, "stream": stream}).encode()
    lines = (b"Content-Type: application/json", b"Origin: " + ORIGIN)
    async with talking(says("Hello."), cors=["https://chat.example"]) as world:
        request = post(body, path.encode(), *lines).replace(b"gw.example", b"localhost")
        told = await ask(world.gateway, request)
        assert (told.status, told.list_values(b"access-control-allow-origin")) == (200, [ORIGIN])
        assert told.list_values(b"vary") == [b"Origin"] and b"Hello." in told.payload
        assert b"x-context-run-id" in told.list_values(b"access-control-expose-headers")[0]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], [ORIGIN]),
        ([("Access-Control-Expose-Headers", "x-up")], [ORIGIN]),
        ([("Access-Control-Allow-Origin", "*")], [b"*"]),
        ([("access-control-allow-origin", "https://other.example")], [b"https://other.example"]),
    ],
)
async def test_cors_headers_of_an_upstream_are_kept(own: list[tuple[str, str]], expected: list[bytes]) -> None:
    """A browser takes one Access-Control-Allow-Origin; pages that are not named change nothing at all."""
    async with through(serve(build_answer(200, b"fine", own)), cors=["https://chat.example"]) as (gateway, _):
        for _ in range(2):  # the second one by a remembered plan
            shared = await ask(gateway, get(b"/v1/x", b"Origin: " + ORIGIN))
            assert (shared.payload, shared.list_values(b"access-control-allow-origin")) == (b"fine", expected)
            assert (b"x-up" in shared.list_values(b"access-control-expose-headers")) is (
                len(own) == 1 and "x-up" in own[0]
            )
        assert (await ask(gateway, get(b"/v1/x"))).raw == build_answer(200, b"fine", own)


async def test_allowed_origin_may_read_gateway_errors_of_the_passthrough_lane() -> None:
    """401, 403, 404 and 502 are ours there: without the fields a browser says "network error". Others get none."""
    keys = [key("k"), key("context-only", "context")]
    for base_url in (None, "http://127.0.0.1:9"):
        upstream = {} if base_url is None else {"upstream": {"base_url": base_url}}
        async with through(cors=["https://chat.example"], keys=keys, **upstream) as (gateway, _):
            expected = {
                get(b"/v1/x", b"Origin: " + ORIGIN): 401,
                get(b"/v1/x", b"Origin: " + ORIGIN, b"X-Gateway-Key: no"): 401,
                get(b"/v1/x", b"Origin: " + ORIGIN, b"X-Gateway-Key: context-only"): 403,
                get(b"/nothing", b"Origin: " + ORIGIN, b"X-Gateway-Key: k"): 404,
            }
            if base_url is not None:
                expected |= {get(b"/v1/x", b"Origin: " + ORIGIN, b"X-Gateway-Key: k"): 502}
            for request, status in expected.items():
                for _ in range(2):  # the second one by a remembered plan, where there is one
                    answer = await ask(gateway, request)
                    assert (answer.status, answer.list_values(b"access-control-allow-origin")) == (status, [ORIGIN])
                    assert answer.list_values(b"vary") == [b"Origin"]
                    assert b"x-request-id" in answer.list_values(b"access-control-expose-headers")[0]
                foreign = await ask(gateway, request.replace(ORIGIN, b"https://evil.example"))
                assert foreign.status == status and not foreign.list_values(b"access-control-allow-origin")
                assert foreign.list_values(b"vary") == [b"Origin"]


async def test_error_responses_have_no_cors_headers_without_configured_origins() -> None:
    """The default."""
    async with through(keys=[key("k")]) as (gateway, _):
        answer = await ask(gateway, get(b"/v1/x", b"Origin: " + ORIGIN))
        assert answer.status == 401 and not answer.list_values(b"vary")
