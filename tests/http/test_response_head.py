"""An upstream's answer has one reading or is an error; what goes to the client differs in hop-by-hop fields only."""

import pytest

from gateway.http.body import ChunkedBody, LengthBody, OpenBody
from gateway.http.response_head import (
    FIELDS_LIMIT,
    HEAD_LIMIT_BYTES,
    INTERIMS_LIMIT,
    ResponseError,
    ResponseHead,
    ResponseHeads,
    build_body,
    build_forwarded_head,
    measure_regular,
    parse_response_head,
)

CANARY = b"cAnArY-5f3d"


def answering(line: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([line, *fields, b"", b""])


def ok(*fields: bytes) -> bytes:
    return answering(b"HTTP/1.1 200 OK", *fields)


def read(raw: bytes, method: bytes = b"GET") -> ResponseHead:
    return parse_response_head(raw, method=method)


def forwarded(raw: bytes, *, method: bytes = b"GET", close: bool = False) -> bytes:
    return build_forwarded_head(read(raw, method), close=close)


def is_refused(raw: bytes) -> bool:
    """Whether no reader takes the head. Nothing of it is in the error."""
    with pytest.raises(ResponseError) as refused:
        read(raw)
    assert CANARY.decode() not in str(refused.value)
    with pytest.raises(ResponseError):
        list(ResponseHeads(b"GET").feed(raw))
    return measure_regular(raw) is None


# Reading.


def test_forwarded_response_head_preserves_the_original_bytes() -> None:
    """P17, P18: names, order, case and repeats stay; nothing is invented."""
    raw = ok(b"X-Mixed-Case: 1", b"x-low:2 ", b"ETag: \xe9", b"Set-Cookie: a", b"Set-Cookie: b", b"Content-Length: 2")
    head = read(raw)
    assert (head.status, head.minor, head.framing, head.length, head.keep_alive) == (200, 1, "length", 2, True)
    assert build_forwarded_head(head, close=False) == raw
    assert head.idle_timeout_s is None and not head.event_stream


@pytest.mark.parametrize("reason", [b" OK", b" ", b"", b" Many Words", b" \xe9t\xe9", b"  \tx "])
def test_reason_phrase_is_forwarded_and_may_be_missing(reason: bytes) -> None:
    """RFC 9112 section 4; it goes on as it came."""
    raw = answering(b"HTTP/1.1 207" + reason, b"Content-Length: 0")
    assert forwarded(raw) == raw
    assert measure_regular(raw) == (207, len(raw), 0)


@pytest.mark.parametrize(
    ("method", "status", "fields", "framing"),
    [
        (b"GET", 200, (b"Content-Length: 3",), "length"),
        (b"GET", 200, (b"content-length:0",), "length"),
        (b"POST", 500, (b"Transfer-Encoding: Chunked",), "chunked"),
        (b"GET", 200, (), "close"),
        (b"GET", 205, (b"Content-Length: 0",), "length"),
        (b"GET", 205, (), "close"),
        (b"HEAD", 200, (b"Content-Length: 3",), "none"),
        (b"HEAD", 200, (b"Transfer-Encoding: chunked",), "none"),
        (b"HEAD", 200, (), "none"),
        (b"GET", 204, (b"Content-Length: 3",), "none"),
        (b"GET", 304, (b"Content-Length: 1234", b"ETag: x"), "none"),
        (b"GET", 304, (b"Transfer-Encoding: chunked",), "none"),
        (b"GET", 103, (b"Link: x",), "none"),
        (b"GET", 101, (b"Upgrade: websocket",), "none"),
    ],
)
def test_response_body_framing_is_determined(
    method: bytes, status: int, fields: tuple[bytes, ...], framing: str
) -> None:
    """R17 and RFC 9112 section 6.3."""
    head = read(answering(b"HTTP/1.1 %d X" % status, *fields), method)
    assert head.framing == framing
    reader = build_body(head, payload_only=False)
    assert reader.done is (framing == "none" or (framing == "length" and head.length == 0))
    kinds = {"chunked": ChunkedBody, "close": OpenBody, "length": LengthBody, "none": LengthBody}
    assert type(reader) is kinds[framing]


@pytest.mark.parametrize(
    ("version", "fields", "keep"),
    [
        (b"1.1", (b"Content-Length: 0",), True),
        (b"1.1", (b"Content-Length: 0", b"Connection: x, Close"), False),
        (b"1.1", (b"Transfer-Encoding: chunked", b"Connection: keep-alive"), True),
        (b"1.1", (), False),
        (b"1.0", (b"Content-Length: 0",), False),
        (b"1.0", (b"Content-Length: 0", b"Connection: Keep-Alive"), True),
        (b"1.0", (b"Content-Length: 0", b"Connection: keep-alive, close"), False),
    ],
)
def test_response_keep_alive_is_parsed(version: bytes, fields: tuple[bytes, ...], keep: bool) -> None:
    """An answer that ends with its connection never does."""
    assert read(answering(b"HTTP/%b 200 OK" % version, *fields)).keep_alive is keep


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"timeout=5", 5.0), (b"max=100, Timeout = 7", 7.0), (b'timeout="9"', 9.0), (b"timeout=x", None), (b"5", None)],
)
def test_keep_alive_timeout_is_parsed(value: bytes, seconds: float | None) -> None:
    """The hint of a Keep-Alive field."""
    assert read(ok(b"Content-Length: 0", b"Keep-Alive: " + value)).idle_timeout_s == seconds


