"""Calls of the client's own tools: as items of the Responses API, and as calls of functions in chat completions.

Models know functions only. So a custom tool is a function with one text, `input`, and each tool that the API defines
without a schema (`shell`, `local_shell`, `apply_patch`) is a function with the fields of its item.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.contracts.store import Json
from gateway.contracts.tools import MODEL_NAME_LIMIT, model_name

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_WHOLE: Final = {"type": "integer"}


def _schema(properties: Mapping[str, Json], *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


#: The parameters of a custom tool.
INPUT: Final[Json] = _schema({"input": _TEXT}, "input")
#: Tools that the API defines without a schema, and the client runs: description and parameters of the function.
CLIENT_RUN: Final[Mapping[str, tuple[str, Json]]] = {
    "local_shell": (
        "Run a command on the user's machine. 'command' is the program and its arguments.",
        _schema({"command": _TEXTS, "working_directory": _TEXT, "timeout_ms": _WHOLE}, "command"),
    ),
    "shell": (
        "Run shell commands on the user's machine, one after the other.",
        _schema({"commands": _TEXTS, "timeout_ms": _WHOLE, "max_output_length": _WHOLE}, "commands"),
    ),
    "apply_patch": (
        "Create, update or delete one file. 'diff' is its V4A diff: each line begins with '+', '-' or a space, behind "
        "lines with '@@'. It is left out to delete.",
        _schema(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTool:
    """A tool that the client runs. `kind` is the type of the tool, such as `function`, `custom` or `shell`."""

    kind: str
    name: str
    namespace: str | None = None

    @property
    def model_name(self) -> str:
        """Return the name that models know."""
        return name_for_models(self.name, self.namespace)


def name_for_models(name: str, namespace: str | None) -> str:
    """Return the name that models know for a tool of the client's."""
    if namespace is None:
        return name
    joined = f"{namespace}__{name}"
    return joined if len(joined) <= MODEL_NAME_LIMIT else model_name(joined)


def call_of(item: Json) -> Json:
    """Return a checked item that is a call as chat completions have it."""
    name = item.get("name")
    match item["type"]:
        case "function_call":
            arguments = item["arguments"] or "{}"
        case "custom_tool_call":
            arguments = _written({"input": item["input"]})
        case "apply_patch_call":
            name, arguments = "apply_patch", _written(item["operation"])
        case kind:
            name = str(kind).removesuffix("_call")
            fields = item["action"].items()
            arguments = _written({key: value for key, value in fields if key != "type" and value not in (None, {})})
    function = {"name": name_for_models(str(name), item.get("namespace")), "arguments": arguments}
    return {"id": item["call_id"], "type": "function", "function": function}


def item_of(tool: ClientTool, *, call_id: str, arguments: str) -> Json:
    """Return a whole call of a model as an item, without `id` and `status`.

    Arguments that do not fit the tool become an item that its client refuses to run.
    """
    fields = _object(arguments)
    match tool.kind:
        case "custom":
            text = fields.get("input")
            kind: Json = {"type": "custom_tool_call", "input": text if isinstance(text, str) else arguments}
        case "local_shell":
            action = {"type": "exec", "env": {}, **_texts(fields, "command"), **_timeout(fields)}
            if isinstance(folder := fields.get("working_directory"), str):
                action["working_directory"] = folder
            return {"type": "local_shell_call", "call_id": call_id, "action": action}
        case "shell":
            length = fields.get("max_output_length")
            action = {
                **_texts(fields, "commands"),
                "timeout_ms": None,
                **_timeout(fields),
                "max_output_length": length if type(length) is int else None,
            }
            return {"type": "shell_call", "call_id": call_id, "action": action}
        case "apply_patch":
            return {"type": "apply_patch_call", "call_id": call_id, "operation": _operation(fields)}
        case _:
            kind = {"type": "function_call", "arguments": arguments}
    namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
    return {**kind, "call_id": call_id, "name": tool.name, **namespace}


def _operation(fields: Json) -> Json:
    kind, path, diff = fields.get("type"), fields.get("path"), fields.get("diff")
    operation: Json = {
        "type": kind if kind in ("create_file", "delete_file") else "update_file",
        "path": path if isinstance(path, str) else "",
    }
    if kind != "delete_file":
        operation["diff"] = diff if isinstance(diff, str) else ""
    return operation


def _texts(fields: Json, name: str) -> Json:
    texts = fields.get(name)
    return {name: texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else []}


def _timeout(fields: Json) -> Json:
    timeout_ms = fields.get("timeout_ms")
    return {"timeout_ms": timeout_ms} if type(timeout_ms) is int else {}


def _object(text: str) -> Json:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _written(value: Json) -> str:
    return orjson.dumps(value).decode()
