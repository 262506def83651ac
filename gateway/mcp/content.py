"""The answer of an MCP server's tool, as the one text that the model reads. Pure, and bounded for every input.

It is only text: nothing in it is read as a call. Pictures and sounds become a note with their type and size.
"""

from typing import Any, Final

import orjson

from gateway.contracts.canonical import canonical
from gateway.contracts.store import Json
from gateway.contracts.tools import ToolResult

#: Of a result; what is over is counted.
RESULT_CHARS: Final = 1 << 20
#: Of each part of a note.
_NOTE_CHARS: Final = 1000
_NO_CONTENT: Final = "(no content)"
_NO_REASON: Final = "The tool failed and gave no reason."


def tool_result(answer: Json, *, limit_chars: int = RESULT_CHARS) -> ToolResult:
    """Convert the result of `tools/call` as the server wrote it, of any shape.

    Its blocks and its structured content go along as they are, for clients that can read them.
    """
    ok = answer.get("isError") in (None, False)
    content, structured = answer.get("content"), answer.get("structuredContent")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    texts = [_text(block) for block in blocks]
    parts = [_note(block) if text is None else text for block, text in zip(blocks, texts, strict=True)]
    if structured is not None and not any(text and text.strip() for text in texts):
        parts.insert(0, _json(structured))
    whole = "\n".join(part for part in parts if part)
    text = _capped(whole, limit_chars) or (_NO_CONTENT if ok else _NO_REASON)
    wholes = [block for block in blocks if isinstance(block, dict)]
    return ToolResult(text, ok, wholes, structured if isinstance(structured, dict) else None)


def _text(block: Any) -> str | None:
    """Return the text of a block of text, or of a resource that is text; else None."""
    if not isinstance(block, dict):
        return None
    holder = block.get("resource") if block.get("type") == "resource" else block
    if holder is block and block.get("type") != "text":
        return None
    text = holder.get("text") if isinstance(holder, dict) else None
    return text if isinstance(text, str) else None


def _note(block: Any) -> str:
    """Return one line on a block that is no text."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("image", "audio"):
        return f"[{kind} {_named(block, 'mimeType')}, {_decoded_bytes(block.get('data')):,} bytes]"
    if kind == "resource" and isinstance(block.get("resource"), dict):
        resource = block["resource"]
        size = _decoded_bytes(resource.get("blob"))
        return f"[resource {_named(resource, 'uri')}, {_named(resource, 'mimeType')}, {size:,} bytes]"
    if kind == "resource_link":
        return f"[resource {_named(block, 'name')}: {_named(block, 'uri')}]"
    return f"[content of the type {_line(kind)!r}, which cannot be shown]"


def _named(holder: Json, key: str) -> str:
    return _line(holder.get(key))


def _line(value: Any) -> str:
    """Return a value of a note on one line."""
    return " ".join(value[:_NOTE_CHARS].split()) if isinstance(value, str) and value.strip() else "unknown"


def _decoded_bytes(base64: Any) -> int:
    """Return the size of base64 once decoded, in bytes."""
    if not isinstance(base64, str):
        return 0
    return max(0, len(base64) * 3 // 4 - base64[-2:].count("="))


def _json(value: Any) -> str:
    """Return JSON in the order of the server, as far as that is possible."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return canonical(value)


def _capped(text: str, limit_chars: int) -> str:
    over = len(text) - limit_chars
    return text if over <= 0 else f"{text[:limit_chars]}\n[... {over:,} more characters were left out]"
