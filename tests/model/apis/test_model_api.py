"""All APIs of models have the same face."""

import sys

import orjson
import pytest

from gateway.contracts.model_apis import MODEL_APIS, ApiName
from gateway.contracts.storage.store import Json
from gateway.dialects.messages.dialect import DIALECT
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


@pytest.mark.parametrize("name", MODEL_APIS)
def test_calls_for_a_request_of_messages_grow_with_its_blocks(name: ApiName) -> None:
    """Twice the blocks are twice the calls of functions, from the client's bytes to the model's."""
    few, many = (count_calls(name, turns) for turns in (200, 400))
    assert few > 200 and many < 2.01 * few


def count_calls(name: ApiName, turns: int) -> int:
    """The calls of functions for a request with so many turns of texts, thoughts, calls and results."""
    api = get_model_api(Endpoint(name="up", host="h", port=1, authority=b"h", models=ModelAccess(api=name)))
    messages: list[Json] = []
    for at in range(turns):
        thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{at}"}
        call = {"type": "tool_use", "id": f"c{at}", "name": "look", "input": {"at": at}}
        texts = [{"type": "text", "text": f"{at} {number}"} for number in range(5)]
        result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": texts}
        messages += [
            {"role": "user", "content": texts},
            {"role": "assistant", "content": [thought, *texts, call]},
            {"role": "user", "content": [result]},
        ]
    content = orjson.dumps({"model": "m", "max_tokens": 9, "messages": messages})
    calls = 0

    def count(_frame: object, _event: str, _value: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        body = DIALECT.parse(content, needs_model=True).body
        orjson.dumps(api.build_body(body, frozenset(), ModelAccess(api=name)))
    finally:
        sys.setprofile(None)
    return calls
