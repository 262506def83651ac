"""All APIs of models have the same face."""

import pytest

from gateway.contracts.model_apis import MODEL_APIS, ApiName
from gateway.model.apis.table import get_model_api
from gateway.upstream.endpoint import Endpoint, ModelAccess

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize("name", MODEL_APIS)
def test_api_builds_a_streamed_request_and_keeps_the_clients_body(name: ApiName) -> None:
    api = get_model_api(Endpoint(name="up", host="h", port=1, authority=b"h", models=ModelAccess(api=name)))
    before = repr(BODY)
    sent = api.build_body(BODY, frozenset(), ModelAccess(api=name))
    assert (sent["model"], sent["stream"], repr(BODY)) == ("m", True, before)
    assert api.path.startswith(b"/") and api.models_path.startswith(b"/models") and "stream" in api.answers
    assert api.list_lost(BODY) == []
    assert api.find_quirk(frozenset(), BODY, status=400, refusal=b"no such thing") is None
