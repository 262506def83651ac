"""A body ends where its framing says, for every reader and however it arrives; what is forwarded is what came."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http.body import (
    CHUNKS_AT_ONCE,
    LINE_LIMIT_BYTES,
    SIZE_LINES,
    TRAILERS_LIMIT_BYTES,
    Body,
    BodyError,
    ChunkedBody,
    LengthBody,
    OpenBody,
    note_length,
)

CHUNKED = b'5;a=b;c="x \\" y"\r\nhello\r\n00A\r\n0\r\n\r\nGET /\r\n0\r\nX-Sum: 1\r\nx-a:\r\n\r\n'
PAYLOAD = b"hello0\r\n\r\nGET /"
LAST_CHUNK = CHUNKED.index(b"0\r\nX-Sum")
NEXT = b"GET /smug HTTP/1.1\r\nHost: h\r\n\r\n"
CANARY = b"cAnArY-5f3d"


def relay(body: Body, *pieces: bytes) -> bytes:
    """Return the forwarded part of the pieces; the body must not end before the last of them."""
    forwarded = b""
    for piece in pieces:
        assert not body.done
        forwarded += body.feed(piece)
    return forwarded


def refused(data: bytes) -> bool:
    """Whether a chunked body is refused, fed whole and byte by byte. Nothing of the bad part goes on, or is told."""
    verdicts = set()
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        body, forwarded = ChunkedBody(), b""
        try:
            for piece in pieces:
                forwarded += body.feed(piece)
        except BodyError as error:
            verdicts.add(CANARY.decode() not in str(error))
        else:
            verdicts.add(False)
        assert data.startswith(forwarded)
        assert CANARY not in forwarded
    (verdict,) = verdicts
    return verdict


# By length.


@pytest.mark.parametrize("cut", range(5))
def test_length_body_ends_with_its_last_byte(cut: int) -> None:
    """The bytes behind it are the next message."""
    body = LengthBody(5)
    assert relay(body, *filter(None, (b"hello"[:cut], b"hello"[cut:] + NEXT))) == b"hello"
    assert body.done and body.rest == NEXT


def test_a_body_of_length_zero_is_done_at_once() -> None:
    """P14: there is nothing to wait for."""
    assert LengthBody(0).done and LengthBody(0).rest == b""


def test_truncated_length_body_is_not_done() -> None:
    """R1: four of five bytes."""
    body = LengthBody(5)
    assert relay(body, b"he", b"ll") == b"hell" and not body.done


# By the end of the connection.


def test_close_delimited_body_takes_everything() -> None:
    """Only its connection can end it."""
    body = OpenBody()
    assert relay(body, b"a", CHUNKED) == b"a" + CHUNKED and not body.done and body.rest == b""


# By chunks.


def test_chunks_are_forwarded_unchanged() -> None:
    """Sizes, extensions and trailers included; what follows is not part of it (F11)."""
    body = ChunkedBody()
    assert relay(body, CHUNKED + NEXT) == CHUNKED
    assert body.done and body.rest == NEXT


def test_whole_chunks_are_recognised_by_their_size_line() -> None:
    """For each length, those lines and no others: such chunks are forwarded without being read."""
    for length in range(len(SIZE_LINES)):
        note_length(length)
    for length, lines in enumerate(SIZE_LINES):
        sizes = {int(line, 16) for line in lines}
        assert len(sizes) == bool(lines)
        for line in lines:
            whole = line + bytes(length - len(line) - 2) + b"\r\n"
            body = ChunkedBody()
            assert body.feed(whole) == whole and body.passes_chunks
    assert {length for length, lines in enumerate(SIZE_LINES) if not lines} == {0, 1, 2, 3, 4, 5, 21, 262}


def test_chunked_trailer_does_not_consume_the_next_request() -> None:
    """F11: a trailer, then another request in the same segment."""
    body = ChunkedBody()
    assert relay(body, b"0\r\nX: y\r\n\r\n" + NEXT) == b"0\r\nX: y\r\n\r\n"
    assert body.rest == NEXT


def test_http_1_0_client_gets_the_payload_without_chunks() -> None:
    """No size, no extension, no trailer."""
    body = ChunkedBody(payload_only=True)
    assert relay(body, CHUNKED + NEXT) == PAYLOAD
    assert body.done and body.rest == NEXT


@settings(max_examples=200, derandomize=True, database=None)
@given(cuts=st.sets(st.integers(1, len(CHUNKED + NEXT) - 1)), payload_only=st.booleans())
def test_chunked_body_parses_the_same_for_any_split(cuts: set[int], payload_only: bool) -> None:
    """The network may cut anywhere."""
    message = CHUNKED + NEXT
    body = ChunkedBody(payload_only=payload_only)
    forwarded = b""
    for start, end in pairwise([0, *sorted(cuts), len(message)]):
        forwarded += body.feed(message[start:end])
        if body.done:
            break
    assert forwarded == (PAYLOAD if payload_only else CHUNKED)
    assert body.rest == message[len(CHUNKED) : end]


@pytest.mark.parametrize("cut", range(1, len(CHUNKED)))
def test_truncated_chunked_body_never_looks_complete(cut: int) -> None:
    """R4: at every byte, whole or byte by byte: not done, nothing from the last chunk on, no half size line."""
    for pieces in ([CHUNKED[:cut]], [CHUNKED[at : at + 1] for at in range(cut)]):
        body = ChunkedBody()
        forwarded = relay(body, *pieces)
        assert not body.done
        assert CHUNKED.startswith(forwarded) and len(forwarded) <= LAST_CHUNK
        assert not forwarded.endswith((b"5;a=b", b"00A", b"00"))


def test_chunk_data_is_forwarded_without_delay() -> None:
    """A streamed event goes on with the read that brought it."""
    body = ChunkedBody()
    for event in (b"8\r\ndata: 1\n\r\n", b"8\r\ndata: 2\n\r\n", b"8;x\r\ndata"):
        assert body.feed(event) == event
    assert body.feed(b": 3") == b": 3"


@pytest.mark.parametrize(
    "size", [b"5", b"05", b"000000000000005", b'5;a="\t\xe9\\\\"', b"5;a;b=c", b"5;!#$%&'*+-.^_`|~=x"]
)
def test_valid_chunk_size_lines_are_accepted(size: bytes) -> None:
    """Up to 15 hexadecimal digits, and extensions without white space."""
    data = size + b"\r\nhello\r\n0" + size[1:].lstrip(b"0123456789") + b"\r\n\r\n"
    body = ChunkedBody()
    assert relay(body, data) == data and body.done


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"5 ",
            b" 5",
            b"\t5",
            b"5\t",
            b"+5",
            b"-5",
            b"0x5",
            b"5h",
            b"5_0",
            b"",
            b"g",
            b"ZZ",
            b"0" * 15 + b"5",
            "٥".encode(),
        ),
        *(
            b"5 ;a",
            b"5; a",
            b"5;",
            b"5;a =b",
            b"5;a= b",
            b"5;\xe9",
            b'5;a="x',
            b"5;a=\x01",
            b"5;a\0",
            b"5,a",
            b"5;a\n;b",
            b"5\r",
        ),
        *(b'5;a="\x7f"', b'5;a="b"c', b"5;;a"),
    ],
)
def test_ambiguous_chunk_size_lines_are_refused(line: bytes) -> None:
    """White space, signs, prefixes, 16 digits, half-quoted or nameless extensions: readers disagree about them."""
    assert refused(line + b"\r\nhello\r\n0\r\n\r\n")
    assert refused(b"5\r\nhello\r\n" + line + b"\r\n" + CANARY)
    assert refused(line.replace(b"5", b"0", 1) + b"\r\n" + CANARY + b"\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [
        *(b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhellox\r\n0\r\n\r\n"),
        *(b"5\r\nhell\r\n0\r\n\r\n", b"5\r\nhello\rx0\r\n\r\n", b"5\r\nhello\r\n\r\n0\r\n\r\n", b"\r\n5\r\nhello\r\n"),
        *(b"5\r\nhello\r\n0\n\r\n", b"5\r\nhello\r\nZZ" + CANARY, b"\x00", b"\n"),
    ],
)
def test_chunk_without_crlf_at_its_end_is_refused(data: bytes) -> None:
    """F13, R12: bare LF, missing or extra bytes, garbage in mid-body."""
    assert refused(data)


@pytest.mark.parametrize(
    "trailers",
    [
        *(
            b"Content-Length: 5",
            b"Host: evil",
            b"Authorization: x",
            b"Transfer-Encoding: chunked",
            b"X-Context-Mode: context",
        ),
        *(b" X: y", b"X : y", b"X: y\n", b"X", b"X: a\r\n b", b"X: \0"),
    ],
)
def test_malformed_or_framing_trailers_are_refused(trailers: bytes) -> None:
    """F12: malformed ones, and those that would change what the message means."""
    assert refused(b"5\r\nhello\r\n0\r\nOk: 1\r\n" + trailers + CANARY + b"\r\n\r\n")


@pytest.mark.parametrize("in_pieces", [False, True])
def test_chunk_size_lines_and_trailers_are_limited(in_pieces: bool) -> None:
    """F13: an extension of 1 MiB, a trailer without end; the bound does not depend on how the bytes come."""

    def accepted(data: bytes) -> bool:
        step = 1000 if in_pieces else len(data)
        body = ChunkedBody()
        try:
            relay(body, *(data[at : at + step] for at in range(0, len(data), step)))
        except BodyError:
            return False
        return body.done

    for extra, fits in ((0, True), (1, False), (1 << 20, False)):
        extension = b"5;" + b"a" * (LINE_LIMIT_BYTES - 4 + extra) + b"\r\n"
        assert accepted(extension + b"hello\r\n0\r\n\r\n") is fits
        assert accepted(b"5\r\nhello\r\n" + extension.replace(b"5", b"0", 1) + b"\r\n") is fits
    room = TRAILERS_LIMIT_BYTES - len(b"X: \r\n\r\n")
    assert accepted(b"0\r\nX: " + b"a" * room + b"\r\n\r\n")
    assert not accepted(b"0\r\nX: " + b"a" * (room + 10) + b"\r\n\r\n")
    assert not accepted(b"0\r\n" + b"X: a\r\n" * 100_000 + b"\r\n")


def test_endless_chunk_lines_are_refused_early() -> None:
    """Nothing grows without bound while an end is waited for."""
    for start, limit in ((b"5;a", LINE_LIMIT_BYTES), (b"0\r\nX: ", TRAILERS_LIMIT_BYTES)):
        body = ChunkedBody()
        body.feed(start + b"a" * (limit // 2))
        with pytest.raises(BodyError):
            body.feed(b"a" * limit)


def test_hundred_thousand_tiny_chunks_are_parsed_quickly() -> None:
    """F13: 100,000 chunks of one byte with an extension of 16 bytes: well under 2 s of processor time."""
    data = b"1;abcdefghijklmno\r\nx\r\n" * 100_000 + b"0\r\n\r\n"
    began = time.process_time()
    body, passed = ChunkedBody(), []
    for at in range(0, len(data), 65536):
        passed.append(body.feed(data[at : at + 65536]))
        while body.waiting:
            passed.append(body.feed(b""))
    assert b"".join(passed) == data
    assert body.done and time.process_time() - began < 2


@pytest.mark.parametrize("payload_only", [False, True])
@pytest.mark.parametrize("tiny", [b"1\r\nx\r\n", b"001;a=b\r\nx\r\n", b"2\r\nxx\r\n"])
def test_tiny_chunks_are_parsed_in_portions(tiny: bytes, payload_only: bool) -> None:
    """A bounded number at once, and what is left waits for the next turn; large chunks never wait."""
    count = 10 * CHUNKS_AT_ONCE
    body, passed = ChunkedBody(payload_only=payload_only), []
    passed.append(body.feed(tiny * count + b"0\r\n\r\n" + NEXT))
    while body.waiting:
        passed.append(body.feed(b""))
    payload = tiny.partition(b"\r\n")[2][:-2]
    assert b"".join(passed) == (payload * count if payload_only else tiny * count + b"0\r\n\r\n")
    assert body.done and body.rest == NEXT
    assert max(map(len, passed)) <= CHUNKS_AT_ONCE * len(tiny)
    large = ChunkedBody()
    large.feed((b"1000\r\n" + bytes(4096) + b"\r\n") * 60)
    assert not large.waiting


def test_large_chunk_reads_are_forwarded_without_copying() -> None:
    """A chunk larger than any read needs no room: each read is forwarded as it is."""
    body = ChunkedBody()
    block = bytes(1 << 16)
    assert body.feed(b"4000000\r\n") == b"4000000\r\n"
    for _ in range(1024):
        assert body.feed(block) is block
    assert body.feed(b"\r\n0\r\n\r\n") == b"\r\n0\r\n\r\n" and body.done
