"""The few header lines that end at the gateway, that it replaces, and that nobody can make it drop."""

import hashlib

import pytest

from gateway.testing.scripts import build_answer, serve

from .through import ask, client_of, error_of, get, post, refusal, through

KEY = "gk-0123456789abcdef"


def key(text: str = KEY, *, scopes: tuple[str, ...] = ("passthrough",), name: str = "ci") -> dict[str, object]:
    return {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "scopes": list(scopes)}


async def lines_upstream(*lines: bytes, upstream: dict[str, object] | None = None, **settings: object) -> list[bytes]:
    """The header lines that arrive of a request with `lines`, without Host."""
    async with through(upstream=upstream, **settings) as (gateway, fake):
        response = await ask(gateway, get(b"/v1/x", *lines))
        assert response.status == 200, response.raw
    (request,) = fake.requests
    return [line for line in request.raw_head.split(b"\r\n")[1:-2] if not line.lower().startswith(b"host:")]


async def lines_back(*lines: tuple[str, str], status: int = 200) -> list[bytes]:
    """The header lines that the client gets of an answer with `lines`."""
    async with through(serve(build_answer(status, b"hi", lines))) as (gateway, _):
        response = await ask(gateway, get())
    return response.raw_head.split(b"\r\n")[1:-2]


async def test_hop_by_hop_request_headers_are_not_forwarded() -> None:
    """RFC 9110 section 7.6.1, whatever their case."""
    sent = [
        b"Connection: keep-alive",
        b"Keep-Alive: timeout=5",
        b"PROXY-CONNECTION: close",
        b"te: trailers",
        b"Upgrade: h2c",
        b"Proxy-Authorization: Basic eDp5",
    ]
    assert await lines_upstream(b"A: 1", *sent, b"B: 2") == [b"A: 1", b"B: 2"]


