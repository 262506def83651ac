"""The head of an upstream's response, by a strict grammar, and what of it goes to the client.

Invariants: a head that is accepted has one reading; a response without one is an upstream error, never repaired. The
head that is forwarded differs from the one that came by hop-by-hop fields only, and by the version if that was 1.0.

Status line: RFC 9112 section 4. Interim answers: RFC 9110 section 15.2. Framing: RFC 9112 section 6.3. Fields that a
1xx or 204 must not have: RFC 9110 section 8.6 and RFC 9112 section 6.1. Persistence: RFC 9112 section 9.3.

https://www.rfc-editor.org/rfc/rfc9112#section-4 https://www.rfc-editor.org/rfc/rfc9112#section-6.3
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gateway.http.body import Body, ChunkedBody, LengthBody, OpenBody
from gateway.http.fields import (
    HOP_BY_HOP,
    TOKEN,
    VALUE,
    Field,
    FieldError,
    cannot_become_lines,
    get_hop_fields,
    group_by_name,
    is_chunked,
    list_members,
    parse_fields,
)

#: Largest head and most fields taken from an upstream.
HEAD_LIMIT_BYTES = 65536
FIELDS_LIMIT = 512
#: Interim answers (1xx) taken for one request.
INTERIMS_LIMIT = 1000

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: " + VALUE + rb"*+)?\r\n")
_REGULAR = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d)(?: " + VALUE + rb"*+)?\r\n(?:" + TOKEN + rb"++:" + VALUE + rb"*+\r\n)*+\r\n"
)
_BEGINNING = re.compile(rb"HTTP/1\.|" + b"|".join(re.escape(b"HTTP/1."[:n]) + rb"\Z" for n in range(7)))
_TELLING = re.compile(
    rb"\r\n(?:(content-length):[ \t]*([0-9]{1,18})[ \t]*(?=\r)|"
    rb"content-length|transfer-encoding|connection|keep-alive|proxy-(?:auth|connection)|te[ \t]*:|upgrade)"
)

_NONE: Mapping[str, str] = MappingProxyType({})

Framing = Literal["none", "length", "chunked", "close"]


class ResponseError(ValueError):
    """A response head with no single reading."""


@dataclass(slots=True, kw_only=True)
class ResponseHead:
    """A response head. `length` belongs to the framing `length`. `keep_alive`: the upstream takes another request.

    It is not changed after it is made.
    """

    status: int
    minor: int
    line: bytes
    fields: tuple[Field, ...]
    framing: Framing
    length: int
    keep_alive: bool
    idle_timeout_s: float | None

    def find_value(self, name: bytes) -> bytes | None:
        """Return the first value of a field by its lower-case name."""
        for field in self.fields:
            if field.name == name:
                return field.value
        return None

    @property
    def event_stream(self) -> bool:
        """Return whether the body is a stream of server-sent events."""
        for field in self.fields:
            if field.name == b"content-type" and field.value.lower().startswith(b"text/event-stream"):
                return True
        return False


def measure_regular(data: bytes) -> tuple[int, int, int] | None:
    """Return (status, head bytes, body bytes) of a regular answer, else None: the fast path for most answers.

    Regular: HTTP/1.1, a final status with a body, exactly one Content-Length, and no field that concerns framing or
    this hop, so that the head goes through as it came. Anything else is for `parse_response_head`.
    """
    found = _REGULAR.match(data)
    if found is None:
        return None
    end = found.end()
    if end > HEAD_LIMIT_BYTES or data.count(b"\r\n", 0, end) > FIELDS_LIMIT + 2:
        return None
    telling = _TELLING.findall(data[:end].lower())
    if len(telling) != 1 or not telling[0][0]:
        return None
    status = int(found[1])
    return None if status in (204, 304) else (status, end, int(telling[0][1]))


def parse_response_head(head: bytes, *, method: bytes) -> ResponseHead:
    """Read a whole head, its empty line included, of the answer to a request of `method`. Raises ResponseError."""
    line = _STATUS_LINE.match(head)
    if line is None:
        raise ResponseError("the status line is malformed")
    if head.count(b"\r\n") - 2 > FIELDS_LIMIT:
        raise ResponseError(f"more than {FIELDS_LIMIT} header fields")
    try:
        fields = parse_fields(head, line.end())
    except FieldError as error:
        raise ResponseError(str(error)) from None
    minor, status, named = int(line[1]), int(line[2]), group_by_name(fields)
    framing, length = _parse_framing(named, minor=minor, status=status, method=method)
    connection = list_members(named.get(b"connection", ()))
    keep_alive = b"close" not in connection and (minor == 1 or b"keep-alive" in connection)
    return ResponseHead(
        status=status,
        minor=minor,
        line=line[0] if minor else b"HTTP/1.1" + line[0][8:],
        fields=tuple(fields),
        framing=framing,
        length=length,
        keep_alive=keep_alive and framing != "close",
        idle_timeout_s=_parse_idle_timeout(named.get(b"keep-alive", ())),
    )


def may_become_head(data: bytes) -> bool:
    """Return whether a head that is not whole may still become one."""
    return len(data) <= HEAD_LIMIT_BYTES and not cannot_become_lines(data) and _BEGINNING.match(data) is not None


def find_final_head(data: bytes, *, method: bytes) -> int:
    """Return where the final head begins, or what may become one: behind the interim answers (1xx) that are whole.

    Raises ResponseError for an interim answer with no single reading, and for too many.
    """
    start = 0
    for _ in range(INTERIMS_LIMIT + 1):
        end = data.find(b"\r\n\r\n", start) + 4 if data.startswith(b"1", start + 9) else 0
        if end < 4 or parse_response_head(data[start:end], method=method).status == 101:
            return start
        start = end
    raise ResponseError("it sends interim answers without end")


class ResponseHeads:
    """Reads the heads of one answer as they arrive: interim ones (1xx), then the final one.

    `rest` is what follows the last head read; the final head, or 101, is the last.
    """

    __slots__ = ("_interims", "_method", "rest")

    def __init__(self, method: bytes) -> None:
        self._method = method
        self._interims = 0
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[ResponseHead]:
        """Yield the heads that are whole by now. Raises ResponseError for what cannot become one."""
        self.rest += data
        while True:
            end = self.rest.find(b"\r\n\r\n")
            if max(end, 0 if end >= 0 else len(self.rest)) > HEAD_LIMIT_BYTES:
                raise ResponseError("its head is too large")
            if end < 0:
                if not may_become_head(self.rest):
                    raise ResponseError("its head is malformed")
                return
            head = parse_response_head(self.rest[: end + 4], method=self._method)
            self.rest = self.rest[end + 4 :]
            yield head
            if head.status >= 200 or head.status == 101:
                return
            self._interims += 1
            if self._interims > INTERIMS_LIMIT:
                raise ResponseError("it sends interim answers without end")


def build_forwarded_head(
    head: ResponseHead,
    *,
    close: bool,
    dechunked: bool = False,
    upgrade: bool = False,
    sharing: Mapping[str, str] = _NONE,
) -> bytes:
    """Return the head for the client. `close`: the client's connection ends with this answer, and a field states it.

    `sharing` are fields that let a page of another site read the answer (CORS): they are added where the upstream
    itself sends no such field, since a browser takes no second Access-Control-Allow-Origin.
    """
    connection = list_members(f for f in head.fields if f.name == b"connection")
    drop = HOP_BY_HOP | get_hop_fields(connection)
    if upgrade:
        drop -= {b"connection", b"upgrade"}
    if head.status < 200 or head.status == 204:
        # RFC 9110 section 8.6, RFC 9112 section 6.1. A length of 0 is forbidden too, but has one reading: it goes on.
        drop |= {b"transfer-encoding"} if _declares_empty(head) else {b"content-length", b"transfer-encoding"}
    elif dechunked:
        drop |= {b"transfer-encoding"}
    lines = [head.line, *(f.line for f in head.fields if f.name not in drop)]
    if sharing and head.find_value(b"access-control-allow-origin") is None:
        lines += [f"{name}: {value}\r\n".encode() for name, value in sharing.items()]
    if close and not upgrade:
        lines.append(b"Connection: close\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


def _declares_empty(head: ResponseHead) -> bool:
    return (head.find_value(b"content-length") or b"1").strip(b"0") == b""


def build_body(head: ResponseHead, *, payload_only: bool) -> Body:
    """Return the reader of the body that follows `head`. `payload_only`: its chunk framing is taken off."""
    if head.framing == "chunked":
        return ChunkedBody(payload_only=payload_only)
    if head.framing == "close":
        return OpenBody()
    return LengthBody(head.length)


def _parse_framing(
    named: Mapping[bytes, Sequence[Field]], *, minor: int, status: int, method: bytes
) -> tuple[Framing, int]:
    """Return how the body ends (RFC 9112 section 6.3), refusing what could be read in two ways."""
    lengths = [f.value for f in named.get(b"content-length", ())]
    codings = named.get(b"transfer-encoding", ())
    if len(lengths) > 1 or (lengths and re.fullmatch(rb"[0-9]{1,18}", lengths[0]) is None):
        raise ResponseError("Content-Length is repeated or not a number")
    if codings and (lengths or minor == 0 or len(codings) > 1 or not is_chunked(codings[0])):
        raise ResponseError("Transfer-Encoding is not 'chunked' alone")
    if method == b"HEAD" or status in (204, 304) or status < 200:
        return "none", 0
    if codings:
        return "chunked", 0
    if lengths:
        return "length", int(lengths[0])
    return "close", 0


def _parse_idle_timeout(lines: Iterable[Field]) -> float | None:
    """Return the `timeout` of a Keep-Alive field, in seconds."""
    for member in list_members(lines):
        if found := re.fullmatch(rb"timeout[ \t]*=[ \t]*\"?(\d{1,6})\"?", member):
            return float(found[1])
    return None
