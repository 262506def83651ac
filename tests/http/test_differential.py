"""The grammar against llhttp and h11: what it accepts they accept, and nobody disagrees about where a message ends.

`TWOLANE_FUZZ` multiplies the number of inputs: 50 makes a million of them (`make soak`).

Documented differences: llhttp has a fixed list of methods (others, and CONNECT, are fed to it as POST), takes
Proxy-Connection for Connection, and httptools skips the body of any request to upgrade (here only a bodyless `GET` to
`websocket` is one); h11 and llhttp know no origin form of an absolute target; h11 tells Transfer-Encoding in lower
case; an HTTP/1.0 connection is never kept for a client, and for an upstream only if it does not say `close` as well;
llhttp reads a body behind 104 to 199 with a Content-Length (RFC 9110 has none, and what goes on has no Content-Length).
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from time import perf_counter

import pytest

from gateway.contracts.errors import GatewayError
from gateway.http.body import Body, BodyError, ChunkedBody, LengthBody
from gateway.http.request_head import HeadLimits, RequestHead, check_beginning, parse_request_head
from gateway.http.response_head import (
    ResponseError,
    ResponseHead,
    ResponseHeads,
    build_forwarded_head,
    measure_regular,
    parse_response_head,
)
from tests.http import random_messages
from tests.http.second_opinions import (
    RefusedError,
    h11_request,
    h11_response,
    known_to_llhttp,
    llhttp_request,
    llhttp_response,
)

FUZZ = float(os.environ.get("TWOLANE_FUZZ", "1"))
REQUESTS, BODIES, RESPONSES = (round(FUZZ * n) for n in (8_000, 6_000, 6_000))
LIMITS = HeadLimits()
HEAD_CODES = {"bad_framing", "http_version", "unsupported_transfer_coding", "expectation_failed", "headers_too_large"}
QUIRKS = frozenset((b"proxy-connection", b"upgrade"))
CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def figure(what: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Counter[str]]:
    """Counts verdicts, and says how many and how fast; a fuzz that accepts or refuses hardly anything fails."""
    verdicts: Counter[str] = Counter()
    began = perf_counter()
    yield verdicts
    seconds = perf_counter() - began
    total = verdicts.total()
    with capsys.disabled() if FUZZ > 1 else nullcontext():
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(verdicts.items()))
        print(f"\n{what}: {total:,} inputs, 0 disagreements ({counts}; {seconds:.1f} s, {total / seconds:,.0f}/s)")
    assert verdicts["accepted"] > total / 4
    assert verdicts["refused"] > total / 10


def test_request_heads_parse_the_same_in_all_parsers(capsys: pytest.CaptureFixture[str]) -> None:
    """Method, target, fields, framing, payload, end, keep-alive: one reading for all three parsers."""
    with figure("request heads", capsys) as verdicts:
        for seed in range(REQUESTS):
            rng = Random(seed)
            data = random_messages.request(rng)
            end = data.find(b"\r\n\r\n")
            if end < 0:
                verdicts["endless"] += 1
                continue
            try:
                verdicts[compare_request(data[: end + 4], data[end + 4 :], rng)] += 1
            except (AssertionError, RefusedError, GatewayError) as error:
                pytest.fail(f"seed {seed}: {data!r}: {error!r}")


def compare_request(raw: bytes, body: bytes, rng: Random) -> str:
    try:
        head = parse_request_head(raw, LIMITS)
    except GatewayError as error:
        if error.code not in HEAD_CODES:
            raise
        return "refused"
    check_beginning(raw[: rng.randrange(1, len(raw))], LIMITS)
    compare_request_readings(head, raw, body, rng)
    return "accepted"


def compare_request_readings(head: RequestHead, raw: bytes, body: bytes, rng: Random) -> None:
    """The three readings of an accepted head, with its body if our own readers accept that."""
    payload, size = own_body(head, body, rng)
    data = raw + body
    end = None if size is None else len(raw) + size
    second = h11_request(data if end is not None else raw)
    fed = for_llhttp(data[:end] if end else raw, head)
    third = llhttp_request(fed, guess=len(fed))
    method, target = raw.split(b" ", 2)[:2]
    assert head.method == method
    assert head.target == target or origin_form(head, target)
    assert [field.line for field in head.fields] == raw.split(b"\r\n", 1)[1][:-2].splitlines(keepends=True)
    names = [(field.name, field.value) for field in head.fields]
    assert second.line == (method, target, b"%d" % head.minor)
    assert third.line == (method if known_to_llhttp(method) else b"POST", target, b"%d" % head.minor)
    assert as_h11_tells(second.fields) == as_h11_tells(names)
    assert third.fields == [(name_for_llhttp(name, quirks_of(head)), value) for name, value in names]
    assert second.end == end
    assert third.end == (None if end is None else len(fed))
    if end is not None:
        assert (second.payload, third.payload) == (payload, payload)
    if head.minor == 0:
        assert not head.keep_alive
    else:
        assert head.keep_alive == third.keep_alive
        assert second.end is None or second.upgrade or head.keep_alive == second.keep_alive
        assert head.expects_continue == second.expects_continue
    assert third.upgrade or not head.websocket


def own_body(head: RequestHead, body: bytes, rng: Random) -> tuple[bytes, int | None]:
    """The payload and size of a request's body by our own readers; None: it is not whole, or broken."""
    if not head.chunked and not head.length:
        return b"", 0
    reader: Body = ChunkedBody(payload_only=True) if head.chunked else LengthBody(head.length or 0)
    payload, fed = b"", 0
    try:
        for piece in random_messages.pieces(rng, body):
            payload += reader.feed(piece)
            fed += len(piece)
            if reader.done:
                return payload, fed - len(reader.rest)
    except BodyError:
        pass
    return b"", None


