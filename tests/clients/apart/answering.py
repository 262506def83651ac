"""Reads one question per line of JSON, answers it with one line of JSON, until its input ends.

The clients beside it run in environments of their own, without this package.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]
#: The pieces of text that a client hands to its caller; a list is the usage: tokens of the prompt, of the completion.
Client = Callable[[Json], Iterator[str | list[int] | None]]


def answer_questions(clients: Mapping[str, Client], **others: Callable[[Json], Json]) -> None:
    """Answer with the pieces of a client; `others` answer the questions that have a field of their name."""
    for line in sys.stdin:
        question = json.loads(line)
        answers = [answer for name, answer in others.items() if name in question]
        if answers:
            print(json.dumps(_whole(answers[0], question)), flush=True)
        else:
            print(json.dumps(_outcome(clients[question["client"]](question["ask"]))), flush=True)


def told(usage: Any) -> Iterator[list[int]]:
    if usage is not None:
        yield [usage.prompt_tokens, usage.completion_tokens]


def _whole(answer: Callable[[Json], Json], question: Json) -> Json:
    try:
        return answer(question)
    except Exception as error:
        return {"failure": _failure(error)}


def _outcome(pieces_of_it: Iterator[str | list[int] | None]) -> Json:
    pieces: list[str] = []
    times_s: list[float] = []
    usage = failure = None
    try:
        for piece in pieces_of_it:
            if isinstance(piece, list):
                usage = piece
            elif piece:
                pieces.append(piece)
                times_s.append(time.monotonic())
    except Exception as error:
        failure = _failure(error)
    return {"pieces": pieces, "times_s": times_s, "usage": usage, "failure": failure}


def _failure(error: Exception) -> Json:
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", {})
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "status": getattr(error, "status_code", None),
        "headers": dict(headers),
    }
