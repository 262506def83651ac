"""Scripted answers of the Responses API, read by openai-python: its models, its streams, its accumulators."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.contracts.storage.store import Json
from tests.dialects.responses.schema import check_response
from tests.dialects.responses.scripts import REQUEST_ID, SCRIPTS, Script

pytestmark = pytest.mark.clients

scripted = pytest.mark.parametrize("name", SCRIPTS)
whole = pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if script.error is None])


@pytest.fixture
def client_of() -> Iterator[Callable[[Script], Any]]:
    """Yield a function that returns a client whose every request is answered with a script."""
    import httpx2
    import openai

    opened: list[openai.OpenAI] = []

    def client(script: Script) -> openai.OpenAI:
        def answer(request: httpx2.Request) -> httpx2.Response:
            if b'"stream":true' in request.content:
                head = {"content-type": "text/event-stream"}
                return httpx2.Response(200, headers=head, content=b"".join(script.frames()))
            return httpx2.Response(200, json=script.ended().build_resource())

        transport = openai.DefaultHttpxClient(transport=httpx2.MockTransport(answer))
        opened.append(openai.OpenAI(api_key="k", base_url="http://gateway", max_retries=0, http_client=transport))
        return opened[-1]

    yield client
    for one in opened:
        one.close()


@scripted
def test_response_events_match_open_responses_and_openai_models(name: str) -> None:
    """The Open Responses schemas, and the models of openai-python: strictly, and without unknown fields."""
    from tests.dialects.responses import models, schema

    assert schema._check_model_of_event is models.check_event
    script = SCRIPTS[name]
    script.events()
    check_response(script.ended().build_resource())
    check_response(script.answer().build_resource())


@whole
def test_sdk_accumulators_build_the_expected_response(name: str, client_of: Callable[[Script], Any]) -> None:
    """Of an answer that completes; one that does not has no final response there."""
    script = SCRIPTS[name]
    expected = script.ended().build_resource()
    with client_of(script).responses.stream(model="m", input="Hi") as stream:
        snapshots = {event.item_id: event.snapshot for event in stream if event.type == "response.output_text.delta"}
        if expected["status"] != "completed":
            with pytest.raises(RuntimeError):
                stream.get_final_response()
            return
        final = stream.get_final_response()
    assert [item.id for item in final.output] == [item["id"] for item in expected["output"]]
    assert final.output_text == "".join(_texts(expected))
    last = {item["id"]: item["content"][-1] for item in expected["output"] if item["type"] == "message"}
    texts = {item_id: part["text"] for item_id, part in last.items() if part.get("text")}
    assert {item_id: snapshots[item_id] for item_id in texts} == texts


@whole
def test_a_response_is_read_as_one_object(name: str, client_of: Callable[[Script], Any]) -> None:
    """With its text, its status and its tokens."""
    script = SCRIPTS[name]
    expected = script.ended().build_resource()
    response = client_of(script).responses.create(model="m", input="Hi")
    assert (response.id, response.status) == (expected["id"], expected["status"])
    assert response.output_text == "".join(_texts(expected))
    assert response.usage.total_tokens == expected["usage"]["total_tokens"]


@pytest.mark.parametrize("name", ["failure", "failure at once", "limited", "rejected"])
def test_a_failure_in_a_stream_is_raised(name: str, client_of: Callable[[Script], Any]) -> None:
    """With the gateway's code, its text, and the id of the request."""
    import openai

    script = SCRIPTS[name]
    assert script.error is not None
    seen = []
    with pytest.raises(openai.APIError, match=REQUEST_ID) as caught:
        seen += client_of(script).responses.create(model="m", input="Hi", stream=True)
    assert caught.value.code == script.error.code
    assert script.error.message in caught.value.message


def test_a_cancelled_response_ends_its_stream(client_of: Callable[[Script], Any]) -> None:
    """Without an error: the client knows of it."""
    *_, last = client_of(SCRIPTS["cancelled"]).responses.create(model="m", input="Hi", stream=True)
    assert (last.type, last.response.status) == ("response.failed", "cancelled")


def _texts(response: Json) -> Iterator[str]:
    for item in response["output"]:
        if item["type"] == "message":
            yield from (part["text"] for part in item["content"] if part["type"] == "output_text")
