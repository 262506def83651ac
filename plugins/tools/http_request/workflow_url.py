"""The values of a workflow in a URL, as data: no value adds a parameter, leaves its path segment or names a user.

In path, query and fragment a value is percent-encoded (RFC 3986, section 2.1). In the authority only letters, digits,
dots and hyphens can stand, in the scheme no value at all.
"""

import re
from collections.abc import Sequence
from urllib.parse import quote

from gateway.plugin.templates import TemplateValue

_HOST = re.compile(r"[A-Za-z0-9.-]*")
_DOTS = re.compile(r"\.+")


def build_url(pieces: Sequence[str | TemplateValue]) -> str:
    """Return the URL. Raises ValueError for a value that its place cannot take."""
    url = ""
    for piece in pieces:
        url += piece if isinstance(piece, str) else _encode_value(piece, url)
    return url


def _encode_value(value: TemplateValue, before: str) -> str:
    _, separator, rest = before.partition("://")
    if not separator:
        raise ValueError(f"{{{{{value.name}}}}} stands in the scheme of the URL: write the scheme out")
    if not any(mark in rest for mark in "/?#"):
        if not _HOST.fullmatch(value.text):
            raise ValueError(f"the value of {{{{{value.name}}}}} is no part of a host's name")
        return value.text
    if _DOTS.fullmatch(value.text) and "?" not in rest and "#" not in rest:
        raise ValueError(f"the value of {{{{{value.name}}}}} leads out of its place in the path")
    return quote(value.text, safe="")