async def test_hop_by_hop_answer_headers_are_not_forwarded() -> None:
    """And Connection is not invented for a connection that goes on."""
    sent = [
        ("Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "x"),
        ("Upgrade", "h2"),
        ("TE", "x"),
        ("Proxy-Authenticate", "Basic"),
        ("proxy-authentication-info", "x"),
    ]
    assert await lines_back(("A", "1"), *sent, ("B", "2")) == [b"A: 1", b"B: 2", b"Content-Length: 2"]


async def test_connection_nominated_request_headers_are_not_forwarded() -> None:
    """Named in one Connection header or in several, in any case, with odd spacing and empty members."""
    nominating = [
        b"Connection: X-One , ,x-TWO\t",
        b"X-One: 1",
        b"X-Two: 2",
        b"connection: close,X-Three",
        b"x-three: 3",
        b"X-Four: 4",
    ]
    assert await lines_upstream(*nominating) == [b"X-Four: 4"]


async def test_connection_nominated_answer_headers_are_not_forwarded() -> None:
    """As in a request; `close` of the upstream's connection is not the client's business."""
    nominating = [("Connection", "close, X-One"), ("x-one", "1"), ("X-Two", "2")]
    assert await lines_back(*nominating) == [b"X-Two: 2", b"Content-Length: 2"]


@pytest.mark.parametrize(
    "line",
    [b"Authorization: Bearer sk", b"Content-Type: a/b", b"x-api-key: sk", b"Content-Length: 0", b"authorization: x"],
)
async def test_credentials_and_framing_cannot_be_nominated_away(line: bytes) -> None:
    """Credentials, Host, length and type stay, whatever Connection says (an attack on whoever is behind a proxy)."""
    nominating = b"Connection: close, Authorization, Host, Content-Length, Content-Type, x-api-key, Transfer-Encoding"
    assert await lines_upstream(nominating, line) == [line]


async def test_host_cannot_be_nominated_away() -> None:
    """The upstream gets exactly one Host, its own."""
    async with through() as (gateway, upstream):
        await ask(gateway, get(b"/v1/x", b"Connection: Host"))
    assert upstream.requests[0].list_values(b"host") == [upstream.base_url.removeprefix("http://").encode()]


async def test_the_length_of_an_answer_cannot_be_nominated_away() -> None:
    """The client still knows where the answer ends."""
    assert b"Content-Length: 2" in await lines_back(("Connection", "Content-Length, Set-Cookie"), ("Set-Cookie", "a"))


async def test_chunked_framing_cannot_be_nominated_away() -> None:
    """In both directions."""
    raw = b"HTTP/1.1 200 OK\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    async with through(serve(raw)) as (gateway, upstream):
        request = get(b"/v1/x", b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked", method=b"POST")
        response = await ask(gateway, request + b"2\r\nhi\r\n0\r\n\r\n")
    assert response.payload == b"hi" == upstream.requests[0].payload


async def test_context_headers_are_not_forwarded() -> None:
    """X-Context-* is for the gateway; what only looks like it is not."""
    sent = [
        b"X-Context-Mode: passthrough",
        b"x-context-chain: a",
        b"X-CONTEXT-UNKNOWN: b",
        b"X-Context: kept",
        b"X-Contexts: kept",
    ]
    assert await lines_upstream(*sent) == [b"X-Context: kept", b"X-Contexts: kept"]


async def test_credentials_pass_when_the_upstream_has_no_key() -> None:
    """Without keys and api_key the client's own credentials go on as they came."""
    sent = [b"Authorization: Bearer sk-mine", b"x-api-key: sk-too", b"api-key: azure", b"OpenAI-Organization: o"]
    assert await lines_upstream(*sent) == sent


@pytest.mark.parametrize(
    ("sent", "auth_header", "expected"),
    [
        ([], None, [b"Authorization: Bearer sk-up"]),
        ([b"A: 1", b"authorization: Bearer mine", b"B: 2"], None, [b"A: 1", b"authorization: Bearer sk-up", b"B: 2"]),
        ([b"X-Api-Key: mine", b"B: 2"], None, [b"X-Api-Key: sk-up", b"B: 2"]),
        ([b"A: 1", b"X-API-KEY: mine", b"Authorization: Bearer mine"], None, [b"A: 1", b"Authorization: Bearer sk-up"]),
        ([b"Authorization: Basic eDp5"], None, [b"Authorization: Bearer sk-up"]),
        ([b"Authorization: Bearer mine", b"B: 2"], "x-api-key", [b"B: 2", b"X-Api-Key: sk-up"]),
        ([b"Authorization: Bearer mine", b"B: 2"], "api-key", [b"B: 2", b"Api-Key: sk-up"]),
        ([b"Api-Key: mine", b"B: 2"], "api-key", [b"Api-Key: sk-up", b"B: 2"]),
        ([b"api-key: one", b"B: 2", b"Api-Key: two", b"API-KEY: three"], "api-key", [b"api-key: sk-up", b"B: 2"]),
        ([b"api_key: one", b"B: 2", b"X_Api_Key: two"], "api-key", [b"B: 2", b"Api-Key: sk-up"]),
        ([b"Authorization: a", b"authorization: b", b"x-api-key: c"], None, [b"Authorization: Bearer sk-up"]),
    ],
)
async def test_upstream_key_replaces_the_client_credential(
    sent: list[bytes], auth_header: str | None, expected: list[bytes]
) -> None:
    """In the header and place that the client used, or in the configured one; exactly once."""
    upstream = {"api_key": "sk-up", **({"auth_header": auth_header} if auth_header else {})}
    assert await lines_upstream(*sent, upstream=upstream) == expected


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([b"Authorization: Bearer " + KEY.encode()], [b"Authorization: Bearer sk-up"]),
        ([b"authorization: bearer  " + KEY.encode() + b" "], [b"authorization: Bearer sk-up"]),
        ([b"x-api-key: " + KEY.encode()], [b"x-api-key: sk-up"]),
        ([b"X-Gateway-Key: " + KEY.encode()], [b"Authorization: Bearer sk-up"]),
        ([b"X-Gateway-Key: " + KEY.encode(), b"x-api-key: other"], [b"x-api-key: sk-up"]),
    ],
)
async def test_gateway_key_is_never_forwarded(sent: list[bytes], expected: list[bytes]) -> None:
    """Wherever it came, the upstream's key stands there or nothing does."""
    assert await lines_upstream(*sent, upstream={"api_key": "sk-up"}, keys=[key()]) == expected


async def test_duplicate_gateway_key_headers_are_removed() -> None:
    """A client that sends it in two headers does not leak it in the second one."""
    sent = [b"X-Gateway-Key: " + KEY.encode(), b"x-api-key: " + KEY.encode(), b"Authorization: Bearer " + KEY.encode()]
    assert await lines_upstream(*sent, b"A: 1", keys=[key()]) == [b"A: 1"]


async def test_client_credential_is_forwarded_beside_the_gateway_key() -> None:
    """Keys without an upstream key: X-Gateway-Key is ours, Authorization is the upstream's."""
    sent = [b"X-Gateway-Key: " + KEY.encode(), b"Authorization: Bearer sk-mine"]
    assert await lines_upstream(*sent, keys=[key()]) == [b"Authorization: Bearer sk-mine"]


