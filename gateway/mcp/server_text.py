"""The small parts of what an MCP server writes: texts for a reader, addresses, types, data, icons, annotations.

A server is untrusted. Each function returns what a client may see of a value of any shape, or None for what is not what
it should be. What shows on one line is one line, so that it cannot pass for a further line, of the gateway or of
another source.
"""

import binascii
import json
import re
from typing import Any, Final

import orjson

from gateway.contracts.storage.store import Json
from gateway.tools.call_answer import clean_json

DESCRIPTION_CHARS: Final = 16 << 10
LINE_CHARS: Final = 200
ADDRESS_CHARS: Final = 2048
META_BYTES: Final = 16 << 10
ICONS: Final = 8
ICON_CHARS: Final = 64 << 10
_SIZES: Final = 8
#: `_meta` keys with these beginnings are the gateway's own, and the protocol's.
_RESERVED: Final = ("twolane/", "io.modelcontextprotocol/", "modelcontextprotocol.io/")

#: Control and formatting characters: bidirectional, of no width, tags, variation selectors; fillers; halves of pairs.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_BREAKS: Final = re.compile("[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_PIECE: Final = r"[A-Za-z0-9!#$&^_.+-]{1,127}"
_MEDIA_TYPE: Final = re.compile(rf'{_PIECE}/{_PIECE}(?: ?; ?{_PIECE}=(?:{_PIECE}|"[ !#-\[\]-~]{{0,127}}")){{0,8}}')
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,63}):.+")
#: Addresses that are programs or content, for the reader who opens them.
_ACTIVE: Final = frozenset(("javascript", "vbscript", "data", "blob"))
_ICON_DATA: Final = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,(.+)")
_ICON_PLACE: Final = re.compile(r"https://[!#-;=?-\[\]_a-z~]+")
_ICON_SIZE: Final = re.compile(r"[1-9]\d{0,4}x[1-9]\d{0,4}|any")
_TIME: Final = re.compile(r"[0-9TZ:.+-]{4,40}")
_ROLES: Final = ("user", "assistant")


def remove_invisible(text: str) -> str:
    """Return `text` without invisible characters; ends of lines and tabs stay."""
    return _UNSEEN.sub("", text.replace("\r\n", "\n"))


def format_one_line(text: object, most: int = LINE_CHARS) -> str:
    """Return a text on one line, cut to `most` characters; "" for any other value."""
    if not isinstance(text, str):
        return ""
    # Cut before it is cleaned, so that a megabyte costs nothing.
    line = " ".join(remove_invisible(_BREAKS.sub(" ", text[: most * 4])).split())
    return line if len(line) <= most and len(text) <= most * 4 else line[: most - 1].rstrip() + "…"


def clean_description(text: object) -> str:
    """Return a description without invisible characters, cut; "" for any other value."""
    if not isinstance(text, str):
        return ""
    kept = remove_invisible(text[:DESCRIPTION_CHARS]).strip()  # hidden characters may make it shorter than need be
    return kept if len(text) <= DESCRIPTION_CHARS else kept + "…"


def parse_name(value: object) -> str | None:
    """Return a name for requests. It must not be changed, so a name that is not one visible line counts as none."""
    return value if isinstance(value, str) and value and format_one_line(value) == value else None


def parse_uri(value: object) -> str | None:
    """Return the address of a resource: any scheme, except for schemes that carry a program or content."""
    if not isinstance(value, str) or len(value) > ADDRESS_CHARS or (found := _ADDRESS.fullmatch(value)) is None:
        return None
    is_shown = remove_invisible(value) == value and "\t" not in value
    return value if is_shown and found[1].lower() not in _ACTIVE else None


def parse_media_type(value: object, kind: str | None = None) -> str | None:
    """Return a media type (RFC 6838), of this kind if one is named, such as `image`."""
    if not isinstance(value, str) or _MEDIA_TYPE.fullmatch(value) is None:
        return None
    return value if kind is None or value.lower().startswith(f"{kind}/") else None


def parse_base64(value: object) -> str | None:
    """Return base64 (RFC 4648, section 4) without the ends of lines that some encoders write."""
    if not isinstance(value, str):
        return None
    data = value.replace("\r", "").replace("\n", "") if "\r" in value or "\n" in value else value
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return None
    return data if len(data) % 4 == 0 else None  # the decoder lets one `=` too many pass


def parse_meta(value: object) -> Json | None:
    """Return a `_meta` without reserved keys: a server cannot forge the gateway's own notes on a result."""
    if not isinstance(value, dict):
        return None
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return None
    if len(written) > META_BYTES:
        return None
    cleaned: Json = orjson.loads(clean_json(written))
    return {key: item for key, item in cleaned.items() if not key.strip().lower().startswith(_RESERVED)}


def parse_annotations(value: object) -> Json:
    """Return the annotations of content that are of the types of the protocol."""
    if not isinstance(value, dict):
        return {}
    found: Json = {}
    audience, priority, modified = (value.get(key) for key in ("audience", "priority", "lastModified"))
    if isinstance(audience, list) and all(role in _ROLES for role in audience[: len(_ROLES)]):
        found["audience"] = audience[: len(_ROLES)]
    if isinstance(priority, int | float) and not isinstance(priority, bool) and 0 <= priority <= 1:
        found["priority"] = priority
    if isinstance(modified, str) and _TIME.fullmatch(modified):
        found["lastModified"] = modified
    return found


def parse_hints(value: object) -> Json:
    """Return the annotations of a tool that are of the types of the protocol."""
    if not isinstance(value, dict):
        return {}
    hints = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    found: Json = {key: value[key] for key in hints if isinstance(value.get(key), bool)}
    title = format_one_line(value.get("title"))
    return {"title": title, **found} if title else found


def parse_icons(value: object) -> list[Json]:
    """Return the icons that a client may load: over HTTPS, or pictures of dots within."""
    listed = value if isinstance(value, list) else []
    return [icon for one in listed[:ICONS] if isinstance(one, dict) for icon in _parse_icon(one)]


def _parse_icon(value: Json) -> list[Json]:
    """Return an icon that a client may load as a list of one, else []."""
    src, sizes, theme = value.get("src"), value.get("sizes"), value.get("theme")
    if not isinstance(src, str) or not _is_picture(src):
        return []
    icon: Json = {"src": src}
    if (kind := parse_media_type(value.get("mimeType"), "image")) is not None:
        icon["mimeType"] = kind
    if isinstance(sizes, list) and sizes:
        known = [size for size in sizes[:_SIZES] if isinstance(size, str) and _ICON_SIZE.fullmatch(size)]
        icon |= {"sizes": known} if known else {}
    if theme in ("light", "dark"):
        icon["theme"] = theme
    return [icon]


def _is_picture(src: str) -> bool:
    if src.startswith("https://"):
        return len(src) <= ADDRESS_CHARS and _ICON_PLACE.fullmatch(src) is not None
    data = _ICON_DATA.fullmatch(src) if len(src) <= ICON_CHARS else None
    return data is not None and parse_base64(data[1]) == data[1]


def count_sent_bytes(value: object) -> int:
    """Return the size of a value in a message to a client, in bytes. There JSON is ASCII."""
    return len(json.dumps(value, separators=(",", ":")))


def drop_empty(**fields: Any) -> Json:
    """Return the fields that are not empty; `meta` is `_meta`."""
    named = {"_meta" if key == "meta" else key: value for key, value in fields.items()}
    return {key: value for key, value in named.items() if value not in (None, "", {}, [])}
