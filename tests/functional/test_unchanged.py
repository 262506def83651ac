"""A passthrough request and its answer arrive as they were sent, byte for byte, both ways."""

import gzip
import hashlib
import random

import pytest

from gateway.testing.messages import Request, describe_differences
from gateway.testing.scripts import (
    build_answer,
    build_chunk,
    build_event_stream_answer,
    build_head,
    build_ok_answer,
    serve,
)

from .through import HOP, HOSTS, REQUEST_MAY_DIFFER, ask, client_of, get, post, post_chunked, refusal, through

TARGETS = [
    b"/v1//a/../b/%2e%2E/%7E%41;p=1?q=a%20b+c&&x=%zz&e=",
    b"/v1/a?",
    b"/v1/?",
    b"/v1/a??b?c=/?",
    b"/v1/.",
    b"/v1/..;/x",
    b"/v1/%00%0d%0a%ff",
    b"/v1/http://other.example:1/y",
    b"/v1/@evil.example/",
    b"/v1/a&amp=1?&=&&==",
    b"/v1/a:b;c,d=e!f$g(h)*i'j~k-l._m",
    b'/v1/a|b{c}\\d^e`f"<g>',
    b"/v1/" + b"x" * 20000 + b"?" + b"y" * 10000,
]


@pytest.mark.parametrize("target", TARGETS, ids=range(len(TARGETS)))
async def test_passthrough_forwards_the_request_target_byte_for_byte(target: bytes) -> None:
    """No decoding, no encoding, no dot removal, no lost question mark."""
    async with through() as (gateway, upstream):
        response = await ask(gateway, get(target))
    assert response.status == 200
    assert [request.target for request in upstream.requests] == [target]


@pytest.mark.parametrize(
    "target", ["/v1/\u00e9".encode(), b"/v1/\xff", b"/v1/a b", b"/v1/a\tb", b"/v1/a#b", b"v1/a", b"", b"/v1/\x7f"]
)
async def test_a_target_outside_the_grammar_is_refused(target: bytes) -> None:
    """Never sent on in another spelling."""
    async with through() as (gateway, upstream):
        assert (await refusal(gateway, get(target))).status == 400
        assert not upstream.connections


