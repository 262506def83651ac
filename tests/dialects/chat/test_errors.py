"""Error answers of chat completions."""

import json

from gateway.contracts.errors import GatewayError
from gateway.dialects.chat.errors import ERRORS


def test_an_error_has_openais_shape() -> None:
    """With the id of its request in the text, since SDKs show nothing else."""
    body = json.loads(ERRORS(GatewayError("invalid_field", "No.", param="model"), request_id="run_7"))
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert (body["error"]["code"], body["error"]["param"]) == ("invalid_field", "model")
    assert body["error"]["message"] == "No. (request id: run_7)"
