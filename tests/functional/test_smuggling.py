"""No spelling of a request's framing makes an upstream see another number of requests than the gateway saw.

More than 5,000 variants, each with a request hidden behind or inside it. What arrives upstream is read by a panel of
readers, each lenient in its own way, as real servers are: all must find the same requests there, and as many of each
variant as the gateway answered.
"""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.testing.local_gateway import LocalGateway

from .through import client_of, through

AT_ONCE = 256
#: The gateway itself ends each connection on which nothing more comes: so a client has had every answer by then.
LIMITS = {"head_timeout": 1, "body_idle": 1, "keepalive": 1}

METHODS = (b"POST", b"GET")
CODING_NAMES = (
    *(b"Transfer-Encoding", b"transfer-encoding", b"Transfer-Encoding ", b"Transfer-Encoding\t", b" Transfer-Encoding"),
    *(
        b"Transfer_Encoding",
        b"Transfer-Encoding\x0b",
        b"X: y\nTransfer-Encoding",
        b"X: y\rTransfer-Encoding",
        b"Transfer\x00-Encoding",
    ),
    *(b"X:\r\n Transfer-Encoding", b"TRANSFER-ENCODING", b"Transfer-Encoding\xa0", b"X-Transfer-Encoding"),
)
CODINGS = (
    *(
        b"chunked",
        b"Chunked",
        b"xchunked",
        b"chunked, identity",
        b"identity, chunked",
        b"chunked, chunked",
        b"\x0bchunked",
    ),
    *(
        b"chunked\x0b",
        b'"chunked"',
        b"chunked;x=y",
        b"\tchunked",
        b"chunked ",
        b"",
        b"\r\n chunked",
        b"chunked\x00",
        b"cHuNkEd,",
    ),
    *(
        b", chunked",
        b"gzip, chunked",
        b"chunked\r",
        b"chunked\n",
        b"identity",
        b"chu\r\n nked",
        b"\xa0chunked",
        b"chunked\xff",
    ),
)
LENGTH_NAMES = (
    *(
        b"Content-Length",
        b"content-length",
        b"Content-Length ",
        b"Content-Length\t",
        b" Content-Length",
        b"Content_Length",
    ),
    *(
        b"Content-Length\x0b",
        b"X: y\nContent-Length",
        b"X: y\rContent-Length",
        b"Content\x00-Length",
        b"X:\r\n Content-Length",
    ),
)
#: With the length of the body, or of its harmless part, for %d.
LENGTHS = (
    *(
        b"%d",
        b"0%d",
        b"00000000000000000000%d",
        b"+%d",
        b"-%d",
        b"0x%x",
        b" %d",
        b"%d ",
        b"\t%d",
        b"%d\t",
        b"%d,%d",
        b"%d, %d",
    ),
    *(
        b"%d\r\nContent-Length: %d",
        b"%d\r\nContent-Length: 0",
        b"0\r\nContent-Length: %d",
        b"%d\x00",
        b"\x0b%d",
        b"%d\xa0",
        b"%d.0",
    ),
    *(b"%de0", b"%d;", b"(%d)", b"%d\n", b"%d\r", b"\r\n %d", b"%d_0", b"%d 0", b"999999999999999999999%d"),
)
SIZES = (
    *(
        b"%x",
        b"0%x",
        b"0x%x",
        b"+%x",
        b"-%x",
        b" %x",
        b"%x ",
        b"%x\t",
        b"\x0b%x",
        b"%x\x0b",
        b"%x;",
        b"%x;x=\n",
        b"%x\n",
        b"%x\r",
        b"\n%x",
    ),
    *(
        b"\r\n%x",
        b"0000000000000000%x",
        b"1000000000000000%x",
        b"%x,%x",
        b"%x\x00",
        b"%x;\x00",
        b"%xg",
        b"%x\xa0",
        b"%x_0",
        b"%x;\r",
        b"%x h",
    ),
)
ENDS = (b"\r\n", b"\n", b"\r", b"", b"\r\r\n", b"X\r\n")
BREAKS = (
    b"\n",
    b"\r",
    b"\r\r\n",
    b"\n\r",
    b"\x00",
    b"\x0b",
    b"\x0c",
    b"\x85",
    b"\r\n ",
    b"\r\n\t",
    b"\n ",
    b"\x1c",
    b"\x7f",
    b"\r\n\x00",
)


