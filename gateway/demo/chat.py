"""POST /v1/chat/completions: OpenAI's chat completions."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gateway.demo.conversation import (
    Conversation,
    ConversationEntry,
    Json,
    Kind,
    RefusalError,
    classify_text,
    is_json,
    read_conversation,
    read_list,
    read_texts,
)
from gateway.demo.dialect import DemoDialect, call_id, format_event
from gateway.demo.functions import read_functions
from gateway.demo.script import CREATED, DemoAnswer, split_pieces

DONE: Final = b"data: [DONE]\n\n"

_KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {"system": "system", "developer": "system", "user": "user", "tool": "result", "function": "result"}
)


def read(body: Json) -> Conversation:
    return read_conversation(
        body,
        entries=[_read_message(message) for message in read_list(body, "messages")],
        max_tokens=("max_completion_tokens", "max_tokens"),
        include_usage=wants_usage(body),
        functions=read_functions(body.get("tools"), choice=body.get("tool_choice")),
    )


def wants_usage(body: Json) -> bool:
    """Return whether the stream ends with a frame of usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def render(answer: DemoAnswer) -> Json:
    message: Json = {"role": "assistant", "content": "".join(answer.text), "refusal": None}
    if answer.thoughts:
        message["reasoning_content"] = "".join(answer.thoughts)
    if answer.calls:
        message["content"] = None
        message["tool_calls"] = [
            {**_call_head(answer, index=index), "function": {"name": call.name, "arguments": call.arguments}}
            for index, call in enumerate(answer.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return {**_build_head(answer, kind="chat.completion"), "choices": [choice], "usage": build_usage(answer)}


def iterate_frames(answer: DemoAnswer, conversation: Conversation) -> Iterator[bytes]:
    head = _build_head(answer, kind="chat.completion.chunk")
    if conversation.include_usage:
        head["usage"] = None

    def format_frame(delta: Json, finish: str | None = None) -> bytes:
        return format_event(
            {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        )

    yield format_frame({"role": "assistant", "content": None if answer.calls else "", "refusal": None})
    for piece in answer.thoughts:
        yield format_frame({"reasoning_content": piece})
    for piece in answer.text:
        yield format_frame({"content": piece})
    for index, call in enumerate(answer.calls):
        opening = {**_call_head(answer, index=index), "function": {"name": call.name, "arguments": ""}}
        yield format_frame({"tool_calls": [{"index": index, **opening}]})
        for piece in split_pieces(call.arguments):
            yield format_frame({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield format_frame({}, answer.finish)
    if conversation.include_usage:
        yield format_event({**head, "choices": [], "usage": build_usage(answer)})
    yield DONE


def build_usage(answer: DemoAnswer) -> Json:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _read_message(message: Json) -> ConversationEntry:
    role = message.get("role")
    texts = read_texts(message.get("content"), param="messages")
    if role == "assistant":
        calls = message.get("tool_calls")
        return _read_calls(calls) if calls else classify_text(texts)
    kind = _KINDS.get(role) if isinstance(role, str) else None
    if kind is None:
        raise RefusalError(
            f"A message has the role {role!r}. Use system, developer, user, assistant or tool.", param="messages"
        )
    return ConversationEntry(kind, ("\n".join(texts),) if kind == "result" else texts)


def _read_calls(calls: object) -> ConversationEntry:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RefusalError(f"'tool_calls' must be a list of objects, not {calls!r}.", param="messages")
    functions = [call.get("function") for call in calls]
    arguments = [str(function.get("arguments") or "") for function in functions if isinstance(function, dict)]
    return ConversationEntry("call" if all(is_json(text) for text in arguments) else "broken_call", tuple(arguments))


def _build_head(answer: DemoAnswer, *, kind: str) -> Json:
    return {"id": f"chatcmpl-{answer.digest[:24]}", "object": kind, "created": CREATED, "model": answer.model}


def _call_head(answer: DemoAnswer, *, index: int) -> Json:
    return {"id": call_id("call", digest=answer.digest, index=index), "type": "function"}


CHAT: Final = DemoDialect(read=read, render=render, frames=iterate_frames)
