"""Clouds: Azure, OpenAI's first reasoning models, Bedrock, Gemini."""

from collections.abc import Iterable
from typing import Final

from tests.model_servers.answers import Style, event
from tests.model_servers.calls import Json, signed_without_index
from tests.model_servers.refusals import any_of, current_turn, has_role, where
from tests.model_servers.room import Refusal, Room

_FILTERED: Final = {"hate": {"filtered": False, "severity": "safe"}}
_AZURE_FIRST: Final = {"id": "", "choices": [], "created": 0, "model": "", "object": ""}
_AZURE_LAST: Final = {"finish_reason": None, "index": 0, "content_filter_results": _FILTERED}


def _openai(message: str, param: str, code: str) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def _google(message: str, details: Iterable[str] = ()) -> list[Json]:
    error: Json = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    violations = [{"description": one} for one in details]
    if violations:
        kind = "type.googleapis.com/google.rpc.BadRequest"
        error["details"] = [{"@type": kind, "fieldViolations": violations}]
    return [{"error": error}]


def _unsigned(body: Json) -> Refusal | None:
    """Refuse a turn under way whose first call of an answer has no signature."""
    for at, message in enumerate(current_turn(body)):
        calls = message.get("tool_calls") or ()
        if calls and not calls[0].get("extra_content", {}).get("google", {}).get("thought_signature"):
            return 400, _google(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to"
                " work correctly, and missing thought_signature may lead to degraded model performance. Additional"
                f" data, function call `default_api:{calls[0]['function']['name']}` , position {at + 2}. Please refer"
                " to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
    return None


def _unknown_to_google(body: Json) -> Refusal | None:
    if "parallel_tool_calls" not in body:
        return None
    words = 'Invalid JSON payload received. Unknown name "parallel_tool_calls": Cannot find field.'
    return 400, _google(words, [words])


CLOUDS: Final = (
    Room(
        "azure-openai",
        "Azure OpenAI",
        "API from 2023-06-01-preview on",
        (
            "https://github.com/AbanteAI/archive-old-cli-mentat/issues/429",
            "https://github.com/microsoft/autogen/issues/6465",
        ),
        style=Style(
            before=(event({**_AZURE_FIRST, "prompt_filter_results": [{"content_filter_results": _FILTERED}]}),),
            behind=(event({**_AZURE_FIRST, "choices": [_AZURE_LAST]}),),
        ),
        habits=("events of its filter without a choice, and with one that has no delta",),
    ),
    Room(
        "openai-o1-preview",
        "OpenAI's first reasoning models",
        "o1-preview, 2024-09",
        (
            "https://github.com/BerriAI/litellm/issues/5671",
            "https://github.com/animalnots/BetterChatGPT-PLUS/issues/62",
            "https://github.com/ITSpecialist111/ai_automation_suggester/issues/38",
        ),
        refuses=("system messages", "streams", "`max_tokens`"),
        refusal=any_of(
            where(
                lambda body: "max_tokens" in body,
                400,
                _openai(
                    "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
                    " 'max_completion_tokens' instead.",
                    "max_tokens",
                    "unsupported_parameter",
                ),
            ),
            where(
                lambda body: bool(body.get("stream")),
                400,
                _openai(
                    "Unsupported value: 'stream' does not support true with this model. Only the default (false)"
                    " value is supported.",
                    "stream",
                    "unsupported_value",
                ),
            ),
            where(
                lambda body: has_role(body, "system"),
                400,
                _openai(
                    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                    "messages[0].role",
                    "unsupported_value",
                ),
            ),
        ),
        learns=frozenset(("max_completion_tokens", "no_stream", "no_system_role")),
    ),
    Room(
        "bedrock",
        "Amazon Bedrock's `/openai/v1`",
        "2025-09 to 2026-09, gpt-oss",
        (
            "https://github.com/CherryHQ/cherry-studio/issues/10225",
            "https://github.com/BerriAI/litellm/pull/40775",
            "https://github.com/badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
        ),
        style=Style(unfinished={}, thought="<reasoning>", chunk={"obfuscation": "Xy"}),
        habits=("a choice that goes on has no finish reason",),
        too_long=(400, {"message": "Input is too long for requested model."}),
    ),
    Room(
        "gemini",
        "Gemini's `/v1beta/openai`",
        "2024-11 to 2026-09, Gemini 3",
        (
            "https://github.com/TokenRhythm/opensquilla/issues/225",
            "https://github.com/googleapis/python-genai/issues/2868",
            "https://github.com/microclaw/microclaw/pull/230",
            "https://github.com/jackmpcollins/magentic/pull/382",
            "https://ai.google.dev/gemini-api/docs/thought-signatures",
            "https://github.com/badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
        ),
        refuses=("calls of the turn under way without the signature of their thought", "`parallel_tool_calls`"),
        refusal=any_of(_unknown_to_google, _unsigned),
        learns=frozenset(("thought_signatures", "no_parallel_tool_calls")),
        style=Style(opening=None, delta={"role": "assistant"}, called="stop", calls=signed_without_index),
        habits=("the finish reason of calls is `stop`", "errors are in a list"),
        broken=lambda words: event(_google(words)),
        too_long=(
            400,
            _google("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."),
        ),
    ),
)
