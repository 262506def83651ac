"""The input items of a request as they are kept and listed: each with an id, in the form that responses have."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.contracts.store import Json
from gateway.dialects.responses.ids import input_id

_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_response": "mcpr",
    "compaction": "cmp",
}
_PREFIX: Final = "item"
#: Kinds of items that have no status.
_WITHOUT_STATUS: Final = frozenset(
    ("reasoning", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction", "compaction_summary")
)


def listed(items: Sequence[Json], *, response_id: str) -> list[Json]:
    """Return checked items as the input of a response. Those without an id get one that leads to the response."""
    return [_listed(item, input_id(_prefix(item), response_id, index)) for index, item in enumerate(items)]


def _prefix(item: Json) -> str:
    return _PREFIXES.get(item["type"], _PREFIX)


def _listed(item: Json, new_id: str) -> Json:
    """Return an item with the fields that the SDKs expect of items that are listed."""
    whole = {**item, "id": item.get("id") or new_id}
    if item["type"] not in _WITHOUT_STATUS and item.get("status") is None:
        whole["status"] = "completed"
    if item["type"] == "message":
        whole["content"] = _content(item["content"], of_model=item["role"] == "assistant")
    elif item["type"] == "reasoning":
        whole["summary"] = item.get("summary") or []
    return whole


def _content(content: str | Sequence[Json], *, of_model: bool) -> list[Json]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_part(part, of_model=of_model) for part in parts]


def _part(part: Json, *, of_model: bool) -> Json:
    match part["type"]:
        case "refusal":
            return part if of_model else {"type": "input_text", "text": part["refusal"]}
        case "input_image":
            return {**part, "detail": part.get("detail") or "auto"}
        case "input_file" | "input_audio":
            return part
        case _ if of_model:
            return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return {**part, "type": "input_text"}
