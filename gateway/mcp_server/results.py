"""The results of calls as MCP clients read them, in the version of the protocol that they speak."""

from typing import Final

from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gateway.context.call_runs import Done
from gateway.contracts.store import Json

#: The entry in `_meta` that names the run of a result.
_RUN: Final = "twolane/run"


def call_result(done: Done, version: str) -> Json:
    """Return the result of a call: the blocks of its server where the client can read them, else its text."""
    result = done.result
    whole: Json = {**text_result(result.content, ok=result.ok), "_meta": {_RUN: done.run_id}}
    if result.structured is not None:
        whole = _with(whole, "structuredContent", result.structured, version)
    if result.parts is not None:
        whole = _with(whole, "content", list(result.parts), version)
    return whole


def run_mark(run_id: str) -> bytes:
    """Return what the result of this run has on the wire, and no other message: texts in JSON have escaped quotes."""
    return f'"{_RUN}":"{run_id}"'.encode()


def text_result(text: str, *, ok: bool = True) -> Json:
    """Return a result that is one text."""
    return {"content": [{"type": "text", "text": text}], "isError": not ok}


def _with(result: Json, key: str, value: object, version: str) -> Json:
    """Return the result with a part that a server wrote, or without it if this version of the protocol lacks it."""
    further = {**result, key: value}
    try:
        head: Json = {"resultType": "complete"} if version in MODERN_PROTOCOL_VERSIONS else {}
        written = serialize_server_result("tools/call", version, {**head, **further})
    except ValidationError:
        return result
    return further if written.get(key) and "content" in written else result
