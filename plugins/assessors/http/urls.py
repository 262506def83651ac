"""The parts of an http(s) URL, split in the one way that all clients agree on. Other URLs are refused."""

import re
from dataclasses import dataclass
from urllib.parse import unquote_plus

from gateway.plugin.word_lists import split_words

from .hosts import UrlHost, classify

MAX_CHARS = 8_192
MAX_PARAMETERS = 256
_SHAPE = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*+)://(?P<authority>[^/?#\\]*+)(?P<path>[^?#]*+)(?P<rest>.*+)", re.DOTALL
)
_PORT = re.compile(r"[0-9]{1,5}")
_UNSAFE = re.compile("[\0-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff\ufeff]")
_SCHEME_INSIDE = re.compile(r"(?:[a-z][a-z0-9+.-]{0,20}:)?//[^/?#&\s]", re.IGNORECASE)
#: Ports that browsers refuse, because what listens there can be made to take a request for its own protocol
#: (fetch.spec.whatwg.org, "bad port"), and databases that people expose without a password.
BLOCKED_PORTS = frozenset(
    int(port)
    for port in split_words("""
        1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119
        123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989
        990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6379 6566 6665 6666 6667 6668 6669 6679 6697
        10080 11211
    """)
)


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of one URL. `query` is a tuple of decoded (name, value) pairs.

    `target_chars` counts path and query as written.
    """

    scheme: str
    host: UrlHost
    port: int | None
    path: str
    query: tuple[tuple[str, str], ...]
    target_chars: int


def split_url(text: str) -> Url | str:
    """Return the parts of `text`, or the reason why a person must decide on it. Never raises."""
    if len(text) > MAX_CHARS:
        return "it is too long"
    if _UNSAFE.search(text) or text != text.strip():
        return "it has control characters or white space around it"
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return "it is not an absolute http or https URL"
    scheme, authority, path, rest = shape.group("scheme").lower(), shape["authority"], shape["path"], shape["rest"]
    if scheme not in ("http", "https"):
        return f"its scheme is {scheme[:20]!r}"
    query, _, fragment = rest.removeprefix("?").partition("#") if rest.startswith("?") else ("", "", rest[1:])
    if query.count("&") >= MAX_PARAMETERS:
        return f"it has more than {MAX_PARAMETERS} parameters"
    if "@" in authority:
        return "it has user information in front of the host"
    if "\\" in path or (fragment.startswith("@") or (not path and not query and "@" in fragment)):
        return "clients do not agree where its host ends"
    host, port = _read_authority(authority)
    if port is not None and (port == 0 or port > 65535 or port in BLOCKED_PORTS):
        return "its port is none of the web"
    if host is None or host.reach == "unclear":
        return "its host is not spelled in the usual way"
    return Url(scheme, host, port, path, split_pairs(query), len(path) + len(query))


def _read_authority(authority: str) -> tuple[UrlHost | None, int | None]:
    name, colon, port = authority, "", ""
    if authority.startswith("["):
        name, bracket, after = authority.partition("]")
        name, colon, port = name + bracket, after[:1], after[1:]
        if colon not in ("", ":"):
            return None, None
    elif ":" in authority:
        name, colon, port = authority.partition(":")
    if colon and not _PORT.fullmatch(port):
        return None, None
    return classify(name), int(port) if colon else None


def split_pairs(query: str) -> tuple[tuple[str, str], ...]:
    """Return the decoded names and values of a query. A `;`, which separates for some servers, stays in its value."""
    found = (piece.partition("=") for piece in query.split("&") if piece)
    return tuple((unquote_plus(name), unquote_plus(value)) for name, _, value in found)


def find_embedded_urls(text: str) -> list[str]:
    """Return the absolute URLs in a decoded query value or a path, also URLs percent-encoded once more."""
    decoded = unquote_plus(text)
    return [each[match.start() :] for each in {text, decoded} if (match := _SCHEME_INSIDE.search(each))]
