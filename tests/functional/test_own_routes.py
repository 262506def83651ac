"""The gateway's own pages: on the same connections as the lane, for this gateway's names only, and discreet."""

import json

import pytest
from gateways import key

from gateway.testing.raw_connection import Response
from gateway.testing.scripts import build_answer, serve

from .through import (
    ask,
    breathe,
    client_of,
    error_of,
    get,
    in_pieces,
    listener_of,
    post,
    post_chunked,
    refusal,
    through,
)

LOCAL = b"Host: localhost:8080"
PAGES = {"/health/live": b'{"status": "ok"}', "/health/ready": b'{"status": "ready"}', "/": b'{"status": "ok"}'}


def own(target: bytes, *lines: bytes, method: bytes = b"GET", version: bytes = b"1.1", host: bytes = LOCAL) -> bytes:
    return b"\r\n".join([b"%b %b HTTP/%b" % (method, target, version), host, *lines, b"", b""])


def is_discreet(response: Response) -> None:
    assert not response.list_values(b"server")
    assert b"aiohttp" not in response.raw_head and b"Python" not in response.raw_head


@pytest.mark.parametrize("target", PAGES)
async def test_gateway_page_is_served_by_get_and_head_with_any_query(target: str) -> None:
    """GET and HEAD, with a query, without telling what serves it."""
    async with through() as (gateway, upstream):
        for query in (b"", b"?", b"?x=%zz&/v1/"):
            response = await ask(gateway, own(target.encode() + query))
            assert (response.status, response.payload) == (200, PAGES[target])
            assert response.list_values(b"content-type") == [b"application/json; charset=utf-8"]
            is_discreet(response)
        response = await ask(gateway, own(target.encode(), method=b"HEAD"))
        assert (response.status, response.raw_body) == (200, b"")
        assert response.list_values(b"content-length") == [b"%d" % len(PAGES[target])]
        assert not upstream.connections


async def test_the_metrics_are_served() -> None:
    """As text for Prometheus, counting what was served before."""
    async with through() as (gateway, _):
        await ask(gateway, post(b"{}"))
        response = await ask(gateway, own(b"/metrics"))
        assert response.list_values(b"content-type") == [b"text/plain; version=0.0.4; charset=utf-8"]
        assert (
            b'gateway_http_requests_total{code="200",method="POST",mode="passthrough",route="/v1/"} 1.0'
            in response.payload
        )
        is_discreet(response)


async def test_gateway_pages_and_passthrough_share_a_connection() -> None:
    """One after the other, on and on, over one upstream connection."""
    async with through(serve(build_answer(200, b"lane"))) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(20):
            for request, payload in (
                (own(b"/health/live"), b'{"status": "ok"}'),
                (post(b"abc"), b"lane"),
                (own(b"/metrics", method=b"HEAD"), b""),
                (own(b"/health/ready"), b'{"status": "ready"}'),
                (get(), b"lane"),
            ):
                await client.send(request)
                response = await client.read_response(method="HEAD" if request[:4] == b"HEAD" else "GET")
                assert (response.status, response.payload, response.list_values(b"connection")) == (200, payload, [])
        assert len(upstream.connections) == 1


async def test_pipelined_page_and_passthrough_requests_are_answered_in_order() -> None:
    """All sent at once, cut anywhere."""
    stream = (
        own(b"/health/live")
        + get(b"/v1/1")
        + own(b"/")
        + own(b"/nothing")
        + post(b"abc", b"/v1/2")
        + own(b"/health/ready")
    ) * 5
    expected = [b'{"status": "ok"}', b"/v1/1", b'{"status": "ok"}', None, b"/v1/2", b'{"status": "ready"}'] * 5
    async with through(serve(lambda r: build_answer(200, r.target))) as (gateway, upstream):
        for cut in (0, 17, 60, 137, 333, len(stream) - 1):
            async with client_of(gateway) as client:
                await in_pieces(client, stream[:cut], stream[cut:])
                for payload in expected:
                    response = await client.read_response()
                    if payload is None:
                        assert response.status == 404
                    else:
                        assert (response.status, response.payload) == (200, payload)
        assert len(upstream.connections) == 1


async def test_a_page_request_may_come_byte_by_byte() -> None:
    """Head and body."""
    async with through() as (gateway, _), client_of(gateway) as client:
        for _ in range(2):
            await in_pieces(client, *[bytes((byte,)) for byte in own(b"/health/live")])
            assert (await client.read_response()).status == 200


@pytest.mark.parametrize(
    "method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"FOO-BAR", b"get", b"M-SEARCH", b"!#$"]
)
async def test_unsupported_page_methods_return_405(method: bytes) -> None:
    """Also those that the library behind the pages does not know; the connection goes on."""
    async with through() as (gateway, _), client_of(gateway) as client:
        for target in (b"/health/live", b"/metrics", b"/"):
            await client.send(own(target, b"Content-Length: 3", method=method) + b"abc")
            response = await client.read_response()
            assert (response.status, error_of(response)["code"]) == (405, "method_not_allowed")
            assert b"GET" in b"".join(response.list_values(b"allow"))
            is_discreet(response)
        await client.send(get())
        assert (await client.read_response()).status == 200


