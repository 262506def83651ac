"""The gateway's errors as MCP clients read them."""

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

from gateway.contracts.errors import GatewayError
from gateway.mcp_server.errors import build_not_found, build_refusal, convert_to_mcp_error


def test_mcp_error_carries_gateway_code_and_message() -> None:
    """Faults of the client are invalid parameters."""
    error = convert_to_mcp_error(GatewayError("overloaded", "Busy.", retry_after_s=1.0))
    assert (error.error.code, error.error.message) == (INTERNAL_ERROR, "Busy.")
    assert error.error.data == {"code": "overloaded", "retryAfter": 1.0}
    error = convert_to_mcp_error(GatewayError("invalid_field", "Wrong.", param="x"))
    assert (error.error.code, error.error.data) == (INVALID_PARAMS, {"code": "invalid_field", "param": "x"})
    assert "no such tool" in build_not_found("tool").error.message


def test_refused_message_response_has_its_id_or_null() -> None:
    """By null where the message has none that could be sent back."""
    error = GatewayError("invalid_json", "Wrong.")
    for message, request_id in (
        ({"id": 5}, 5),
        ({"id": "a"}, "a"),
        ({"id": True}, None),
        ({"id": []}, None),
        ([], None),
    ):
        answer = build_refusal(error, message)
        assert (answer["id"], answer["error"]["code"]) == (request_id, PARSE_ERROR)
    assert build_refusal(GatewayError("invalid_field", "Long.", param="id"), {"id": "a" * 2000})["id"] is None


def test_invalid_message_and_invalid_parameters_have_different_error_codes() -> None:
    """JSON-RPC tells the two apart."""
    for param, code in ((None, INVALID_REQUEST), ("method", INVALID_REQUEST), ("params.name", INVALID_PARAMS)):
        answer = build_refusal(GatewayError("invalid_field", "Wrong.", param=param), {"id": 1})
        assert answer["error"]["code"] == code
