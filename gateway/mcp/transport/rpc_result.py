"""The outcome of a request over HTTP: the result in its answer, or the error that the SDK's session raises."""

import json

import orjson
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, PARSE_ERROR

from gateway.contracts.storage.store import Json
from gateway.mcp.transport.guarded_network import CLOSED
from gateway.mcp.transport.messages import MAY_HAVE_RUN, UnreadError


class RequestNotRunError(MCPError):
    """The error of a request that its server certainly did not run: the connection, or the session, has ended."""

    def __init__(self, reason: str = "it has ended") -> None:
        super().__init__(code=CONNECTION_CLOSED, message=f"{CLOSED}: {reason}")


def encode_message(message: Json) -> bytes:
    """Return a message as JSON. Raises MCPError for one that JSON cannot carry."""
    try:
        return orjson.dumps(message)
    except TypeError:  # a number of more than 64 bits, say, which JSON can carry
        try:
            return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError):
            raise MCPError(code=INVALID_PARAMS, message="the request cannot be written as JSON") from None


def get_result(answer: Json) -> Json:
    """Return the result in an answer. Raises MCPError for an error in its place, or for neither."""
    if "error" in answer:
        raise parse_error(answer)
    if not isinstance(result := answer["result"], dict):
        raise build_unread_error(UnreadError("its result is no object"))
    return result


def parse_error(answer: Json) -> MCPError:
    """Return the error in an answer."""
    error = answer["error"]
    code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if isinstance(code, bool) or not isinstance(code, int) or not isinstance(message, str):
        return build_unread_error(UnreadError("its error has no code or no message"))
    return MCPError(code=code, message=message, data=error.get("data"))


def build_unread_error(error: UnreadError) -> MCPError:
    """Return the error of a request whose answer is not read."""
    return MCPError(code=PARSE_ERROR, message=f"a message of the server is not read: {error}; {MAY_HAVE_RUN}")


def build_closed_error() -> MCPError:
    """Return the error of a request whose connection ended."""
    return MCPError(code=CONNECTION_CLOSED, message=CLOSED)