@pytest.mark.parametrize(
    "target", [b"/health", b"/health/live/", b"/health/live;x", b"//", b"/metrics/", b"/Health/Live", b"/health%2flive"]
)
async def test_pages_are_matched_exactly(target: bytes) -> None:
    """By the raw path: everything else is an unknown route, told with the way to the right one."""
    async with through() as (gateway, upstream):
        response = await ask(gateway, own(target))
        error = error_of(response)
        assert (response.status, error["code"], error["type"]) == (404, "unknown_route", "not_found_error")
        assert "/v1" in error["message"]
        assert not upstream.connections


async def test_long_and_many_headers_are_accepted_by_pages() -> None:
    """The limits are the gateway's, not those of the library behind the pages; nothing is echoed."""
    canary = b"canary" + b"c" * 9000
    async with through() as (gateway, _), client_of(gateway) as client:
        for lines in (
            [b"Authorization: Bearer " + canary],
            [b"X-%d: y" % i for i in range(200)],
            [b"X-Long-%d: %b" % (i, canary) for i in range(3)],
            [b"X-Latin: \xe4\xff", b"X-Empty:", b"X-Odd!#$: z"],
        ):
            await client.send(own(b"/health/live", *lines))
            response = await client.read_response()
            assert (response.status, b"canary" in response.raw) == (200, False)
            is_discreet(response)
        await client.send(own(b"/health/live?" + b"q" * 20_000))
        assert (await client.read_response()).status == 200


HOSTS = {
    "localhost": 200,
    "LOCALHOST:99": 200,
    "127.0.0.1:8080": 200,
    "127.9.9.9": 200,
    "[::1]:80": 200,
    "gw.example": 200,
    "GW.example:443": 200,
    "evil.example": 403,
    "localhost.evil.example": 403,
    "evil-localhost": 403,
    "10.0.0.1": 403,
    "gw.example.evil.example": 403,
    "0.0.0.0": 403,
    "[::2]": 403,
    "2130706433": 403,
}


@pytest.mark.parametrize("host", HOSTS)
async def test_pages_refuse_unknown_host_names(host: str) -> None:
    """Against DNS rebinding: loopback, the listen address and `allowed_hosts`; the root says nothing and is for all."""
    async with through(allowed_hosts=["gw.example"]) as (gateway, _):
        for page in (b"/health/live", b"/health/ready", b"/metrics"):
            response = await ask(gateway, own(page, host=b"Host: " + host.encode()))
            assert response.status == HOSTS[host]
            if response.status == 403:
                assert error_of(response)["code"] == "host_not_allowed"
                assert host.encode() not in response.raw
        assert (await ask(gateway, own(b"/", host=b"Host: " + host.encode()))).status == 200


async def test_absolute_target_authority_overrides_the_host_header() -> None:
    """Not the Host beside it."""
    async with through() as (gateway, _):
        assert (await ask(gateway, own(b"http://localhost:1/health/live"))).status == 200
        assert (await ask(gateway, own(b"http://evil.example/health/live"))).status == 403


@pytest.mark.parametrize(
    ("origins", "status"),
    [
        ([b"http://localhost:8080"], 200),
        ([b"HTTP://LOCALHOST.:8080"], 200),
        ([b"http://localhost"], 403),
        ([b"https://gw.example"], 200),
        ([b"https://gw.example:444"], 403),
        ([b"http://localhost:3000"], 403),
        ([b"http://127.0.0.1:8080"], 403),
        ([b"http://[::1]"], 403),
        ([b"app://localhost"], 403),
        ([b"http://evil.example"], 403),
        ([b"null"], 403),
        ([b""], 403),
        ([b"file://"], 403),
        ([b"http://localhost.evil.example"], 403),
        ([b"http://localhost", b"http://evil.example"], 403),
        ([b"http://evil.example", b"http://localhost"], 403),
        ([b"http://user@localhost"], 403),
    ],
)
async def test_pages_of_other_sites_are_refused(origins: list[bytes], status: int) -> None:
    """A browser that sends a foreign Origin gets nothing."""
    async with through(allowed_hosts=["gw.example"]) as (gateway, _):
        response = await ask(gateway, own(b"/metrics", *(b"Origin: " + origin for origin in origins)))
        assert response.status == status
        if status == 403:
            assert error_of(response)["code"] == "origin_not_allowed"


async def test_passthrough_with_keys_ignores_host_and_origin() -> None:
    """They go upstream, as everything: a browser has no key to add to what another page asks."""
    async with through(keys=[key("k")], allowed_hosts=[]) as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", b"Origin: http://evil.example", b"X-Gateway-Key: k"))).status == 200
        assert upstream.requests[0].list_values(b"origin") == [b"http://evil.example"]


