"""The kinds of items: the checks of a client's items, and the form in which they are kept and listed.

An item may have fields that are not listed here: clients send back what they got, also from other servers.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import (
    ANYTHING,
    ID,
    LIST,
    NAME,
    OBJECT,
    TEXT,
    TEXTS,
    TRUTH,
    WHOLE,
    Kind,
    build_enum_kind,
    build_unsupported_error,
    check_object,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)
from gateway.dialects.responses.ids import build_input_id
from gateway.dialects.responses.parts import check_content

ROLES: Final = ("user", "assistant", "system", "developer")
#: Calls of the client's own tools, each with the kind of item that its output is.
OUTPUT_OF: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
OUTPUTS: Final = frozenset(OUTPUT_OF.values())
#: A summary of a conversation that the gateway made. Codex sends it back under another name.
COMPACTION: Final = "compaction"
#: The last item of an input that is to be compacted.
TRIGGER: Final = "compaction_trigger"
_RENAMED: Final[Mapping[str, str]] = {"compaction_summary": COMPACTION}
#: Traces of tools that other servers run. A model server gets nothing of them.
HOSTED: Final = frozenset(
    (
        "web_search_call",
        "file_search_call",
        "computer_call",
        "computer_call_output",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_call",
        "tool_search_output",
        "program",
        "program_output",
    )
)
#: What a response consists of. All else comes from the client.
OF_RESPONSES: Final = frozenset(
    (*OUTPUT_OF, COMPACTION, "reasoning", "mcp_list_tools", "mcp_call", "mcp_approval_request")
) | (HOSTED - {"computer_call_output", "tool_search_output", "program_output"})

_ID_TEXT: Final = Kind(lambda value: value == "" or ID.accepts(value), ID.described)
_EACH: Final = {"id": _ID_TEXT, "status": TEXT}
_MESSAGE: Final = {**_EACH, "phase": build_enum_kind("commentary", "final_answer")}
_CALLED: Final = {**_EACH, "call_id": mark_required(ID)}
_OF_SERVICE: Final = {**_EACH, "server_label": mark_required(ID)}
_FIELDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "function_call": {**_CALLED, "name": mark_required(NAME), "arguments": mark_required(TEXT), "namespace": ID},
    "function_call_output": {**_EACH, "call_id": ID, "name": NAME},
    "custom_tool_call": {**_CALLED, "name": mark_required(NAME), "input": mark_required(TEXT), "namespace": ID},
    "custom_tool_call_output": _CALLED,
    "local_shell_call": {**_CALLED, "action": mark_required(OBJECT)},
    "local_shell_call_output": {**_EACH, "call_id": ID, "output": mark_required(TEXT)},
    "shell_call": {**_CALLED, "action": mark_required(OBJECT)},
    "shell_call_output": {**_CALLED, "output": mark_required(LIST)},
    "apply_patch_call": {**_CALLED, "operation": mark_required(OBJECT)},
    "apply_patch_call_output": {
        **_CALLED,
        "output": TEXT,
        "status": mark_required(build_enum_kind("completed", "failed")),
    },
    "reasoning": {**_EACH, "summary": LIST, "content": LIST, "encrypted_content": TEXT},
    "mcp_list_tools": {**_OF_SERVICE, "tools": mark_required(LIST)},
    "mcp_call": {
        **_OF_SERVICE,
        "name": mark_required(ID),
        "arguments": mark_required(TEXT),
        "output": TEXT,
        "error": Kind(lambda value: type(value) in (str, dict), "text or an object"),
        "approval_request_id": ID,
    },
    "mcp_approval_request": {
        **_OF_SERVICE,
        "id": mark_required(ID),
        "name": mark_required(ID),
        "arguments": mark_required(TEXT),
    },
    "mcp_approval_response": {
        **_EACH,
        "approval_request_id": mark_required(ID),
        "approve": mark_required(TRUTH),
        "reason": TEXT,
    },
    "item_reference": {"id": mark_required(ID)},
    COMPACTION: {**_EACH, "encrypted_content": mark_required(TEXT)},
    **dict.fromkeys(HOSTED, _EACH),
}
#: Fields of the actions of shells and patches.
SHELL: Final = {"commands": mark_required(TEXTS), "timeout_ms": WHOLE, "max_output_length": WHOLE}
_LOCAL_SHELL: Final = {
    "command": mark_required(TEXTS),
    "env": OBJECT,
    "timeout_ms": WHOLE,
    "user": TEXT,
    "working_directory": TEXT,
}
OPERATION: Final = {
    "type": mark_required(build_enum_kind("create_file", "update_file", "delete_file")),
    "path": mark_required(TEXT),
    "diff": TEXT,
}
_SHELL_OUTPUT: Final = {"stdout": mark_required(TEXT), "stderr": mark_required(TEXT), "outcome": mark_required(OBJECT)}
_OUTCOME: Final = {"type": mark_required(build_enum_kind("exit", "timeout")), "exit_code": WHOLE}
_LISTED_TOOL: Final = {"name": mark_required(TEXT), "description": TEXT, "input_schema": ANYTHING}
_UNSUPPORTED: Final[Mapping[str, str]] = {
    TRIGGER: "send it once, as the last item of the 'input' of POST /responses",
    "additional_tools": "name the tools in 'tools'",
    "configuration_update": "set 'reasoning' and 'text' of the request",
}
#: Prefixes of the ids that items get.
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
    COMPACTION: "cmp",
}
_PREFIX: Final = "item"
#: Kinds of items that have no status.
_WITHOUT_STATUS: Final = frozenset(
    ("reasoning", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", COMPACTION)
)
_ITEM: Final = "an object with a 'type', or a message with a 'role'"


def check_item(place: str, value: object) -> Json:
    """Return an item of a client, checked. A message may come without its type, and so may a reference.

    Raises GatewayError (missing_field, invalid_field, unsupported_parameter).
    """
    item = check_object(place, value, _ITEM)
    kind = item.get("type")
    named = _find_kind(item) if kind is None else _RENAMED.get(kind) if type(kind) is str else None
    if named is not None:
        item = {**item, "type": (kind := named)}
    if kind == "message":
        _check_message(place, item)
    elif kind is None:
        refuse_missing(f"{place}.type", "the kind of the item, such as message or function_call_output")
    elif type(kind) is not str or (kind not in _FIELDS and ":" not in kind):
        _refuse_kind(place, kind)
    else:
        check_object_fields(place, item, _FIELDS.get(kind, _EACH))  # kinds with a colon belong to other servers
        _check_nested_fields(place, kind, item)
    return item


def _find_kind(item: Json) -> str | None:
    if "role" in item:
        return "message"
    return "item_reference" if item.keys() <= {"id", "type"} and "id" in item else None


def _refuse_kind(place: str, kind: object) -> None:
    if isinstance(kind, str) and kind in _UNSUPPORTED:
        raise build_unsupported_error(place, _UNSUPPORTED[kind])
    refuse(f"{place}.type", "a kind of item that the Responses API has, such as message or function_call_output")


def _check_message(place: str, item: Json) -> None:
    """Raise GatewayError (missing_field, invalid_field) unless a message item is valid."""
    role = item.get("role")
    if role is None:
        refuse_missing(f"{place}.role", f"one of {', '.join(ROLES)}")
    if type(role) is not str or role not in ROLES:
        refuse(f"{place}.role", f"one of {', '.join(ROLES)}")
    check_content(f"{place}.content", item.get("content"), files=role == "user")
    if len(item) > 3:
        check_object_fields(place, item, _MESSAGE)


def _check_nested_fields(place: str, kind: str, item: Json) -> None:
    """Check the fields that are more than one value."""
    match kind:
        case "function_call_output" | "custom_tool_call_output":
            if item.get("call_id") is None and item.get("name") is None:
                refuse_missing(f"{place}.call_id", "the id of the call that this is the output of")
            check_content(f"{place}.output", item.get("output"), files=True)
        case "local_shell_call":
            check_object_fields(f"{place}.action", item["action"], _LOCAL_SHELL)
        case "local_shell_call_output":
            if find_call_id(item) is None:
                refuse_missing(f"{place}.id", "the id of the call that this is the output of")
        case "shell_call":
            check_object_fields(f"{place}.action", item["action"], SHELL)
        case "shell_call_output":
            _check_shell_output(f"{place}.output", item["output"])
        case "apply_patch_call":
            check_object_fields(f"{place}.operation", item["operation"], OPERATION)
        case "reasoning":
            for name in ("summary", "content"):
                check_content(f"{place}.{name}", item.get(name) or [], files=False)
        case "mcp_list_tools":
            for i, tool in enumerate(item["tools"]):
                check_object_fields(f"{place}.tools[{i}]", check_object(f"{place}.tools[{i}]", tool), _LISTED_TOOL)


def _check_shell_output(place: str, output: list[object]) -> None:
    for i, chunk in enumerate(output):
        said = check_object(f"{place}[{i}]", chunk)
        check_object_fields(f"{place}[{i}]", said, _SHELL_OUTPUT)
        check_object_fields(f"{place}[{i}].outcome", said["outcome"], _OUTCOME)


def find_call_id(item: Json) -> str | None:
    """Return the id of the call that an item is, or is the output of. Outputs of local_shell name it in `id`, too."""
    call_id: str | None = item.get("call_id")
    return call_id or (item.get("id") or None if item["type"] == "local_shell_call_output" else None)


def is_without_output(item: Json) -> bool:
    """Return whether an item is a call of the gateway's that has ended, and shows neither output nor error."""
    shows = item.get("output") is not None or item.get("error") is not None
    return item["type"] == "mcp_call" and item.get("status") in ("completed", "failed") and not shows


