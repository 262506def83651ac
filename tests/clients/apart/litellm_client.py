"""The LiteLLM SDK (requirements/clients-all.txt)."""

import json
from collections.abc import Iterator
from typing import Any

import litellm
from answering import Json, answer_questions, told
from pydantic import BaseModel, ConfigDict


class Found(BaseModel):
    """An object of a shape."""

    model_config = ConfigDict(extra="forbid")
    id: int


def completion(ask: Json) -> Iterator[str | list[int] | None]:
    answer = _asked(ask, ask["messages"])
    if not ask["stream"]:
        yield answer.choices[0].message.content
        yield from told(answer.usage)
        return
    for chunk in answer:
        yield chunk.choices[0].delta.content
        yield from told(getattr(chunk, "usage", None))


def talk(question: Json) -> Json:
    """One turn with a tool of its own: the answer, and the messages to go on with. `talk` is its provider there."""
    ask, messages, provider = question["ask"], [*question["messages"]], question["talk"] or "openai"
    while True:
        answer = _asked(ask, messages, provider=provider, tools=[question["tool"]])
        if ask["stream"]:
            answer = litellm.stream_chunk_builder([*answer], messages=messages)
        message = answer.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            return {"text": message.content, "messages": messages}
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "Sunny"} for call in message.tool_calls]


def shape(question: Json) -> Json:
    """The object in an answer of a given format."""
    answer = _asked(question["ask"], question["ask"]["messages"], response_format=Found)
    found: Json = json.loads(answer.choices[0].message.content)
    return found


def _asked(ask: Json, messages: list[Json], *, provider: str = "openai", **more: Any) -> Any:
    return litellm.completion(
        f"{provider}/demo",
        messages,
        api_base=f"{ask['root']}/v1" if provider == "openai" else ask["root"],
        api_key=ask["api_key"],
        extra_headers=ask["headers"],
        max_retries=ask["retries"],
        stream=ask["stream"],
        stream_options={"include_usage": True} if ask["stream"] and ask["usage"] else None,
        **more,
    )


if __name__ == "__main__":
    litellm.suppress_debug_info = True  # it would go to standard output
    answer_questions({"": completion}, talk=talk, object=shape)