@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        ([], 401, "missing_api_key"),
        ([b"Authorization: Bearer wrong"], 401, "invalid_api_key"),
        ([b"Authorization: Basic Z2s6"], 401, "missing_api_key"),
        ([b"Authorization: Bearer \xe4\xff"], 401, "invalid_api_key"),
        ([b"X-Gateway-Key: wrong", b"Authorization: Bearer " + KEY.encode()], 401, "invalid_api_key"),
        ([b"Authorization: Bearer " + KEY.encode()] * 2, 400, "invalid_header"),
        ([b"x-api-key: a", b"x-api-key: b"], 400, "invalid_header"),
        ([b"Authorization: Bearer other-scope"], 403, "scope_missing"),
    ],
)
async def test_refused_client_reaches_no_upstream(lines: list[bytes], status: int, code: str) -> None:
    """The connection goes on: the next request with a good key is served, by the same rules."""
    keys = [key(), key("other-scope", name="second", scopes=("context",))]
    async with through(upstream={"api_key": "sk-up"}, keys=keys) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(2):
            await client.send(post(b"{}", b"/v1/x", *lines))
            response = await client.read_response()
            assert (response.status, error_of(response)["code"]) == (status, code)
            assert response.list_values(b"www-authenticate") == ([b"Bearer"] if status == 401 else [])
            assert not any(secret in response.raw for secret in (KEY.encode(), b"wrong", b"sk-up"))
        assert not upstream.connections
        await client.send(get(b"/v1/x", b"Authorization: Bearer " + KEY.encode()))
        assert (await client.read_response()).status == 200


async def test_repeated_context_headers_are_refused() -> None:
    """Two values would be a choice of the reader's."""
    async with through() as (gateway, upstream):
        response = await ask(gateway, get(b"/v1/x", b"X-Context-Mode: passthrough", b"x-context-mode: context"))
        assert (response.status, error_of(response)["code"]) == (400, "invalid_header")
        response = await ask(gateway, get(b"/v1/x", b"X-Context-Mode: passthrough, context"))
        assert (response.status, error_of(response)["param"]) == (400, "x-context-mode")
        assert not upstream.connections


async def test_a_context_request_is_never_passed_on() -> None:
    """By path or by header it belongs to the context lane, which says what is wrong with it."""
    async with through() as (gateway, upstream):
        for request in (
            post(b"{}", b"/v1/chat/completions", b"X-Context-Mode: context"),
            post(b"{}", b"/v1/chat/completions", b"X-Context-Chain: a"),
            post(b"{}", b"/context/v1/chat/completions"),
            post(b"{}", b"/chat/completions", b"X-Context-Mode: context"),
        ):
            response = await ask(gateway, request.replace(b"gw.example", b"evil.example"))
            assert (response.status, error_of(response)["code"]) == (403, "host_not_allowed")
            request = request.replace(b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n")
            response = await ask(gateway, request)
            assert (response.status, error_of(response)["code"]) == (400, "missing_field")
        assert not upstream.connections


async def test_http_1_0_request_without_host_gets_a_host_header() -> None:
    """The upstream is spoken to in HTTP/1.1, which needs it."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, b"GET /v1/x HTTP/1.0\r\nA: 1\r\n\r\n")).status == 200
        authority = upstream.base_url.removeprefix("http://").encode()
    assert upstream.requests[0].raw == b"GET /v1/x HTTP/1.1\r\nHost: %b\r\nA: 1\r\n\r\n" % authority


@pytest.mark.parametrize("target", [b"http://gw.example/v1/x?y", b"HTTP://other:99/v1/x?y", b"https://[::1]/v1/x?y"])
async def test_an_absolute_target_becomes_a_path(target: bytes) -> None:
    """RFC 9112 section 3.2.2: its authority counts, Host does not; neither is where it goes."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, get(target))).status == 200
    assert upstream.requests[0].target == b"/v1/x?y"
    assert upstream.requests[0].list_values(b"host") == [upstream.base_url.removeprefix("http://").encode()]


async def test_bad_absolute_targets_are_refused() -> None:
    """Other schemes, no authority, user information, bad ports."""
    async with through() as (gateway, upstream):
        for target in (
            b"ftp://h/v1/x",
            b"http:///v1/x",
            b"http://u:p@h/v1/x",
            b"http://h:99999/v1/x",
            b"h:80",
            b"http:/v1/x",
        ):
            assert (await refusal(gateway, get(target))).status == 400
        assert not upstream.connections


async def test_a_closing_client_does_not_close_the_upstream() -> None:
    """`Connection: close` is about the client's connection: the upstream's is used again, and is not told."""
    async with through() as (gateway, upstream):
        for _ in range(3):
            response = await ask(gateway, get(b"/v1/x", b"Connection: close"))
            assert response.list_values(b"connection") == [b"close"]
    assert len(upstream.connections) == 1
    assert all(not request.list_values(b"connection") for request in upstream.requests)
