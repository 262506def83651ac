"""The API of an endpoint."""

from gateway.model.apis.chat.api import CHAT
from gateway.model.apis.messages.api import MESSAGES
from gateway.model.apis.responses.api import RESPONSES
from gateway.model.apis.table import get_model_api
from gateway.upstream.endpoint import Endpoint, ModelAccess


def test_endpoint_has_the_api_of_its_configuration() -> None:
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h")
    assert get_model_api(endpoint) is CHAT
    for name, api in (("messages", MESSAGES), ("responses", RESPONSES)):
        other = Endpoint(name="up", host="h", port=1, authority=b"h", models=ModelAccess(api=name))
        assert get_model_api(other) is api
