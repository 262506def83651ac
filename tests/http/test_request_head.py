"""A request head has one reading or none: what is accepted is kept byte for byte, what is refused is never repeated."""

import time
from dataclasses import replace

import pytest

from gateway.contracts.errors import GatewayError
from gateway.http.request_head import HeadLimits, RequestHead, check_beginning, is_valid_host, parse_request_head

LIMITS = HeadLimits()
CANARY = b"cAnArY-5f3d"


def read(raw: bytes, limits: HeadLimits = LIMITS) -> RequestHead:
    return parse_request_head(raw, limits)


def asking(line: bytes, *fields: bytes, host: bytes | None = b"Host: h") -> bytes:
    """A head of this request line, with a Host and further field lines."""
    return b"\r\n".join([line, *([] if host is None else [host]), *fields, b"", b""])


def posting(*fields: bytes) -> bytes:
    return asking(b"POST /v1/x HTTP/1.1", *fields)


def refusal(raw: bytes, limits: HeadLimits = LIMITS) -> tuple[int, str]:
    """Status and code of the refusal. Whatever it is, nothing of the request is in its text."""
    with pytest.raises(GatewayError) as refused:
        read(raw, limits)
    error = refused.value
    assert CANARY.decode().lower() not in f"{error} {error!r} {error.message} {error.param}".lower()
    return error.facts.status, error.code


# What is accepted.


def test_parsed_request_head_preserves_the_original_bytes() -> None:
    """P2, P16, P18: target, names, order, repeats and white space are the client's; nothing is added."""
    target = b"/v1//a/../b/%2e%2E/%7E%41;p=1?q=a%20b+c&&x=%zz&e="
    raw = asking(b"POST %b HTTP/1.1" % target, b"x-low:1", b"ETag:  2 ", b"Set-Cookie: a", b"Set-Cookie: b")
    head = read(raw)
    assert (head.method, head.target, head.minor, head.host) == (b"POST", target, 1, b"h")
    assert b"POST %b HTTP/1.1\r\n" % target + b"".join(field.line for field in head.fields) + b"\r\n" == raw
    assert (head.length, head.chunked, head.keep_alive) == (None, False, True)
    assert (head.expects_continue, head.websocket, head.connection) == (False, False, ())
    assert head.find_value(b"set-cookie") == b"a" and head.find_value(b"user-agent") is None


@pytest.mark.parametrize("target", [b"/a?", b"/?", b"/", b"*", b'/a|b{c}\\d^e`f"<g>', b"//x", b"/?a=http://h/#"[:-1]])
def test_targets_keep_every_byte(target: bytes) -> None:
    """P3, P4: an empty query stays, odd characters stay."""
    assert read(asking(b"GET %b HTTP/1.1" % target)).target == target


@pytest.mark.parametrize(
    "method", [b"QUERY", b"PROPFIND", b"M-SEARCH", b"FOO-BAR", b"get", b"!#$%&'*+-.^_`|~", b"OPTIONS"]
)
def test_any_token_is_a_method(method: bytes) -> None:
    """P15: methods are case-sensitive words, and new ones come up."""
    assert read(asking(method + b" / HTTP/1.1")).method == method


@pytest.mark.parametrize(
    ("url", "target", "host"),
    [
        (b"http://other:8080/v1/x?y", b"/v1/x?y", b"other:8080"),
        (b"HTTPS://other", b"/", b"other"),
        (b"http://other?q=1", b"/?q=1", b"other"),
        (b"http://[::1]/", b"/", b"[::1]"),
    ],
)
def test_an_absolute_target_overrules_host(url: bytes, target: bytes, host: bytes) -> None:
    """RFC 9112 section 3.2.2."""
    head = read(asking(b"GET %b HTTP/1.1" % url))
    assert (head.target, head.host) == (target, host)


@pytest.mark.parametrize(
    ("fields", "length", "chunked"),
    [
        ((), None, False),
        ((b"Content-Length: 0",), 0, False),
        ((b"content-length:3",), 3, False),
        ((b"CONTENT-LENGTH: 003 ",), 3, False),
        ((b"Content-Length: " + b"9" * 18,), 10**18 - 1, False),
        ((b"Transfer-Encoding: chunked",), None, True),
        ((b"transfer-encoding:  CHUNKED",), None, True),
    ],
)
def test_request_body_framing_is_parsed(fields: tuple[bytes, ...], length: int | None, chunked: bool) -> None:
    """P14: none stays none and 0 stays 0, for any method."""
    for method in (b"GET", b"DELETE", b"POST", b"HEAD"):
        head = read(asking(method + b" / HTTP/1.1", *fields))
        assert (head.length, head.chunked) == (length, chunked)


