"""The requests that models of Responses get, against the types of OpenAI's own package."""

import orjson
import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter
from typing_extensions import get_type_hints

from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.request import build_responses_body
from gateway.upstream.endpoint import ModelAccess

pytestmark = pytest.mark.clients

REQUEST = TypeAdapter(ResponseCreateParamsStreaming)
THOUGHT: Json = {
    "type": "reasoning.summary",
    "summary": "Hm.",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 0,
}
HIDDEN: Json = {
    "type": "reasoning.encrypted",
    "data": "eA==",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 0,
}
PHASE: Json = {"type": "reasoning.message", "phase": "commentary", "format": "openai-responses-v1", "index": 1}
TOOL: Json = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
PARTS: list[Json] = [
    {"type": "text", "text": "Look."},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
    {"type": "file", "file": {"file_id": "file-1"}},
]
CALLED: Json = {
    "role": "assistant",
    "content": "I look.",
    "reasoning_details": [THOUGHT, HIDDEN, PHASE],
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}],
}
HISTORY: list[Json] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": PARTS},
    CALLED,
    {"role": "tool", "tool_call_id": "a", "content": PARTS[:2], "is_error": True},
    {"role": "assistant", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
    {"role": "system", "content": "It is late."},
]
LOOK: Json = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL, {**TOOL, "function": {"name": "b", "strict": True}}], "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": LOOK},
        {
            "tools": [TOOL, {"type": "web_search"}],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [LOOK]}},
        },
        {"reasoning_effort": "xhigh", "stop": "END", "user": "ada", "service_tier": "flex", "verbosity": "low"},
        {"temperature": 2, "max_tokens": 5, "metadata": {"a": "b"}, "prompt_cache_key": "k"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
        {"responses_api": {"reasoning": {"summary": "auto"}, "truncation": "auto", "prompt_cache_retention": "24h"}},
    ],
)
def test_request_is_one_that_the_package_could_send(fields: Json) -> None:
    body: Json = {"model": "m", "messages": HISTORY, **fields}
    sent = orjson.loads(orjson.dumps(build_responses_body(body, frozenset(), ModelAccess(api="responses"))))
    REQUEST.validate_python(sent)
    assert not sent.keys() - get_type_hints(ResponseCreateParamsStreaming).keys()
