"""The gateway's errors as MCP clients read them."""

from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

_CODES: Final = {"invalid_json": PARSE_ERROR}


def convert_to_mcp_error(error: GatewayError) -> MCPError:
    """Return an error as an answer to a request. Its data has the gateway's own code, as docs/errors.md lists it."""
    data: dict[str, object] = {"code": error.code}
    if error.param is not None:
        data["param"] = error.param
    if error.retry_after_s is not None:
        data["retryAfter"] = error.retry_after_s
    code = _CODES.get(error.code, INVALID_PARAMS if error.facts.source == "client" else INTERNAL_ERROR)
    return MCPError(code, error.message, data)


def build_refusal(error: GatewayError, message: object) -> Json:
    """Return the answer to a message that is refused before it is read as a request; its id is null if not known."""
    request_id = message.get("id") if isinstance(message, dict) and error.param != "id" else None
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        request_id = None
    told = convert_to_mcp_error(error).error.model_dump(by_alias=True)
    if told["code"] == INVALID_PARAMS and not (error.param or "").startswith("params"):
        told["code"] = INVALID_REQUEST
    return {"jsonrpc": "2.0", "id": request_id, "error": told}


def build_version_refusal(requested: str, message: object) -> Json:
    """Return the answer to a message whose header names a version of the protocol that is not served."""
    versions = ", ".join(MODERN_PROTOCOL_VERSIONS)
    text = (
        f"Unsupported protocol version {requested[:64]!r}: send {versions}, or 'initialize' to agree on an older one."
    )
    answer = build_refusal(GatewayError("invalid_header", text, param="mcp-protocol-version"), message)
    data = {**answer["error"]["data"], "supported": list(MODERN_PROTOCOL_VERSIONS), "requested": requested}
    return {**answer, "error": {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": text, "data": data}}


def build_session_refusal(message: object) -> Json:
    """Return the answer to a request whose session its client ends before the request is answered."""
    text = (
        "The session ended before this request was answered. A call that waits for a person still does: the same call "
        "in another session joins it."
    )
    request_id = message.get("id") if isinstance(message, dict) else None
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": INTERNAL_ERROR, "message": text}}


def build_lost_refusal(message: object) -> Json:
    """Return the answer to a request whose session was at another worker, which went away before it answered."""
    text = (
        "The gateway that has this session went away before it answered this request. If the request was a call, it is "
        "not known whether it has run: look at what it does before you make it again. Begin a new session."
    )
    request_id = message.get("id") if isinstance(message, dict) else None
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": INTERNAL_ERROR, "message": text}}


def build_no_session_refusal() -> Json:
    """Return the answer to a request in a session that does not exist, or not any more."""
    text = "Session not found: it has ended, or its gateway has. Begin a new session."
    return {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": text}}


def build_not_found(what: str) -> MCPError:
    """Return the error for a name that does not exist, or that the caller may not use."""
    return MCPError(INVALID_PARAMS, f"There is no such {what}, or your key may not use it: list what there is.")
