"""Responses as a model's API: its path, its key, what it learns, and the names of tools."""

import orjson
import pytest

from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.api import RESPONSES
from gateway.model.http_request import build_model_request
from gateway.upstream.endpoint import ModelAccess
from tests.agent.models import exchange
from tests.model.test_upstream_client import target

ACCESS = ModelAccess(api="responses")
BODY: Json = {
    "messages": [{"role": "user", "content": "Hi"}],
    "temperature": 1,
    "reasoning_effort": "low",
    "parallel_tool_calls": True,
}


def test_request_goes_to_the_path_of_the_api_with_the_gateways_key() -> None:
    request = build_model_request(
        exchange(b"X-One: 1\r\n"),
        target(base_path=b"/v1", api_key=b"k", models=ACCESS),
        frozenset(),
        credential=b"Authorization: Bearer sk-client\r\n",
    )
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/responses HTTP/1.1\r\n") and b"Authorization: Bearer k\r\n" in head
    assert b"sk-client" not in head and orjson.loads(body)["store"] is False


@pytest.mark.parametrize(
    ("refusal", "learnt"),
    [
        (b"Unsupported parameter: 'temperature' is not supported with this model.", {"no_sampling"}),
        (b"Unsupported parameter: 'parallel_tool_calls' is not supported.", {"no_parallel_tool_calls"}),
        (b"Encrypted content is not supported with this model.", {"no_reasoning"}),
        (b'{"error": {"message": "Invalid value", "param": "include"}}', {"no_reasoning"}),
        (b"Unsupported parameter: 'reasoning.effort' is not supported with this model.", {"no_reasoning_effort"}),
        (b"The encrypted content gAAA... could not be verified.", None),
        (b"Item 'rs_1' of type 'reasoning' was provided without its required following item.", None),
        (b"Your messages must include a text.", None),
    ],
)
def test_refusal_of_what_a_model_cannot_do_is_learnt(refusal: bytes, learnt: set[str] | None) -> None:
    """A refusal of reasoning that is not whole means to send it whole."""
    assert RESPONSES.find_quirk(frozenset(), BODY, status=400, refusal=refusal) == learnt
    assert RESPONSES.find_quirk(frozenset(learnt or ()), BODY, status=400, refusal=refusal) is None  # type: ignore[arg-type]
    assert RESPONSES.find_quirk(frozenset(), BODY, status=429, refusal=refusal) is None


def test_tools_have_their_own_names_again() -> None:
    tool = {"type": "function", "function": {"name": "mcp.find"}}
    told: list[Chunk] = []
    sent = RESPONSES.build_body({"model": "m", "messages": [], "tools": [tool]}, frozenset(), ACCESS)
    emit = RESPONSES.wrap_emit(told.append, {"tools": [tool]}, frozenset())
    call = {"index": 0, "function": {"name": sent["tools"][0]["name"], "arguments": ""}}
    emit({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    assert isinstance(told[0], dict)
    assert told[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "mcp.find"
