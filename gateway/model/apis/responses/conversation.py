"""The messages of a chat as items of Responses: reasoning in its places, and each call with its output.

The API refuses a call without an output, an output without its call, and reasoning that nothing follows. Clients
shorten and edit conversations. So a call whose result is missing gets one that says so, and a result without a call
becomes text.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import SYSTEM_ROLES
from gateway.dialects.message_identity import get_content_text
from gateway.model.adaptation.tool_names import build_plain_name
from gateway.model.apis.placed_blocks import list_claimed_thoughts, order_blocks
from gateway.model.apis.responses.parts import build_parts, build_text_part, build_texts
from gateway.model.apis.responses.thoughts import MESSAGE, extract_items

_ID_CHARS: Final = 64
_GAP: Final = "\n\n"
_MISSING: Final = "The result of this call is not in the conversation."
_FAILED: Final = "Error: "


def build_conversation(messages: Sequence[Json]) -> tuple[str, list[Json]]:
    """Return the instructions, and the items of the input."""
    end = 0
    while end < len(messages) and messages[end].get("role") in SYSTEM_ROLES:
        end += 1
    if end == len(messages):  # a chat may consist of instructions alone, and the API wants an input
        end = 0
    texts = (get_content_text(message.get("content")) for message in messages[:end])
    writer = _ItemWriter(list_claimed_thoughts(messages))
    for message in messages[end:]:
        writer.add(message)
    return _GAP.join(filter(None, texts)), writer.finish()


class _ItemWriter:
    """The items of a conversation, as its messages come. `_open` maps the ids of calls without a result to theirs."""

    def __init__(self, claimed: frozenset[str]) -> None:
        self._claimed = claimed
        self._items: list[Json] = []
        self._open: dict[str, str] = {}
        self._ids: set[str] = set()
        self._thoughts: set[str] = set()

    def add(self, message: Json) -> None:
        """Add the items of a message."""
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            self._close_calls()
            self._items += self._build_answer(message)
        elif role in ("tool", "function"):
            self._add_result(message)
        else:
            self._add_message(role if role in SYSTEM_ROLES else "user", content)

    def finish(self) -> list[Json]:
        """Return the items."""
        self._close_calls()
        return self._items

    def _add_message(self, role: object, content: object) -> None:
        shown = content if isinstance(content, str) else build_parts(content)
        if shown:
            self._items.append({"type": "message", "role": role, "content": shown})

    def _add_result(self, message: Json) -> None:
        """Add the output of a call."""
        name = message.get("tool_call_id")
        if name is None:  # of the API before `tools`, which has one call at a time
            name = next(iter(self._open), None)
        content = message.get("content")
        if not isinstance(name, str) or name not in self._open:
            parts = [build_text_part(f"Result of the tool call {name!r}:"), *build_parts(content)]
            self._add_message("user", parts)
            return
        output = content if isinstance(content, str) else build_parts(content) or ""
        if message.get("is_error") is True:
            output = _mark_failed(output)
        self._items.append({"type": "function_call_output", "call_id": self._open.pop(name), "output": output})

    def _close_calls(self) -> None:
        """Give each call an output that has none, before the next answer or the end."""
        self._items += [
            {"type": "function_call_output", "call_id": own, "output": _MISSING} for own in self._open.values()
        ]
        self._open.clear()

    def _build_answer(self, message: Json) -> list[Json]:
        """Return the items of an answer: reasoning, texts and calls in the order in which the model wrote them."""
        texts, calls = build_texts(message.get("content")), self._build_calls(message)
        claimed = frozenset[str]() if calls else self._claimed
        placed = extract_items(message.get("reasoning_details"), self._thoughts, claimed)
        items = list(_join_texts(order_blocks(texts, calls, placed)))
        while items and items[-1]["type"] == "reasoning":  # of an answer that was cut
            items.pop()
        return items

    def _build_calls(self, message: Json) -> list[Json]:
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            function = message.get("function_call")
            calls = [{"function": function}] if isinstance(function, dict) else []
        return [self._build_call(call) for call in calls if isinstance(call, dict)]

    def _build_call(self, call: Json) -> Json:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name = str(call.get("id") or f"call_{len(self._ids)}")
        own, number = _shorten_id(name), 1
        while own in self._ids:  # some servers begin to count with each answer
            number += 1
            own = _shorten_id(f"{name}_{number}")
        self._ids.add(own)
        self._open[name] = own
        arguments = function.get("arguments")
        return {
            "type": "function_call",
            "call_id": own,
            "name": build_plain_name(str(function.get("name") or "unknown")),
            "arguments": arguments if isinstance(arguments, str) and arguments.strip() else "{}",
        }


def _shorten_id(call_id: str) -> str:
    """Return the id of a call as it is, or its hash where the API refuses its length."""
    if len(call_id) <= _ID_CHARS:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()[:32]}"


def _mark_failed(output: str | list[Json]) -> str | list[Json]:
    """Return an output that begins with the word for what failed: the API has no field for it."""
    if isinstance(output, str):
        return output if output.lower().startswith("error") else _FAILED + output
    return [build_text_part(_FAILED.strip()), *output]


def _join_texts(blocks: list[Json]) -> Iterator[Json]:
    """Yield items of blocks: texts side by side are one message, unless a phase begins between them."""
    texts: list[str] = []
    phase: Json = {}
    for block in blocks:
        if block["type"] == "text":
            texts.append(block["text"])
            continue
        if texts:
            yield _build_message(texts, phase)
            texts = []
        if block["type"] == MESSAGE:
            phase = {"phase": block["phase"]} if isinstance(block["phase"], str) else {}
        else:
            phase = {}
            yield block
    if texts:
        yield _build_message(texts, phase)


def _build_message(texts: list[str], phase: Json) -> Json:
    return {"type": "message", "role": "assistant", "content": "".join(texts), **phase}
