"""The blocks of content that an MCP server writes, in results of tools and in prompts. Pure, and bounded.

1. A block is built anew, from the fields that the protocol has for its kind and that are what they should be. Nothing
   else of it goes on.
2. What cannot be passed on becomes a text in its place, on one line, with its size and the reason. Nothing is missing
   without a note.
3. Blocks are counted, and so are the bytes of all content but text. Texts are cut before they are cleaned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.aio.cooperative import Work
from gateway.contracts.storage.store import Json
from gateway.mcp.server_text import (
    clean_description,
    count_sent_bytes,
    drop_empty,
    format_one_line,
    parse_annotations,
    parse_base64,
    parse_icons,
    parse_media_type,
    parse_meta,
    parse_uri,
)
from gateway.tools.results import clean, clean_stepwise

#: Of one result.
BLOCKS: Final = 500
#: Of all texts of one result; what is over is counted.
RESULT_CHARS: Final = 1 << 20
#: Of one result as JSON, with its record in the store.
RESULT_BYTES: Final = 7_000_000
#: Of a list's page, a prompt or a resource: the protocol's own clients take events of 1 MiB by default.
EVENT_BYTES: Final = 1_000_000
_TOO_LARGE: Final = f"a result is at most {RESULT_BYTES:,} bytes, with its texts and pictures as base64"
#: Of each part of a note.
_NOTE_CHARS: Final = 1000
#: Of a note on blocks or text that are left out, at most.
_NOTE_BYTES: Final = 300
#: Of one character at most: a pair of escapes.
_CHARACTER_BYTES: Final = 12
_KINDS: Final = ("text", "image", "audio", "resource", "resource_link")


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `line` is what a reader of texts reads of it: its text if it has one (`is_text`), else a note."""

    line: str
    block: Json
    is_text: bool = False


class _UnfitError(Exception):
    """The reason why a block is not passed on."""


def read_blocks(content: Any) -> Work[Sequence[Block]]:
    """Read the content of a result, of any shape, in parts."""
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    found: list[Block] = []
    room_bytes, room_chars = RESULT_BYTES, RESULT_CHARS
    for block in blocks[:BLOCKS]:
        try:
            text = _get_text(block)
            one = yield from _read_block(
                block if len(text) <= room_chars else _replace_text(block, shorten_text(text, room_chars))
            )
            one = replace(one, line=text) if one.is_text else one
            room_chars -= min(len(text), room_chars)
            size_bytes = _measure_size_bytes(one.block)
            if size_bytes > room_bytes:
                raise _UnfitError(_TOO_LARGE)
            room_bytes -= size_bytes
        except _UnfitError as reason:
            one = _build_note(_format_left_out(block, str(reason)))
        found.append(one)
        yield
    if len(blocks) > BLOCKS:
        found.append(
            _build_note(f"[{len(blocks) - BLOCKS:,} more blocks of content, left out: at most {BLOCKS:,} are shown]")
        )
    return found


def shorten_text(text: str, limit_chars: int) -> str:
    """Return the beginning of a text, with a note on what is left out of it, if anything is."""
    over = len(text) - limit_chars
    return text if over <= 0 else f"{text[:limit_chars]}\n[... {over:,} more characters were left out]"


def note(block: Any) -> str:
    """Return one line on a block that is not text."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("image", "audio"):
        return f"[{kind} {_get_label(block, 'mimeType')}, {_count_decoded_bytes(block.get('data')):,} bytes]"
    if kind == "resource" and isinstance(block.get("resource"), dict):
        resource = block["resource"]
        size = _count_decoded_bytes(resource.get("blob"))
        return f"[resource {_get_label(resource, 'uri')}, {_get_label(resource, 'mimeType')}, {size:,} bytes]"
    if kind == "resource_link":
        return f"[resource {_get_label(block, 'name')}: {_get_label(block, 'uri')}]"
    return f"[content of the type {format_one_line(kind, _NOTE_CHARS) or 'unknown'!r}, which cannot be shown]"


def fit_blocks(blocks: Sequence[Json], *, room_bytes: int) -> list[Json]:
    """Return the blocks of a result that has room for so many bytes. Notes take the place of data that has none.

    Texts come first. One that has no room is cut, with a note. Blocks whose notes have no room are counted.
    """
    sizes = [count_sent_bytes(block) for block in blocks]
    if sum(sizes) <= room_bytes:
        return list(blocks)
    room_bytes -= _NOTE_BYTES
    found: dict[int, Json] = {}
    for is_text in (True, False):
        for at, block in enumerate(blocks):
            if _has_text(block) is not is_text:
                continue
            if sizes[at] > room_bytes:
                block = (
                    _shorten_block(block, max(room_bytes, 0))
                    if is_text
                    else _build_note(_format_left_out(block, _TOO_LARGE)).block
                )
            if (size_bytes := count_sent_bytes(block)) <= room_bytes:
                found[at] = block
                room_bytes -= size_bytes
    kept = [found[at] for at in sorted(found)]
    more = len(blocks) - len(kept)
    return [*kept, _build_note(f"[{more:,} more blocks of content, left out: {_TOO_LARGE}]").block] if more else kept


def parse_contents(value: Any) -> Work[Json]:
    """Read the contents of a resource in parts: a text or data, with its address. Raises ValueError with the reason."""
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if (uri := parse_uri(value.get("uri"))) is None:
        raise ValueError("its address is none")
    further = drop_empty(mimeType=parse_media_type(value.get("mimeType")), meta=parse_meta(value.get("_meta")))
    if isinstance(text := value.get("text"), str):
        return {"uri": uri, "text": (yield from clean_stepwise(text)), **further}
    if (blob := parse_base64(value.get("blob"))) is None:
        raise ValueError("its data is not base64")
    return {"uri": uri, "blob": blob, **further}


def parse_resource_link(value: Json) -> Json:
    """Return the description of a resource that can be read. Raises ValueError with the reason."""
    if (uri := parse_uri(value.get("uri"))) is None:
        raise ValueError("its address is none")
    return {"uri": uri, **parse_resource_facts(value)}


def parse_resource_facts(value: Json) -> Json:
    """Return a server's fields of one or several resources, beside the address. Raises ValueError with the reason."""
    if not (name := format_one_line(value.get("name"))):
        raise ValueError("it has no name")
    size = value.get("size")
    return {
        "name": name,
        **drop_empty(
            title=format_one_line(value.get("title")),
            description=clean_description(value.get("description")),
            mimeType=parse_media_type(value.get("mimeType")),
            size=size if type(size) is int and 0 <= size < 1 << 53 else None,
            icons=parse_icons(value.get("icons")),
            annotations=parse_annotations(value.get("annotations")),
            meta=parse_meta(value.get("_meta")),
        ),
    }


