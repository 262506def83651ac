"""Error answers of Messages, in Anthropic's envelope. A start loads them, and not the dialect.

The statuses are those of all error answers of the gateway. The type follows from the status, in Anthropic's words; the
gateway's code stands behind the message, as the envelope has no field for it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import WriteError

#: The header in which Anthropic's clients look for the id of a request, beside `x-request-id`.
ID_HEADER: Final = "request-id"
#: The field of a request whose conversation its server keeps.
THREAD: Final = "thread"
_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)
_FIRST_OF_SERVER: Final = 500


def build_error(error: GatewayError, *, request_id: str) -> Json:
    """Return the error as the object that an answer or an event has."""
    status = error.facts.status
    other = "api_error" if status >= _FIRST_OF_SERVER else "invalid_request_error"
    code = error.code if error.upstream_code is None else f"{error.code}, upstream's: {error.upstream_code}"
    text = f"{error.message} ({code}; request id: {request_id})"
    told: Json = {"type": _TYPES.get(status, other), "message": text}
    if error.param == THREAD:  # clients then go on without a thread
        told["details"] = {"error_code": "thread_unsupported_request"}
    return {"type": "error", "error": told, "request_id": request_id}


def build_error_body(error: GatewayError, *, request_id: str) -> bytes:
    """Return the JSON body of an error answer."""
    return orjson.dumps(build_error(error, request_id=request_id))


ERRORS: Final[WriteError] = build_error_body
