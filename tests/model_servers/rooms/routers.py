"""Routers in front of other servers: OpenRouter, LiteLLM."""

from typing import Final

from tests.model_servers.answers import Style, event
from tests.model_servers.calls import Json, from_one
from tests.model_servers.refusals import where
from tests.model_servers.room import Room


def _openrouter(words: str) -> str:
    choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error", "native_finish_reason": None}
    error = {"code": 502, "message": words, "metadata": {"error_type": "provider_unavailable"}}
    facts = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "provider": "DeepInfra"}
    return event({**facts, "error": error, "choices": [choice]})


def _calls_without_tools(body: Json) -> bool:
    has_calls = any(one["role"] == "tool" or one.get("tool_calls") for one in body["messages"])
    return has_calls and not body.get("tools")


_NO_TOOLS: Final = (
    "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified. Pass"
    " `tools=` param OR set `litellm.modify_params = True` // `litellm_settings::modify_params: True` to add dummy"
    " tool to the request.\nReceived Model Group=us.anthropic.claude-opus-4-5-20251101-v1:0\n"
    "Available Model Group Fallbacks=None"
)

ROUTERS: Final = (
    Room(
        "openrouter",
        "OpenRouter",
        "2025-02 to 2026-08",
        (
            "https://openrouter.ai/docs/api_reference/streaming",
            "https://openrouter.ai/docs/api_reference/errors-and-debugging",
            "https://github.com/openai/openai-go/issues/227",
            "https://github.com/damianvtran/local-operator/pull/223",
            "https://github.com/badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
        ),
        style=Style(
            before=(": OPENROUTER PROCESSING\n\n",) * 2,
            delta={"role": "assistant"},
            closing={"content": ""},
            choice={"native_finish_reason": None, "logprobs": None},
            chunk={"provider": "DeepInfra"},
            thought="reasoning_details",
            usage="own with a choice",
        ),
        broken=_openrouter,
        too_long=(
            400,
            {
                "error": {
                    "message": "This endpoint's maximum context length is 131072 tokens. However, you requested about"
                    " 140000 tokens (139000 of text input, 1000 in the output).",
                    "code": 400,
                    "metadata": {"provider_name": None},
                }
            },
        ),
    ),
    Room(
        "litellm",
        "LiteLLM's proxy in front of Bedrock",
        "2025-06 to 2026-08",
        (
            "https://github.com/BerriAI/litellm/issues/24158",
            "https://github.com/BerriAI/litellm/issues/11407",
            "https://github.com/pipecat-ai/pipecat/issues/4987",
        ),
        refuses=("calls of earlier answers where no tools are declared",),
        refusal=where(
            _calls_without_tools,
            400,
            {"error": {"message": _NO_TOOLS, "type": "None", "param": "None", "code": "400"}},
        ),
        learns=frozenset(("tools_for_calls",)),
        style=Style(calls=from_one, unfinished={}),
    ),
)
