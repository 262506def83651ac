"""The head that goes upstream: the lines that came, but for those that a rule names."""

from gateway.auth.credentials import CREDENTIAL_HEADERS, GATEWAY_HEADER, SUBPROTOCOLS, clean_subprotocols, clean_target
from gateway.auth.keyring import Identity
from gateway.http.fields import CREDENTIALS, HOP_BY_HOP, Field, get_hop_fields
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import CONTEXT_PREFIX
from gateway.upstream.endpoint import Endpoint


def build_upstream_head(
    head: RequestHead, target: bytes, endpoint: Endpoint, identity: Identity, *, without: frozenset[bytes] = frozenset()
) -> tuple[bytes, bytes]:
    """Return the head for the upstream, in two parts around the digits of Content-Length (the second may be empty).

    It differs from the client's by hop-by-hop fields, Host, X-Context-*, keys of the gateway, and all credentials where
    the upstream has one of its own; all other lines are the bytes that came, in their order. `without`: names of fields
    that the gateway writes itself.
    """
    has_own = endpoint.api_key is not None
    target = clean_target(target, identity.texts, has_own=has_own)
    drop = HOP_BY_HOP | get_hop_fields(head.connection) | identity.consumed | without
    credential = b""
    if has_own:
        credential = _find_credential_header(head, endpoint)
        replaced = CREDENTIALS | {credential}
        # All of them, however often and in whatever case they come, and as CGI-like servers would read them.
        drop |= {f.name for f in head.fields if f.name.replace(b"_", b"-") in replaced}
    parts: list[bytes] = [b"%b %b HTTP/1.1\r\n" % (head.method, target)]
    after: list[bytes] = []
    out = parts
    if head.find_value(b"host") is None:
        parts.append(b"Host: %b\r\n" % endpoint.authority)
    for field in head.fields:
        if field.name == b"host":
            out.append(_replace_value(field, endpoint.authority))
        elif field.name == credential:
            out.append(_replace_value(field, endpoint.build_credential(credential)))
            credential = b""
        elif field.name == b"content-length":
            start = field.line.index(field.value, len(field.name) + 1)
            out.append(field.line[:start])
            out = after
            out.append(field.line[start + len(field.value) :])
        elif head.websocket and field.name == b"upgrade":
            out.append(b"Connection: Upgrade\r\n" + field.line)
        elif has_own and field.name == SUBPROTOCOLS and field.name not in drop:
            if (kept := clean_subprotocols(field.value)) != b"":
                out.append(_replace_value(field, kept))
        elif field.name not in drop and not _is_gateway_field(field.name):
            out.append(field.line)
    if credential:
        out.append(b"%b: %b\r\n" % (credential.title(), endpoint.build_credential(credential)))
    out.append(b"\r\n")
    return b"".join(parts), b"".join(after)


def _is_gateway_field(name: bytes) -> bool:
    """Return whether a field is the gateway's own, also as CGI-like servers would read it."""
    plain = name.replace(b"_", b"-")
    return plain == GATEWAY_HEADER or plain.startswith(CONTEXT_PREFIX)


def _find_credential_header(head: RequestHead, endpoint: Endpoint) -> bytes:
    """Return the header for the upstream's key: configured, as the client used, else Authorization."""
    if endpoint.auth_header is not None:
        return endpoint.auth_header
    return next((name for name in CREDENTIAL_HEADERS if head.find_value(name) is not None), CREDENTIAL_HEADERS[0])


def _replace_value(field: Field, value: bytes) -> bytes:
    """Return the field's line with another value, its name as the client wrote it."""
    return b"%b: %b\r\n" % (field.line[: len(field.name)], value)
