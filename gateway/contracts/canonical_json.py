"""The canonical text of a JSON value, and the hashes that bind a decision to its call and its tool's definition.

Equal values have equal texts: keys sorted, no white space, numbers and strings as orjson writes them. Each hash is over
its own domain and its parts with their lengths, so no two different calls or definitions have the same input.
"""

import hashlib
import json
from typing import Any, Final

import orjson

_CALL: Final = "twolane call 1"
_DEFINITION: Final = "twolane definition 1"


def write_canonical(arguments: Any) -> str:
    """Return the text of a JSON value. Never raises for values of orjson.loads or json.loads, however deeply nested."""
    try:
        return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:  # it reads 1024 levels, and writes 254
        return _serialize_iteratively(arguments)


def call_sha256(tool: str, arguments: str) -> str:
    """Return the hash (hex) of a call: the tool's inside name and its arguments as canonical text."""
    return _hash_parts(_CALL, tool, arguments)


def hash_definition(name: str, description: str, parameters: Any, *, server: str = "") -> str:
    """Return the hash (hex) of a tool's definition. `server` is the `ToolSpec.server` of the MCP server's tool.

    `server` defines which parts count: the definition's spelling may differ at each start of the server.
    """
    if server:
        return _hash_parts(_DEFINITION, name, server)
    return _hash_parts(_DEFINITION, name, description, write_canonical(parameters), "")


def _hash_parts(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def _serialize_iteratively(value: Any) -> str:
    """Return the same text without recursion: a stack contains the texts and values that are still to be written."""
    written: list[str] = []
    stack: list[tuple[bool, Any]] = [(False, value)]
    while stack:
        is_text, item = stack.pop()
        if is_text:
            written.append(item)
        elif isinstance(item, dict):
            stack.append((True, "}"))
            for i, key in reversed(list(enumerate(sorted(item)))):
                stack += [(False, item[key]), (True, ("," if i else "") + _write_string(key) + ":")]
            stack.append((True, "{"))
        elif isinstance(item, list):
            stack.append((True, "]"))
            for i in reversed(range(len(item))):
                stack += [(False, item[i]), (True, "," if i else "")]
            stack.append((True, "["))
        else:
            # orjson writes no whole number beyond 64 bits, and everything else as above.
            written.append(_write_string(item) if isinstance(item, str | int) else orjson.dumps(item).decode())
    return "".join(written)


def _write_string(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)