async def test_the_alias_without_v1_keeps_its_query() -> None:
    """The commonest mistake in a base URL is served."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, post(b"{}", b"/chat/completions?a=%20&"))).status == 200
    assert upstream.requests[0].target == b"/v1/chat/completions?a=%20&"


@pytest.mark.parametrize(
    ("base_path", "target", "expected"),
    [
        ("", b"/v1/models?x", b"/v1/models?x"),
        ("/", b"/v1/models", b"/v1/models"),
        ("/v1", b"/v1/models?x", b"/v1/models?x"),
        ("/api/openai/v1/", b"/v1/models", b"/api/openai/v1/models"),
        ("/api", b"/v1/", b"/api/"),
        ("/api", b"/v1//%2e/a?b=/v1/", b"/api//%2e/a?b=/v1/"),
    ],
)
async def test_the_base_path_replaces_the_prefix(base_path: str, target: bytes, expected: bytes) -> None:
    """And nothing else of the target; without one the target goes unchanged."""
    async with through() as (gateway, upstream):
        path = upstream.base_url + base_path
        await gateway.reload({"upstreams": [{"name": "up", "base_url": path}], "allowed_hosts": HOSTS})
        assert (await ask(gateway, get(target))).status == 200
    assert upstream.requests[0].target == expected


async def test_headers_keep_their_case_order_repeats_and_spacing() -> None:
    """The lines that arrive are the lines that were sent."""
    request = post(
        b"{}",
        b"/v1/x",
        b"X-Mixed-cAsE: 1",
        b"x-low:2",
        b"ETAG:    spaced \t ",
        b"X-Empty:",
        b"X-Blank:   ",
        b'X-Mixed-cAsE: again, and "quoted" (c)',
        b"x-mixed-case: third",
        b"X-Tab:\ta\tb",
        b"X-Latin: \xe4\xf6\xfc \x80\xff",
        b"X!#$%&'*+-.^_`|~9: all token characters",
        b"Cookie: a=1; b=2",
        b"Cookie: c=3",
        b"Authorization: Bearer the client's own",
        b"Accept-Encoding: gzip;q=0, br",
        b"Content-Type: application/json",
        b"Content-Type: text/odd",
        b"X-Forwarded-For: 1.2.3.4",
        b"Via: 1.1 somebody",
        b"Forwarded: for=x",
    )
    async with through() as (gateway, upstream):
        for _ in range(2):  # the second one takes the remembered plan
            assert (await ask(gateway, request)).status == 200
    for seen in upstream.requests:
        assert describe_differences(request, seen.raw, may_differ=frozenset((b"host",))) == []


async def test_content_length_keeps_its_place_among_the_headers() -> None:
    """Content-Length keeps its place among the headers."""
    request = get(b"/v1/x", b"A: 1", b"Content-Length: 3", b"B: 2", b"A: 3", method=b"PUT") + b"abc"
    async with through() as (gateway, upstream):
        await ask(gateway, request)
    assert describe_differences(request, upstream.requests[0].raw, may_differ=frozenset((b"host",))) == []


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: 3",
        b"content-length: 3",
        b"CONTENT-LENGTH: 3",
        b"Content-length:3",
        b"Content-Length:3",
        b"Content-Length:  3",
        b"Content-Length:\t3",
        b"Content-Length: 3 ",
        b"Content-Length: 3\t ",
        b"Content-Length: 003",
        b"Content-Length:000000000000000003",
    ],
)
async def test_content_length_keeps_its_spelling(line: bytes) -> None:
    """Also when the same head came before with another spelling, or another length."""
    requests = [
        get(b"/v1/x", one, method=b"POST") + b"abc"
        for one in (b"Content-Length: 3", line, line, b"Content-Length: 3", line)
    ]
    requests.append(get(b"/v1/x", line.replace(b"3", b"4"), method=b"POST") + b"abcd")
    async with through() as (gateway, upstream), client_of(gateway) as client:
        for request in requests:
            await client.send(request)
            assert (await client.read_response()).status == 200
    for sent, seen in zip(requests, upstream.requests, strict=True):
        assert describe_differences(sent, seen.raw, may_differ=frozenset((b"host",))) == []


@pytest.mark.parametrize(
    "line", [b"X-Content-Length: 7", b"X: content-length: 7", b"X: Content-Length: 7", b"Xontent-Length: 9"]
)
async def test_field_resembling_content_length_is_forwarded_as_a_field(line: bytes) -> None:
    """Before or behind the true one, or without it."""
    requests = [
        get(b"/v1/x", line, b"Content-Length: 3", method=b"POST") + b"abc",
        get(b"/v1/x", b"Content-Length: 3", line, method=b"POST") + b"abc",
        get(b"/v1/x", b"content-length: 3", line, method=b"POST") + b"abc",
        get(b"/v1/x", line),
        get(b"/v1/x", line.replace(b"7", b"8").replace(b"9", b"8")),
    ]
    async with through() as (gateway, upstream), client_of(gateway) as client:
        for request in requests * 2:
            await client.send(request)
            assert (await client.read_response()).status == 200
    for sent, seen in zip(requests * 2, upstream.requests, strict=True):
        assert describe_differences(sent, seen.raw, may_differ=frozenset((b"host",))) == []


async def test_request_gets_no_added_headers() -> None:
    """No User-Agent, no Accept, no Accept-Encoding, no Via, no Connection: Host and what was sent."""
    async with through() as (gateway, upstream):
        await ask(gateway, b"GET /v1/x HTTP/1.1\r\nhOST: gw\r\n\r\n")
        authority = upstream.base_url.removeprefix("http://").encode()
    assert upstream.requests[0].raw == b"GET /v1/x HTTP/1.1\r\nhOST: %b\r\n\r\n" % authority


async def test_answer_gets_no_added_headers() -> None:
    """No Content-Type, no Server, no Date."""
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    async with through(serve(raw)) as (gateway, _):
        assert (await ask(gateway, get())).raw == raw


ANSWERS = [
    build_answer(
        200, b"x", [("X-Mixed-Case", "1"), ("x-low", "2"), ("ETag", '"a"'), ("SET-COOKIE", "a=1"), ("Set-Cookie", "b")]
    ),
    build_answer(200, b"x", [("Content-Type", "a/b"), ("Content-Type", "c/d")]),
    build_answer(200, b"", [("A", ""), ("B", "  \t "), (b"C", b"\xff\x80 \xe4")]),
    build_answer(
        200, b"x", [("Server", "uvicorn"), ("Date", "never"), ("Via", "1.1 x"), ("Trailer", "X-A"), ("Age", "-1")]
    ),
    build_answer(
        200, b"x", [("Connection-Id", "1"), ("Teapot", "2"), ("Upgrade-Insecure", "3"), ("Keep-Alive-Not", "4")]
    ),
    build_answer(429, b"{}", [("Retry-After", "7"), ("x-should-retry", "true"), ("x-ratelimit-remaining-tokens", "0")]),
    build_answer(401, b"{}", [("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", 'Basic realm="x"')]),
    build_answer(307, b"", [("Location", "http://other.example/v1/x?y#z")]),
    b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 299 Quite Odd: \xe4 reason\r\ncontent-length:2 \r\n\r\nhi",
    b"HTTP/1.1 999 Far\r\nContent-Length: 002\r\n\r\nhi",
    b"HTTP/1.1 200 OK\r\nX: Content-Length: 5\r\nX-Content-Length: 9\r\nContent-Length: 2\r\n\r\nhi",
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000002;a=b;c="d;"\r\nhi\r\n0\r\n\r\n',
    b"HTTP/1.1 200 OK\r\ntransfer-ENCODING:CHUNKED\r\n\r\nA\r\n0123456789\r\na;x\r\n0123456789\r\n00;y\r\nX: 1\r\n\r\n",
    build_answer(500, b'{"error":1}'),
    build_answer(529, b"overloaded"),
    build_answer(205, b""),
    build_answer(206, b"x", [("Content-Range", "bytes 0-0/5"), ("Content-Encoding", "br")]),
]


@pytest.mark.parametrize("raw", ANSWERS, ids=range(len(ANSWERS)))
async def test_passthrough_returns_the_upstream_answer_byte_for_byte(raw: bytes) -> None:
    """Status line, header lines, framing and body are those of the upstream, errors and redirects too."""
    async with through(serve(raw)) as (gateway, upstream), client_of(gateway) as client:
        for _ in range(2):
            await client.send(get())
            assert (await client.read_response()).raw == raw
        assert len(upstream.connections) == 1


@pytest.mark.parametrize("big", [9000, 30000])
async def test_long_headers_go_through(big: int) -> None:
    """Both ways."""
    line = b"X-Long: " + b"v" * big
    raw = build_answer(200, b"hi", [("X-Long", "v" * big)])
    async with through(serve(raw)) as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", line))).raw == raw
    assert line in upstream.requests[0].raw_head


async def test_many_headers_go_through() -> None:
    """Up to the limit of 256 fields."""
    lines = [b"X-%d: %d" % (i % 7, i) for i in range(255)]
    async with through() as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", *lines))).status == 200
        assert (await refusal(gateway, get(b"/v1/x", *lines, b"One: more"))).status == 431
    assert [line for line in upstream.requests[0].raw_head.split(b"\r\n") if line.startswith(b"X-")] == lines


GZIPPED = gzip.compress(b"hello " * 1000)


@pytest.mark.parametrize(
    "body", [GZIPPED, b"only claims to be gzip", gzip.compress(bytes(5_000_000))], ids=["gzip", "claim", "bomb"]
)
@pytest.mark.parametrize("coding", [b"gzip", b"br", b"deflate", b"identity", b"nonsense"])
async def test_content_codings_are_not_touched(body: bytes, coding: bytes) -> None:
    """Both ways, whether true or claimed."""
    raw = build_answer(200, body, [("Content-Encoding", coding)])
    async with through(serve(raw)) as (gateway, upstream):
        assert (await ask(gateway, post(body, b"/v1/x", b"Content-Encoding: " + coding))).raw == raw
    assert upstream.requests[0].raw_body == body
    assert upstream.requests[0].list_values(b"content-length") == [b"%d" % len(body)]


@pytest.mark.parametrize(
    "request_",
    [
        post(b"abc", method=b"GET"),
        post(b"abc", method=b"DELETE"),
        post(b"abc", method=b"HEAD"),
        post(b"abc", method=b"OPTIONS"),
        post(b""),
        get(method=b"POST"),
        get(method=b"PUT"),
        post(bytes(range(256))),
        post_chunked(b"3\r\nabc\r\n0\r\n\r\n", method=b"GET"),
        post_chunked(b"0\r\n\r\n"),
        post_chunked(
            b"000A;x=1\r\n0123456789\r\n00;last\r\nX-Check: 1\r\nx-CHECK:2\r\n\r\n", b"/v1/x", b"Trailer: X-Check"
        ),
    ],
    ids=range(11),
)
async def test_the_framing_of_a_request_is_not_touched(request_: bytes) -> None:
    """A body with any method, no body, zero, absent and chunked stay what they are."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, request_)).status == 200
    assert describe_differences(request_, upstream.requests[0].raw, may_differ=frozenset((b"host",))) == []


