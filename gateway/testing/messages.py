"""HTTP/1.1 messages as bytes: functions that split, de-chunk and compare them.

It shares no code with the gateway, so that it can disagree with it. What does not follow RFC 9112 raises ValueError.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

Header = tuple[bytes, bytes]

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?")
_DIGITS = re.compile(rb"[0-9]{1,18}")


@dataclass(frozen=True)
class Message:
    """A received message: the head through CRLFCRLF, and the body with chunk framing and trailers as they came."""

    raw_head: bytes
    raw_body: bytes

    @property
    def raw(self) -> bytes:
        return self.raw_head + self.raw_body

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """Return the headers: names as sent, values without the white space around them, in order and with repeats."""
        return split_head(self.raw_head)[1]

    def list_values(self, name: bytes) -> list[bytes]:
        """Return the values of every `name` header, whatever its case."""
        return list_values(self.headers, name)

    @property
    def payload(self) -> bytes:
        """Return the body without its chunk framing."""
        return self._content[0]

    @property
    def trailers(self) -> tuple[Header, ...]:
        return self._content[1]

    @cached_property
    def _start_line(self) -> tuple[bytes, bytes, bytes]:
        return _split_start_line(self.raw_head)

    @cached_property
    def _content(self) -> tuple[bytes, tuple[Header, ...]]:
        if not is_chunked(self.headers) or not self.raw_body:
            return self.raw_body, ()
        payload, trailers, _rest = dechunk(self.raw_body)
        return payload, tuple(_read_field(line) for line in trailers)


@dataclass(frozen=True)
class Request(Message):
    """A request, with its start line."""

    @property
    def method(self) -> bytes:
        return self._start_line[0]

    @property
    def target(self) -> bytes:
        return self._start_line[1]

    @property
    def version(self) -> bytes:
        return self._start_line[2]


@dataclass(frozen=True)
class Response(Message):
    """An answer, with its status line and the heads of the 1xx answers that came before it."""

    informational: tuple[bytes, ...] = ()

    @property
    def version(self) -> bytes:
        return self._start_line[0]

    @property
    def status(self) -> int:
        return read_status(self.raw_head)

    @property
    def reason(self) -> bytes:
        return self._start_line[2]


def split_head(head: bytes) -> tuple[bytes, tuple[Header, ...]]:
    """Return the start line and the (name, value) pairs of a head that ends in CRLFCRLF."""
    if not head.endswith(b"\r\n\r\n"):
        raise ValueError(f"a head ends in CRLFCRLF, this one in {head[-16:]!r}")
    start_line, *lines = head[:-4].split(b"\r\n")
    return start_line, tuple(_read_field(line) for line in lines)


def list_values(headers: Iterable[Header], name: bytes) -> list[bytes]:
    """Return the values of every header called `name`, whatever its case."""
    return [value for key, value in headers if key.lower() == name.lower()]


def read_status(head: bytes) -> int:
    """Return the status code of an answer's head."""
    _version, code, _reason = _split_start_line(head)
    if not re.fullmatch(rb"[1-9][0-9][0-9]", code):
        raise ValueError(f"no status code in {head[:64]!r}")
    return int(code)


def is_chunked(headers: Iterable[Header]) -> bool:
    """Return whether the last transfer coding is chunked."""
    codings = b",".join(list_values(headers, b"transfer-encoding")).split(b",")
    return codings[-1].strip(b" \t").lower() == b"chunked"


def read_content_length(headers: Iterable[Header]) -> int | None:
    """Return the one Content-Length, or None; two different ones or odd digits are an error."""
    stated = set(list_values(headers, b"content-length"))
    if not stated:
        return None
    if len(stated) > 1 or not _DIGITS.fullmatch(value := stated.pop()):
        raise ValueError(f"not one plain Content-Length: {list_values(headers, b'content-length')!r}")
    return int(value)


def read_chunk_size(line: bytes) -> int:
    """Return the size in a chunk-size line, without its CRLF; extensions are passed over."""
    found = _CHUNK_SIZE.fullmatch(line)
    if found is None:
        raise ValueError(f"not a chunk-size line: {line[:64]!r}")
    return int(found[1], 16)


