"""Providers of models: Mistral, DeepSeek, Moonshot, MiniMax, Groq, Cerebras, Cohere, Together, DashScope."""

from collections.abc import Sequence
from typing import Final

from tests.model_servers.answers import Style, event
from tests.model_servers.calls import Json, together_without_index, whole, with_empty_ids
from tests.model_servers.refusals import any_of, fields_of_answers, has_role, has_strict, long_ids, where
from tests.model_servers.room import Refusal, Room

_OVERFLOW: Final = "https://github.com/badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts"


def _mistral(message: object, code: str | None = None) -> Json:
    return {"object": "error", "message": message, "type": "invalid_request_error", "param": None, "code": code}


def _extra_in_mistral(body: Json) -> Refusal | None:
    """Refuse fields that Mistral's API does not know."""
    places: list[Sequence[object]] = [["body", name] for name in ("max_completion_tokens",) if name in body]
    if "stream_options" in body:
        places.append(["body", "stream_options", "include_usage"])
    places += [
        ["body", "messages", at, body["messages"][at]["role"], "reasoning_content"]
        for at in fields_of_answers(body, "reasoning_content")
    ]
    faults = [{"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted"} for place in places]
    return (422, _mistral({"detail": faults})) if faults else None


def _ids_of_mistral(body: Json) -> Refusal | None:
    for one in long_ids(body):
        words = f"Tool call id was {one} but must be a-z, A-Z, 0-9, with a length of 9."
        return 400, {**_mistral(words, "3280"), "type": "invalid_function_call"}
    return None


def _deepseek(message: str) -> Json:
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _without_thoughts(body: Json) -> Refusal | None:
    """Refuse an answer with calls whose thoughts do not come back."""
    for at, message in enumerate(body["messages"]):
        if message.get("tool_calls") and message.get("reasoning_content") is None:
            return 400, _deepseek(
                f"Missing `reasoning_content` field in the assistant message at message index {at}. For more"
                " information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
            )
    return None


def _thoughts_in_groq(body: Json) -> Refusal | None:
    for at in fields_of_answers(body, "reasoning_content"):
        words = f"'messages.{at}' : property 'reasoning_content' is unsupported"
        must = f"'messages.{at}' : for 'role:assistant' the following must be satisfied[({words})]"
        return 400, {"error": {"message": must, "type": "invalid_request_error"}}
    return None


def _cerebras(message: str) -> Json:
    kind = "invalid_request_error"
    return {"message": message, "type": kind, "param": "validation_error", "code": "wrong_api_format"}


def _thoughts_in_cerebras(body: Json) -> Refusal | None:
    names = [f"messages.{at}.assistant.reasoning_content" for at in fields_of_answers(body, "reasoning_content")]
    words = "\n".join(f"{name}: property '{name}' is unsupported" for name in names)
    return (400, _cerebras(words)) if names else None


