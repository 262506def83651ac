"""The gateway's own answers as bytes: errors in OpenAI's shape (design: the HTTP contract, "Errors")."""

import json
import math
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from gateway.contracts.errors import GatewayError

_NONE: Mapping[str, str] = MappingProxyType({})


def generate_request_id() -> str:
    """Return a request id for `x-request-id`, logs and error texts: `req_` and 24 hex digits."""
    return "req_" + secrets.token_hex(12)


def build_error_body(error: GatewayError, *, request_id: str) -> bytes:
    """Return the JSON body of an error. Its message holds cause, next step and request id."""
    told = {
        "message": f"{error.message} (request id: {request_id})",
        "type": error.facts.type,
        "param": error.param,
        "code": error.shown_code,
    }
    if error.upstream_code is not None:
        told["gateway_code"] = error.code
    return json.dumps({"error": told}, ensure_ascii=False).encode()


def build_error_answer(
    error: GatewayError, *, request_id: str, close: bool, head_only: bool = False, sharing: Mapping[str, str] = _NONE
) -> bytes:
    """Return the whole answer. `close`: the connection ends with it. `head_only`: the request was HEAD.

    `sharing`: further fields of its head, for browsers.
    """
    body = build_error_body(error, request_id=request_id)
    status = error.facts.status
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"x-request-id: {request_id}",
    ]
    if status == HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    if error.retry_after_s is not None:
        lines.append(f"Retry-After: {math.ceil(error.retry_after_s)}")
        if error.retry_after_s % 1:
            lines.append(f"retry-after-ms: {math.ceil(error.retry_after_s * 1000)}")
    if error.settled:
        lines.append("x-should-retry: false")
    lines += [f"{name}: {value}" for name, value in error.fields.items()]
    lines += [f"{name}: {value}" for name, value in sharing.items()]
    if close:
        lines.append("Connection: close")
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if head_only else head + body