def _read_block(block: Any) -> Work[Block]:
    """Return a content block cleaned for models and clients. Raises _UnfitError."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in _KINDS:
        return _build_note(note(block))
    beside = drop_empty(annotations=parse_annotations(block.get("annotations")), meta=parse_meta(block.get("_meta")))
    if kind == "text" and isinstance(text := block.get("text"), str):
        return Block(text, {"type": "text", "text": (yield from clean_stepwise(text)), **beside}, is_text=True)
    if kind in ("image", "audio"):
        media_type, data = parse_media_type(block.get("mimeType"), kind), parse_base64(block.get("data"))
        if media_type is None:
            raise _UnfitError(f"its type is not that of {'a picture' if kind == 'image' else 'a sound'}")
        if data is None:
            raise _UnfitError("its data is not base64")
        return Block(note(block), {"type": kind, "data": data, "mimeType": media_type, **beside})
    try:
        if kind == "resource":
            inner = yield from parse_contents(block.get("resource"))
            is_text = "text" in inner
            line = block["resource"]["text"] if is_text else note(block)
            return Block(line, {"type": kind, "resource": inner, **beside}, is_text)
        if kind == "resource_link":
            return Block(note(block), {"type": kind, **parse_resource_link(block)})
    except ValueError as reason:
        raise _UnfitError(str(reason)) from None
    return _build_note(note(block))


def _format_left_out(block: Any, reason: str) -> str:
    return f"{note(block)[:-1]}, left out: {reason}]"


def _shorten_block(block: Json, room_bytes: int) -> Json:
    """Return the beginning of the text of a block, as long as any characters of that number may be."""
    text = block["text"] if block.get("type") == "text" else block["resource"]["text"]
    kept = text[: max(room_bytes - _NOTE_BYTES, 0) // _CHARACTER_BYTES]
    return {"type": "text", "text": f"{kept}\n[... {len(text) - len(kept):,} more characters, left out: {_TOO_LARGE}]"}


def _has_text(block: Json) -> bool:
    inner = block.get("resource")
    return block.get("type") == "text" or (isinstance(inner, dict) and "text" in inner)


def _build_note(line: str) -> Block:
    return Block(line, {"type": "text", "text": clean(line)})


def _measure_size_bytes(block: Json) -> int:
    """Return the size of a block without its text, as JSON in bytes."""
    inner = block.get("resource")
    if isinstance(inner, dict):
        return count_sent_bytes({**block, "resource": None}) + _measure_size_bytes(inner)
    data: str = block.get("data") or block.get("blob") or ""  # base64 is written as it is
    return count_sent_bytes({**block, "text": "", "data": "", "blob": ""}) + len(data)


def _get_text(block: Any) -> str:
    """Return the text of a block of any shape; "": it has none."""
    inner = block.get("resource") if isinstance(block, dict) and block.get("type") == "resource" else block
    text = inner.get("text") if isinstance(inner, dict) else None
    return text if isinstance(text, str) else ""


def _replace_text(block: Json, text: str) -> Json:
    if block.get("type") == "resource":
        return {**block, "resource": {**block["resource"], "text": text}}
    return {**block, "text": text}


def _get_label(holder: Json, key: str) -> str:
    return format_one_line(holder.get(key), _NOTE_CHARS) or "unknown"


def _count_decoded_bytes(base64: Any) -> int:
    """Return the size of base64 once decoded, in bytes."""
    if not isinstance(base64, str):
        return 0
    return max(0, len(base64) * 3 // 4 - base64[-2:].count("="))
