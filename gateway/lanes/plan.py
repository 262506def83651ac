"""The plan of a passthrough request: the head that goes upstream, and all that is known before its body comes.

A plan depends on the head (but for the digits of its Content-Length) and on the configuration, so one plan serves every
request with an equal head: clients send the same one again and again.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import TYPE_CHECKING

from gateway.contracts.caller import Caller
from gateway.http.fields import HOP_BY_HOP, Field, nominated
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import CONTEXT_PREFIX
from gateway.lanes.keys import CREDENTIAL_HEADERS, GATEWAY_HEADER, Identity, Key
from gateway.telemetry.metrics import RouteTally, UpstreamTally
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import Pool

if TYPE_CHECKING:
    from gateway.lanes.passthrough.splice import Splice

#: Idempotent by RFC 9110 section 9.2.2: may be sent again when a reused connection turned out to be closed.
REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A passthrough request, decided.

    The upstream head is `before` + digits + `after`, where the digits of Content-Length stand at `cut` in the client's
    head; with `cut` -1 the head is `before` alone and the body has `length` bytes. `plain`: nothing about the request
    asks for more than copying the answer. `key` is that of `caller`, if it has one; `watched`: it is looked at before
    each use of the plan (`KeyRing.still_is`). `sharing`: fields of our own errors, for browsers; `shared`: a page of an
    origin in `cors` asks, so the upstream's answer gets them, too. `splice` is the class of its transactions: what a
    configuration adds to passthrough is a class of its own, and costs nothing where the router does not choose it.
    """

    splice: "type[Splice]"
    pool: Pool
    route: RouteTally
    codes: defaultdict[int, int]
    upstream: UpstreamTally
    secret: bytes | None = attribute(repr=False)
    caller: Caller
    key: Key | None
    watched: bool
    method: bytes
    path: bytes
    before: bytes
    after: bytes
    cut: int
    length: int
    chunked: bool
    minor: int
    keep_alive: bool
    expects_continue: bool
    websocket: bool
    repeatable: bool
    plain: bool
    sharing: Mapping[str, str]
    shared: bool


def upstream_head(head: RequestHead, target: bytes, endpoint: Endpoint, identity: Identity) -> tuple[bytes, bytes]:
    """Return the head for the upstream, in two parts around the digits of Content-Length (the second may be empty).

    It differs from the client's by hop-by-hop fields, Host, X-Context-*, the gateway's key, and the credential where
    the upstream has one of its own; all other lines are the bytes that came, in their order.
    """
    drop = HOP_BY_HOP | nominated(head.connection) | identity.consumed
    credential = b""
    if endpoint.api_key is not None:
        credential = _credential_header(head, endpoint)
        replaced = frozenset((*CREDENTIAL_HEADERS, credential))
        # All of them, however often and in whatever case they come, and as CGI-like servers would read them.
        drop |= {f.name for f in head.fields if f.name.replace(b"_", b"-") in replaced}
    parts: list[bytes] = [b"%b %b HTTP/1.1\r\n" % (head.method, target)]
    after: list[bytes] = []
    out = parts
    if head.value(b"host") is None:
        parts.append(b"Host: %b\r\n" % endpoint.authority)
    for field in head.fields:
        if field.name == b"host":
            out.append(_with_value(field, endpoint.authority))
        elif field.name == credential:
            out.append(_with_value(field, _credential_value(endpoint, credential)))
            credential = b""
        elif field.name == b"content-length":
            start = field.line.index(field.value, len(field.name) + 1)
            out.append(field.line[:start])
            out = after
            out.append(field.line[start + len(field.value) :])
        elif head.websocket and field.name == b"upgrade":
            out.append(b"Connection: Upgrade\r\n" + field.line)
        elif field.name not in drop and not _is_ours(field.name):
            out.append(field.line)
    if credential:
        out.append(b"%b: %b\r\n" % (credential.title(), _credential_value(endpoint, credential)))
    out.append(b"\r\n")
    return b"".join(parts), b"".join(after)


def _is_ours(name: bytes) -> bool:
    """Return whether a field is the gateway's own, also as CGI-like servers would read it."""
    plain = name.replace(b"_", b"-")
    return plain == GATEWAY_HEADER or plain.startswith(CONTEXT_PREFIX)


def _credential_header(head: RequestHead, endpoint: Endpoint) -> bytes:
    """Return where the upstream's key goes: as configured, else the header that the client used, else Authorization."""
    if endpoint.auth_header is not None:
        return endpoint.auth_header
    return next((name for name in CREDENTIAL_HEADERS if head.value(name) is not None), CREDENTIAL_HEADERS[0])


def _credential_value(endpoint: Endpoint, header: bytes) -> bytes:
    key = endpoint.api_key or b""
    return b"Bearer " + key if header == b"authorization" else key


def _with_value(field: Field, value: bytes) -> bytes:
    """Return the field's line with another value, its name as the client wrote it."""
    return b"%b: %b\r\n" % (field.line[: len(field.name)], value)