def dechunk(raw: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return (payload, trailer lines, rest after the body) of a chunked body; ValueError if it is broken or cut off."""
    payload, trailers = bytearray(), []
    line, at = _read_line(raw, 0, "a chunk-size line")
    while size := read_chunk_size(line):
        if raw[at + size : at + size + 2] != b"\r\n":
            raise ValueError(f"the body ends inside a chunk of {size} bytes, or the chunk does not end in CRLF")
        payload += raw[at : at + size]
        line, at = _read_line(raw, at + size + 2, "a chunk-size line")
    line, at = _read_line(raw, at, "the trailers")
    while line:
        trailers.append(line)
        line, at = _read_line(raw, at, "the trailers")
    return bytes(payload), trailers, raw[at:]


def describe_differences(sent: bytes, got: bytes, *, may_differ: frozenset[bytes] = frozenset()) -> list[str]:
    """Return in words how the received message differs from the one sent; [] means byte for byte the same.

    Compared are the start line, the header lines (name, case, white space, order, repeats, value) but for the names in
    `may_differ` (lower case), and the body with its chunk framing and trailers.
    """
    (start_sent, lines_sent, body_sent), (start_got, lines_got, body_got) = _cut_excerpt(sent), _cut_excerpt(got)
    kept_sent, kept_got = ([x for x in lines if _read_name(x) not in may_differ] for lines in (lines_sent, lines_got))
    found = [] if start_sent == start_got else [f"start line: sent {start_sent!r}, got {start_got!r}"]
    if kept_sent != kept_got:
        missing = [line for line in kept_sent if line not in kept_got]
        extra = [line for line in kept_got if line not in kept_sent]
        detail = f"missing {missing}, extra {extra}" if missing or extra else f"sent {kept_sent}, got {kept_got}"
        found.append(f"header lines: {detail}")
    if body_sent != body_got:
        found.append(_describe_difference("body", body_sent, body_got))
        found.extend(_describe_chunked_difference(body_sent, body_got))
    return found


def _cut_excerpt(message: bytes) -> tuple[bytes, list[bytes], bytes]:
    head, end, body = message.partition(b"\r\n\r\n")
    if not end:
        raise ValueError(f"no end of head in {message[:64]!r}")
    start_line, *lines = head.split(b"\r\n")
    return start_line, lines, body


def _describe_chunked_difference(sent: bytes, got: bytes) -> list[str]:
    """Return the cause of a difference of two chunked bodies: framing alone, payload, trailers."""
    try:
        (payload_sent, trailers_sent, _), (payload_got, trailers_got, _) = dechunk(sent), dechunk(got)
    except ValueError:
        return []
    found = [] if payload_sent == payload_got else [_describe_difference("payload", payload_sent, payload_got)]
    if trailers_sent != trailers_got:
        found.append(f"trailers: sent {trailers_sent}, got {trailers_got}")
    return found or ["the payload and the trailers are the same: only the chunk framing differs"]


def _describe_difference(what: str, sent: bytes, got: bytes) -> str:
    shared = min(len(sent), len(got))
    at = next((i for i in range(shared) if sent[i] != got[i]), shared)
    around = slice(max(0, at - 24), at + 24)
    return f"{what}: {len(sent)} bytes sent, {len(got)} got, apart at {at}: {sent[around]!r} and {got[around]!r}"


def _read_name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()


def _read_field(line: bytes) -> Header:
    name, colon, value = line.partition(b":")
    if not colon or not name or name.strip(b" \t") != name:
        raise ValueError(f"not a header line: {line[:64]!r}")
    return name, value.strip(b" \t")


def _split_start_line(head: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the three words of a start line; the third (a reason) may be empty or hold spaces."""
    line = head.partition(b"\r\n")[0]
    first, _, rest = line.partition(b" ")
    second, _, third = rest.partition(b" ")
    if not first or not second:
        raise ValueError(f"not a start line: {line[:64]!r}")
    return first, second, third


def _read_line(raw: bytes, at: int, what: str) -> tuple[bytes, int]:
    end = raw.find(b"\r\n", at)
    if end < 0:
        raise ValueError(f"the body ends inside {what}: {raw[at : at + 32]!r}")
    return raw[at:end], end + 2
