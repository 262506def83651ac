"""What OpenAI's Responses refuse with `store: false`, as its public documentation says it: `find_fault` returns words.

Stricter than the real API where that lets an answer lose something: the items of an answer with reasoning must come
back one by one, unchanged and in their order. `Ledger` is what the server has answered and sealed.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

_SECRET: Final = b"the server's own"
_TOP: Final = frozenset(
    (
        *(
            "model",
            "input",
            "instructions",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "stream",
            "store",
            "include",
        ),
        *("max_output_tokens", "temperature", "top_p", "text", "reasoning", "truncation", "metadata", "user"),
        *("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "service_tier"),
    )
)
_ITEMS: Final = {
    "message": {"role", "content", "phase"},
    "reasoning": {"id", "summary", "content", "encrypted_content"},
    "function_call": {"call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "web_search_call": {"id", "status", "action"},
}
_INPUT: Final = {
    "input_text": {"text"},
    "input_image": {"image_url", "file_id", "detail"},
    "input_file": {"file_data", "file_id", "file_url", "filename"},
}
_OF_ANSWER: Final = ("reasoning", "function_call", "web_search_call")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def seal(item_id: str, thought: str) -> str:
    """Return the encrypted content of a reasoning item."""
    return base64.b64encode(hmac.digest(_SECRET, f"{item_id} {thought}".encode(), hashlib.sha256)).decode()


@dataclass
class Ledger:
    """The answers of a server: the items of each as they must come back, by the ids of its calls."""

    answers: dict[str, list[Json]] = field(default_factory=dict)
    sealed: dict[str, Json] = field(default_factory=dict)

    def keep(self, items: list[Json]) -> None:
        """Keep an answer."""
        whole = [outline(item) for item in items if item["type"] in _OF_ANSWER]
        self.sealed |= {item["encrypted_content"]: outline(item) for item in items if item["type"] == "reasoning"}
        self.answers |= {item["call_id"]: whole for item in items if item["type"] == "function_call"}


def outline(item: Json) -> Json:
    """Return what of an item must come back."""
    kind = item["type"]
    kept = {name: item[name] for name in sorted(_ITEMS.get(kind, ())) if item.get(name) is not None}
    if kind == "function_call":  # the gateway takes out its own arguments
        del kept["arguments"]
    return {"type": kind, **kept}


def find_fault(body: Json, ledger: Ledger) -> tuple[str, str | None] | None:
    """Return the words of a refusal, and the parameter; None: the request is taken."""
    return next(_faults(body, ledger), None)


def _faults(body: Json, ledger: Ledger) -> Iterator[tuple[str, str | None]]:
    yield from ((f"Unknown parameter: '{name}'.", name) for name in body if name not in _TOP)
    if not body.get("model") or not body.get("input"):
        yield "Missing required parameter: 'input'.", "input"
    if body.get("store") is not False or body.get("include") not in (None, ["reasoning.encrypted_content"]):
        yield "This server stores nothing.", "store"
    if body.get("max_output_tokens", 16) < 16:
        yield "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.", "max_output_tokens"
    yield from _tools(body)
    yield from _forms(body)
    yield from _items(body, ledger)


def _tools(body: Json) -> Iterator[tuple[str, str | None]]:
    tools = body.get("tools") or []
    for at, tool in enumerate(tools):
        if tool["type"] != "function":
            continue
        if not _NAME.fullmatch(tool["name"]):
            yield f"Invalid 'tools[{at}].name': string does not match pattern.", f"tools[{at}].name"
        if not tool.keys() <= {"type", "name", "description", "parameters", "strict"} or "strict" not in tool:
            yield f"Unknown parameter in tools[{at}], or no 'strict'.", f"tools[{at}]"
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield "Tool choice is only allowed when 'tools' are specified.", "tool_choice"
    if isinstance(choice, dict) and "function" in choice:
        yield "Unknown parameter: 'tool_choice.function'.", "tool_choice.function"


def _forms(body: Json) -> Iterator[tuple[str, str | None]]:
    shape = (body.get("text") or {}).get("format") or {"type": "text"}
    if "json_schema" in shape:
        yield "Unknown parameter: 'text.format.json_schema'.", "text.format.json_schema"
    if shape["type"] == "json_schema" and not {"name", "schema"} <= shape.keys():
        yield "Missing required parameter: 'text.format.name'.", "text.format.name"
    if not (body.get("reasoning") or {}).keys() <= {"effort", "summary", "context", "mode"}:
        yield "Unknown parameter in 'reasoning'.", "reasoning"


def _items(body: Json, ledger: Ledger) -> Iterator[tuple[str, str | None]]:
    items = body["input"]
    open_: set[str] = set()
    for at, item in enumerate(items):
        place, kind = f"input[{at}]", item.get("type", "message")
        if kind not in _ITEMS or not item.keys() <= {"type", *_ITEMS[kind]}:
            yield f"Invalid value in '{place}': {sorted(item)}", place
            continue
        match kind:
            case "message":
                yield from _message(item, place)
            case "reasoning":
                yield from _reasoning(item, items[at + 1 : at + 2], place, ledger)
            case "function_call":
                open_.add(item["call_id"])
                json.loads(item["arguments"])
                yield from _answer(items, at, ledger)
            case "function_call_output":
                if item["call_id"] not in open_:
                    yield f"No tool call found for function call output with call_id {item['call_id']}.", place
                open_.discard(item["call_id"])
                yield from _parts(item["output"], f"{place}.output")
    for call_id in open_:
        yield f"No tool output found for function call {call_id}.", "input"


def _message(item: Json, place: str) -> Iterator[tuple[str, str | None]]:
    role, content = item["role"], item["content"]
    if role not in ("user", "assistant", "system", "developer"):
        yield f"Invalid value: '{place}.role'.", f"{place}.role"
    if role != "assistant":
        yield from _parts(content, f"{place}.content")
    elif not isinstance(content, str) and any(part.keys() != {"type", "text"} for part in content):
        yield f"Invalid value in '{place}.content'.", f"{place}.content"


def _parts(content: Any, place: str) -> Iterator[tuple[str, str | None]]:
    for number, part in enumerate([] if isinstance(content, str) else content):
        if part["type"] not in _INPUT or not part.keys() <= {"type", *_INPUT[part["type"]]}:
            yield f"Invalid value: '{place}[{number}]'.", f"{place}[{number}]"


def _reasoning(item: Json, behind: list[Json], place: str, ledger: Ledger) -> Iterator[tuple[str, str | None]]:
    if not item.get("encrypted_content"):
        yield f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false.", place
    elif ledger.sealed.get(item["encrypted_content"]) != outline(item):
        yield f"The encrypted content {item['encrypted_content'][:8]}... could not be verified.", place
    if not behind or behind[0]["type"] not in ("reasoning", "function_call", "message", "web_search_call"):
        yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.", place


def _answer(items: list[Json], at: int, ledger: Ledger) -> Iterator[tuple[str, str | None]]:
    """Yield what is wrong with the answer that a call is of: its reasoning and calls must be there, in their order."""
    answer = ledger.answers.get(items[at]["call_id"])
    if answer is None:
        return
    first = at
    while first and (items[first - 1]["type"] in _OF_ANSWER or items[first - 1].get("role") == "assistant"):
        first -= 1
    behind = [outline(item) for item in items[first:] if item["type"] in _OF_ANSWER]
    if behind[: len(answer)] != answer:
        words = f"Item of type 'function_call' was provided without its required 'reasoning' item: {answer} {behind}"
        yield words, "input"