@pytest.mark.parametrize(
    ("version", "fields", "keep"),
    [
        (b"1.1", (), True),
        (b"1.1", (b"Connection: keep-alive",), True),
        (b"1.1", (b"Connection: Close",), False),
        (b"1.1", (b"Connection: x", b"connection: y,\tclose"), False),
        (b"1.1", (b"Connection: closed",), True),
        (b"1.1", (b"Proxy-Connection: close",), True),
        (b"1.0", (), False),
        (b"1.0", (b"Connection: keep-alive",), False),
    ],
)
def test_request_keep_alive_is_parsed(version: bytes, fields: tuple[bytes, ...], keep: bool) -> None:
    """Kept unless the client says otherwise; never for HTTP/1.0."""
    assert read(asking(b"GET / HTTP/" + version, *fields)).keep_alive is keep


def test_http_1_0_request_needs_no_host() -> None:
    """But one that it sends must be valid."""
    assert read(asking(b"GET / HTTP/1.0", host=None)).host is None
    assert read(asking(b"GET / HTTP/1.0")).host == b"h"
    assert refusal(asking(b"GET / HTTP/1.0", host=b"Host: a b")) == (400, "bad_framing")


@pytest.mark.parametrize(
    ("line", "fields", "websocket"),
    [
        (b"GET /v1/realtime HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket"), True),
        (b"GET / HTTP/1.1", (b"connection: keep-alive, upgrade", b"upgrade: WebSocket"), True),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 0"), True),
        (b"GET / HTTP/1.1", (b"Upgrade: websocket",), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade",), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: foo"), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket, foo"), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket", b"Upgrade: foo"), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 3"), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket", b"Transfer-Encoding: chunked"), False),
        (b"POST / HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket"), False),
        (b"GET / HTTP/1.0", (b"Connection: Upgrade", b"Upgrade: websocket"), False),
    ],
)
def test_websocket_upgrade_requests_are_recognised(line: bytes, fields: tuple[bytes, ...], websocket: bool) -> None:
    """F25: anything else is an ordinary request, and its bytes are never tunnelled."""
    assert read(asking(line, *fields)).websocket is websocket


def test_expect_100_continue_is_recognised_and_others_refused() -> None:
    """In any case, once, and in HTTP/1.1 only: HTTP/1.0 does not know it (RFC 9110 section 10.1.1)."""
    assert read(posting(b"Expect: 100-Continue", b"Content-Length: 3")).expects_continue
    assert not read(asking(b"POST / HTTP/1.0", b"Expect: 100-continue")).expects_continue
    assert not read(asking(b"POST / HTTP/1.0", b"Expect: foo")).expects_continue
    assert refusal(posting(b"Expect: " + CANARY)) == (417, "expectation_failed")
    assert refusal(posting(b"Expect: 100-continue", b"Expect: 100-continue")) == (417, "expectation_failed")


# What is refused.


@pytest.mark.parametrize(
    "value", [*b'+3|-3|0x3|1_0|3 3||3, 3|3,|3.0|1e3|"3"|\xa03'.split(b"|"), b"9" * 19, b"9" * 20, "٣".encode(), CANARY]
)
def test_malformed_content_length_is_refused(value: bytes) -> None:
    """F4: 1 to 18 decimal digits, nothing that another reader could read otherwise."""
    assert refusal(posting(b"Content-Length: " + value)) == (400, "bad_framing")


@pytest.mark.parametrize("pair", [(b"3", b"3"), (b"3", b"4"), (b"3", b""), (b"0", b"0")])
def test_two_content_lengths_are_refused(pair: tuple[bytes, bytes]) -> None:
    """F3: equal ones too."""
    assert refusal(posting(*(b"Content-Length: " + value for value in pair))) == (400, "bad_framing")


@pytest.mark.parametrize("value", [b"chunked", b"gzip", b"", b"identity"])
@pytest.mark.parametrize("order", [1, -1])
def test_content_length_with_transfer_encoding_is_refused(value: bytes, order: int) -> None:
    """CL.TE and TE.CL."""
    fields = [b"Content-Length: 3", b"Transfer-Encoding: " + value][::order]
    assert refusal(posting(*fields)) == (400, "bad_framing")


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"gzip|gzip, chunked|chunked, gzip|chunked, chunked|chunked,|identity|xchunked|chunked;q=1|"
            b"chunked ,identity|cow"
        ).split(b"|"),
        CANARY,
    ],
)
def test_unknown_transfer_coding_returns_501(value: bytes) -> None:
    """RFC 9112 section 6.1: a coding that is not understood is 501."""
    assert refusal(posting(b"Transfer-Encoding: " + value)) == (501, "unsupported_transfer_coding")


@pytest.mark.parametrize(
    "value",
    [
        *b'|,chunked|"chunked"|\x85chunked|chunked\xa0|chunked chunked|chunked\t|chun\xc4\x91ked|@chunked'.split(b"|"),
        CANARY + b" x",
    ],
)
def test_a_transfer_coding_in_disguise_is_refused(value: bytes) -> None:
    """Spellings that one reader takes for chunked and another does not."""
    assert refusal(posting(b"Transfer-Encoding: " + value)) == (400, "bad_framing")


