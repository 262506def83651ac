"""The events of output items that are known as a whole, for a stream that is read again from its end."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.responses.events import ResponseEvents

#: The field with the text of a part of a message, by the type of the part, which is the name of its events, too.
_TEXTS: Final[Mapping[str, str]] = {"output_text": "text", "refusal": "refusal"}
#: The field with the parts of an item, by its type.
_PARTS: Final[Mapping[str, str]] = {"message": "content", "reasoning": "summary"}
#: Of calls by type: the field with what the model wrote, and the name of its events.
_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "function_call": ("arguments", "function_call_arguments"),
    "mcp_call": ("arguments", "mcp_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
#: The events of an item, by type, that have nothing but its place and stand before the others.
_FIRST: Final[Mapping[str, Sequence[str]]] = {
    "mcp_call": ("in_progress",),
    "mcp_list_tools": ("in_progress",),
    "image_generation_call": ("completed",),
}
#: The fields of items, by type, that are empty at first.
_EMPTY: Final[Mapping[str, Json]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "mcp_call": {"output": None, "error": None},
    "mcp_list_tools": {"tools": []},
    "image_generation_call": {"result": None},
}


def retell(output: Sequence[Json], events: ResponseEvents, *, failed: bool = False) -> None:
    """Add the events of these items, each with its text or its arguments in one piece.

    Items that a failure has left incomplete have no end.
    """
    for index, item in enumerate(output):
        is_open = failed and item.get("status") == "incomplete"
        place = {"item_id": item["id"], "output_index": index}
        events.add("response.output_item.added", {"output_index": index, "item": _remove_content(item)})
        parts = item.get(_PARTS.get(item["type"], "")) or ()
        for number, part in enumerate(parts):
            _retell_part(part, place, number, events, is_open=is_open and number == len(parts) - 1)
        for name in _FIRST.get(item["type"], ()):
            events.add(f"response.{item['type']}.{name}", place)
        if item["type"] in _CALLS:
            field, name = _CALLS[item["type"]]
            events.add(f"response.{name}.delta", {**place, "delta": item[field]})
            if not is_open or item["type"] == "mcp_call":
                events.add(f"response.{name}.done", {**place, field: item[field]})
        if is_open:
            continue
        if item["type"] == "mcp_list_tools":
            events.add(f"response.mcp_list_tools.{'failed' if item.get('error') else 'completed'}", place)
        if item["type"] == "mcp_call":
            events.add(f"response.mcp_call.{item['status']}", place)
        events.add("response.output_item.done", {"output_index": index, "item": item})


def _retell_part(part: Json, place: Json, number: int, events: ResponseEvents, *, is_open: bool) -> None:
    """Add the events of one content part, with its text in one piece."""
    if part["type"] == "summary_text":
        at = {**place, "summary_index": number}
        events.add("response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}})
        events.add("response.reasoning_summary_text.delta", {**at, "delta": part["text"]})
        if not is_open:
            events.add("response.reasoning_summary_text.done", {**at, "text": part["text"]})
            events.add("response.reasoning_summary_part.done", {**at, "part": part})
        return
    at = {**place, "content_index": number}
    name, field = part["type"], _TEXTS[part["type"]]
    further: Json = {"logprobs": []} if name == "output_text" else {}
    bare = {key: [] if key == "annotations" else value for key, value in part.items()}
    events.add("response.content_part.added", {**at, "part": {**bare, field: ""}})
    if part[field]:
        events.add(f"response.{name}.delta", {**at, **further, "delta": part[field]})
    if not is_open:
        events.add(f"response.{name}.done", {**at, **further, field: part[field]})
        events.add("response.content_part.done", {**at, "part": part})


def _remove_content(item: Json) -> Json:
    """Return an item as it was before any of its content."""
    begun = {**item, **_EMPTY.get(item["type"], {})}
    if "status" in item:
        begun["status"] = "in_progress"
    if item["type"] == "mcp_list_tools":
        begun.pop("error", None)
    if item["type"] in _CALLS:
        begun[_CALLS[item["type"]][0]] = ""
    return begun