def for_llhttp(data: bytes, head: RequestHead) -> bytes:
    """The request with a method that llhttp knows, and without the fields that it reads in a way of its own."""
    line, fields = data.split(b"\r\n", 1)
    if not known_to_llhttp(head.method):
        line = b"POST" + line[len(head.method) :]
    return line + b"\r\n" + fields_for_llhttp(fields, quirks_of(head))


def quirks_of(head: RequestHead) -> frozenset[bytes]:
    return QUIRKS - {b"upgrade"} if head.websocket else QUIRKS


def fields_for_llhttp(fields: bytes, quirks: frozenset[bytes]) -> bytes:
    """The fields and what follows them, with quirky names changed."""
    section, empty_line, body = fields.partition(b"\r\n\r\n")
    lines = (line.partition(b":") for line in section.split(b"\r\n"))
    return (
        b"\r\n".join(name_for_llhttp(name, quirks) + colon + value for name, colon, value in lines) + empty_line + body
    )


def name_for_llhttp(name: bytes, quirks: frozenset[bytes]) -> bytes:
    return b"z" + name[1:] if name.lower() in quirks else name


def as_h11_tells(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in fields]


def origin_form(head: RequestHead, target: bytes) -> bool:
    """Whether the head's target and host are what the absolute-form `target` says."""
    scheme, _, rest = target.partition(b"://")
    assert scheme.lower() in (b"http", b"https") and head.host is not None
    return rest in (head.host + head.target, head.host + head.target[1:])


def test_chunked_bodies_parse_the_same_in_all_parsers(capsys: pytest.CaptureFixture[str]) -> None:
    """Equal payload, trailers and end; forwarded is what came; the last chunk waits; any split reads the same."""
    with figure("chunked bodies", capsys) as verdicts:
        for seed in range(BODIES):
            rng = Random(seed)
            data = random_messages.damaged(rng, random_messages.chunks(rng)) + random_messages.TAIL
            if rng.random() < 0.1:
                data = data[: rng.randrange(len(data))]
            try:
                verdicts[compare_chunked(data, rng)] += 1
            except (AssertionError, RefusedError) as error:
                pytest.fail(f"seed {seed}: {data!r}: {error!r}")


def compare_chunked(data: bytes, rng: Random) -> str:
    whole, size = read_chunked(data, [data])
    assert read_chunked(data, random_messages.pieces(rng, data)) == (whole, size)
    if whole != "accepted":
        return whole
    for reading in (h11_request(CHUNKED_HEAD + data), llhttp_request(CHUNKED_HEAD + data[:size], guess=0)):
        assert reading.end == len(CHUNKED_HEAD) + size
        payload = ChunkedBody(payload_only=True)
        assert b"".join(map(payload.feed, random_messages.pieces(rng, data[:size]))) == reading.payload
        assert payload.done and not payload.rest
    return whole


