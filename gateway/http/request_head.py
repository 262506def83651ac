"""The head of a request, by a strict grammar (RFC 9112): what does not fit is refused, never repaired.

Invariants: a head that is accepted has one reading. Exactly one body framing; exactly one valid Host (HTTP/1.1); CR LF
line ends; no folded lines; a target of visible ASCII without fragment. Fuzzed against llhttp and h11: it never accepts
what they refuse, and never disagrees with them about where the message ends.

Request line: RFC 9112 section 3. Host: RFC 9110 section 7.2. Framing: RFC 9112 sections 6.1 to 6.3. Two framings in one
message are a means of request smuggling (RFC 9112 section 11.2). Expect: RFC 9110 section 10.1.1. Upgrade: RFC 9110
section 7.8, and for WebSocket RFC 6455 section 4.2.1.

https://www.rfc-editor.org/rfc/rfc9112#section-3 https://www.rfc-editor.org/rfc/rfc9112#section-6
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, TypeVar, TypeVarTuple

from gateway.contracts.errors import GatewayError
from gateway.http.fields import (
    TOKEN,
    Field,
    FieldError,
    cannot_become_lines,
    group_by_name,
    is_chunked,
    list_members,
    parse_fields,
)

_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb"++) ([\x21-\x7e]++) HTTP/(\d)\.(\d)\r\n")
_ANY_VERSION = re.compile(rb"[^\r\n]* HTTP/\d+(?:\.\d+)?\r\n")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE)
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[([0-9A-Fa-f:.]+)\])(?::(\d{0,5}))?")
_TOKEN_OR_CR = re.compile(TOKEN + rb"|\r")
#: CGI-like servers read these as the fields spelled with `-` (CVE-2024-1135 and its kin).
_LOOKALIKES = frozenset((b"content_length", b"transfer_encoding"))
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CODING_LIST = re.compile(TOKEN + rb"+(?:[ \t]*[;,][ \t]*[^\x00-\x1f]*)?")

Made = TypeVar("Made")
More = TypeVarTuple("More")


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Bounds of one head: bytes with request line and empty line, and number of fields."""

    bytes: int = 32768
    fields: int = 256


