"""Generated requests and answers go through unchanged: names, order, case, repeats, spacing, bodies, framing, trailers.

`TWOLANE_FUZZ=34` makes 10,000 pairs of it; a failure names the seed of its pair.
"""

import os
import random

import pytest

from gateway.testing.messages import Request, describe_differences
from gateway.testing.raw_connection import Peer
from gateway.testing.upstream import Script

from .through import HOP, REQUEST_MAY_DIFFER, client_of, through

PAIRS = 300 * int(os.environ.get("TWOLANE_FUZZ", "1"))
PAIRS_A_CONNECTION = 25

TOKEN = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NAMES = [
    *(
        "Accept",
        "ACCEPT",
        "accept-Encoding",
        "User-Agent",
        "Cookie",
        "cookie",
        "Set-Cookie",
        "ETag",
        "etag",
        "Via",
        "X-A",
    ),
    *(
        "Content-Type",
        "content-type",
        "Content-Encoding",
        "Server",
        "Date",
        "X-Api-Key",
        "Authorization",
        "Link",
        "Vary",
    ),
    *(
        "Cache-Control",
        "Range",
        "Forwarded",
        "X-Forwarded-For",
        "OpenAI-Organization",
        "x-stainless-retry-count",
        "Trailer",
    ),
    *("X-Content-Length", "Content-Lengths", "Transfer-Encodings", "Connections", "Hosts", "X-Host", "Tea", "Upgraded"),
]
PATH = "abcXYZ019-._~!$&'()*+,;=:@/%?|{}<>[]\\^`\""
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY", "get", "X-Odd"]
STATUSES = [
    200,
    200,
    200,
    201,
    202,
    204,
    206,
    299,
    301,
    304,
    307,
    400,
    401,
    404,
    409,
    422,
    429,
    500,
    503,
    529,
    599,
    600,
    999,
]


class Author:
    """Writes one message after another from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self, number: int) -> bytes:
        choose = self._random.choice
        query = self._letters(PATH, 30)
        line = f"{choose(METHODS)} /v1/{number}/{query} HTTP/1.1".encode()
        framing, body = self._body(none=choose([True, False]))
        return self._head(line, [choose([b"Host: gw", b"host:gw:1", b"HOST:  gw.example "]), *framing]) + body

    def answer(self) -> bytes:
        status = self._random.choice(STATUSES)
        reason = self._value() if self._random.random() < 0.5 else b"Reason"
        if status in (204, 304):
            framing, body = ([b"Content-Length: 77"] if status == 304 and self._random.random() < 0.5 else []), b""
        else:
            framing, body = self._body(none=False)
        return self._head(b"HTTP/1.1 %d %b" % (status, reason), framing) + body

    def pieces(self, data: bytes) -> list[bytes]:
        """`data` as it may arrive: mostly whole, sometimes cut anywhere."""
        if self._random.random() < 0.5:
            return [data]
        cuts = sorted(self._random.randrange(len(data) + 1) for _ in range(self._random.randint(1, 5)))
        return [piece for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if (piece := data[a:b])]

    def _head(self, start_line: bytes, fixed: list[bytes]) -> bytes:
        lines = [self._field() for _ in range(self._random.choice([0, 1, 3, 8, 20, 60]))]
        for line in fixed:
            lines.insert(self._random.randint(0, len(lines)), line)
        return b"\r\n".join([start_line, *lines, b"", b""])

    def _field(self) -> bytes:
        name = self._random.choice(NAMES) if self._random.random() < 0.6 else "X-" + self._letters(TOKEN, 15)
        space = self._random.choice(["", " ", " ", " ", "\t", "  \t "])
        end = self._random.choice(["", "", "", " ", "\t "])
        return (name + ":" + space).encode() + self._value() + end.encode()

    def _value(self) -> bytes:
        length = self._random.choice([0, 1, 5, 20, 20, 100, 450])
        octets = (
            [*range(0x20, 0x7F), 9] if self._random.random() < 0.8 else [*range(0x20, 0x7F), *range(0x80, 0x100), 9]
        )
        return bytes(self._random.choices(octets, k=length)).strip(b" \t")

    def _body(self, *, none: bool) -> tuple[list[bytes], bytes]:
        if none:
            return [], b""
        payload = self._random.randbytes(self._random.choice([0, 1, 10, 500, 5000, 70_000, 300_000]))
        if self._random.random() < 0.6:
            name = self._random.choice([b"Content-Length", b"content-length", b"CONTENT-LENGTH", b"Content-length"])
            space = self._random.choice([b" ", b"", b"  ", b"\t"])
            return [b"%b:%b%b%d" % (name, space, b"0" * self._random.choice([0, 0, 0, 3]), len(payload))], payload
        name = self._random.choice(
            [b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked", b"TRANSFER-ENCODING:  CHUNKED"]
        )
        return [name], self._chunked(payload)

    def _chunked(self, payload: bytes) -> bytes:
        out, at = [], 0
        while at < len(payload):
            size = min(self._random.choice([1, 2, 15, 16, 300, 9000, 100_000]), len(payload) - at)
            if size < 16 and len(out) > 300:
                size = len(payload) - at
            digits = self._random.choice([b"%x", b"%X", b"0%x", b"0000%X"]) % size
            out.append(b"%b%b\r\n%b\r\n" % (digits, self._extension(), payload[at : at + size]))
            at += size
        trailers = [b"X-T%d:%b\r\n" % (i, self._value()) for i in range(self._random.choice([0, 0, 0, 1, 4]))]
        return b"".join(
            [*out, self._random.choice([b"0", b"00", b"00000"]), self._extension(), b"\r\n", *trailers, b"\r\n"]
        )

    def _extension(self) -> bytes:
        return self._random.choice([b""] * 6 + [b";a", b";a=b", b';name="quoted; \\" \xff"', b";a=1;b=2"])

    def _letters(self, alphabet: str, most: int) -> str:
        return "".join(self._random.choices(alphabet, k=self._random.randint(1, most)))


def origin(answers: dict[bytes, bytes], author: Author) -> Script:
    """An upstream that answers with what is written for the number in the target."""

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.read_request(timeout_s=None)
            for piece in author.pieces(answers[number_of(request)]):
                await peer.send(piece)

    return script


def number_of(request: Request) -> bytes:
    return request.target.split(b"/")[2]


@pytest.mark.parametrize("block", range(6))
async def test_generated_pairs_are_byte_exact(block: int) -> None:
    """Not one byte differs, but for Host."""
    first, count = block * (PAIRS // 6), PAIRS // 6
    authors = {b"%d" % n: Author(n) for n in range(first, first + count)}
    requests = {number: author.request(int(number)) for number, author in authors.items()}
    answers = {number: author.answer() for number, author in authors.items()}
    numbers = list(authors)
    async with through(origin(answers, Author(-1)), keep_bytes=0) as (gateway, upstream):
        for start in range(0, count, PAIRS_A_CONNECTION):
            async with client_of(gateway, keep_bytes=0) as client:
                for number in numbers[start : start + PAIRS_A_CONNECTION]:
                    for piece in authors[number].pieces(requests[number]):
                        await client.send(piece)
                    response = await client.read_response()
                    assert upstream.requests, (number, response.raw)
                    seen = upstream.requests.pop()
                    assert number_of(seen) == number
                    assert not (
                        found := describe_differences(requests[number], seen.raw, may_differ=REQUEST_MAY_DIFFER)
                    ), (
                        number,
                        found,
                    )
                    assert not (found := describe_differences(answers[number], response.raw, may_differ=HOP)), (
                        number,
                        found,
                        response.raw[:900],
                    )
        assert len(upstream.connections) == 1
