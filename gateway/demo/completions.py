"""POST /v1/completions: OpenAI's completions from before chat."""

from collections.abc import Iterator
from typing import Final

from gateway.demo.chat import DONE, build_usage, wants_usage
from gateway.demo.conversation import Conversation, ConversationEntry, Json, RefusalError, read_conversation
from gateway.demo.dialect import DemoDialect, format_event
from gateway.demo.script import CREATED, DemoAnswer


def read(body: Json) -> Conversation:
    prompt = body.get("prompt", "")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if not all(isinstance(text, str) for text in prompts):
        raise RefusalError("'prompt' must be a string or a list of strings.", param="prompt")
    return read_conversation(
        body,
        entries=[ConversationEntry("user", tuple(prompts))],
        max_tokens=("max_tokens",),
        include_usage=wants_usage(body),
        native_calls=False,
    )


def render(answer: DemoAnswer) -> Json:
    return {**_build_completion(answer, text="".join(answer.text), finish=answer.finish), "usage": build_usage(answer)}


def iterate_frames(answer: DemoAnswer, conversation: Conversation) -> Iterator[bytes]:
    for piece in answer.text:
        yield format_event(_build_completion(answer, text=piece, finish=None))
    yield format_event(_build_completion(answer, text="", finish=answer.finish))
    if conversation.include_usage:
        yield format_event(
            {**_build_completion(answer, text="", finish=None), "choices": [], "usage": build_usage(answer)}
        )
    yield DONE


def _build_completion(answer: DemoAnswer, *, text: str, finish: str | None) -> Json:
    return {
        "id": f"cmpl-{answer.digest[:24]}",
        "object": "text_completion",
        "created": CREATED,
        "model": answer.model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
    }


COMPLETIONS: Final = DemoDialect(read=read, render=render, frames=iterate_frames)
