"""The LiteLLM SDK: reads one question per line of JSON, answers it with one line of JSON, until its input ends.

It runs in an environment of its own (requirements-clients-all.txt), without this package.
"""

import json
import sys
import time
from typing import Any

import litellm

Json = dict[str, Any]


def outcome(ask: Json) -> Json:
    pieces: list[str] = []
    times_s: list[float] = []
    failure = None
    try:
        for piece in pieces_of(ask):
            if piece:
                pieces.append(piece)
                times_s.append(time.monotonic())
    except Exception as error:
        headers = getattr(error, "litellm_response_headers", None) or {}
        failure = {
            "kind": type(error).__name__,
            "message": str(error),
            "status": getattr(error, "status_code", None),
            "headers": dict(headers),
        }
    return {"pieces": pieces, "times_s": times_s, "failure": failure}


def pieces_of(ask: Json) -> Any:
    answer: Any = litellm.completion(
        "openai/demo",
        [{"role": "user", "content": ask["prompt"]}],
        api_base=f"{ask['root']}/v1",
        api_key=ask["api_key"],
        extra_headers=ask["headers"],
        max_retries=ask["retries"],
        stream=ask["stream"],
    )
    if not ask["stream"]:
        yield answer.choices[0].message.content
        return
    for chunk in answer:
        yield chunk.choices[0].delta.content


if __name__ == "__main__":
    litellm.suppress_debug_info = True  # it would go to standard output
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line)["ask"])), flush=True)
