"""Answers for pages of other sites, asked of a gateway in this process."""

import pytest
from functional.through import ask, get, post, through
from running import key

ORIGIN = b"https://chat.example"
PREFLIGHT = (b"Access-Control-Request-Method: POST", b"Access-Control-Request-Headers: authorization,x-stainless-os")


@pytest.mark.parametrize(
    "target", [b"/v1/chat/completions", b"/context/v1/chat/completions", b"/mcp/services", b"/v1/x"]
)
@pytest.mark.parametrize("keys", [[], [key("k")]])
async def test_a_named_page_is_told_what_it_may_send(target: bytes, keys: list[object]) -> None:
    """In every lane, without a key, which a browser does not send here; nothing goes upstream."""
    async with through(cors=["https://chat.example"], keys=keys) as (gateway, upstream):
        for private in ((), (b"Access-Control-Request-Private-Network: true",)):
            request = get(target, b"Origin: " + ORIGIN, *PREFLIGHT, *private, method=b"OPTIONS")
            answer = await ask(gateway, request)
            assert (answer.status, answer.payload) == (204, b"")
            assert answer.values(b"access-control-allow-origin") == [ORIGIN]
            assert answer.values(b"access-control-allow-headers") == [b"authorization,x-stainless-os"]
            assert b"POST" in answer.values(b"access-control-allow-methods")[0]
            assert answer.values(b"access-control-allow-private-network") == ([b"true"] if private else [])
            assert not answer.values(b"access-control-allow-credentials")
        assert not upstream.requests


async def test_no_other_page_is() -> None:
    """Refused without keys; by default there is none."""
    for cors in ([], ["https://chat.example"]):
        async with through(cors=cors) as (gateway, upstream):
            request = get(b"/v1/x", b"Origin: https://evil.example", *PREFLIGHT, method=b"OPTIONS")
            answer = await ask(gateway, request)
            assert answer.status == 403 and not answer.values(b"access-control-allow-origin")
            assert not upstream.requests


async def test_a_named_page_may_read_our_answers() -> None:
    """Errors included; what an upstream answers is the upstream's, byte for byte."""
    async with through(cors=["https://chat.example"]) as (gateway, upstream):
        own = await ask(gateway, get(b"/health/live", b"Origin: " + ORIGIN))
        wrong = await ask(gateway, post(b"{", b"/context/v1/chat/completions", b"Origin: " + ORIGIN))
        passed = await ask(gateway, get(b"/v1/x", b"Origin: " + ORIGIN))
        assert (own.status, wrong.status, passed.status) == (200, 415, 200)
        for answer in (own, wrong):
            assert answer.values(b"access-control-allow-origin") == [ORIGIN]
            assert answer.values(b"vary") == [b"Origin"]
        assert not passed.values(b"access-control-allow-origin")
        assert upstream.requests[0].values(b"origin") == [ORIGIN]
        plain = await ask(gateway, get(b"/health/live"))
        assert not plain.values(b"access-control-allow-origin")
