"""The results of calls as MCP clients read them, in the version of the protocol that they speak."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gateway.context.call_runs import Done
from gateway.contracts.storage.store import Json
from gateway.mcp.blocks import RESULT_BYTES, fit_blocks, note
from gateway.mcp.server_text import count_sent_bytes

#: The first versions of the protocol that have these kinds of content; all have the others.
_SINCE: Final[Mapping[object, str]] = {"audio": "2025-03-26", "resource_link": "2025-06-18"}

#: A text that has room in every result, whatever its characters.
_SHORT_CHARS: Final = 32 << 10

#: The fields of a text without more, which every version has.
_PLAIN: Final = {"type", "text"}

#: The entry in `_meta` that names the run of a result.
_RUN: Final = "twolane/run"
_RUN_MARK: Final = re.compile(rb'"%b":"[A-Za-z0-9_]+"' % _RUN.encode())


def build_call_result(done: Done, version: str) -> Json:
    """Return the result of a call: the blocks of its server where the client can read them, else their text.

    A result without the structured content that its tool promises is an error: the protocol's own clients accept it as
    nothing else.
    """
    result = done.result
    whole: Json = {**build_text_result(result.content, ok=result.ok), "_meta": {_RUN: done.run_id}}
    room_bytes = RESULT_BYTES
    if result.parts:
        blocks = [_adapt_block(part, version) for part in result.parts]
        if not _are_valid(blocks, version):
            blocks = [block if _are_valid([block], version) else _build_note(block) for block in blocks]
        whole["content"] = blocks
    if isinstance(result.structured, dict) or (result.structured is not None and version in MODERN_PROTOCOL_VERSIONS):
        whole["structuredContent"] = result.structured
        room_bytes -= count_sent_bytes(result.structured)
    if result.parts or len(result.content) > _SHORT_CHARS:
        whole["content"] = fit_blocks(whole["content"], room_bytes=room_bytes)
    if result.unfit is not None:
        text = (
            "The tool has run. Its structured content is left out, because it does not fit the tool's own "
            f"outputSchema: {result.unfit}"
        )
        whole |= {"content": [{"type": "text", "text": text}, *whole["content"]], "isError": True}
    return whole


def build_run_mark(run_id: str) -> bytes:
    """Return what the result of this run has on the wire, and no other message: texts in JSON have escaped quotes."""
    return f'"{_RUN}":"{run_id}"'.encode()


def find_run_marks(event: bytes) -> Sequence[bytes]:
    """Return the marks of the runs whose results are in an event (`build_run_mark`)."""
    return _RUN_MARK.findall(event)


def build_text_result(text: str, *, ok: bool = True) -> Json:
    """Return a result that is one text."""
    return {"content": [{"type": "text", "text": text}], "isError": not ok}


def _adapt_block(part: Json, version: str) -> Json:
    """Return a block, or a note on it for a client whose version lacks this kind."""
    kind = part.get("type")
    since = _SINCE.get(kind, "") if isinstance(kind, str) else ""
    return part if version >= since else _build_note(part)


def _build_note(part: Json) -> Json:
    return {"type": "text", "text": note(part)}


def _are_valid(blocks: Sequence[Json], version: str) -> bool:
    """Return whether a result may have these blocks in this version of the protocol."""
    if all(block.keys() == _PLAIN and block["type"] == "text" and isinstance(block["text"], str) for block in blocks):
        return True
    head: Json = {"resultType": "complete"} if version in MODERN_PROTOCOL_VERSIONS else {}
    try:
        written = serialize_server_result("tools/call", version, {**head, "content": blocks})
    except ValidationError:
        return False
    return "content" in written  # else the SDK takes it for a question, which has none
