"""Programs for a desktop: llama.cpp's server, Ollama, LM Studio."""

from typing import Final

from tests.model_servers.answers import Style
from tests.model_servers.calls import whole_at_index_zero, whole_without_index
from tests.model_servers.refusals import alternates, any_of, has_images, where
from tests.model_servers.room import Room

_JINJA: Final = (
    "\n------------\nWhile executing CallExpression at line 189, column 32 in source:\n"
    "...== 0) %}↵            {{- raise_exception('After the optional system message, con...\n"
    "                                           ^\nError: Jinja Exception: After the optional system message,"
    " conversation roles must alternate user and assistant roles except for tool calls and results."
)
_NO_IMAGES: Final = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"

DESKTOPS: Final = (
    Room(
        "llama.cpp",
        "llama.cpp's server",
        "builds 7950 and 11434, Devstral Small 2",
        (
            "https://github.com/ggml-org/llama.cpp/issues/19851",
            "https://github.com/sipeed/picoclaw/issues/207",
            "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-task.cpp",
            "a run of build 11434",
        ),
        refuses=("roles that do not take turns (500, from the template)",),
        refusal=any_of(
            where(has_images, 500, {"error": {"code": 500, "message": _NO_IMAGES, "type": "server_error"}}),
            where(
                lambda body: not alternates(body),
                500,
                {"error": {"code": 500, "message": _JINJA, "type": "server_error"}},
            ),
        ),
        learns=frozenset(("alternating_roles",)),
        style=Style(
            opening={"role": "assistant", "content": None},
            chunk={"system_fingerprint": "b7950-449ec2ab0"},
            thought="reasoning_content",
        ),
        too_long=(
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 5000,
                    "n_ctx": 4096,
                }
            },
        ),
        lost={"image": _NO_IMAGES},
    ),
    Room(
        "ollama-0.4",
        "Ollama, old",
        "0.4.6; finish reasons as in 0.1.37",
        (
            "https://github.com/ollama/ollama/issues/7881",
            "https://github.com/ollama/ollama/issues/4357",
        ),
        style=Style(
            opening=None,
            delta={"role": "assistant", "content": ""},
            unfinished={"finish_reason": ""},
            chunk={"system_fingerprint": "fp_ollama"},
            calls=whole_without_index,
        ),
        habits=("the finish reason of an answer that goes on is an empty text",),
    ),
    Room(
        "ollama",
        "Ollama",
        "0.12 to 0.20",
        (
            "https://github.com/ollama/ollama/issues/15457",
            "https://github.com/ollama/ollama/issues/15497",
            "https://github.com/ollama/ollama/blob/main/openai/openai.go",
        ),
        style=Style(
            opening=None,
            delta={"role": "assistant", "content": ""},
            chunk={"system_fingerprint": "fp_ollama"},
            calls=whole_at_index_zero,
            thought="reasoning",
        ),
    ),
    Room(
        "lm-studio",
        "LM Studio",
        "0.3.15 to 0.3.21",
        (
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670",
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/830",
            "https://github.com/badlogic/pi-mono/blob/main/packages/ai/src/utils/overflow.ts",
        ),
        refuses=("a `tool_choice` that names a function",),
        refusal=where(
            lambda body: isinstance(body.get("tool_choice"), dict),
            400,
            {"error": "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"},
        ),
        learns=frozenset(("no_named_tool_choice",)),
        style=Style(chunk={"system_fingerprint": "qwen/qwen3-coder-30b"}, choice={"logprobs": None}),
        too_long=(
            400,
            {"error": "The number of tokens to keep from the initial prompt is greater than the context length."},
        ),
    ),
)
