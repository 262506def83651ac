"""What a conversation holds before the user asks: each history is one more reason for a server to refuse."""

import base64
from collections.abc import Iterator
from typing import Final

from .calls import Json

ARGUMENTS: Final = '{"word": "key"}'
#: One dot.
_PNG: Final = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
    )
).decode()
IMAGE: Final = f"data:image/png;base64,{_PNG}"


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _answer(text: str) -> Json:
    return {"role": "assistant", "content": text}


def _call(number: int) -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": "look_up", "arguments": ARGUMENTS}}


def _round(*numbers: int) -> Iterator[Json]:
    yield {"role": "assistant", "content": None, "tool_calls": [_call(number) for number in numbers]}
    for number in numbers:
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": "It is here."}
    yield _answer("It is here.")


#: By name; the messages of the Chat Completions API.
HISTORIES: Final[dict[str, list[Json]]] = {
    "none": [],
    "system": [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        _user("Hi."),
        _answer("Hello."),
        {"role": "system", "content": "It is late."},
    ],
    "developer": [{"role": "developer", "content": "Be brief."}, _user("Hi."), _answer("Hello.")],
    "cut turn": [_user("Tell me.")],
    "tool rounds": [_user("Find the key."), *_round(0), _user("And both?"), *_round(1, 2)],
    "reasoning": [_user("Hi."), {**_answer("Hello."), "reasoning_content": "A greeting."}],
    "long": [one for number in range(20) for one in (_user(f"Number {number}?"), _answer(f"It is {number}."))],
    "image": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "See."}, {"type": "image_url", "image_url": {"url": IMAGE}}],
        },
        _answer("A dot."),
    ],
}


def items_of(history: list[Json]) -> Iterator[Json]:
    """Yield a history as items of the Responses API; they have no reasoning in clear."""
    for message in history:
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            yield {"type": "function_call_output", "call_id": call_id, "output": message["content"]}
        elif message.get("tool_calls"):
            for call in message["tool_calls"]:
                yield {"type": "function_call", "call_id": call["id"], **call["function"]}
        else:
            yield {"role": message["role"], "content": _parts(message["content"])}


def _parts(content: object) -> object:
    if not isinstance(content, list):
        return content
    text, image = content
    return [
        {"type": "input_text", "text": text["text"]},
        {"type": "input_image", "image_url": image["image_url"]["url"], "detail": "auto"},
    ]
