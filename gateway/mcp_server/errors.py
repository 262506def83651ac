"""The gateway's errors as MCP clients read them."""

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from gateway.errors import GatewayError


def as_mcp_error(error: GatewayError) -> MCPError:
    """Return an error as an answer to a request. Its data has the gateway's own code, as docs/errors.md lists it."""
    data: dict[str, object] = {"code": error.code}
    if error.param is not None:
        data["param"] = error.param
    if error.retry_after_s is not None:
        data["retryAfter"] = error.retry_after_s
    return MCPError(INVALID_PARAMS if error.facts.source == "client" else INTERNAL_ERROR, error.message, data)


def no_such(what: str) -> MCPError:
    """Return the error for a name that is not there, or that the caller may not use: both look the same."""
    return MCPError(INVALID_PARAMS, f"There is no such {what}, or your key may not use it: list what there is.")