def test_repeated_or_http_1_0_transfer_encoding_is_refused() -> None:
    """F7 and its kin."""
    chunked = b"Transfer-Encoding: chunked"
    assert refusal(posting(chunked, chunked)) == (400, "bad_framing")
    assert refusal(posting(chunked, b"Transfer-Encoding: identity")) == (400, "bad_framing")
    assert refusal(posting(b"Transfer-Encoding : chunked")) == (400, "bad_framing")
    assert refusal(asking(b"POST / HTTP/1.0", chunked)) == (400, "bad_framing")


@pytest.mark.parametrize(
    "host",
    [
        *b"a b|a/b|u:p@h|[::1|h:99999|h:123456|h:-1|h:8a|h,h||[x]|h?|h#|%41|[fe80::1%25e0]|[1.2.3.4]|h\xe9".split(b"|"),
        CANARY + b"/",
    ],
)
def test_missing_duplicate_or_invalid_host_is_refused(host: bytes) -> None:
    """RFC 9112 section 3.2: none, two, or one that is no authority is 400."""
    assert refusal(asking(b"GET / HTTP/1.1", host=b"Host: " + host)) == (400, "bad_framing")
    assert refusal(asking(b"GET / HTTP/1.1", host=None)) == (400, "bad_framing")
    assert refusal(asking(b"GET / HTTP/1.1", b"host: h")) == (400, "bad_framing")
    assert not is_valid_host(host)


@pytest.mark.parametrize(
    "host", [b"h", b"h:", b"h:0", b"h:65535", b"127.0.0.1:80", b"[::1]", b"[2001:DB8::1]:443", b"a_b-c~d.E"]
)
def test_valid_hosts_are_accepted(host: bytes) -> None:
    """Names, IPv4, bracketed IPv6, with or without a port."""
    assert is_valid_host(host) and read(asking(b"GET / HTTP/1.1", host=b"Host: " + host)).host == host


@pytest.mark.parametrize(
    "target",
    [
        *(
            b"x:443|a/b||?x|ftp://h/|http:///x|http://u:p@h/|http://h:99999/|http://a b/|/\xff|/\x7f|/a\x00|/a\tb|"
            b"/a b|/a#b|#|http:/x"
        ).split(b"|"),
        "/é/ÿ".encode(),
        CANARY,
    ],
)
def test_invalid_request_target_is_refused(target: bytes) -> None:
    """P5, F21: visible ASCII, no fragment, no authority form (CONNECT never tunnels)."""
    assert refusal(asking(b"GET %b HTTP/1.1" % target)) == (400, "bad_framing")
    assert refusal(asking(b"CONNECT %b HTTP/1.1" % target)) == (400, "bad_framing")


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"GET /|GET||GET  / HTTP/1.1|GET /  HTTP/1.1| GET / HTTP/1.1|GET\t/\tHTTP/1.1|GET / HTTP/1.1 |"
            b"GET / http/1.1|GET / HTTP/1.1x|GET / HTTP/+1.1|GET / HTTP/1,1|GET / ICY/1.1|G(T / HTTP/1.1|"
            b"G\xc3\x89T / HTTP/1.1|GET / /x HTTP/1.1"
        ).split(b"|"),
        b"GET / " + CANARY,
        CANARY + b"\x00",
    ],
)
def test_malformed_request_line_is_refused(line: bytes) -> None:
    """RFC 9112 section 3."""
    assert refusal(asking(line)) == (400, "bad_framing")


@pytest.mark.parametrize("version", [b"2.0", b"0.9", b"1.2", b"3", b"2", b"1", b"1.10", b"11.1", b"1.01", b"9.9"])
def test_unsupported_http_version_returns_505(version: bytes) -> None:
    """They are neither accepted nor echoed."""
    assert refusal(asking(b"GET /%b HTTP/%b" % (CANARY, version))) == (505, "http_version")


@pytest.mark.parametrize(
    "fields",
    b"X: a\r\n b|X : a|X\t: a|X: a\nY: b|X: a\rY: b|X: a\x00|X: a\x0b|X: a\x7f|nothing|: a|X(: a|\xe9: a".split(b"|"),
)
def test_malformed_header_lines_are_refused(fields: bytes) -> None:
    """F7, F16: obs-fold, white space before the colon, bare CR or LF, NUL and other controls."""
    assert refusal(posting(b"Authorization: Bearer " + CANARY, fields)) == (400, "bad_framing")
    assert refusal(posting(fields + CANARY)) == (400, "bad_framing")
    assert refusal(asking(b"GET / HTTP/1.1", host=b" Host: " + CANARY)) == (400, "bad_framing")