def hidden(number: int) -> bytes:
    return b"GET /v1/hidden-%d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" % number


def body_of(number: int, *, wrapped: bool) -> tuple[bytes, int]:
    """A body that hides a request behind a last chunk or inside a chunk, and the length another reader would take."""
    secret = hidden(number)
    if wrapped:
        return b"%x\r\n%b\r\n0\r\n\r\n" % (len(secret), secret), len(b"%x\r\n" % len(secret))
    return b"0\r\n\r\n" + secret, 5


def outer(number: int, method: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((b"%b /v1/outer-%d HTTP/1.1" % (method, number), b"Host: h", *lines, b"", b""))


def filled(template: bytes, length: int) -> bytes:
    return template.replace(b"%d", b"%d" % length).replace(b"%x", b"%x" % length)


def two_framings(numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Transfer-Encoding in all spellings, beside Content-Length in some, before and behind."""
    beside = (None, b"%d", b"0", b"+%d", b"%d, %d")
    for name, coding, template in itertools.product(CODING_NAMES, CODINGS, beside):
        for first in (True, False) if template else (True,):
            number = next(numbers)
            body, short = body_of(number, wrapped=number % 4 < 2)
            lines = [name + b": " + coding]
            if template:
                lines.append(b"Content-Length: " + filled(template, short if number % 3 else len(body)))
            yield number, outer(number, METHODS[number % 2], *lines[:: 1 if first else -1]) + body


def odd_lengths(numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    for name, template, wrapped in itertools.product(LENGTH_NAMES, LENGTHS, (True, False)):
        number = next(numbers)
        body, short = body_of(number, wrapped=wrapped)
        yield number, outer(number, METHODS[number // 2 % 2], name + b": " + filled(template, short)) + body


def odd_chunks(numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    for size, end, method, place in itertools.product(SIZES, ENDS, METHODS, range(4)):
        number = next(numbers)
        secret = hidden(number)
        body = (
            filled(size, 3) + b"\r\nabc" + end + b"0\r\n\r\n" + secret,
            filled(size, 0) + b"\r\n" + end + secret,
            filled(size, len(secret)) + b"\r\n" + secret + end + b"0\r\n\r\n",
            b"3\r\nabc\r\n0\r\n" + filled(size, 0) + end + b"\r\n" + secret,
        )[place]
        yield number, outer(number, method, b"Transfer-Encoding: chunked") + body


def broken_heads(numbers: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """A byte where it does not belong, at every boundary of a head."""
    whole = (
        b"POST /v1/outer-%d HTTP/1.1\r\nHost: h\r\nX-A: b\r\nContent-Length: 5\r\nTransfer-Encodinh: chunked\r\n\r\n"
    )
    places = [m.start() for m in re.finditer(rb"[ :/\r\n.-]", whole)]
    for at, text in itertools.product(places, BREAKS):
        number = next(numbers)
        if b"%d" in whole[:at]:
            head = (whole[:at] % number) + text + whole[at:]
        else:
            head = whole[:at] + text + (whole[at:] % number)
        yield number, head + b"0\r\n\r\n" + hidden(number)


def variants() -> list[tuple[int, bytes]]:
    numbers = itertools.count(1)
    makers = (two_framings, odd_lengths, odd_chunks, broken_heads)
    return [variant for maker in makers for variant in maker(numbers)]


@dataclass(frozen=True)
class Reader:
    """A server's way to read requests: what it forgives, and which framing it believes."""

    coding_first: bool
    bare_lf: bool
    loose_coding: bool
    last_length: bool
    forgiving: bool

    def targets(self, stream: bytes) -> list[bytes]:
        """The targets of the requests that this reader finds, and what is left over."""
        found: list[bytes] = []
        while stream:
            end = re.search(rb"\r?\n\r?\n" if self.bare_lf else rb"\r\n\r\n", stream)
            if end is None:
                return [*found, b"left over: " + stream]
            lines = re.split(rb"\r?\n" if self.bare_lf else rb"\r\n", stream[: end.start()])
            rest = self._behind(self._fields(lines[1:]), stream[end.end() :])
            if rest is None:
                return [*found, b"incomplete: " + lines[0]]
            found.append(lines[0].split(b" ")[1] if b" " in lines[0] else lines[0])
            stream = rest
        return found

    def _fields(self, lines: list[bytes]) -> list[tuple[bytes, bytes]]:
        fields = [line.partition(b":")[::2] for line in lines]
        if self.forgiving:
            return [(name.strip().lower().replace(b"_", b"-"), value.strip()) for name, value in fields]
        return [(name.lower(), value.strip(b" \t")) for name, value in fields]

    def _behind(self, fields: list[tuple[bytes, bytes]], rest: bytes) -> bytes | None:
        codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
        chunked = any(b"chunked" in c for c in codings) if self.loose_coding else codings[-1:] == [b"chunked"]
        lengths = [
            int(digits[0])
            for name, value in fields
            if name == b"content-length" and (digits := re.search(rb"\d+", value))
        ]
        if chunked and (self.coding_first or not lengths):
            return self._behind_chunks(rest)
        length = lengths[-1 if self.last_length else 0] if lengths else 0
        return rest[length:] if len(rest) >= length else None

    def _behind_chunks(self, rest: bytes) -> bytes | None:
        line = re.compile(rb"\s*\+?(?:0x)?([0-9a-fA-F]+)[^\n]*\n" if self.forgiving else rb"([0-9a-fA-F]+)[^\r\n]*\r\n")
        while found := line.match(rest):
            rest = rest[found.end() :]
            if (size := int(found[1], 16)) == 0:
                end = re.search(rb"(?:\A|\n)\r?\n" if self.bare_lf else rb"(?:\A|\r\n)\r\n", rest)
                return rest[end.end() :] if end else None
            rest = rest[size:].removeprefix(b"\r\n")
        return None


PANEL = [Reader(*traits) for traits in itertools.product((True, False), repeat=5)]


async def play(gateway: LocalGateway, variant: bytes) -> int:
    """How many answers of the upstream a client gets for a variant until its connection ends."""
    async with client_of(gateway) as client:
        await client.send(variant)
        await client.wait_end()
        return bytes(client.received).count(b"HTTP/1.1 200 ")


async def test_every_parser_reads_the_same_requests_as_the_gateway() -> None:
    """Refused, or forwarded so that every reader agrees."""
    everything = variants()
    assert len(everything) >= 5000
    answered: dict[int, int] = {}

    async def player(mine: Iterator[tuple[int, bytes]]) -> None:
        for number, variant in mine:
            answered[number] = await play(gateway, variant)

    async with through(keep_bytes=1 << 30, limits=LIMITS) as (gateway, upstream):
        queue = iter(everything)
        await asyncio.gather(*(player(queue) for _ in range(AT_ONCE)))
        streams = [bytes(peer.received) for peer in upstream.connections]
    seen: Counter[int] = Counter()
    for stream in streams:
        targets = PANEL[0].targets(stream)
        for reader in PANEL:
            assert reader.targets(stream) == targets, reader
        seen.update(int(target.rsplit(b"-", 1)[1]) for target in targets if target.startswith(b"/v1/"))
    for number, variant in everything:
        assert seen[number] == answered[number], variant
    assert 100 < sum(seen.values()) < len(everything) // 4
