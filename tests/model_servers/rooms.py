"""The habits of model servers as they were seen, a room each, with the version and the source."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

Json = dict[str, Any]
#: The status and the body of a refusal.
Refusal = tuple[int, Json]


def _accept(body: Json) -> Refusal | None:
    """Refuse nothing."""


@dataclass(frozen=True, slots=True)
class Room:
    """One server: what it refuses, and how its streams look."""

    name: str
    version: str
    source: str
    refusal: Callable[[Json], Refusal | None] = _accept
    #: Lines of the stream before the first chunk of text, and behind the last.
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    done: bool = True
    #: Each chunk has an id of its own.
    fresh_ids: bool = False
    usage: tuple[int, int] = (11, 7)

    @property
    def refuses(self) -> bool:
        """Return whether the room refuses anything."""
        return self.refusal is not _accept


def event(data: Json) -> str:
    """Return an event of a stream."""
    return f"data: {json.dumps(data)}\n\n"


def _alternating(body: Json) -> Refusal | None:
    """Refuse as Mistral's template does: system first, then user and assistant in turn; tool rounds do not count."""
    turns = [one["role"] for one in body["messages"] if one["role"] != "tool" and not one.get("tool_calls")]
    turns = turns[1:] if turns[:1] == ["system"] else turns
    if set(turns) <= {"user", "assistant"} and turns[:1] == ["user"] and all(a != b for a, b in pairwise(turns)):
        return None
    words = "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    return 400, {"object": "error", "message": words, "type": "BadRequestError", "param": None, "code": 400}


def _extra(body: Json) -> Refusal | None:
    """Refuse as Mistral's API does: fields that it does not know."""
    places: list[Sequence[object]] = [["body", name] for name in ("max_completion_tokens",) if name in body]
    if "stream_options" in body:
        places.append(["body", "stream_options", "include_usage"])
    for at, message in enumerate(body["messages"]):
        if "reasoning_content" in message:
            places.append(["body", "messages", at, message["role"], "reasoning_content"])
    faults = [{"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted"} for place in places]
    error = {"object": "error", "message": {"detail": faults}, "type": "invalid_request_error", "code": None}
    return (422, error) if faults else None


_FILTERED: Final = {"hate": {"filtered": False, "severity": "safe"}}
_AZURE_FIRST: Final = {"id": "", "choices": [], "created": 0, "model": "", "object": ""}
_AZURE_LAST: Final = {"finish_reason": None, "index": 0, "content_filter_results": _FILTERED}

ROOMS: Final = (
    Room(
        "vllm-mistral",
        "0.5.3.post1, Mistral-7B-Instruct-v0.3",
        "https://github.com/vllm-project/vllm/issues/6862",
        refusal=_alternating,
    ),
    Room(
        "mistral",
        "API of 2025-03 to 2025-12",
        "https://github.com/dnakov/anon-kode/issues/53 https://github.com/charmbracelet/crush/issues/1590"
        " https://github.com/editor-code-assistant/eca/issues/231",
        refusal=_extra,
    ),
    Room(
        "azure-openai",
        "API from 2023-06-01-preview on",
        "https://github.com/AbanteAI/archive-old-cli-mentat/issues/429"
        " https://github.com/microsoft/autogen/issues/6465",
        before=(event({**_AZURE_FIRST, "prompt_filter_results": [{"content_filter_results": _FILTERED}]}),),
        behind=(event({**_AZURE_FIRST, "choices": [_AZURE_LAST]}),),
    ),
    Room(
        "openrouter",
        "documentation of 2026",
        "https://openrouter.ai/docs/api_reference/streaming",
        before=(": OPENROUTER PROCESSING\n\n",) * 2,
    ),
    Room("transformers-serve", "5.24.0", "seen in a run of this version", done=False),
    Room("litserve", "0.2.19", "seen in a run of this version", fresh_ids=True, usage=(0, 0)),
)
