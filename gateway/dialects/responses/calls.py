"""Calls of the client's own tools: as items of the Responses API, and as calls of functions in chat completions.

Models know functions only. So a custom tool is a function with one text, `input`, and each tool that the API defines
without a schema (`shell`, `local_shell`, `apply_patch`) is a function with the fields of its item.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import MODEL_NAME_LIMIT, encode_model_name
from gateway.dialects.field_checks import TEXT, TEXTS, WHOLE, Kind, check_object_fields, mark_required
from gateway.dialects.responses.items import OPERATION, SHELL
from gateway.jsontext import strict_json

#: The arguments of a call whose model wrote none: clients, and model servers that get them back, read them as JSON.
NO_ARGUMENTS: Final = "{}"
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_WHOLE: Final = {"type": "integer"}


def _build_schema(properties: Mapping[str, Json], *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


#: The parameters of a custom tool.
INPUT: Final[Json] = _build_schema({"input": _TEXT}, "input")
#: Tools that the API defines without a schema, and the client runs: description and parameters of the function.
CLIENT_RUN: Final[Mapping[str, tuple[str, Json]]] = {
    "local_shell": (
        "Run a command on the user's machine. 'command' is the program and its arguments.",
        _build_schema({"command": _TEXTS, "working_directory": _TEXT, "timeout_ms": _WHOLE}, "command"),
    ),
    "shell": (
        "Run shell commands on the user's machine, one after the other.",
        _build_schema({"commands": _TEXTS, "timeout_ms": _WHOLE, "max_output_length": _WHOLE}, "commands"),
    ),
    "apply_patch": (
        "Create, update or delete one file. 'diff' is its V4A diff: each line begins with '+', '-' or a space, behind "
        "lines with '@@'. It is left out to delete.",
        _build_schema(
            {
                "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
                "path": _TEXT,
                "diff": _TEXT,
            },
            "type",
            "path",
        ),
    ),
}


def _make_nullable(schema: Json) -> Json:
    return {**schema, "type": [schema["type"], "null"]}


#: What the arguments must be that the item of a call shows exactly, by the kind of the tool: of what models read, with
#: null for what they may leave out. Whatever is beside that would be lost, or be another action.
EXACT: Final[Mapping[str, Json]] = {
    "custom": INPUT,
    "local_shell": _build_schema(
        {"command": _TEXTS, "working_directory": _make_nullable(_TEXT), "timeout_ms": _make_nullable(_WHOLE)}, "command"
    ),
    "shell": _build_schema(
        {"commands": _TEXTS, "timeout_ms": _make_nullable(_WHOLE), "max_output_length": _make_nullable(_WHOLE)},
        "commands",
    ),
    "apply_patch": {
        **CLIENT_RUN["apply_patch"][1],
        "properties": {**CLIENT_RUN["apply_patch"][1]["properties"], "diff": _make_nullable(_TEXT)},
        "if": {"properties": {"type": {"const": "delete_file"}}},
        "then": {"properties": {"diff": {"enum": [None, ""]}}},
        "else": {"properties": {"diff": _TEXT}, "required": ["diff"]},
    },
}
#: The same as the checks of this room.
_FIELDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "custom": {"input": mark_required(TEXT)},
    "local_shell": {"command": mark_required(TEXTS), "working_directory": TEXT, "timeout_ms": WHOLE},
    "shell": SHELL,
    "apply_patch": OPERATION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTool:
    """A tool that the client runs. `kind` is the type of the tool, such as `function`, `custom` or `shell`."""

    kind: str
    name: str
    namespace: str | None = None

    @property
    def model_name(self) -> str:
        """Return the name that models know."""
        return build_model_name(self.name, self.namespace)


def build_model_name(name: str, namespace: str | None) -> str:
    """Return the name that models know for a tool of the client's."""
    if namespace is None:
        return name
    joined = f"{namespace}__{name}"
    return joined if len(joined) <= MODEL_NAME_LIMIT else encode_model_name(joined)


def is_blank(arguments: str) -> bool:
    """Return whether arguments are empty, or blanks of JSON."""
    return not arguments.strip(" \t\r\n")


def get_arguments(item: Json) -> str:
    """Return the arguments of a call as JSON, also where its model wrote none."""
    arguments: str = item["arguments"]
    return NO_ARGUMENTS if is_blank(arguments) else arguments


def build_chat_call(item: Json) -> Json:
    """Return a checked item that is a call as chat completions have it."""
    name = item.get("name")
    match item["type"]:
        case "function_call":
            arguments = get_arguments(item)
        case "custom_tool_call":
            arguments = _dump_json({"input": item["input"]})
        case "apply_patch_call":
            name, arguments = "apply_patch", _dump_json(item["operation"])
        case kind:
            name = str(kind).removesuffix("_call")
            fields = item["action"].items()
            arguments = _dump_json({key: value for key, value in fields if key != "type" and value not in (None, {})})
    function = {"name": build_model_name(str(name), item.get("namespace")), "arguments": arguments}
    return {"id": item["call_id"], "type": "function", "function": function}


def build_call_item(tool: ClientTool, *, call_id: str, arguments: str) -> Json:
    """Return a whole call of a model as an item, without `id` and `status`.

    Arguments that the item of the tool cannot show exactly make it the call of a function, which shows them as they
    are: it is never another action.
    """
    fields = _convert_arguments(tool.kind, arguments)
    if fields is None:
        kind: Json = {"type": "function_call", "arguments": arguments}
    elif tool.kind == "local_shell":
        return {"type": "local_shell_call", "call_id": call_id, "action": {"type": "exec", "env": {}, **fields}}
    elif tool.kind == "shell":
        action = {"timeout_ms": None, "max_output_length": None, **fields}
        return {"type": "shell_call", "call_id": call_id, "action": action}
    elif tool.kind == "apply_patch":
        return {"type": "apply_patch_call", "call_id": call_id, "operation": fields}
    else:
        kind = {"type": "custom_tool_call", **fields}
    namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
    return {**kind, "call_id": call_id, "name": tool.name, **namespace}


def _convert_arguments(kind: str, arguments: str) -> Json | None:
    """Return arguments as the fields of the item that a tool of this kind has. None: the item cannot show them."""
    known = _FIELDS.get(kind)
    if known is None:
        return None
    try:
        fields = strict_json.loads(arguments)
        if not isinstance(fields, dict):
            return None
        check_object_fields("", fields, known, closed=True)
    except (strict_json.StrictJsonError, GatewayError):
        return None
    fields = {name: value for name, value in fields.items() if value is not None}
    if kind != "apply_patch":
        return fields
    if fields["type"] != "delete_file":
        return fields if "diff" in fields else None
    return None if fields.pop("diff", "") else fields


def _dump_json(value: Json) -> str:
    return orjson.dumps(value).decode()