@pytest.mark.parametrize("value", [b"text/event-stream", b"Text/Event-Stream; charset=utf-8"])
def test_an_event_stream_is_seen_by_its_content_type(value: bytes) -> None:
    """And by nothing else."""
    assert read(ok(b"Content-Type: " + value, b"Transfer-Encoding: chunked")).event_stream
    assert not read(ok(b"Content-Type: application/json", b"Accept: " + value)).event_stream


@pytest.mark.parametrize(
    "line",
    b"HTTP/2.0 200 OK|HTTP/0.9 200 OK|HTTP/1.2 200 OK|http/1.1 200 OK|HTTP/1.1 20 OK|HTTP/1.1 2000 OK|HTTP/1.1 099 OK|"
    b"HTTP/1.1 +20 OK|HTTP/1.1  200 OK|HTTP/1.1\t200 OK|HTTP/1.1 200\tOK|HTTP/1.1 200 O\0K|HTTP/1.1 200OK|HTTP/1.1 abc|"
    b"ICY 200 OK|garbage|| HTTP/1.1 200 OK|HTTP/1.1 200 a\rb|HTTP/1.1 200 a\nb|HTTP/1.1 200 \x7f".split(b"|"),
)
def test_malformed_status_line_is_refused(line: bytes) -> None:
    """Garbage, other versions, other codes, controls: 502, never passed on."""
    assert is_refused(answering(line, b"Content-Length: 0", b"X: " + CANARY))
    assert is_refused(answering(line + CANARY))


