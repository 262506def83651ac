"""A request has one reading, or it is refused: nothing ambiguous reaches an upstream, nothing is repaired."""

import json

import pytest

from .malformed import BAD_CODINGS, BAD_HOSTS, BAD_LENGTHS, BAD_LINES, REQUEST_LINES, SMUGGLED
from .through import ask, client_of, error_of, get, refusal, refused, through


def with_lines(*lines: bytes, method: bytes = b"POST") -> bytes:
    return get(b"/v1/x", *lines, method=method)


@pytest.mark.parametrize("length", BAD_LENGTHS)
async def test_malformed_content_length_is_refused(length: bytes) -> None:
    """Signs, bases, lists, spaces, other digits, nothing: each is somebody's 3."""
    response = await refused(with_lines(b"Content-Length: " + length) + b"abc" + SMUGGLED)
    assert (response.status, error_of(response)["code"]) == (400, "bad_framing")


@pytest.mark.parametrize("coding", BAD_CODINGS)
async def test_unsupported_transfer_coding_is_refused(coding: bytes) -> None:
    """Only `chunked` alone is known; others that are well-formed are 501."""
    response = await refused(with_lines(b"Transfer-Encoding: " + coding) + b"3\r\nabc\r\n0\r\n\r\n" + SMUGGLED)
    assert response.status in (400, 501)
    if coding in (b"gzip", b"identity", b"deflate,chunked", b"gzip, chunked", b"chunked, gzip"):
        assert error_of(response)["code"] == "unsupported_transfer_coding"


@pytest.mark.parametrize("lines", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("method", [b"POST", b"GET"])
async def test_ambiguous_header_lines_are_refused(lines: tuple[bytes, ...], method: bytes) -> None:
    """Two framings, white space before the colon, folding, bare CR or LF, NUL, controls, names that are none."""
    response = await refused(with_lines(*lines, method=method) + b"3\r\nabc\r\n0\r\n\r\n" + SMUGGLED)
    assert (response.status, error_of(response)["code"]) == (400, "bad_framing")


@pytest.mark.parametrize("line", REQUEST_LINES, ids=range(len(REQUEST_LINES)))
async def test_malformed_request_line_is_refused(line: bytes) -> None:
    """Single spaces, a token, visible ASCII, a version."""
    assert (await refused(line + b"\r\nHost: h\r\n\r\n" + SMUGGLED)).status in (400, 505)


@pytest.mark.parametrize("version", [b"2.0", b"0.9", b"1.2", b"3.0", b"9.9", b"2", b"1.10"])
async def test_unsupported_http_versions_return_505(version: bytes) -> None:
    """And never echoed."""
    response = await refused(get(version=version))
    assert (response.status, error_of(response)["code"], response.version) == (505, "http_version", b"HTTP/1.1")


async def test_http_2_and_tls_openings_are_refused_at_once() -> None:
    """A client that speaks something else does not wait for a deadline."""
    for beginning in (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-x\r\n\x00",
    ):
        assert (await refused(beginning)).status in (400, 505)


@pytest.mark.parametrize("host", BAD_HOSTS)
async def test_malformed_host_header_is_refused(host: bytes) -> None:
    """The next reader could understand another host."""
    response = await refused(b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert (response.status, error_of(response)["param"]) == (400, "host")


@pytest.mark.parametrize("lines", [b"", b"Host: a\r\nHost: a\r\n", b"Host: a\r\nhOST: b\r\n"])
async def test_exactly_one_host_is_needed(lines: bytes) -> None:
    """None and two are refused, two equal ones as well."""
    assert (await refused(b"GET /v1/x HTTP/1.1\r\n" + lines + b"\r\n")).status == 400


@pytest.mark.parametrize(
    "host", [b"h", b"h:8080", b"1.2.3.4:80", b"[::1]:80", b"[2001:db8::1]", b"a_b.c-d~", b"h:", b"localhost"]
)
async def test_good_hosts_are_accepted(host: bytes) -> None:
    """Names, addresses, with and without port."""
    async with through() as (gateway, _):
        response = await ask(gateway, b"GET /v1/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert response.status in (200, 403)  # the grammar takes it, whoever it belongs to


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
async def test_unknown_expectation_returns_417(value: bytes) -> None:
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
        assert gateway.get_log()
        assert canary.decode() not in gateway.get_log()
        assert all(json.loads(line) for line in gateway.get_log().splitlines())
