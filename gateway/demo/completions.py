"""POST /v1/completions: OpenAI's completions from before chat."""

from collections.abc import Iterator
from typing import Final

from gateway.demo.chat import DONE, usage, wants_usage
from gateway.demo.conversation import Conversation, ConversationEntry, Json, RefusalError, read_conversation
from gateway.demo.dialect import DemoDialect, sse
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
    return {**_completion(answer, text="".join(answer.text), finish=answer.finish), "usage": usage(answer)}


def frames(answer: DemoAnswer, conversation: Conversation) -> Iterator[bytes]:
    for piece in answer.text:
        yield sse(_completion(answer, text=piece, finish=None))
    yield sse(_completion(answer, text="", finish=answer.finish))
    if conversation.include_usage:
        yield sse({**_completion(answer, text="", finish=None), "choices": [], "usage": usage(answer)})
    yield DONE


def _completion(answer: DemoAnswer, *, text: str, finish: str | None) -> Json:
    return {
        "id": f"cmpl-{answer.digest[:24]}",
        "object": "text_completion",
        "created": CREATED,
        "model": answer.model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
    }


COMPLETIONS: Final = DemoDialect(read=read, render=render, frames=frames)