def test_credential_with_a_bad_byte_is_not_echoed() -> None:
    """F32: the answer names the line by its number."""
    with pytest.raises(GatewayError, match="header line 2 contains a control character") as refused:
        read(posting(b"Authorization: Bearer " + CANARY + b"\0"))
    assert CANARY.decode() not in refused.value.message


@pytest.mark.parametrize(
    "raw", [b"\r\n" + posting(), posting()[:-2], posting()[:-1], posting() + b"\r\n", posting() + b"X: y\r\n\r\n"]
)
def test_incomplete_or_overlong_head_is_refused(raw: bytes) -> None:
    """The caller cuts it out of the stream at the first empty line."""
    assert refusal(raw) == (400, "bad_framing")


# Limits.


def test_request_field_may_be_as_large_as_the_head_limit() -> None:
    """P10: 9,000 bytes and more pass, up to the limit exactly; beyond it 431."""
    assert read(posting(b"X: " + b"a" * 9000)).find_value(b"x") == b"a" * 9000
    room = LIMITS.bytes - len(posting(b"X: "))
    assert read(posting(b"X: " + b"a" * room)).find_value(b"x") == b"a" * room
    assert refusal(posting(b"X: " + b"a" * (room + 1))) == (431, "headers_too_large")
    assert refusal(posting(b"X: " + b"a" * 70 * 1024)) == (431, "headers_too_large")
    assert LIMITS.bytes >= 32 * 1024


def test_a_target_that_is_too_long_is_414() -> None:
    """The request line alone is larger than a head may be."""
    assert refusal(asking(b"GET /" + b"a" * 70 * 1024 + b" HTTP/1.1")) == (414, "target_too_long")
    assert len(read(asking(b"GET /" + b"a" * 30 * 1024 + b" HTTP/1.1")).target) == 30 * 1024 + 1


def test_request_with_too_many_fields_is_refused() -> None:
    """256 unless configured otherwise."""
    limits = HeadLimits(bytes=4096, fields=3)
    assert len(read(posting(b"A: 1", b"B: 2"), limits).fields) == 3
    assert refusal(posting(b"A: 1", b"B: 2", b"C: 3"), limits) == (431, "headers_too_large")


def test_invalid_beginning_of_a_head_is_refused_immediately() -> None:
    """No need to wait for the rest: bare LF or CR, controls, a TLS handshake, a line without end."""
    hopeless = [
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\rX",
        b"\x16\x03\x01\x02",
        b" GET",
        b"\n",
        b"\rG",
        b"GET /\0",
        b"(",
        b"\xff",
    ]
    for data in hopeless:
        with pytest.raises(GatewayError) as refused:
            check_beginning(data, LIMITS)
        assert refused.value.code == "bad_framing"
    for data, status in ((b"GET /" + b"a" * 40_000, 414), (posting()[:-2] + b"X: " + b"a" * 40_000, 431)):
        with pytest.raises(GatewayError) as refused:
            check_beginning(data, LIMITS)
        assert refused.value.facts.status == status


def test_prefix_of_a_valid_head_is_never_refused() -> None:
    """Cut at every byte."""
    raw = posting(b"X: \t\xe9", b"Content-Length: 3", b"Y:")
    for cut in range(1, len(raw)):
        check_beginning(raw[:cut], LIMITS)


def test_checking_a_growing_head_is_cheap() -> None:
    """A head of 32 KiB that drips in by 100 bytes costs milliseconds of processor time."""
    data = posting(b"X: " + b"a" * 32_000)[:-4]
    began = time.process_time()
    for cut in range(1, len(data), 100):
        check_beginning(data[:cut], LIMITS)
    assert time.process_time() - began < 0.1


def test_value_derived_from_a_head_is_computed_once() -> None:
    """For each maker and what it is given; an error is raised each time."""
    head, seen = read(posting()), list[object]()

    def make(head: RequestHead, *more: object) -> object:
        seen.append(more)
        if more == ("bad",):
            raise ValueError("as told")
        return (head.target, *more)

    assert [head.remember_derived(make) for _ in range(2)] == [(b"/v1/x",)] * 2
    assert [head.remember_derived(make, 1) for _ in range(2)] == [(b"/v1/x", 1)] * 2
    for _ in range(2):
        with pytest.raises(ValueError, match="as told"):
            head.remember_derived(make, "bad")
    assert seen == [(), (1,), ("bad",), ("bad",)]


def test_replaced_head_shares_no_derived_values() -> None:
    """Such as the head of a WebSocket, whose messages are requests of their own."""
    head = read(posting(b"X: 1"))

    def count(head: RequestHead) -> int:
        return len(head.fields)

    assert (head.remember_derived(count), replace(head, fields=head.fields[:1]).remember_derived(count)) == (2, 1)