@dataclass(slots=True, kw_only=True)
class RequestHead:
    """A request head that is safe to act on. It is not changed after it is made.

    `target` is in origin form (`/...`) or `*`; `host` is the requested authority (None: HTTP/1.0 without one). `length`
    is the Content-Length (None: none was sent); `chunked` and `length` exclude each other. `websocket`: a well-formed
    request to upgrade to WebSocket. `peer` is the address that it came from, by its connection and by no field; None:
    it has none, as over a local socket. `derived` is what was found out about it by its fields, but for Content-Length:
    heads that are equal besides share it (`Heads`), other copies do not.
    """

    method: bytes
    target: bytes
    minor: int
    host: bytes | None
    fields: tuple[Field, ...]
    connection: tuple[bytes, ...]
    length: int | None
    chunked: bool
    keep_alive: bool
    expects_continue: bool
    websocket: bool
    peer: str | None = None
    derived: dict[object, Any] = attribute(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def has_body(self) -> bool:
        """Return whether a body is announced, which may be empty."""
        return self.chunked or self.length is not None

    def render_origin_form(self, *, unread: tuple[bytes, ...] = ()) -> bytes:
        """Return the head as bytes, with the requested authority as its Host (RFC 9112 section 3.2.2).

        Fields whose names begin with one of `unread` are left out. Content-Length stands at the end.
        """
        lines = self.remember_derived(_render_lines, unread)
        return lines + (b"\r\n" if self.length is None else b"Content-Length: %d\r\n\r\n" % self.length)

    def remember_derived(self, make: Callable[["RequestHead", *More], Made], *more: *More) -> Made:
        """Return what `make` makes of this head and `more`. It is made once for all heads that are equal.

        `make` uses the fields but for Content-Length: no length, no peer, no clock. What it makes is not changed.
        """
        made = self.derived.get((make, *more))
        if made is None:
            made = self.derived[make, *more] = make(self, *more)
        return made

    def find_value(self, name: bytes) -> bytes | None:
        """Return the value of the first field of this lower-case name."""
        for field in self.fields:
            if field.name == name:
                return field.value
        return None


def _render_lines(head: RequestHead, unread: tuple[bytes, ...]) -> bytes:
    """Return the lines of a head but for Content-Length, and for the fields that are not read."""
    lines = [b"%b %b HTTP/1.%d\r\n" % (head.method, head.target, head.minor)]
    for field in head.fields:
        if field.name == b"host" and head.host:
            lines.append(b"Host: %b\r\n" % head.host)
        elif field.name != b"content-length" and not field.name.startswith(unread):
            lines.append(field.line)
    return b"".join(lines)


def parse_request_head(head: bytes, limits: HeadLimits, *, peer: str | None = None) -> RequestHead:
    """Read a whole head from `peer`, its empty line included. Raises GatewayError with the status to answer."""
    line = _REQUEST_LINE.match(head)
    check_size(head, limits)
    if line is None:
        raise _build_request_line_error(head)
    if line[3] != b"1" or line[4] not in (b"0", b"1"):
        raise GatewayError("http_version", "This gateway speaks HTTP/1.1 and HTTP/1.0 only.")
    if head.count(b"\r\n") - 2 > limits.fields:  # before they are read: thousands would take milliseconds
        raise GatewayError("headers_too_large", f"The request has more than {limits.fields} header fields: send fewer.")
    try:
        fields = parse_fields(head, line.end())
    except FieldError as error:
        raise GatewayError("bad_framing", f"The request head is malformed: {error}.") from None
    minor, named = int(line[4]), group_by_name(fields)
    target, host = _parse_target_and_host(line[2], _get_values(named, b"host"), minor=minor)
    length, chunked = _parse_framing(named, minor=minor)
    connection = tuple(list_members(named.get(b"connection", ())))
    return RequestHead(
        method=line[1],
        target=target,
        minor=minor,
        host=host,
        fields=tuple(fields),
        connection=connection,
        length=length,
        chunked=chunked,
        keep_alive=minor == 1 and b"close" not in connection,
        expects_continue=minor == 1 and _expects_continue(_get_values(named, b"expect")),
        websocket=minor == 1
        and line[1] == b"GET"
        and not length
        and not chunked
        and b"upgrade" in connection
        and [value.lower() for value in _get_values(named, b"upgrade")] == [b"websocket"],
        peer=peer,
    )


def check_size(head: bytes, limits: HeadLimits) -> None:
    """Raise GatewayError for a head, whole or not, that is larger than the limits."""
    if len(head) <= limits.bytes:
        return
    if head.find(b"\r\n", 0, limits.bytes) < 0:
        raise GatewayError(
            "target_too_long", f"The request line is longer than {limits.bytes} bytes (limits.head): shorten the URL."
        )
    raise GatewayError(
        "headers_too_large",
        f"The request head is larger than {limits.bytes} bytes (limits.head): send fewer or shorter headers.",
    )


def check_beginning(data: bytes, limits: HeadLimits) -> None:
    """Raise GatewayError for the beginning of a head that cannot become valid."""
    check_size(data, limits)
    if cannot_become_lines(data) or not _TOKEN_OR_CR.match(data):
        raise GatewayError(
            "bad_framing", "The request head is malformed: end every line with CR LF, and send no control characters."
        )


def is_valid_host(host: bytes) -> bool:
    """Return whether `host` is a name, IPv4 or bracketed IPv6 address, with a port or none (RFC 9110 section 7.2)."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if found[1] is not None:
        try:
            ipaddress.IPv6Address(found[1].decode())
        except ValueError:
            return False
    return not found[2] or int(found[2]) <= 65535


def _build_request_line_error(head: bytes) -> GatewayError:
    """Return the error for a request line: an unsupported HTTP version, or a malformed line."""
    if _ANY_VERSION.match(head) and not re.match(rb"[^\r\n]* HTTP/1\.[01]\r\n", head):
        return GatewayError("http_version", "This gateway speaks HTTP/1.1 and HTTP/1.0 only.")
    return GatewayError(
        "bad_framing",
        "The request line is malformed: it must be 'METHOD target HTTP/1.1' with single spaces, and the target must be "
        "visible ASCII (percent-encode anything else).",
    )


def _get_values(named: Mapping[bytes, Sequence[Field]], name: bytes) -> list[bytes]:
    return [field.value for field in named.get(name, ())]


def _parse_target_and_host(target: bytes, hosts: Sequence[bytes], *, minor: int) -> tuple[bytes, bytes | None]:
    """Return the target in origin form, and the requested authority (RFC 9112 sections 3.2 and 3.2.2)."""
    if len(hosts) > 1 or (not hosts and minor == 1) or not all(map(is_valid_host, hosts)):
        raise GatewayError(
            "bad_framing",
            "The request needs exactly one valid 'Host' header: send the host name or address, and the port if any.",
            param="host",
        )
    host = hosts[0] if hosts else None
    if b"#" in target:
        raise GatewayError(
            "bad_framing", "The request target contains '#': leave the fragment out, or write '%23' for the character."
        )
    if target.startswith(b"/") or target == b"*":
        return target, host
    found = _ABSOLUTE.fullmatch(target)
    if found is None or not is_valid_host(found[1]):
        raise GatewayError(
            "bad_framing", "The request target is not supported: send a path that begins with '/', or an http URL."
        )
    return (found[2] if found[2].startswith(b"/") else b"/" + found[2]), found[1]


def _parse_framing(named: Mapping[bytes, Sequence[Field]], *, minor: int) -> tuple[int | None, bool]:
    """Return Content-Length and whether the body is chunked. Raises GatewayError if ambiguous."""
    if not _LOOKALIKES.isdisjoint(named):
        raise GatewayError(
            "bad_framing",
            "Headers named 'Content_Length' or 'Transfer_Encoding' are not accepted: write '-' in place of '_'.",
        )
    lengths, codings = _get_values(named, b"content-length"), named.get(b"transfer-encoding", ())
    if codings:
        if lengths:
            raise GatewayError(
                "bad_framing", "The request has both 'Content-Length' and 'Transfer-Encoding': send only one of them."
            )
        if minor == 0:
            raise GatewayError(
                "bad_framing", "HTTP/1.0 has no 'Transfer-Encoding': send 'Content-Length', or use HTTP/1.1."
            )
        if len(codings) == 1 and is_chunked(codings[0]):
            return None, True
        value = codings[0].value
        if len(codings) == 1 and value.lower() != b"chunked" and _CODING_LIST.fullmatch(value):
            raise GatewayError(
                "unsupported_transfer_coding",
                "This transfer coding is not supported: use 'chunked', or send 'Content-Length'.",
            )
        raise GatewayError("bad_framing", "The 'Transfer-Encoding' header is malformed: send it once, as 'chunked'.")
    if not lengths:
        return None, False
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise GatewayError(
            "bad_framing", "The 'Content-Length' header is malformed: send it once, as a decimal number."
        )
    return int(lengths[0]), False


def _expects_continue(expectations: Sequence[bytes]) -> bool:
    """Return whether Expect is 100-continue. Raises GatewayError for any other expectation."""
    if not expectations:
        return False
    if len(expectations) == 1 and expectations[0].lower() == b"100-continue":
        return True
    raise GatewayError(
        "expectation_failed", "This Expect header is not supported: use '100-continue' or leave it out.", param="expect"
    )
