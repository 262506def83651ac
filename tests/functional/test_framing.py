"""A request has one reading, or it is refused: nothing ambiguous reaches an upstream, nothing is repaired."""

import json

import pytest

from gateway.testing.messages import Response

from .through import ask, breathe, client_of, error_of, get, in_pieces, post, post_chunked, refusal, through

SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"


def with_lines(*lines: bytes, method: bytes = b"POST") -> bytes:
    return get(b"/v1/x", *lines, method=method)


BAD_LENGTHS = [
    *(b"+3", b"-3", b"0x3", b"1_0", b"3 3", b"", b"99999999999999999999", "\u0663".encode(), b"3,", b",3", b"3, 3", b"3;", b"3.0"),
    *(b"1e1", b"NaN", b"3\x0b", b"\x0c3", b"'3'", b'"3"', b"\xb3", b"0b1", b"three", b"3\x00", b"\x003", b"-0", b"+0", b"3\xa0"),
]
BAD_CODINGS = [
    *(b"xchunked", b"chunkedx", b"chunked,", b",chunked", b"chunked, chunked", b"chunked;q=1", b"'chunked'", b'"chunked"'),
    *(b"chunked\x00", b"\x00chunked", b"chunked\x0b", b"\x0bchunked", b"chunked\xa0", b"", b"chun ked", b"chunked identity"),
    *(b"identity", b"identity, chunked", b"gzip, chunked", b"chunked, gzip", b"gzip", b"deflate,chunked", b"x", b"\xffchunked"),
]
BAD_LINES = [
    (b"Content-Length: 3", b"Content-Length: 4"),
    (b"Content-Length: 3", b"Content-Length: 3"),
    (b"Content-Length: 3", b"content-length: 3"),
    (b"Content-Length: 3", b"Transfer-Encoding: chunked"),
    (b"Transfer-Encoding: chunked", b"Content-Length: 3"),
    (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
    (b"Transfer-Encoding: identity", b"transfer-encoding: chunked"),
    (b"Content-Length : 3",),
    (b"Content-Length\t: 3",),
    (b"Transfer-Encoding : chunked",),
    (b"Transfer-Encoding\t: chunked",),
    (b"Transfer-Encoding", b"Content-Length: 3"),
    (b": 3",),
    (b"X: a\r\n b",),
    (b"X: a\r\n\tb",),
    (b"X: a\r\n Content-Length: 3",),
    (b"Transfer-Encoding:\r\n chunked",),
    (b" X: first line begins with a space",),
    (b"X: a\nContent-Length: 3",),
    (b"X: a\rContent-Length: 3",),
    (b"X: a\r\r\nContent-Length: 3",),
    (b"X: a\x00b",),
    (b"X\x00: a",),
    (b"X: a\x08b",),
    (b"X: a\x7fb",),
    (b"X\xff: a",),
    (b"X(y): a",),
    (b"X[y]: a",),
    (b"X Y: a",),
    (b"no colon",),
    (b"\x0bContent-Length: 3",),
]


async def refused(data: bytes) -> Response:
    """The answer to `data`, which no upstream may see."""
    async with through() as (gateway, upstream):
        response = await refusal(gateway, data)
        await breathe()
        assert not upstream.connections
    assert b"smuggled" not in response.raw
    return response


@pytest.mark.parametrize("length", BAD_LENGTHS)
async def test_an_odd_length_is_refused(length: bytes) -> None:
    """Signs, bases, lists, spaces, other digits, nothing: each is somebody's 3."""
    response = await refused(with_lines(b"Content-Length: " + length) + b"abc" + SMUGGLED)
    assert (response.status, error_of(response)["code"]) == (400, "bad_framing")


@pytest.mark.parametrize("coding", BAD_CODINGS)
async def test_an_odd_transfer_coding_is_refused(coding: bytes) -> None:
    """Only `chunked` alone is known; others that are well-formed are 501."""
    response = await refused(with_lines(b"Transfer-Encoding: " + coding) + b"3\r\nabc\r\n0\r\n\r\n" + SMUGGLED)
    assert response.status in (400, 501)
    if coding in (b"gzip", b"identity", b"deflate,chunked", b"gzip, chunked", b"chunked, gzip"):
        assert error_of(response)["code"] == "unsupported_transfer_coding"


@pytest.mark.parametrize("lines", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("method", [b"POST", b"GET"])
async def test_lines_with_two_readings_are_refused(lines: tuple[bytes, ...], method: bytes) -> None:
    """Two framings, white space before the colon, folding, bare CR or LF, NUL, controls, names that are none."""
    response = await refused(with_lines(*lines, method=method) + b"3\r\nabc\r\n0\r\n\r\n" + SMUGGLED)
    assert (response.status, error_of(response)["code"]) == (400, "bad_framing")


REQUEST_LINES = [
    *(b"GET /v1/x", b"GET  /v1/x HTTP/1.1", b"GET /v1/x  HTTP/1.1", b"GET\t/v1/x HTTP/1.1", b" GET /v1/x HTTP/1.1"),
    *(b"GET /v1/x HTTP/1.1 ", b"GET /v1/x http/1.1", b"GET /v1/x HTTP/1", b"GET /v1/x HTTP/1.", b"GET /v1/x HTTP/1.1.1"),
    *(b"GET /v1/x HTTP/ 1.1", b"GET /v1/x HTTP/1.01", b"GET /v1/x HTTP/11", b"GET /v1/x HTTPS/1.1", b"GET /v1/x ICAP/1.1"),
    *(b"GET /v1/x\x00 HTTP/1.1", b"G\x00T /v1/x HTTP/1.1", b"G(T /v1/x HTTP/1.1", b"G:T /v1/x HTTP/1.1", b"/v1/x HTTP/1.1"),
    *(b"GET /v1/x HTTP/1.1\rX: 1", b"GET /v1/x\nHTTP/1.1", b"GET HTTP/1.1", b"\xff /v1/x HTTP/1.1", b"GET /v1/\xffx HTTP/1.1"),
]


@pytest.mark.parametrize("line", REQUEST_LINES, ids=range(len(REQUEST_LINES)))
async def test_an_odd_request_line_is_refused(line: bytes) -> None:
    """Single spaces, a token, visible ASCII, a version."""
    assert (await refused(line + b"\r\nHost: h\r\n\r\n" + SMUGGLED)).status in (400, 505)


@pytest.mark.parametrize("version", [b"2.0", b"0.9", b"1.2", b"3.0", b"9.9", b"2", b"1.10"])
async def test_other_versions_are_505(version: bytes) -> None:
    """And never echoed."""
    response = await refused(get(version=version))
    assert (response.status, error_of(response)["code"], response.version) == (505, "http_version", b"HTTP/1.1")


async def test_http_2_and_tls_are_told_at_once() -> None:
    """A client that speaks something else does not wait for a deadline."""
    for beginning in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-x\r\n\x00"):
        assert (await refused(beginning)).status in (400, 505)


BAD_HOSTS = [
    *(b"a b", b"a/b", b"u:p@h", b"[::1", b"::1", b"h:99999", b"h:x", b"h:-1", b"h,i", b"", b" ", b"h#", b"h?", b"[::g]", b"[]", b":80"),
    *(b"h:80:80", b"<h>", b"h\\i", b"\xe4", b"h;i", b"[1.2.3.4]", b"http://h", b"h\"", b"[::1]x", b"h:0x50", b"h:\xb2"),
]


@pytest.mark.parametrize("host", BAD_HOSTS)
async def test_an_odd_host_is_refused(host: bytes) -> None:
    """Whoever reads it next could read another one."""
    response = await refused(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert (response.status, error_of(response)["param"]) == (400, "host")


@pytest.mark.parametrize("lines", [b"", b"Host: a\r\nHost: a\r\n", b"Host: a\r\nhOST: b\r\n"])
async def test_exactly_one_host_is_needed(lines: bytes) -> None:
    """None and two are refused, two equal ones as well."""
    assert (await refused(b"GET /v1/x HTTP/1.1\r\n" + lines + b"\r\n")).status == 400


@pytest.mark.parametrize("host", [b"h", b"h:8080", b"1.2.3.4:80", b"[::1]:80", b"[2001:db8::1]", b"a_b.c-d~", b"h:", b"localhost"])
async def test_good_hosts_are_accepted(host: bytes) -> None:
    """Names, addresses, with and without port."""
    async with through() as (gateway, _):
        assert (await ask(gateway, b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")).status == 200


async def test_transfer_coding_does_not_exist_in_http_1_0() -> None:
    """Nor in an answer to it."""
    request = get(b"/v1/x", b"Transfer-Encoding: chunked", method=b"POST", version=b"1.0") + b"0\r\n\r\n"
    assert (await refused(request + SMUGGLED)).status == 400


@pytest.mark.parametrize("method", [b"CONNECT", b"TRACE"])
async def test_connect_and_trace_are_not_served(method: bytes) -> None:
    """405, and no tunnel."""
    async with through() as (gateway, upstream):
        assert (await ask(gateway, get(b"/v1/x", method=method))).status == 405
        response = await ask(gateway, b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (response.status, error_of(response)["code"]) == (405, "method_not_allowed")
        assert (await ask(gateway, b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n")).status in (400, 405)
        assert not upstream.connections


@pytest.mark.parametrize("value", [b"foo", b"100-continue, foo", b"", b"100-continued", b"100-continue\x00"])
async def test_another_expectation_than_100_continue_is_417(value: bytes) -> None:
    """Or 400 where it is malformed."""
    assert (await refused(get(b"/v1/x", b"Expect: " + value, method=b"POST"))).status in (400, 417)


async def test_nothing_of_a_bad_request_is_echoed() -> None:
    """Neither in the answer nor in the log: a bad byte may stand inside a credential."""
    canary = b"canary-5d41402abc4b2a76"
    async with through(logging={"access": True, "level": "debug"}) as (gateway, upstream):
        for line in (
            b"Authorization: Bearer " + canary + b"\x00",
            b"Authorization: Bearer \x01" + canary,
            b"Authorization : " + canary,
            b"Authorization: a\r\n " + canary,
            b"Content-Length: " + canary,
            b"Transfer-Encoding: " + canary,
            b"Expect: " + canary,
            b"Host: " + canary + b"/",
            b"X-Context-Mode: " + canary,
            canary,
        ):
            async with client_of(gateway) as client:
                await client.send(get(b"/v1/x", line))
                response = await client.read_response()
            assert response.status >= 400
            assert canary not in response.raw
        await refusal(gateway, b"GET /v1/" + canary + b" " + canary + b" HTTP/1.1\r\nHost: h\r\n\r\n")
        assert not upstream.connections
        assert gateway.logged()
        assert canary.decode() not in gateway.logged()
        assert all(json.loads(line) for line in gateway.logged().splitlines())


BAD_CHUNKS = [
    *(b"+3\r\nabc\r\n", b"-3\r\nabc\r\n", b"0x3\r\nabc\r\n", b" 3\r\nabc\r\n", b"3 \r\nabc\r\n", b"\r\n3\r\nabc\r\n"),
    *(b"3\nabc\r\n", b"3\r\nabc\n", b"3\r\nabcd\r\n", b"3\r\nabcde\r\n", b"g\r\nabc\r\n", b"3\r\r\nabc\r\n", b"3\rabc\r\n"),
    *(b"1000000000000000\r\n", b"00000000000000003\r\nabc\r\n", b"3,3\r\nabc\r\n", b"3\x00\r\nabc\r\n", b"3_0\r\n"),
    *(b"3;\x00\r\nabc\r\n", b"3;a\nb\r\nabc\r\n", b"3;a\rb\r\nabc\r\n", b"3;" + b"x" * 5000 + b"\r\nabc\r\n", b"3\r\nabc\r\r\n"),
    *(b"0\n\r\n", b"0\r\n\n", b"0\r\nbad trailer\r\n\r\n", b"0\r\n folded: x\r\n\r\n", b"0\r\nX : 1\r\n\r\n"),
    *(b"0\r\nX: a\x00\r\n\r\n", b"0\r\nX: a\nY: b\r\n\r\n", b"0\r\nX: " + b"x" * 20000 + b"\r\n\r\n", b"0;\n\r\n\r\n", b"\xb3\r\nabc\r\n"),
    *(b"0\r\nContent-Length: 5\r\n\r\n", b"0\r\nHost: evil\r\n\r\n", b"0\r\nAuthorization: x\r\n\r\n", b"0\r\nX-API-KEY: x\r\n\r\n"),
    *(b"0\r\ntransfer-encoding: chunked\r\n\r\n", b"0\r\nX-Gateway-Key: x\r\n\r\n", b"0\r\nX-Context-Mode: context\r\n\r\n"),
    *(b"0\r\nCookie: x\r\n\r\n", b"0\r\nContent-Type: x\r\n\r\n", b"0\r\nConnection: x\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n"),
]


@pytest.mark.parametrize("bad", BAD_CHUNKS, ids=range(len(BAD_CHUNKS)))
async def test_a_bad_chunk_is_refused(bad: bytes) -> None:
    """With the head, nothing of the request goes upstream; chunk sizes, extensions, trailers all have one reading."""
    response = await refused(post_chunked(bad) + SMUGGLED)
    assert (response.status, error_of(response)["code"]) == (400, "bad_framing")


@pytest.mark.parametrize("bad", BAD_CHUNKS, ids=range(len(BAD_CHUNKS)))
async def test_a_bad_chunk_later_on_never_completes_the_request(bad: bytes) -> None:
    """What went upstream stays without its last chunk, and the connection ends."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await in_pieces(client, post_chunked(b"5\r\nhello\r\n"), bad + SMUGGLED)
        raw = await client.read_rest()
        assert raw.startswith(b"HTTP/1.1 400 ") and b"smuggled" not in raw
        await upstream.wait_open(0)
        (peer,) = upstream.connections
        assert peer.received.endswith(b"\r\n\r\n5\r\nhello\r\n")
        assert not upstream.requests


async def test_a_flood_of_small_chunks_is_cheap() -> None:
    """100,000 chunks of one byte with extensions: the same bytes, within seconds."""
    body = b"1;abcdefgh=12345\r\nx\r\n" * 100_000 + b"0\r\n\r\n"
    async with through(keep_bytes=0) as (gateway, upstream):
        assert (await ask(gateway, post_chunked(body), timeout_s=10)).status == 200
    assert upstream.requests[0].raw_body == body


async def test_a_chunk_extension_without_end_is_refused() -> None:
    """1 MiB of it is not held."""
    response = await refused(post_chunked(b"3;" + b"x" * (1 << 20)))
    assert response.status == 400


async def test_a_request_behind_a_chunked_one_is_its_own() -> None:
    """In the same segment, behind trailers: two requests, two answers, each seen once."""
    first = post_chunked(b"0\r\nX: y\r\n\r\n", b"/v1/first")
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(first + SMUGGLED)
        assert [(await client.read_response()).status for _ in range(2)] == [200, 200]
    assert [request.target for request in upstream.requests] == [b"/v1/first", b"/v1/smuggled"]
    assert upstream.requests[0].trailers == ((b"X", b"y"),)


async def test_bytes_behind_a_body_are_not_part_of_it() -> None:
    """Content-Length counts; what follows is the next request, or a refusal."""
    async with through() as (gateway, upstream), client_of(gateway) as client:
        await client.send(post(b"abc") + SMUGGLED + b"garbage\r\n\r\n")
        assert [(await client.read_response()).status for _ in range(3)] == [200, 200, 400]
        assert await client.wait_end() == "eof"
    assert [request.raw_body for request in upstream.requests] == [b"abc", b""]
