"""Answers as real servers write them: whole ones, and event streams."""

import json
from collections.abc import Mapping

USAGE = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}
CHAT = {
    "id": "chatcmpl-B9MB",
    "object": "chat.completion",
    "created": 1741569952,
    "model": "gpt-4.1-2025-04-14",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}],
    "usage": {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 0},
    },
    "service_tier": "default",
}
AZURE = {
    "choices": [{"content_filter_results": {"hate": {"filtered": False}}, "message": {"content": "Hi"}}],
    "created": 1,
    "id": "x",
    "model": "gpt-4o-2024-11-20",
    "object": "chat.completion",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"jailbreak": {"filtered": False}}}],
    "system_fingerprint": "fp",
    "usage": USAGE,
}
COMPLETION = {"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [{"text": "abc"}], "usage": USAGE}
RESPONSE = {
    "id": "resp_67cc",
    "object": "response",
    "created_at": 1741476542,
    "status": "completed",
    "error": None,
    "instructions": 'You say "usage": {"output_tokens": 999}.',
    "model": "gpt-4.1-2025-04-14",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": 'a "model": "x"'}]}],
    "tools": [
        {
            "type": "function",
            "name": "usage",
            "parameters": {"properties": {"usage": {"input_tokens": 1, "output_tokens": 1}, "model": "no"}},
        }
    ],
    "usage": {
        "input_tokens": 36,
        "input_tokens_details": {"cached_tokens": 6},
        "output_tokens": 87,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 123,
    },
    "user": None,
    "metadata": {"usage": "mine"},
}
MESSAGE = {
    "id": "msg_013Z",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-20250514",
    "content": [{"type": "text", "text": "Hi!"}, {"type": "tool_use", "input": {"usage": {"output_tokens": 5}}}],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 95,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 20,
        "output_tokens": 12,
    },
}
EMBEDDINGS = {
    "object": "list",
    "data": [{"object": "embedding", "embedding": [0.0023, -0.0093], "index": 0}],
    "model": "text-embedding-3-small",
    "usage": {"prompt_tokens": 8, "total_tokens": 8},
}
RERANK = {
    "model": "jina-reranker-v2",
    "usage": {"total_tokens": 15},
    "results": [{"index": 0, "relevance_score": 0.8, "document": {"text": '"usage": {"total_tokens": 1}'}}],
}


def text(value: object, *, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent).encode()


def events(*values: Mapping[str, object], named: bool = False, done: bool = False) -> bytes:
    lines = [(f"event: {v['type']}\n" if named else "") + f"data: {json.dumps(v)}\n\n" for v in values]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def chat_stream(*texts: str, usage: object = None, always: bool = False, model: str = "gpt-4.1") -> bytes:
    """A stream as OpenAI writes it; `always`: vLLM's, which tells the tokens so far with each chunk."""
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model}
    told = {} if usage is None else {"usage": None}
    chunks: list[dict[str, object]] = []
    for number, piece in enumerate(texts):
        so_far = {"usage": {"prompt_tokens": 19, "completion_tokens": number + 1}} if always else told
        chunks.append({**about, "choices": [{"index": 0, "delta": {"content": piece}}], **so_far})
    if usage is not None:
        chunks.append({**about, "choices": [], "usage": usage})
    return events(*chunks, done=True)


def response_stream(*texts: str, response: Mapping[str, object] = RESPONSE) -> bytes:
    open_one = {**response, "status": "in_progress", "output": [], "usage": None}
    return events(
        {"type": "response.created", "sequence_number": 0, "response": open_one},
        *({"type": "response.output_text.delta", "sequence_number": 1, "delta": piece} for piece in texts),
        {"type": "response.completed", "sequence_number": 9, "response": response},
        named=True,
    )


def message_stream(*texts: str, told: Mapping[str, object] | None = None, ends: bool = True) -> bytes:
    start = {**MESSAGE, "content": [], "usage": {**MESSAGE["usage"], "output_tokens": 1}}  # type: ignore[dict-item]
    return events(
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts),
        *(
            (
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": told or {"output_tokens": 12}},
                {"type": "message_stop"},
            )
            if ends
            else ()
        ),
        named=True,
    )