def read_chunked(data: bytes, pieces: list[bytes]) -> tuple[str, int]:
    """The verdict on `data`, fed in pieces, and the body's size. Checks what was forwarded on the way."""
    body = ChunkedBody()
    forwarded = b""
    fed = 0
    for piece in pieces:
        try:
            passed = body.feed(piece)
        except BodyError:
            unfinished(forwarded)
            return "refused", 0
        before, forwarded = len(forwarded), forwarded + passed
        fed += len(piece)
        assert data.startswith(forwarded)
        if body.done:
            size = len(forwarded)
            assert body.rest == data[size:fed]
            assert before <= last_chunk(forwarded)
            return "accepted", size
    unfinished(forwarded)
    return "unfinished", 0


def last_chunk(body: bytes) -> int:
    """Where the last chunk of a whole body begins."""
    at = 0
    while size := int(re.split(rb"[;\r]", body[at:], maxsplit=1)[0], 16):
        at = body.index(b"\r\n", at) + 2 + size + 2
    return at


def unfinished(forwarded: bytes) -> None:
    """What was forwarded of a body that is not whole looks fine to others, and not whole."""
    for reading in (h11_request(CHUNKED_HEAD + forwarded), llhttp_request(CHUNKED_HEAD + forwarded, guess=0)):
        assert reading.end is None, forwarded


def test_responses_parse_the_same_in_all_parsers(capsys: pytest.CaptureFixture[str]) -> None:
    """One reading of a response for all three parsers; the shortcut for regular answers agrees with the long way."""
    with figure("responses", capsys) as verdicts:
        for seed in range(RESPONSES):
            rng = Random(seed)
            data = random_messages.response(rng)
            try:
                verdicts[compare_response(data, rng)] += 1
            except (AssertionError, RefusedError, ResponseError) as error:
                pytest.fail(f"seed {seed}: {data!r}: {error!r}")


def compare_response(data: bytes, rng: Random) -> str:
    end = data.find(b"\r\n\r\n") + 4
    method = rng.choice((b"GET", b"GET", b"HEAD"))
    shortcut = measure_regular(data)
    raw = data[:end]
    if end < 4:
        assert shortcut is None
        return "endless"
    try:
        head = parse_response_head(raw, method=method)
    except ResponseError:
        assert shortcut is None
        with pytest.raises(ResponseError):
            feed_heads(random_messages.pieces(rng, raw), method)
        return "refused"
    assert feed_heads(random_messages.pieces(rng, raw), method) == [head]
    if shortcut is not None and method == b"GET":
        assert shortcut == (head.status, end, head.length)
        assert (head.framing, head.keep_alive, head.idle_timeout_s) == ("length", True, None)
        assert build_forwarded_head(head, close=False) == raw
    compare_readings(head, raw, method)
    return "accepted"


def compare_readings(head: ResponseHead, raw: bytes, method: bytes) -> None:
    """The readings of an accepted response head, as it came and as it goes on, with a body that fits our reading."""
    body = {"none": b"", "length": b"x" * min(head.length, 999), "chunked": b"1\r\nx\r\n0\r\n\r\n", "close": b"xx"}[
        head.framing
    ]
    whole = head.framing != "close" and head.length in range(1000)
    end = len(raw + body) if whole else None
    payload = b"x" if head.framing == "chunked" else body
    names = [(field.name, field.value) for field in head.fields]
    second = h11_response(raw + body + (random_messages.TAIL if whole else b""), method=method)
    assert second.line == (b"%d" % head.status, b"%d" % head.minor)
    assert as_h11_tells(second.fields) == as_h11_tells(names)
    assert (second.payload, second.end) == (payload, end)
    if method != b"HEAD":
        passed_on = build_forwarded_head(head, close=False)
        fourth = llhttp_response(passed_on + body, guess=len(passed_on))
        assert (fourth.payload, fourth.end) == (payload, None if end is None else len(passed_on + body))
    if method != b"HEAD" and head.status not in range(104, 200):
        third = llhttp_response(fields_for_llhttp(raw, QUIRKS) + body, guess=len(raw))
        assert third.line == second.line
        assert third.fields == [(name_for_llhttp(name, QUIRKS), value) for name, value in names]
        assert head.keep_alive == third.keep_alive or (head.minor == 0 and not head.keep_alive)
        assert (third.payload, third.end) == (payload, end)


def feed_heads(pieces: list[bytes], method: bytes) -> list[ResponseHead]:
    """Return the heads that ResponseHeads reads from the pieces."""
    reader = ResponseHeads(method)
    return [head for piece in pieces for head in reader.feed(piece)]
