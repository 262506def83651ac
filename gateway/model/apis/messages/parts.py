"""The content of chat messages as blocks of Messages: texts, images, documents."""

import base64
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.contracts.storage.store import Json
from gateway.dialects.document_texts import read_text_url

_TEXTS: Final = frozenset(("text", "input_text", "output_text"))
#: Blocks that clients of Messages send, and chat completions have no part for.
_NATIVE: Final = frozenset(("image", "document", "search_result", "container_upload", "tool_reference"))
_PDF: Final = "application/pdf"
#: Fields beside a file that its document has, too.
_OF_DOCUMENTS: Final = ("title", "context", "citations")


def build_blocks(content: object) -> list[Json]:
    """Return the blocks of a content. Texts without anything to read are left out: the API refuses them."""
    if isinstance(content, str):
        return [build_text(content)] if content.strip() else []
    return [block for part in content for block in _build_part(part)] if isinstance(content, list) else []


def build_text(text: str) -> Json:
    """Return a block of text."""
    return {"type": "text", "text": text}


def list_lost_parts(content: object) -> Iterator[str]:
    """Yield the types of the parts that no block stands for."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and _convert_part(part) is None:
            yield str(part.get("type"))


def _build_part(part: object) -> Iterator[Json]:
    if isinstance(part, str):
        yield from build_blocks(part)
        return
    if not isinstance(part, dict) or part.get("type") in ("thinking", "redacted_thinking"):
        return  # thoughts go back from `reasoning_details` alone
    block = _convert_part(part)
    if block is None:
        yield build_text(f"[A part of the type {part.get('type')!r} was left out: this model cannot read it.]")
    elif block.get("type") != "text" or block["text"].strip():
        yield _keep_mark(part, block)


def _convert_part(part: Json) -> Json | None:
    """Return the block of a part; None: there is none for it."""
    kind = part.get("type")
    if kind in _TEXTS and isinstance(text := part.get("text"), str):
        citations = part.get("citations")
        return {**build_text(text), **({"citations": citations} if isinstance(citations, list) else {})}
    if kind == "refusal" and isinstance(text := part.get("refusal"), str):
        return build_text(text)
    if kind == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        return {"type": "image", "source": _build_source(url)} if isinstance(url, str) else None
    if kind == "file" and isinstance(file := part.get("file"), dict):
        return _build_document(part, file)
    return {name: value for name, value in part.items() if name != "cache_control"} if kind in _NATIVE else None


def _build_document(part: Json, file: Json) -> Json | None:
    """Return the document of a file, or its image; None: it has no data."""
    data, file_id = file.get("file_data"), file.get("file_id")
    if isinstance(data, str) and (text := read_text_url(data)) is not None:
        source: Json = {"type": "text", "media_type": "text/plain", "data": text}
    elif isinstance(data, str):
        source = _build_source(data, kind=_PDF)
        if str(source.get("media_type")).startswith("image/"):
            return {"type": "image", "source": source}
    elif isinstance(file_id, str):
        source = {"type": "file", "file_id": file_id}
    else:
        return None
    extras = {name: part[name] for name in _OF_DOCUMENTS if part.get(name) is not None}
    if isinstance(name := file.get("filename"), str) and name:
        extras.setdefault("title", name)
    return {"type": "document", "source": source, **extras}


def _build_source(url: str, *, kind: str = "") -> Json:
    """Return the source of a data URL, of a URL, or of data in base64 of this media type."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "data":
        about, _, data = rest.partition(",")
        media_type, *flags = about.split(";")
        if "base64" not in flags:
            data = base64.b64encode(unquote_to_bytes(data)).decode()
        return {"type": "base64", "media_type": media_type.strip().lower() or "text/plain", "data": data}
    if kind and scheme.lower() not in ("http", "https"):
        return {"type": "base64", "media_type": kind, "data": url}
    return {"type": "url", "url": url}


def _keep_mark(part: Json, block: Json) -> Json:
    """Return a block with the cache mark of its part."""
    mark = part.get("cache_control")
    return {**block, "cache_control": mark} if isinstance(mark, dict) else block
