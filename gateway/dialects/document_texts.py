"""The texts in documents of a message. A plain text comes as a data URL in `file_data`, and others come in blocks.

A model reads them as it reads any text of the message. So guards read them here, and so does the search for calls that
a model only repeats.
"""

import base64
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

_SCHEME: Final = "data:"
_TEXTS: Final = "text/"
_PLAIN: Final = "text/plain"
_IN_BASE64: Final = "base64"
_PADDING: Final = "=="


def read_text_url(url: str) -> str | None:
    """Return the text that a data URL holds; None: it holds something else, or is another URL.

    Padding may be missing, and other characters count as nothing: some servers read such data all the same.
    """
    found = _split_text_url(url)
    if found is None:
        return None
    flags, data = found
    if _IN_BASE64 not in flags:
        return unquote_to_bytes(data).decode(errors="replace")
    try:
        return base64.b64decode(data + _PADDING).decode(errors="replace")
    except ValueError:
        return None


def build_text_url(text: str, *, like: str = "") -> str:
    """Return a data URL that holds a text, of the media type of another one: `like`."""
    found = _split_text_url(like)
    flags = (_PLAIN,) if found is None else found[0]
    about = ";".join([flag for flag in flags if flag != _IN_BASE64])
    data = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
    return f"{_SCHEME}{about};{_IN_BASE64},{data}"


def iterate_leaf_texts(value: object) -> Iterator[str]:
    """Yield the texts in a value in their order. A data URL stands for the text that it holds, if any."""
    left = [value]
    while left:
        match left.pop():
            case str(text) if _is_data_url(text):
                yield read_text_url(text) or ""
            case str(text):
                yield text
            case dict() as fields:
                left += reversed(fields.values())
            case list() | tuple() as entries:
                left += reversed(entries)


def _is_data_url(text: str) -> bool:
    return text[: len(_SCHEME)].lower() == _SCHEME


def _split_text_url(url: str) -> tuple[list[str], str] | None:
    """Return the media type with its flags, and the data, of a data URL with a text; None for any other URL."""
    if not _is_data_url(url):
        return None
    about, _, data = url[len(_SCHEME) :].partition(",")
    media_type, *flags = about.split(";")
    if not (media_type.strip().lower() or _PLAIN).startswith(_TEXTS):
        return None
    return [media_type, *flags], data
