"""The outcome of a request over HTTP."""

from typing import Any

import pytest
from mcp import MCPError

from gateway.mcp.transport.messages import MAY_HAVE_RUN
from gateway.mcp.transport.rpc_result import encode_message, get_result, parse_error


def test_messages_are_encoded_as_compact_json() -> None:
    """A number of more than 64 bits, too; half of a character and what is no number are no JSON."""
    assert encode_message({"a": [1, "ü"]}) == '{"a":[1,"ü"]}'.encode()
    assert encode_message({"a": 1 << 70, "b": "ü"}) == f'{{"a":{1 << 70},"b":"ü"}}'.encode()
    for value in ("\ud800", [1 << 70, float("nan")]):
        with pytest.raises(MCPError, match="cannot be written as JSON"):
            encode_message({"a": value})


def test_response_error_takes_precedence_over_its_result() -> None:
    """An error counts, if there are both."""
    assert get_result({"result": {"a": 1}}) == {"a": 1}
    with pytest.raises(MCPError, match="no object"):
        get_result({"result": 7})
    with pytest.raises(MCPError) as raised:
        get_result({"result": {}, "error": {"code": -1, "message": "no", "data": {"a": 1}}})
    assert (raised.value.code, raised.value.message, raised.value.data) == (-1, "no", {"a": 1})


@pytest.mark.parametrize("error", [None, 7, {}, {"code": True, "message": "no"}, {"code": 1, "message": None}])
def test_malformed_error_is_reported_as_unreadable(error: Any) -> None:
    """The call ends with that reason."""
    assert parse_error({"error": error}).message.endswith(f"its error has no code or no message; {MAY_HAVE_RUN}")