@pytest.mark.parametrize(
    "method",
    [b"QUERY", b"PROPFIND", b"M-SEARCH", b"FOO-BAR", b"get", b"PATCH", b"LINK", b"X" * 100, b"!#$%&'*+-.^_`|~"],
)
async def test_any_method_goes_through_as_sent(method: bytes) -> None:
    """Its case and characters too."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, post(b"abc", method=method))).status == 200
    assert upstream.requests[0].method == method


@pytest.mark.parametrize(
    "body",
    [
        b'{ "b" : 1.0,"a":1e5 , "a": "\\u00e9\\ud800" ,"n":' + b"7" * 400 + b',"x":NaN,\t"stream" : true }\n',
        b'{"model":"x","messages":[{"role":"user","content":"\xff\xfe raw bytes"}]}',
        b"[" * 100_000,
        b"not json at all",
        b"\xef\xbb\xbf{}",
    ],
    ids=["spelling", "bytes", "deep", "text", "bom"],
)
async def test_json_is_not_written_anew(body: bytes) -> None:
    """Spaces, order, repeated keys, numbers and escapes are the client's, and so is what is no JSON."""
    async with through(serve(build_answer(200, body))) as (gateway, upstream):
        response = await ask(gateway, post(body, b"/v1/chat/completions", b"Content-Type: application/json"))
    assert upstream.requests[0].raw_body == body == response.raw_body