def is_of_response(item: Json) -> bool:
    """Return whether an item is of a response, and not of a client."""
    kind = item["type"]
    return kind in OF_RESPONSES or (kind == "message" and item["role"] == "assistant")


def build_input_items(items: Sequence[Json], *, response_id: str) -> list[Json]:
    """Return checked items as the input of a response. An item without an id gets one that leads to the response."""
    return [
        _complete_item(item, build_input_id(_get_id_prefix(item), response_id, index))
        for index, item in enumerate(items)
    ]


def _get_id_prefix(item: Json) -> str:
    return _PREFIXES.get(item["type"], _PREFIX)


def _complete_item(item: Json, new_id: str) -> Json:
    """Return an item with the fields that the SDKs expect of items that are listed."""
    whole = {**item, "id": item.get("id") or new_id}
    if item["type"] not in _WITHOUT_STATUS and item.get("status") is None:
        whole["status"] = "completed"
    if item["type"] == "message":
        whole["content"] = _complete_content(item["content"], of_model=item["role"] == "assistant")
    elif item["type"] == "reasoning":
        whole["summary"] = item.get("summary") or []
    return whole


def _complete_content(content: str | Sequence[Json], *, of_model: bool) -> list[Json]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_complete_part(part, of_model=of_model) for part in parts]


def _complete_part(part: Json, *, of_model: bool) -> Json:
    """Return a content part as the API lists it, for an input or an output message."""
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
