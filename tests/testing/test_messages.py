"""Messages are cut up, un-chunked and compared without repairing anything."""

import pytest

from gateway.testing.messages import Request, Response, dechunk, describe_differences, read_content_length, split_head

CHUNKED = b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 1\r\n\r\n"
MESSAGE = b"POST /a?b= HTTP/1.1\r\nHost: h\r\nX-a:  1 \r\nX-A: 2\r\n\r\nbody"


def test_request_keeps_words_and_headers_as_sent() -> None:
    """Names keep their case, values lose only the white space around them, order and repeats stay."""
    request = Request(b"POST /a?b= HTTP/1.1\r\nHost: h\r\nX-a:  1 \r\nX-A: 2\r\n\r\n", b"body")
    assert (request.method, request.target, request.version) == (b"POST", b"/a?b=", b"HTTP/1.1")
    assert request.headers == ((b"Host", b"h"), (b"X-a", b"1"), (b"X-A", b"2"))
    assert request.list_values(b"x-a") == [b"1", b"2"]
    assert request.payload == b"body" and request.trailers == () and request.raw == MESSAGE


def test_response_parses_status_reason_payload_and_trailers() -> None:
    """A chunked body shows as its payload, and raw."""
    head = b"HTTP/1.1 207 Many Parts\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"
    response = Response(head, CHUNKED, (b"HTTP/1.1 103 Early Hints\r\n\r\n",))
    assert (response.version, response.status, response.reason) == (b"HTTP/1.1", 207, b"Many Parts")
    assert response.payload == b"hello!" and response.trailers == ((b"X-Sum", b"1"),)
    assert response.raw_body == CHUNKED and len(response.informational) == 1


def test_the_answer_to_head_has_no_payload() -> None:
    """A chunked coding announced for a body that is not sent is not looked for."""
    assert Response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"").payload == b""


def test_response_without_a_reason_phrase_is_read() -> None:
    """RFC 9112 section 4: the reason is optional."""
    assert Response(b"HTTP/1.1 200\r\n\r\n", b"").reason == b""
    assert Response(b"HTTP/1.1 200 \r\n\r\n", b"").status == 200


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nHost: h\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"GET / HTTP/1.1\r\nHost : h\r\n\r\n"]
)
def test_a_broken_head_is_an_error(head: bytes) -> None:
    """No end, no colon, white space before the colon."""
    with pytest.raises(ValueError, match=r"header line|CRLFCRLF"):
        split_head(head)


@pytest.mark.parametrize("code", [b"20", b"2000", b"abc", b"020"])
def test_response_with_a_malformed_status_code_is_an_error(code: bytes) -> None:
    """Anything else is an error."""
    with pytest.raises(ValueError, match="status code"):
        _ = Response(b"HTTP/1.1 " + code + b" OK\r\n\r\n", b"").status


@pytest.mark.parametrize("line", [b"+3", b"-3", b"0x3", b"1_0", b"3, 3", b"", "٣".encode()])
def test_a_content_length_is_plain_digits(line: bytes) -> None:
    """What int() would let through is an error."""
    with pytest.raises(ValueError, match="Content-Length"):
        read_content_length([(b"content-length", line)])


def test_two_different_content_lengths_are_an_error() -> None:
    """Equal ones count once."""
    assert read_content_length([(b"Content-Length", b"3"), (b"content-length", b"3")]) == 3
    assert read_content_length([]) is None
    with pytest.raises(ValueError, match="Content-Length"):
        read_content_length([(b"Content-Length", b"3"), (b"content-length", b"4")])


def test_dechunk_gives_payload_trailers_and_the_rest() -> None:
    """What follows the body is handed back."""
    assert dechunk(CHUNKED + b"GET /") == (b"hello!", [b"X-Sum: 1"], b"GET /")


@pytest.mark.parametrize("length", range(len(CHUNKED)))
def test_a_truncated_chunked_body_is_an_error_at_every_offset(length: int) -> None:
    """A cut can never look like an end."""
    with pytest.raises(ValueError, match=r"ends inside|not a chunk-size line"):
        dechunk(CHUNKED[:length])


@pytest.mark.parametrize(
    "body", [b"ZZ\r\n", b"+1\r\na\r\n0\r\n\r\n", b"0x1\r\na\r\n0\r\n\r\n", b"2\r\nabc\r\n0\r\n\r\n"]
)
def test_bad_chunks_are_an_error(body: bytes) -> None:
    """Odd digits, and a chunk longer than it says."""
    with pytest.raises(ValueError, match="chunk"):
        dechunk(body)


def test_equal_messages_do_not_differ() -> None:
    """[] means byte for byte the same."""
    assert describe_differences(MESSAGE, MESSAGE) == []


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (b"/a?b=", b"/a", "start line"),
        (b"X-A: 2", b"x-a: 2", "header lines"),
        (b"X-a:  1 ", b"X-a: 1", "header lines"),
        (b"Host: h\r\nX-a:  1 ", b"X-a:  1 \r\nHost: h", "header lines: sent"),
        (b"X-A: 2\r\n", b"", "missing"),
        (b"X-A: 2", b"X-A: 2\r\nVia: 1.1 g", "extra"),
        (b"body", b"bodY", "body: 4 bytes sent, 4 got, apart at 3"),
        (b"body", b"bo", "body: 4 bytes sent, 2 got, apart at 2"),
    ],
)
def test_every_difference_is_named(before: bytes, after: bytes, named: str) -> None:
    """Start line, case, white space, order, loss, addition, body."""
    (difference,) = describe_differences(MESSAGE, MESSAGE.replace(before, after))
    assert difference.startswith(("start line: ", "header lines: ", "body: ")) and named in difference


def test_headers_that_may_differ_are_left_out_on_both_sides() -> None:
    """May go, come, or change."""
    changed = MESSAGE.replace(b"Host: h", b"HOST: other").replace(b"X-A: 2", b"X-A: 2\r\nConnection: close")
    assert describe_differences(MESSAGE, changed, may_differ=frozenset({b"host", b"connection"})) == []


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (b"5;a=b\r\n", b"5\r\n", "only the chunk framing differs"),
        (b"hello", b"hellO", "payload"),
        (b"X-Sum: 1", b"X-Sum: 2", "trailers"),
    ],
)
def test_differences_name_the_changed_part_of_a_chunked_body(before: bytes, after: bytes, named: str) -> None:
    """Framing, payload and trailers are told apart."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = describe_differences(head + CHUNKED, head + CHUNKED.replace(before, after))
    assert len(found) == 2 and found[0].startswith("body") and named in found[1]


def test_a_message_without_end_of_head_cannot_be_compared() -> None:
    """It is no message."""
    with pytest.raises(ValueError, match="no end of head"):
        describe_differences(b"GET / HTTP/1.1\r\n", MESSAGE)