@pytest.mark.parametrize(
    "fields",
    [
        (b"Content-Length: 3", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 3", b"Content-Length: 4"),
        (b"Content-Length: 3", b"Content-Length: 3"),
        *((b"Content-Length: " + value,) for value in b"-1|+1|3, 3||0x3|1_0|3 3|9999999999999999999".split(b"|")),
        *(
            (b"Transfer-Encoding: " + value,)
            for value in b"gzip|gzip, chunked|chunked, chunked||chunked\t|x".split(b"|")
        ),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        *(
            (line,)
            for line in (b"X: a\r\n b", b" X: a", b"X : a", b"X: a\nY: b", b"X: a\rY: b", b"X: \0", b"X", b": x")
        ),
    ],
)
def test_ambiguous_response_head_is_refused(fields: tuple[bytes, ...]) -> None:
    """R12, and response splitting: CL and TE, two CLs, odd digits, odd codings, folds, bare LF, NUL."""
    assert is_refused(ok(b"X-Secret: " + CANARY, *fields))
    assert is_refused(answering(b"HTTP/1.1 204 No Content", *fields))


def test_http_1_0_response_with_chunks_is_refused() -> None:
    """A body framed so has no single reading."""
    assert is_refused(answering(b"HTTP/1.0 200 OK", b"Transfer-Encoding: chunked"))


def test_response_head_size_and_fields_are_limited() -> None:
    """Fields and bytes, for the shortcut as for the long way."""
    fields = [b"X: y"] * (FIELDS_LIMIT - 1)
    assert len(read(ok(b"Content-Length: 0", *fields)).fields) == FIELDS_LIMIT
    assert is_refused(ok(b"Content-Length: 0", *fields, b"X: y"))
    large = ok(b"Content-Length: 0", b"X: " + b"a" * HEAD_LIMIT_BYTES)
    assert measure_regular(large) is None
    with pytest.raises(ResponseError):
        list(ResponseHeads(b"GET").feed(large))


# The heads of one answer, as they arrive.


def test_interim_heads_come_before_the_final_one() -> None:
    """R: 100 and 103, then the answer; what follows the final head is its body."""
    heads = ResponseHeads(b"GET")
    early, final = answering(b"HTTP/1.1 103 Early Hints", b"Link: x"), ok(b"Content-Length: 2")
    assert [head.status for head in heads.feed(answering(b"HTTP/1.1 100 Continue") + early + final + b"hi")] == [
        100,
        103,
        200,
    ]
    assert heads.rest == b"hi"


def test_response_heads_are_parsed_byte_by_byte() -> None:
    """Byte by byte."""
    heads = ResponseHeads(b"GET")
    raw = answering(b"HTTP/1.1 103 Early Hints") + ok(b"Content-Length: 2")
    statuses = [[head.status for head in heads.feed(raw[at : at + 1])] for at in range(len(raw))]
    assert [status for found in statuses for status in found] == [103, 200]
    assert statuses[-1] == [200] and heads.rest == b""


def test_101_is_the_last_head() -> None:
    """The bytes behind it belong to another protocol."""
    heads = ResponseHeads(b"GET")
    (head,) = heads.feed(answering(b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket") + b"HTTP/1.1 \x81\x05")
    assert head.status == 101 and heads.rest == b"HTTP/1.1 \x81\x05"


@pytest.mark.parametrize(
    "data", b"\x16\x03|HTTP/2|ICY |SSH-2.0-x\r\n|HTTP/1.1 200 OK\n|HTTP/1.1 2\0|HTTP/1.1 200 OK\rX| |\r\n|h".split(b"|")
)
def test_invalid_beginning_of_a_response_head_is_refused_immediately(data: bytes) -> None:
    """No waiting for an end that will not come."""
    with pytest.raises(ResponseError):
        list(ResponseHeads(b"GET").feed(data))


def test_prefix_of_a_valid_response_head_is_never_refused() -> None:
    """Cut at every byte."""
    raw = ok(b"Content-Length: 2", b"X: \t\xe9", b"Y:")
    for cut in range(len(raw)):
        assert list(ResponseHeads(b"GET").feed(raw[:cut])) == []


def test_a_head_without_end_is_refused() -> None:
    """64 KiB are enough for anyone."""
    heads = ResponseHeads(b"GET")
    assert list(heads.feed(b"HTTP/1.1 200 OK\r\nX: " + b"a" * (HEAD_LIMIT_BYTES - 100))) == []
    with pytest.raises(ResponseError, match="too large"):
        list(heads.feed(b"a" * 200))


def test_interim_heads_without_end_are_refused() -> None:
    """A thousand pass."""
    interim = answering(b"HTTP/1.1 103 Early Hints")
    assert len(list(ResponseHeads(b"GET").feed(interim * INTERIMS_LIMIT + ok()))) == INTERIMS_LIMIT + 1
    with pytest.raises(ResponseError, match="interim"):
        list(ResponseHeads(b"GET").feed(interim * (INTERIMS_LIMIT + 1)))


# Forwarding.


def test_hop_by_hop_fields_are_removed() -> None:
    """RFC 9110 section 7.6.1, and what Connection nominates; all other lines are the bytes that came."""
    raw = ok(
        *(b"A:  1", b"Connection: keep-alive, X-Hop, Content-Length", b"Keep-Alive: timeout=5", b"x-hop: 1", b"TE: x"),
        *(b"Proxy-Connection: x", b"Upgrade: h2c", b"Content-Length: 3", b"Trailer: t", b"Z: 2\t"),
    )
    assert forwarded(raw) == ok(b"A:  1", b"Content-Length: 3", b"Trailer: t", b"Z: 2\t")


def test_forwarded_head_carries_one_connection_close_when_closing() -> None:
    """One `Connection: close`, at the end."""
    assert forwarded(ok(b"A: 1", b"Connection: close"), close=True) == ok(b"A: 1", b"Connection: close")
    assert forwarded(ok(b"A: 1")) == ok(b"A: 1")


def test_an_answer_in_http_1_0_goes_on_as_http_1_1() -> None:
    """The version is this hop's; the reason stays."""
    raw = answering(b"HTTP/1.0 404 Not \xe9", b"Content-Length: 0")
    assert forwarded(raw) == raw.replace(b"1.0", b"1.1", 1)


@pytest.mark.parametrize(
    ("method", "status", "kept"),
    [(b"GET", 304, True), (b"HEAD", 200, True), (b"GET", 204, False), (b"GET", 103, False), (b"GET", 100, False)],
)
def test_framing_fields_of_bodiless_responses_follow_the_rfc(method: bytes, status: int, kept: bool) -> None:
    """R17: kept for 304 and HEAD, where they say what a GET would bring; 1xx and 204 must not have them."""
    for field in (b"Content-Length: 1234", b"Transfer-Encoding: chunked"):
        raw = answering(b"HTTP/1.1 %d X" % status, b"A: 1", field)
        assert (field in forwarded(raw, method=method)) is kept


def test_upgrade_response_keeps_connection_and_upgrade_fields() -> None:
    """101 means nothing without Upgrade and Connection."""
    raw = answering(
        b"HTTP/1.1 101 Switching Protocols", b"Connection: Upgrade", b"Upgrade: websocket", b"TE: x", b"A: 1"
    )
    assert build_forwarded_head(read(raw), close=False, upgrade=True) == raw.replace(b"TE: x\r\n", b"")


def test_a_client_of_http_1_0_sees_no_transfer_encoding() -> None:
    """Its body comes without the chunks."""
    head = read(ok(b"Transfer-Encoding: chunked", b"A: 1"))
    assert build_forwarded_head(head, close=True, dechunked=True) == ok(b"A: 1", b"Connection: close")
    assert build_body(head, payload_only=True).feed(b"2\r\nhi\r\n0\r\n\r\n") == b"hi"


# The shortcut.


def test_regular_response_is_measured_without_parsing_fields() -> None:
    """Status, head and body; the body may be there, or some of it, or more."""
    raw = ok(b"Content-Type: application/json", b"content-LENGTH:\t2 ", b"X-Content-Length: 9", b"X: content-length: 7")
    for body in (b"", b"h", b"hi", b"hiEXTRA"):
        assert measure_regular(raw + body) == (200, len(raw), 2)


@pytest.mark.parametrize(
    "raw",
    [
        answering(b"HTTP/1.0 200 OK", b"Content-Length: 2"),
        answering(b"HTTP/1.1 204 No Content", b"Content-Length: 0"),
        answering(b"HTTP/1.1 304 Not Modified", b"Content-Length: 2"),
        answering(b"HTTP/1.1 100 Continue", b"Content-Length: 2"),
        ok(),
        ok(b"Transfer-Encoding: chunked"),
        ok(b"Content-Length: 2", b"Content-Length: 2"),
        *(
            ok(b"Content-Length: 2", line)
            for line in (b"Connection: close", b"connection:", b"Keep-Alive: timeout=5", b"TE: x")
        ),
        *(
            ok(b"Content-Length: 2", line)
            for line in (b"Upgrade: x", b"Proxy-Connection: x", b"te:x", b"X : y", b" fold")
        ),
        *(ok(b"Content-Length: " + value) for value in (b"", b"2x", b"-2", b"1" * 19, b"2, 2")),
        ok(b"Content-Length: 2")[:-1],
        b"",
    ],
)
def test_irregular_responses_use_the_full_parser(raw: bytes) -> None:
    """Anything about framing or this hop, and anything that is not whole."""
    assert measure_regular(raw) is None


def test_similar_field_names_do_not_disturb_the_fast_path() -> None:
    """Only the very names count, but a name that begins like one may take the long way."""
    raw = ok(b"Content-Length: 2", b"X-Connection: close", b"Text: x", b"Tea: x", b"X: upgrade", b"Content: 1")
    assert measure_regular(raw) == (200, len(raw), 2)
