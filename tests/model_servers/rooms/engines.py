"""Engines that serve open models: vLLM, SGLang, Text Generation Inference, transformers, LitServe."""

from typing import Final

from tests.model_servers.answers import DONE, Style, event
from tests.model_servers.calls import Json, as_object, at_index_zero_in_pieces, named_first, with_objects
from tests.model_servers.refusals import alternates, any_of, has_later_system, where
from tests.model_servers.room import Refusal, Room


def _old_vllm(message: str) -> Json:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


def _extra_in_old_vllm(body: Json) -> Refusal | None:
    if "max_completion_tokens" not in body:
        return None
    limit = body["max_completion_tokens"]
    place = "'loc': ('body', 'max_completion_tokens')"
    return 400, _old_vllm(
        f"[{{'type': 'extra_forbidden', {place}, 'msg': 'Extra inputs are not permitted', 'input': {limit}}}]"
    )


def _vllm(message: str, kind: str = "BadRequestError", code: int = 400) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


ENGINES: Final = (
    Room(
        "vllm-0.5",
        "vLLM, old",
        "0.5.3.post1, Mistral-7B-Instruct-v0.3",
        (
            "https://github.com/vllm-project/vllm/issues/6862",
            "https://github.com/vllm-project/vllm/issues/10078",
            "https://github.com/vllm-project/vllm/issues/4667",
        ),
        refuses=("roles that do not take turns", "`max_completion_tokens`"),
        refusal=any_of(
            _extra_in_old_vllm,
            where(
                lambda body: not alternates(body),
                400,
                _old_vllm(
                    "After the optional system message, conversation roles must alternate"
                    " user/assistant/user/assistant/..."
                ),
            ),
        ),
        learns=frozenset(("alternating_roles", "max_tokens")),
        broken=lambda words: event(_old_vllm(words)) + DONE,
        too_long=(
            400,
            _old_vllm(
                "This model's maximum context length is 4096 tokens. However, you requested 5012 tokens (5000 in the"
                " messages, 12 in the completion). Please reduce the length of the messages or completion."
            ),
        ),
    ),
    Room(
        "vllm",
        "vLLM",
        "0.17 to 0.19, Qwen3.5",
        (
            "https://github.com/vllm-project/vllm/issues/41114",
            "https://github.com/nashsu/llm_wiki/issues/45",
            "https://github.com/vllm-project/vllm/pull/50624",
            "https://github.com/vllm-project/vllm/pull/19662",
            "https://github.com/huggingface/transformers/issues/40957",
        ),
        refuses=("a system message behind the first message",),
        refusal=where(has_later_system, 400, _vllm("System message must be at the beginning.")),
        learns=frozenset(("one_system_message",)),
        style=Style(calls=named_first, thought="reasoning", closing={"content": ""}, choice={"logprobs": None}),
        broken=lambda words: event(_vllm(words, "InternalServerError", 500)) + DONE,
    ),
    Room(
        "sglang",
        "SGLang",
        "0.4.6 to 0.5.10",
        (
            "https://github.com/sgl-project/sglang/issues/6310",
            "https://github.com/InternLM/lmdeploy/issues/3412",
            "https://github.com/sgl-project/sglang/pull/9657",
        ),
        style=Style(
            opening={"role": "assistant", "content": ""},
            delta={"role": None, "content": None, "reasoning_content": None, "tool_calls": None},
            choice={"logprobs": None, "matched_stop": None},
            chunk={"usage": None},
            calls=at_index_zero_in_pieces,
            thought="reasoning_content",
        ),
        habits=("each delta has `role`, `content`, `reasoning_content` and `tool_calls`, most of them null",),
    ),
    Room(
        "tgi",
        "Text Generation Inference",
        "2.4.1",
        (
            "https://github.com/huggingface/text-generation-inference/issues/2794",
            "https://github.com/huggingface/text-generation-inference/issues/2136",
            "https://github.com/huggingface/text-generation-inference/pull/2954",
        ),
        style=Style(
            opening=None,
            delta={"role": "assistant"},
            closing={"content": ""},
            chunk={"id": "", "usage": None, "system_fingerprint": "2.4.1-sha-d2ed52f"},
            choice={"logprobs": None},
            calls=as_object,
            most_calls=1,
        ),
        habits=("the `id` of each event is empty",),
        whole_calls=with_objects,
        broken=lambda words: event({"error": words, "error_type": "generation"}),
    ),
    Room(
        "transformers-serve",
        "transformers serve",
        "5.24.0",
        ("a run of this version; on 2026-11-30 behind a gateway, with a random model: both APIs, whole and streamed",),
        style=Style(done=False),
    ),
    Room(
        "litserve",
        "LitServe",
        "0.2.19",
        ("a run of this version",),
        style=Style(
            opening=None,
            delta={"role": "assistant", "name": None, "tool_calls": None, "tool_call_id": None},
            chunk={"usage": None, "system_fingerprint": None},
            fresh_ids=True,
            usage="finish",
            tokens=(0, 0),
        ),
        habits=("no empty line follows an error at its end",),
        broken=lambda words: event(
            {"error": {"message": words, "type": "internal", "param": None, "code": "internal_error"}}
        ).rstrip("\n"),
    ),
)