PROVIDERS: Final = (
    Room(
        "mistral",
        "Mistral",
        "API of 2024-07 to 2026-08, Magistral",
        (
            "https://github.com/dnakov/anon-kode/issues/53",
            "https://github.com/charmbracelet/crush/issues/1590",
            "https://github.com/editor-code-assistant/eca/issues/231",
            "https://github.com/editor-code-assistant/eca/issues/233",
            "https://github.com/BerriAI/litellm/issues/16272",
            "https://github.com/vercel/ai/blob/main/packages/mistral/src/mistral-chat-language-model.test.ts",
            _OVERFLOW,
        ),
        refuses=(
            "`stream_options`, `max_completion_tokens` and `reasoning_content`",
            "ids of calls that are not nine letters and digits",
        ),
        refusal=any_of(_extra_in_mistral, _ids_of_mistral),
        learns=frozenset(("no_usage_in_stream", "max_tokens", "no_reasoning", "short_call_ids")),
        style=Style(
            thought="parts",
            parts=True,
            calls=together_without_index,
            finish_with_last=True,
            usage="finish",
        ),
        too_long=(
            400,
            _mistral("Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
        ),
    ),
    Room(
        "deepseek",
        "DeepSeek",
        "API of 2025-01 to 2026-05, thinking mode",
        (
            "https://github.com/hotovo/aider-desk/issues/529",
            "https://github.com/continuedev/continue/issues/11285",
            "https://github.com/eclipse-theia/theia/issues/15144",
        ),
        refuses=("the role `developer`", "calls of earlier answers without `reasoning_content`"),
        refusal=any_of(
            where(
                lambda body: has_role(body, "developer"),
                422,
                _deepseek(
                    "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant"
                    " `developer`, expected one of `system`, `user`, `assistant`, `tool` at line 5 column 25"
                ),
            ),
            _without_thoughts,
        ),
        learns=frozenset(("no_developer_role", "reasoning_back")),
        style=Style(
            opening={"role": "assistant", "content": None, "reasoning_content": ""},
            choice={"logprobs": None},
            closing={"content": ""},
            thought="reasoning_content",
            usage="finish",
        ),
    ),
    Room(
        "moonshot",
        "Moonshot (Kimi)",
        "2026-03, Kimi K2.5",
        ("https://github.com/earendil-works/pi/issues/2017", _OVERFLOW),
        style=Style(thought="reasoning_content", usage="choice"),
        too_long=(
            400,
            {
                "error": {
                    "message": "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
                    "type": "invalid_request_error",
                }
            },
        ),
    ),
    Room(
        "minimax",
        "MiniMax",
        "2026-02, M2.5",
        ("https://github.com/MiniMax-AI/MiniMax-M2.5/issues/2", _OVERFLOW),
        style=Style(
            opening={"role": "assistant", "content": ""},
            delta={"role": ""},
            chunk={
                "usage": {"total_tokens": 0, "total_characters": 0},
                "input_sensitive": False,
                "output_sensitive": False,
            },
            thought="reasoning_content",
        ),
        habits=("the role is an empty text behind the first event", "each event counts zero tokens"),
        too_long=(400, {"error": {"message": "invalid params, context window exceeds limit", "type": "bad_request"}}),
    ),
    Room(
        "groq",
        "Groq",
        "2024-10 to 2026-08",
        (
            "https://github.com/NousResearch/hermes-agent/issues/11089",
            "https://github.com/tensorzero/tensorzero/pull/1893",
            "https://github.com/ogx-ai/ogx/pull/630",
            "https://github.com/vercel/ai/blob/main/packages/groq/src/groq-chat-language-model.test.ts",
            _OVERFLOW,
        ),
        refuses=("`reasoning_content`",),
        refusal=_thoughts_in_groq,
        learns=frozenset(("no_reasoning",)),
        style=Style(calls=whole, thought="reasoning", usage="x_groq", choice={"logprobs": None}),
        broken=lambda words: event(
            {
                "error": {
                    "message": words,
                    "type": "invalid_request_error",
                    "code": "tool_use_failed",
                    "failed_generation": "look_up(",
                    "status_code": 400,
                }
            }
        ),
        too_long=(
            400,
            {
                "error": {
                    "message": "Please reduce the length of the messages or completion.",
                    "type": "invalid_request_error",
                    "param": "messages",
                }
            },
        ),
    ),
    Room(
        "cerebras",
        "Cerebras",
        "2026-07",
        (
            "https://github.com/Alishahryar1/free-claude-code/issues/1136",
            "https://github.com/egoist/chatwise-releases/issues/1442",
        ),
        refuses=("`reasoning_content`",),
        refusal=_thoughts_in_cerebras,
        learns=frozenset(("no_reasoning",)),
        style=Style(thought="reasoning"),
        broken=lambda words: event(_cerebras(words)),
    ),
    Room(
        "cohere",
        "Cohere",
        "2026-03, Command R",
        ("https://github.com/OpenRouterTeam/openrouter-examples/issues/71",),
        refuses=("`strict` of a function",),
        refusal=where(
            has_strict,
            422,
            {
                "message": "unknown field: parameter 'strict' is not a valid field. For proper usage, please refer to"
                " https://docs.cohere.com/reference/chat"
            },
        ),
        learns=frozenset(("no_strict_tools",)),
    ),
    Room(
        "together",
        "Together AI",
        "2024-04",
        ("https://github.com/mlflow/mlflow/pull/11557",),
        style=Style(
            opening=None,
            delta={"token_id": 2287},
            choice={"text": "", "logprobs": None},
            chunk={"usage": None},
            finish_with_last=True,
            usage="finish",
        ),
    ),
    Room(
        "dashscope",
        "DashScope (Qwen)",
        "2026-06 to 2026-08, qwen3.8-max",
        (
            "https://github.com/anomalyco/opencode/pull/40969",
            "https://github.com/symfony/ai/pull/2220",
        ),
        style=Style(calls=with_empty_ids),
    ),
)