async def test_event_streams_are_forwarded_without_parsing() -> None:
    """Odd events are the upstream's business: comments, ids, errors, half lines, bytes that are no text, no end."""
    events = (
        b"\xef\xbb\xbfdata: 1\n\n",
        b": comment\r\nid: 1\rretry: 5\n\n\n",
        b'event: error\ndata: {"error":{"message":"x"}}\n\n',
        b"data: \xff\xfe\x00 not text\n\ndata: {not json}\n\n",
        b"data: a\n" * 1000 + b"\n",
        b"data: [DONE]\n\ndata: after the end",
    )
    raw = build_event_stream_answer([]).removesuffix(b"0\r\n\r\n") + b"".join(map(build_chunk, events)) + b"0\r\n\r\n"
    async with through(serve(raw)) as (gateway, _):
        assert (await ask(gateway, post(b'{"stream":true}', b"/v1/chat/completions"))).raw == raw


async def test_a_large_multipart_upload_arrives_whole() -> None:
    """20 MB, an unusual boundary, no final CRLF."""
    boundary = b"a'()+_,-./:=? b"
    block = random.Random(1).randbytes(1 << 20)
    body = b"--%b\r\nContent-Disposition: form-data; name=f\r\n\r\n%b\r\n--%b--" % (boundary, block * 20, boundary)
    request = post(body, b"/v1/files", b'Content-Type: multipart/form-data; boundary="%b"' % boundary)
    async with through() as (gateway, upstream):
        assert (await ask(gateway, request, timeout_s=120)).status == 200
    (seen,) = upstream.requests
    assert seen.list_values(b"content-length") == [b"%d" % len(body)]
    assert hashlib.sha256(seen.raw_body).digest() == hashlib.sha256(body).digest()


