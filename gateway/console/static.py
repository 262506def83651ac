"""The files of the console: style, scripts and the icon, read once, each under an address that names its content."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/console/static/"
#: The files that are served, with their types; nothing else of the folder is.
TYPES: Final[Mapping[str, str]] = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "sse.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


@cache
def load_content(name: str) -> bytes:
    """Return the content of a file. Raises KeyError for one that is not served."""
    TYPES[name]
    return (FOLDER / name).read_bytes()


@cache
def build_static_url(name: str) -> str:
    """Return the address of a file. It changes with the content, so that a browser may store it for ever."""
    return f"{PREFIX}{name}?v={hashlib.sha256(load_content(name)).hexdigest()[:16]}"


def answer_static_file(name: str) -> web.Response | None:
    """Return the answer with a file, or None if it does not exist."""
    if name not in TYPES:
        return None
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Content-Security-Policy": "default-src 'none'",
    }
    return web.Response(body=load_content(name), content_type=TYPES[name], charset="utf-8", headers=headers)
