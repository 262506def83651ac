"""The result of a tool call for an MCP client: blocks of content and structured content, beside the text.

1. They are the server's words: control and invisible characters are taken out of them, as out of a text.
2. They are bounded. Text that was shortened for being too long is shortened in its blocks, too.
3. Nothing is stored of a result that its text contains whole.
"""

import re
from typing import Final

import orjson

from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolResult
from gateway.tools.results import CONTROL

#: Of the blocks and the structured content of one result, as JSON.
ANSWER_BYTES: Final = 8 << 20
#: Control characters in the text of a JSON value; the first group is what looks like one and is not.
_ESCAPED: Final = re.compile(r'(\\[\\"])|\\(?:b|f|u00(?:0[0-8bcef]|1[0-9a-f]|7f))')


def dump_answer(result: ToolResult, *, shown: str, whole: str) -> bytes | None:
    """Return the blocks and the structured content as JSON, or None if the text contains it all.

    `whole` is the text of the result, `shown` the part of it that may be shown.
    """
    parts = result.parts
    if parts is not None and shown != whole:
        parts = [{"type": "text", "text": shown}, *(part for part in parts if not _is_text_block(part))]
    if parts is not None and all(map(_is_plain_text, parts)) and len(parts) <= 1:
        parts = None
    if parts is None and result.structured is None and result.unfit is None:
        return None
    try:
        written = orjson.dumps({"parts": parts, "structured": result.structured, "unfit": result.unfit})
    except orjson.JSONEncodeError:  # lone surrogates, or too deep: no client could read it
        return None
    return None if len(written) > ANSWER_BYTES else clean_json(written)


def load_result(answer: bytes | None, text: str, *, ok: bool) -> ToolResult:
    """Return the result of a call from the answer of its step and its text."""
    further: Json = {} if answer is None else orjson.loads(answer)
    return ToolResult(text, ok, further.get("parts"), further.get("structured"), further.get("unfit"))


def clean_json(written: bytes) -> bytes:
    """Return JSON without control and invisible characters in its strings; line ends and tabs stay."""
    if written.isascii() and b"\\" not in written and b"\x7f" not in written:
        return written  # mostly a picture, of which a closer look takes a tenth of a second
    text = CONTROL.sub("", written.decode())
    return _ESCAPED.sub(lambda found: found[1] or "", text).encode()


def _is_text_block(part: Json) -> bool:
    """Return whether the text of the result has this block: a text, or a resource that is one."""
    resource = part.get("resource") if part.get("type") == "resource" else None
    return part.get("type") == "text" or (isinstance(resource, dict) and "text" in resource)


def _is_plain_text(part: Json) -> bool:
    """Return whether a block is a text and nothing else."""
    return part.keys() == {"type", "text"}
