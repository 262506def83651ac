"""Error answers in Anthropic's envelope."""

import orjson
import pytest

from gateway.contracts.errors import CODES, GatewayError
from gateway.dialects.messages.errors import ERRORS


@pytest.mark.parametrize("code", [*CODES])
def test_each_code_has_a_type_that_fits_its_status(code: str) -> None:
    """And stands in the text, with the id of the request."""
    error = GatewayError(code, "Why.")
    told = orjson.loads(ERRORS(error, request_id="req_1"))
    assert told["type"] == "error" and told["request_id"] == "req_1" and told["error"].keys() == {"type", "message"}
    assert told["error"]["message"] == f"Why. ({code}; request id: req_1)"
    status, kind = error.facts.status, told["error"]["type"]
    of_server = ("api_error", "overloaded_error", "timeout_error")
    assert (kind in of_server) == (status >= 500)
    assert kind == {401: "authentication_error", 429: "rate_limit_error", 413: "request_too_large"}.get(status, kind)


def test_code_of_the_upstream_is_there_too() -> None:
    """Behind the gateway's own."""
    error = GatewayError("upstream_rejected", "Why.")
    error.upstream_code = "context_length_exceeded"
    told = orjson.loads(ERRORS(error, request_id="req_1"))
    assert "(upstream_rejected, upstream's: context_length_exceeded; " in told["error"]["message"]


def test_refusal_of_a_thread_has_the_word_by_which_clients_go_on_without_one() -> None:
    """The SDKs' tool runners send the whole conversation then."""
    told = orjson.loads(ERRORS(GatewayError("unsupported_parameter", "No.", param="thread"), request_id="req_1"))
    assert told["error"]["details"] == {"error_code": "thread_unsupported_request"}
