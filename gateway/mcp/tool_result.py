"""The answer of an MCP server's tool: the one text that the model reads, and what MCP clients read beside it.

It is only text: nothing in it is read as a call. Pictures and sounds become a note with their type and size. Pure, and
bounded for every input.
"""

from typing import Any, Final

import orjson

from gateway.aio.cooperative import Work
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolResult
from gateway.mcp.blocks import RESULT_CHARS, read_blocks, shorten_text
from gateway.mcp.server_text import count_sent_bytes
from gateway.tools.call_answer import clean_json

STRUCTURED_BYTES: Final = 500_000
_NO_CONTENT: Final = "(no content)"
_NO_REASON: Final = "The tool failed and gave no reason."


def convert_tool_result(answer: Json, *, limit_chars: int = RESULT_CHARS) -> Work[ToolResult]:
    """Convert the result of `tools/call` as the server wrote it, of any shape, in parts.

    Its blocks and its structured content go along, for clients that can read them, as far as they are what they claim
    to be and not too large. A note in both takes the place of all else.
    """
    ok = answer.get("isError") in (None, False)
    blocks, structured = (yield from read_blocks(answer.get("content"))), answer.get("structuredContent")
    lines = [block.line for block in blocks]
    parts = [block.block for block in blocks]
    if structured is not None and not any(block.is_text and block.line.strip() for block in blocks):
        lines.insert(0, _dump_json(structured))
    passed, note = _clean_structured(structured)
    if note:
        lines.append(note)
        parts.append({"type": "text", "text": note})
    text = shorten_text("\n".join(line for line in lines if line), limit_chars) or (_NO_CONTENT if ok else _NO_REASON)
    return ToolResult(text, ok, parts, passed)


def _clean_structured(structured: Any) -> tuple[Any, str]:
    """Return structured content as clients may read it, or None and a note on it."""
    if structured is None:
        return None, ""
    try:
        written = orjson.dumps(structured)
    except orjson.JSONEncodeError:
        return None, "[structured content, left out: it is nested too deep, or has a number or a text that is no JSON]"
    passed = orjson.loads(clean_json(written))
    if (size_bytes := count_sent_bytes(passed)) > STRUCTURED_BYTES:
        return None, f"[structured content, {size_bytes:,} bytes, left out: more than {STRUCTURED_BYTES:,} bytes]"
    return passed, ""


def _dump_json(value: Any) -> str:
    """Return JSON in the order of the server, as far as that is possible."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return write_canonical(value)
