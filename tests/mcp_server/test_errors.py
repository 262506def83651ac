"""The gateway's errors as MCP clients read them."""

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from gateway.errors import GatewayError
from gateway.mcp_server.errors import as_mcp_error, no_such


def test_an_error_has_its_text_and_its_own_code() -> None:
    """Faults of the client are invalid parameters."""
    error = as_mcp_error(GatewayError("overloaded", "Busy.", retry_after_s=1.0))
    assert (error.error.code, error.error.message) == (INTERNAL_ERROR, "Busy.")
    assert error.error.data == {"code": "overloaded", "retryAfter": 1.0}
    error = as_mcp_error(GatewayError("invalid_field", "Wrong.", param="x"))
    assert (error.error.code, error.error.data) == (INVALID_PARAMS, {"code": "invalid_field", "param": "x"})
    assert "no such tool" in no_such("tool").error.message
