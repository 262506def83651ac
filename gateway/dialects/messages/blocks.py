"""Blocks of a user or of a tool's result as parts of chat completions, checked.

What chat completions lack stands beside a part under the name that it has in Messages: `cache_control`, `citations`,
`title` and `context`. A block for which they have no part stays as it came: a `search_result`, a `document` of blocks.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.document_texts import build_text_url
from gateway.dialects.field_checks import (
    ANYTHING,
    ID_CHARS,
    LIST,
    OBJECT,
    TEXT,
    Kind,
    build_enum_kind,
    build_unsupported_error,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)

#: Returns a place such as `messages[2].content[0]`, which most blocks never need.
Place: TypeAlias = Callable[[], str]

_EACH: Final[Mapping[str, Kind]] = {"type": TEXT, "cache_control": OBJECT}
TEXT_FIELDS: Final[Mapping[str, Kind]] = {**_EACH, "text": mark_required(TEXT), "citations": LIST}
_CITATIONS: Final = Kind(lambda value: type(value) is dict, "an object with 'enabled'")
_IMAGE: Final[Mapping[str, Kind]] = {**_EACH, "source": mark_required(OBJECT), "transformations": ANYTHING}
_DOCUMENT: Final[Mapping[str, Kind]] = {
    **_EACH,
    "source": mark_required(OBJECT),
    "title": TEXT,
    "context": TEXT,
    "citations": _CITATIONS,
}
_SEARCH_RESULT: Final[Mapping[str, Kind]] = {
    **_EACH,
    "source": mark_required(TEXT),
    "title": mark_required(TEXT),
    "content": mark_required(LIST),
    "citations": _CITATIONS,
}
_BASE64: Final[Mapping[str, Kind]] = {
    "type": TEXT,
    "media_type": mark_required(TEXT),
    "data": mark_required(TEXT),
}
_IMAGE_BASE64: Final[Mapping[str, Kind]] = {
    **_BASE64,
    "media_type": mark_required(build_enum_kind("image/jpeg", "image/png", "image/gif", "image/webp")),
}
_PDF_BASE64: Final[Mapping[str, Kind]] = {**_BASE64, "media_type": mark_required(build_enum_kind("application/pdf"))}
_PLAIN_TEXT: Final[Mapping[str, Kind]] = {**_BASE64, "media_type": mark_required(build_enum_kind("text/plain"))}
_URL: Final[Mapping[str, Kind]] = {"type": TEXT, "url": mark_required(TEXT)}
_CONTENT: Final[Mapping[str, Kind]] = {
    "type": TEXT,
    "content": mark_required(Kind(lambda value: type(value) in (str, list), "text, or a list of text blocks")),
}
#: Fields that a part keeps beside it.
_BESIDE: Final = ("cache_control", "title", "context", "citations", "transformations")
_NO_FILES: Final = "the gateway keeps no files: send the content itself, in a source of the type 'base64' or 'url'"
#: Types of blocks that a user or a tool's result may have.
USER_TYPES: Final = ("text", "image", "document", "search_result", "tool_result")


def convert_text(place: Place, block: Json) -> Json:
    """Return a text block as a part. It is the same, so a block that is checked stays the object that it is."""
    if len(block) == 2 and type(block.get("text")) is str:  # as nearly all are: a type and a text
        return block
    check_object_fields(place(), block, TEXT_FIELDS, closed=True)
    return {name: value for name, value in block.items() if value is not None}


def convert_part(place: Place, block: Json, *, among: tuple[str, ...] = USER_TYPES) -> Json:
    """Return a block as a part. `among` are the types that may be there. Raises GatewayError."""
    match block.get("type"):
        case "text":
            return convert_text(place, block)
        case "image":
            check_object_fields(place(), block, _IMAGE, closed=True)
            return {"type": "image_url", "image_url": {"url": _read_image(f"{place()}.source", block["source"])}} | (
                _select_side_fields(block)
            )
        case "document":
            check_object_fields(place(), block, _DOCUMENT, closed=True)
            return _convert_document(f"{place()}.source", block)
        case "search_result":
            check_object_fields(place(), block, _SEARCH_RESULT, closed=True)
            _check_texts(f"{place()}.content", block["content"])
            return block
        case kind:
            raise build_unknown_block_error(f"{place()}.type", kind, among)


def build_unknown_block_error(place: str, kind: object, among: tuple[str, ...]) -> GatewayError:
    """Return the error of a block of another type, which it names."""
    there_are = ", ".join(among)
    if type(kind) is not str:
        return GatewayError("invalid_field", f"'{place}' must be one of {there_are}.", param=place)
    text = (
        f"'{place}': a block of the type '{kind[:ID_CHARS]}' is not offered in context mode, which runs no server "
        f"tools. There are: {there_are}."
    )
    return GatewayError("invalid_field", text, param=place)


def get_parts(place: Place, content: object) -> list[Json]:
    """Return content as a list of blocks, each an object. Raises GatewayError."""
    if type(content) is str:
        return [{"type": "text", "text": content}]
    if content is None:
        refuse_missing(place(), "text, or a list of blocks")
    if type(content) is not list:
        refuse(place(), "text, or a list of blocks")
    for i, block in enumerate(content):
        if type(block) is not dict:
            refuse(f"{place()}[{i}]", "an object with a 'type'")
    return content


def simplify(parts: list[Json]) -> str | list[Json]:
    """Return parts as a text, if they are one text and nothing else: each model server takes that."""
    if len(parts) == 1 and len(parts[0]) == 2 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts


def _select_side_fields(block: Json) -> Json:
    return {name: block[name] for name in _BESIDE if block.get(name) is not None}


def _read_image(place: str, source: Json) -> str:
    """Return the URL of an image; one in Base64 has a data URL. Raises GatewayError."""
    url: str
    match source.get("type"):
        case "base64":
            check_object_fields(place, source, _IMAGE_BASE64, closed=True)
            url = f"data:{source['media_type']};base64,{source['data']}"
        case "url":
            check_object_fields(place, source, _URL, closed=True)
            url = source["url"]
        case "file":
            raise build_unsupported_error(place, _NO_FILES)
        case _:
            refuse(f"{place}.type", "one of base64, url")
    return url


def _convert_document(place: str, block: Json) -> Json:
    """Return a document as a file. Raises GatewayError."""
    source = block["source"]
    match source.get("type"):
        case "base64":
            check_object_fields(place, source, _PDF_BASE64, closed=True)
            data = f"data:application/pdf;base64,{source['data']}"
        case "url":
            check_object_fields(place, source, _URL, closed=True)
            data = source["url"]
        case "text":
            check_object_fields(place, source, _PLAIN_TEXT, closed=True)
            data = build_text_url(source["data"])
        case "content":
            check_object_fields(place, source, _CONTENT, closed=True)
            _check_texts(f"{place}.content", source["content"])
            return block
        case "file":
            raise build_unsupported_error(place, _NO_FILES)
        case _:
            refuse(f"{place}.type", "one of base64, url, text, content")
    named = {"filename": title} if (title := block.get("title")) else {}
    return {"type": "file", "file": {**named, "file_data": data}, **_select_side_fields(block)}


def _check_texts(place: str, content: object) -> None:
    """Check a text or a list of text blocks. Raises GatewayError."""
    for i, block in enumerate(get_parts(lambda: place, content)):
        if block.get("type") != "text":
            raise build_unknown_block_error(f"{place}[{i}].type", block.get("type"), ("text",))
        check_object_fields(f"{place}[{i}]", block, TEXT_FIELDS, closed=True)
