"""The content of messages and of outputs: text, or a list of parts; checked, and as chat completions have it."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.contracts.storage.store import Json
from gateway.dialects.field_checks import (
    ID_CHARS,
    OBJECT,
    TEXT,
    Kind,
    build_enum_kind,
    build_unsupported_error,
    check_object,
    check_object_fields,
    mark_required,
    refuse,
    refuse_missing,
)

#: Fields of texts, by the type of the part. Clients send the texts of an answer back under any of these types.
_TEXTS: Final[Mapping[str, str]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_IMAGE: Final = {"image_url": TEXT, "file_id": TEXT, "detail": build_enum_kind("auto", "low", "high", "original")}
_FILE: Final = {"file_data": TEXT, "file_id": TEXT, "file_url": TEXT, "filename": TEXT}
_AUDIO: Final = {"data": mark_required(TEXT), "format": mark_required(build_enum_kind("mp3", "wav"))}
_AUDIO_PART: Final = {"input_audio": mark_required(OBJECT)}
_PART: Final = "an object with a 'type'"
_FILES: Final = ("input_image", "input_file", "input_audio")
_CONTENT: Final = Kind(lambda value: type(value) in (str, list), "text, or a list of parts")


def check_content(place: str, content: object, *, files: bool) -> None:
    """Check the content at `place`. `files`: it may have images, files and audio. Raises GatewayError."""
    if type(content) is str:
        return
    if content is None:
        refuse_missing(place, _CONTENT.described)
    if type(content) is not list:
        refuse(place, _CONTENT.described)
    for i, part in enumerate(content):
        _check_part(f"{place}[{i}]", check_object(f"{place}[{i}]", part, _PART), files=files)


def _check_part(place: str, part: Json, *, files: bool) -> None:
    """Raise GatewayError (missing_field, invalid_field, unsupported_parameter) unless a part is valid."""
    kind = part.get("type")
    if type(kind) is str and (field := _TEXTS.get(kind)) is not None:
        if type(part.get(field)) is not str:
            check_object_fields(place, part, {field: mark_required(TEXT)})
        return
    if kind is None:
        refuse_missing(f"{place}.type", _describe_types(files=files))
    if kind not in _FILES or not files:
        refuse(f"{place}.type", _describe_types(files=files))
    match kind:
        case "input_image":
            check_object_fields(place, part, _IMAGE)
            _check_image(place, part)
        case "input_file":
            check_object_fields(place, part, _FILE)
            _check_file(place, part)
        case "input_audio":
            check_object_fields(place, part, _AUDIO_PART)
            check_object_fields(f"{place}.input_audio", part["input_audio"], _AUDIO)


def _describe_types(*, files: bool) -> str:
    """Return the types that clients see."""
    types = ("input_text", "input_image", "input_file", "input_audio") if files else ("input_text", "output_text")
    return f"one of {', '.join(types)}"


def _check_image(place: str, part: Json) -> None:
    """Raise GatewayError unless an image part has its data as a URL."""
    if part.get("file_id") is not None:
        raise build_unsupported_error(
            f"{place}.file_id", "send the image itself in 'image_url', as a URL or a data URL"
        )
    if not part.get("image_url"):
        refuse_missing(f"{place}.image_url", "a URL or a data URL")


def _check_file(place: str, part: Json) -> None:
    """Raise GatewayError unless a file part has its data, or a short id."""
    if part.get("file_url") is not None:
        raise build_unsupported_error(f"{place}.file_url", "send the file itself in 'file_data', with a 'filename'")
    if not part.get("file_data") and not part.get("file_id"):
        refuse_missing(f"{place}.file_data", "a data URL with the file")
    if len(part.get("file_id") or "") > ID_CHARS:
        refuse(f"{place}.file_id", f"text of 1 to {ID_CHARS} characters")


def convert_to_chat_content(content: str | Sequence[Json], *, between: str = "\n") -> str | list[Json]:
    """Return checked content for chat completions: one text if it is nothing but text, else a list of parts.

    `between` joins several texts to one, which each model server understands.
    """
    if isinstance(content, str):
        return content
    if all(part["type"] in _TEXTS for part in content):
        return between.join(map(get_text, content))
    return [_convert_part(part) for part in content]


def split_text_and_files(content: str | Sequence[Json]) -> tuple[str, list[Json]]:
    """Return the text of checked content, and its other parts for chat completions."""
    if isinstance(content, str):
        return content, []
    text = "\n".join(get_text(part) for part in content if part["type"] in _TEXTS)
    return text, [_convert_part(part) for part in content if part["type"] not in _TEXTS]


def get_text(part: Json) -> str:
    """Return the text of a checked part that is one."""
    text: str = part[_TEXTS[part["type"]]]
    return text


def _convert_part(part: Json) -> Json:
    """Return a checked content part as chat completions have it."""
    match part["type"]:
        case "input_image":
            image = {"url": part["image_url"]}
            if part.get("detail") is not None:
                image["detail"] = part["detail"]
            return {"type": "image_url", "image_url": image}
        case "input_file":
            names = ("file_data", "file_id", "filename")
            return {"type": "file", "file": {name: part[name] for name in names if part.get(name) is not None}}
        case "input_audio":
            audio = part["input_audio"]
            return {"type": "input_audio", "input_audio": {"data": audio["data"], "format": audio["format"]}}
    return {"type": "text", "text": get_text(part)}