async def test_page_request_with_connection_close_ends_the_connection() -> None:
    """`Connection: close` and HTTP/1.0: the answer, its framing, the end."""
    async with through() as (gateway, _):
        for request in (
            own(b"/health/live", b"Connection: close"),
            own(b"/health/live", version=b"1.0"),
            own(b"/metrics", b"Connection: Close"),
        ):
            async with client_of(gateway) as client:
                await client.send(request + get())
                response = await client.read_response()
                assert (response.status, response.version) in ((200, b"HTTP/1.1"), (200, b"HTTP/1.0"))
                assert await client.wait_end() == "eof"


async def test_page_request_body_does_not_reach_the_next_request() -> None:
    """In pieces, with a length or chunked; what follows it is the next request."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        for body in (own(b"/", b"Content-Length: 10"), own(b"/", b"Transfer-Encoding: chunked")):
            rest = b"5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n" if b"chunked" in body else b"0123456789"
            await client.send(body + rest + get())
            assert [(await client.read_response()).status for _ in range(2)] == [200, 200]
        assert [request.raw_body for request in upstream.requests] == [b"", b""]


async def test_unread_rest_of_a_body_is_not_a_request() -> None:
    """The answer comes at once; what then comes of the body is dropped, and the connection goes on behind it."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(own(b"/health/live", b"Content-Length: 1000", method=b"POST") + b"x" * 10)
        assert (await client.read_response()).status == 405
        await in_pieces(client, get(), b"x" * (990 - len(get())), get(b"/v1/next"))
        assert (await client.read_response()).status == 200
        assert [request.target for request in upstream.requests] == [b"/v1/next"]


async def test_a_malformed_body_of_a_page_request_is_refused() -> None:
    """By the same rules as in the lane; once."""
    async with through() as (gateway, upstream):
        for bad in (b"zz\r\nabc\r\n", b"3\r\nabcde\r\n", b"0\r\nHost: evil\r\n\r\n"):
            async with client_of(gateway) as client:
                await client.send(own(b"/metrics", b"Transfer-Encoding: chunked", method=b"POST") + bad + get())
                raw = await client.read_rest()
            assert raw.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 ")) and raw.count(b"HTTP/1.1 ") == 1
        for bad in (
            own(b"/health/live", b"Content-Length: 3", b"Transfer-Encoding: chunked"),
            own(b"/health/live", b" folded: x"),
        ):
            assert (await refusal(gateway, bad)).status == 400
        assert not upstream.connections


async def test_upgrades_of_pages_are_ignored() -> None:
    """An ordinary answer, and the connection goes on."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        for lines in (
            (b"Connection: Upgrade", b"Upgrade: websocket"),
            (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"),
        ):
            await client.send(own(b"/health/live", *lines, b"Sec-WebSocket-Key: a") + get())
            assert (await client.read_response()).status == 200
            assert (await client.read_response()).status == 200
        assert len(upstream.requests) == 2


async def test_page_request_with_expect_continue_is_answered() -> None:
    """100-continue is answered or skipped, and the answer is right; the connection is not confused."""
    async with through() as (gateway, _), client_of(gateway) as client:
        await client.send(own(b"/", b"Expect: 100-continue", b"Content-Length: 3", method=b"POST"))
        await breathe(20)
        await client.send(b"abc")
        assert (await client.read_response()).status == 405


async def test_admin_address_serves_the_pages_instead_of_the_data_address() -> None:
    """With `admin.listen` the data address knows only the root."""
    async with through(admin={"listen": "127.0.0.1:0"}) as (gateway, _):
        assert (await ask(gateway, own(b"/"))).status == 200
        for page in (b"/metrics", b"/health/live", b"/health/ready"):
            assert (await ask(gateway, own(page))).status == 404


async def test_a_prefix_that_covers_everything_covers_the_pages() -> None:
    """The operator's choice: `/` goes upstream, and the rest too."""
    async with through(passthrough={"paths": ["/"]}) as (gateway, upstream):
        for target in (b"/", b"/health/live", b"/anything"):
            assert (await ask(gateway, own(target))).status == 200
        assert [request.target for request in upstream.requests] == [b"/", b"/health/live", b"/anything"]


async def test_client_that_leaves_a_page_leaves_no_connection() -> None:
    """However it goes."""
    async with through() as (gateway, _):
        for how in ("close", "reset"):
            for _ in range(20):
                client = await client_of(gateway)
                await client.send(own(b"/metrics") * 3 + post_chunked(b"5\r\nab", b"/metrics"))
                getattr(client, how)()
        await breathe(50)
        assert not listener_of(gateway).connections and listener_of(gateway).inflight == 0


async def test_errors_of_the_data_address_name_no_library() -> None:
    """Every kind of refusal has our JSON, in one form."""
    async with through() as (gateway, _):
        for request in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x00",
            own(b"/", b"X: \x00"),
            own(b"/nope"),
            get(b"/nope", method=b"PUT"),
        ):
            async with client_of(gateway) as client:
                await client.send(request)
                response = await client.read_response()
                assert json.loads(response.payload)["error"]["message"]
                is_discreet(response)
