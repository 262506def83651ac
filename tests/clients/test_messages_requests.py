"""The requests that models of Messages get, against the types of Anthropic's own package."""

import orjson
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter
from typing_extensions import get_type_hints

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.request import build_messages_body
from gateway.upstream.endpoint import ModelAccess

pytestmark = pytest.mark.clients

REQUEST = TypeAdapter(MessageCreateParamsStreaming)
#: Fields that older models and other servers take, and the package has no more.
OLDER = {"temperature", "top_p", "top_k", "context_management"}
THOUGHT: Json = {
    "type": "reasoning.text",
    "text": "Hm.",
    "signature": "c2ln",
    "format": "anthropic-claude-v1",
    "index": 0,
}
HIDDEN: Json = {"type": "reasoning.encrypted", "data": "eHg=", "format": "anthropic-claude-v1", "index": 1}
TOOL: Json = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
PARTS: list[Json] = [
    {"type": "text", "text": "Look."},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
    {"type": "file", "file": {"file_data": "data:text/plain,a"}, "context": "c", "citations": {"enabled": True}},
]
CALLED: Json = {
    "role": "assistant",
    "content": "I look.",
    "reasoning_details": [THOUGHT, HIDDEN],
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}],
}
HISTORY: list[Json] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": PARTS},
    CALLED,
    {"role": "tool", "tool_call_id": "a", "content": PARTS[:2], "is_error": True},
    {"role": "system", "content": "It is late."},
]


@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL, {**TOOL, "function": {"name": "b", "strict": True}}], "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
        {"reasoning_effort": "xhigh", "stop": "END", "user": "ada@example.com", "service_tier": "default"},
        {"temperature": 2, "max_tokens": 5},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
        {"messages_api": {"container": "c", "thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}},
    ],
)
def test_request_is_one_that_the_package_could_send(fields: Json, thinking: str) -> None:
    access = ModelAccess(api="messages", thinking="budget" if thinking == "budget" else "adaptive")
    body: Json = {"model": "m", "messages": HISTORY, **fields}
    sent = orjson.loads(orjson.dumps(build_messages_body(body, access)))
    REQUEST.validate_python(sent)
    assert not sent.keys() - get_type_hints(MessageCreateParamsStreaming).keys() - OLDER
