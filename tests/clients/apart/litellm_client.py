"""The LiteLLM SDK (requirements-clients-all.txt)."""

from collections.abc import Iterator
from typing import Any

import litellm
from answering import Json, answer_questions, told


def completion(ask: Json) -> Iterator[str | list[int] | None]:
    answer: Any = litellm.completion(
        "openai/demo",
        ask["messages"],
        api_base=f"{ask['root']}/v1",
        api_key=ask["api_key"],
        extra_headers=ask["headers"],
        max_retries=ask["retries"],
        stream=ask["stream"],
        stream_options={"include_usage": True} if ask["stream"] and ask["usage"] else None,
    )
    if not ask["stream"]:
        yield answer.choices[0].message.content
        yield from told(answer.usage)
        return
    for chunk in answer:
        yield chunk.choices[0].delta.content
        yield from told(getattr(chunk, "usage", None))


if __name__ == "__main__":
    litellm.suppress_debug_info = True  # it would go to standard output
    answer_questions({"": completion})