async def test_logging_and_metrics_do_not_change_forwarded_bytes() -> None:
    """The upstream gets the same bytes with access log and metrics, and without."""
    seen: list[list[bytes]] = []
    for logging, metrics in (({"access": True, "level": "debug"}, True), ({"access": False}, False)):
        async with (
            through(logging=logging, metrics={"enabled": metrics}) as (gateway, upstream),
            client_of(gateway) as client,
        ):
            for i in range(100):
                await client.send(post(b"x" * i, b"/v1/%d?q=%d" % (i % 7, i), b"X-I: %d" % i))
                await client.read_response()
            authority = upstream.base_url.removeprefix("http://").encode()
            seen.append([request.raw.replace(authority, b"up") for request in upstream.requests])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_http_1_0_client_gets_a_whole_answer_unchanged(version: bytes) -> None:
    """An HTTP/1.0 client gets the same head and body, and the end of the connection."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(get(version=version, method=b"GET"))
        response = await client.read_response()
        assert describe_differences(build_ok_answer(), response.raw, may_differ=HOP) == []
        assert response.list_values(b"connection") == ([b"close"] if version == b"1.0" else [])
        if version == b"1.0":
            assert await client.wait_end() == "eof"
    assert describe_differences(get(), upstream.requests[0].raw, may_differ=REQUEST_MAY_DIFFER) == []


async def test_a_head_answer_keeps_its_framing_fields() -> None:
    """HEAD: the Content-Length or Transfer-Encoding of the answer that GET would get, and no body."""
    for raw in (
        build_head(200, [("Content-Length", "1234")]),
        build_head(200, [("Transfer-Encoding", "chunked")]),
        build_head(200),
    ):
        async with through(serve(raw)) as (gateway, upstream), client_of(gateway) as client:
            for _ in range(2):
                await client.send(get(method=b"HEAD"))
                assert (await client.read_response(method="HEAD")).raw == raw
            assert len(upstream.connections) == 1


async def test_requests_are_routed_by_the_longest_prefix() -> None:
    """Each upstream gets what its paths say, unchanged."""

    def echo(request: Request) -> bytes:
        return build_answer(200, request.target)

    async with through(serve(echo)) as (gateway, first), through(serve(echo)) as (_, second):
        upstreams = [
            {"name": "a", "base_url": first.base_url, "paths": ["/v1/"]},
            {"name": "b", "base_url": second.base_url, "paths": ["/v1/files/"]},
        ]
        await gateway.reload({"upstreams": upstreams, "allowed_hosts": HOSTS})
        for target in (b"/v1/files/1", b"/v1/files", b"/v1/chat", b"/v1/files/?"):
            assert (await ask(gateway, get(target))).payload == target
    assert [request.target for request in first.requests] == [b"/v1/files", b"/v1/chat"]
    assert [request.target for request in second.requests] == [b"/v1/files/1", b"/v1/files/?"]
