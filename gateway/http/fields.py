"""The field grammar of HTTP/1.1 (RFC 9110 section 5, RFC 9112 section 5), and which fields end at this hop.

A field stays the line that came (name in its case, white space, value): a forwarded field is never written anew.

Folded lines are refused (RFC 9112 section 5.2), and so is white space before the colon (section 5.1).

https://www.rfc-editor.org/rfc/rfc9110#section-5 https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
VALUE = rb"[\t\x20-\x7e\x80-\xff]"

_FIELD = re.compile(rb"((" + TOKEN + rb"++):[ \t]*+(" + VALUE + rb"*+)\r\n)")
_FIELDS = re.compile(rb"(?:" + TOKEN + rb"++:" + VALUE + rb"*+\r\n)*+\r\n")

#: RFC 9110 section 7.6.1, and what is between a client and its proxy (section 11.7): the gateway is not that proxy.
#: Transfer-Encoding is absent: chunk framing is forwarded as it came, and its field with it.
HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"upgrade",
    )
)

#: Fields in which clients send a key to an upstream, by the names that providers and gateways in front of them read.
CREDENTIALS = frozenset(
    (
        b"api-key",
        b"apikey",
        b"authorization",
        b"ocp-apim-subscription-key",
        b"x-api-key",
        b"x-auth-token",
        b"x-goog-api-key",
        b"xi-api-key",
    )
)

#: Fields that `Connection` cannot remove (RFC 9110 section 7.6.1): a message without these means something else.
_PROTECTED = CREDENTIALS | {
    b"content-length",
    b"content-type",
    b"host",
    b"set-cookie",
    b"transfer-encoding",
    b"x-gateway-key",
}

#: Fields that a trailer section must not carry (RFC 9110 section 6.5.1): framing, routing, credentials, content format.
_NOT_IN_TRAILERS = CREDENTIALS | {
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"cookie",
    b"expect",
    b"host",
    b"keep-alive",
    b"proxy-authorization",
    b"set-cookie",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"x-gateway-key",
}


_CONTROLS = bytes(c for c in (*range(32), 127) if c not in b"\t\r\n")
#: So many bytes at the end of an unfinished head are checked again: earlier ones were checked when they arrived.
_RECENT_BYTES = 4096
_CHUNKED = re.compile(rb"transfer-encoding: *chunked\r\n", re.IGNORECASE)


class FieldError(ValueError):
    """A field line outside the grammar; the text names the line and the reason, without repeating the line."""


class Field(NamedTuple):
    """One field: `name` in lower case, `value` without white space around it, `line` as it came, CRLF included."""

    name: bytes
    value: bytes
    line: bytes


def parse_fields(section: bytes, start: int = 0) -> list[Field]:
    """Return the fields of `section[start:]`, which must be field lines and then one empty line, and nothing else."""
    found = _FIELDS.match(section, start)
    if found is None or found.end() != len(section):
        raise FieldError(_describe_fault(section, start))
    return [Field(name.lower(), value.rstrip(b" \t"), line) for line, name, value in _FIELD.findall(section, start)]


def group_by_name(fields: Iterable[Field]) -> dict[bytes, list[Field]]:
    """Return the fields of each name, in their order."""
    named: dict[bytes, list[Field]] = {}
    for field in fields:
        named.setdefault(field.name, []).append(field)
    return named


def check_trailers(section: bytes) -> None:
    """Raise FieldError for trailers that are malformed, or fields that are not allowed there."""
    for field in parse_fields(section):
        name = field.name.replace(b"_", b"-")  # as CGI-like servers would read it
        if name in _NOT_IN_TRAILERS or name.startswith(b"x-context-"):
            raise FieldError("a trailer carries a field that is not allowed there (RFC 9110 section 6.5.1)")


def is_chunked(field: Field) -> bool:
    """Return whether a Transfer-Encoding field lists only `chunked`, spelled so that every reader agrees."""
    return _CHUNKED.fullmatch(field.line) is not None


def cannot_become_lines(data: bytes) -> bool:
    """Return whether unfinished text has a bare CR, a bare LF or a control character near its end."""
    recent = data[-_RECENT_BYTES:].removeprefix(b"\n")
    ends = recent.count(b"\n")
    return (
        ends != recent.count(b"\r\n")
        or ends != recent.count(b"\r") - recent.endswith(b"\r")
        or len(recent.translate(None, _CONTROLS)) != len(recent)
    )


def list_members(lines: Iterable[Field]) -> list[bytes]:
    """Return the members of a list field in lower case, over all its lines."""
    return [member for m in b",".join([f.value for f in lines]).split(b",") if (member := m.strip(b" \t").lower())]


def get_hop_fields(connection: Iterable[bytes]) -> frozenset[bytes]:
    """Return the fields that `Connection` ends at this hop, given its members."""
    return frozenset(connection) - _PROTECTED


def _describe_fault(section: bytes, start: int) -> str:
    """Return which line breaks the grammar, and how, for the error text."""
    number = 0
    while (m := _FIELD.match(section, start)) is not None:
        start, number = m.end(), number + 1
    line = section[start:].split(b"\r\n", 1)[0]
    where = f"header line {number + 1}"
    if line[:1] in (b" ", b"\t"):
        return f"{where} begins with white space: folded headers are not accepted, send each on one line"
    if re.match(TOKEN + rb"+[ \t]+:", line):
        return f"{where} has white space before its colon"
    if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line):
        return f"{where} contains a control character; lines end with CR LF"
    return f"{where} is not 'name: value'"
