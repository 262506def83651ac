"""The content of chat messages as parts of Responses: texts, images, files."""

from collections.abc import Iterator
from typing import Final

from gateway.contracts.storage.store import Json

_TEXTS: Final = frozenset(("text", "input_text", "output_text"))
#: Parts in the form of the API itself.
_NATIVE: Final = frozenset(("input_image", "input_file"))
_DETAILS: Final = frozenset(("low", "high", "original"))
_THOUGHTS: Final = frozenset(("thinking", "redacted_thinking"))
#: The name of a file without one: the API requires it.
_UNNAMED: Final = "document.pdf"


def build_parts(content: object) -> list[Json]:
    """Return the parts of a content."""
    if isinstance(content, str):
        return [build_text_part(content)] if content else []
    return [part for one in content for part in _build_part(one)] if isinstance(content, list) else []


def build_text_part(text: str) -> Json:
    """Return a part with a text."""
    return {"type": "input_text", "text": text}


def build_texts(content: object) -> list[Json]:
    """Return the texts of an answer: the API takes nothing else of it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    parts = content if isinstance(content, list) else ()
    texts = (_get_text(part) for part in parts if isinstance(part, dict))
    return [{"type": "text", "text": text} for text in texts if text]


def list_lost_parts(content: object) -> Iterator[str]:
    """Yield the types of the parts that no part of the API stands for."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and _convert_part(part) is None:
            yield str(part.get("type"))


def _build_part(part: object) -> Iterator[Json]:
    if isinstance(part, str):
        yield from build_parts(part)
        return
    if not isinstance(part, dict) or part.get("type") in _THOUGHTS:
        return  # thoughts go back from `reasoning_details` alone
    converted = _convert_part(part)
    if converted is None:
        text = f"[A part of the type {part.get('type')!r} was left out: this model cannot read it.]"
        yield build_text_part(text)
    elif converted["type"] != "input_text" or converted["text"]:
        yield converted


def _get_text(part: Json) -> str | None:
    """Return the text of a part; None: it has none."""
    kind = part.get("type")
    text = part.get("text") if kind in _TEXTS else part.get("refusal") if kind == "refusal" else None
    return text if isinstance(text, str) else None


def _convert_part(part: Json) -> Json | None:
    """Return the part of the API for one of a chat; None: there is none."""
    if (text := _get_text(part)) is not None:
        return build_text_part(text)
    kind = part.get("type")
    if kind == "image_url":
        return _build_image(part.get("image_url"))
    if kind == "file" and isinstance(file := part.get("file"), dict):
        return _build_file(part, file)
    return part if kind in _NATIVE else None


def _build_image(image: object) -> Json | None:
    url, detail = (image.get("url"), image.get("detail")) if isinstance(image, dict) else (image, None)
    if not isinstance(url, str):
        return None
    return {"type": "input_image", "image_url": url, "detail": detail if detail in _DETAILS else "auto"}


def _build_file(part: Json, file: Json) -> Json | None:
    """Return the part of a file, or its image; None: it has no data."""
    data, file_id = file.get("file_data"), file.get("file_id")
    if not isinstance(data, str):
        return {"type": "input_file", "file_id": file_id} if isinstance(file_id, str) else None
    scheme, _, rest = data.partition(":")
    if scheme.lower() in ("http", "https"):
        return {"type": "input_file", "file_url": data}
    if scheme.lower() == "data" and rest.lower().startswith("image/"):
        return _build_image(data)
    name = file.get("filename") or part.get("title")
    return {"type": "input_file", "filename": name if isinstance(name, str) else _UNNAMED, "file_data": data}
