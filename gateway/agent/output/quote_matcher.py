"""The search for a model's call in a text: another author wrote the call, and the model may only repeat it.

The whole call is compared: its tool, and its arguments by name and value. The two texts may differ in white space, the
order of keys, the names of the keys around (`name` and `arguments` for `tool` and `parameters`), and a risk level. A
text may also have been written as a string into another any number of times. So quotation marks, backslashes, white
space, case and characters that do not show count as nothing. Escapes count as the characters that they stand for. The
search is linear; where it would not be, the answer is yes.
"""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from gateway.contracts.calls import FoundCall
from gateway.tools.risk_level import resembles

#: So much of a text is searched at a time; the interpreter is held for 1 to 3 ms.
PIECE_CHARS: Final = 1 << 18
#: A call may be so much longer than its tool and arguments: keys beside them, a level, an id.
ROOM_BYTES: Final = 400
#: So many bytes are examined around the names of the tool, in all. A text with more of them is taken for a quote.
EXAMINED_BYTES: Final = 1 << 24
#: So often an escape may be escaped.
ESCAPED: Final = 3
#: So many of the values of a call, the longest ones, distinguish it from others.
VALUES: Final = 32

_BACKSLASHES = re.compile(rb"\\{2,}")
_NO_ESCAPE = re.compile(rb"\\(?!u[0-9A-Fa-f]{4})")
_ENTITY = re.compile(rb"&(?:amp;)*(?:(amp|quot|apos|lt|gt|nbsp)|#([0-9]{1,6})|#x([0-9a-f]{1,5}));", re.IGNORECASE)
_ENTITIES = {b"amp": b"&", b"lt": b"<", b"gt": b">"}
_CONTROLS = bytes(range(32))
#: One pass, each run of backslashes as a whole: the rest of one escape does not belong to another.
_WHITE_ESCAPES = re.compile(rb"(?<!\\)\\++[nrtbfNRTBF]")
_NOTHING = _CONTROLS + b" \\\"'`"
_LOWER = bytes(range(256)).lower()
#: White space and quotation marks beyond ASCII, and characters that do not show: each counts as a quotation mark.
_UNSEEN = re.compile(
    "[\u00a0\u00ad\u180e\u2000-\u200f\u2018-\u201f\u2028-\u202f\u205f-\u206f\u3000\ufe00-\ufe0f\ufeff]"
)
_TOOL_KEYS = (b"tool:", b"name:", b"function:")
_ARGUMENT_KEYS = (b"parameters:", b"arguments:", b"params:", b"args:", b"input:")
#: Texts with one of these may name the tool in another spelling.
_SPELLINGS = ("\\u", "\\_", "\\-", "\\.", "&#")
#: No escape and no entity goes beyond one of these.
_CUTS = (" ", "\n", ",", "}")
_CUT_CHARS = 200


class Quote:
    """One call, to be searched for in any number of texts.

    Most texts do not name its tool: nothing is computed for these.
    """

    def __init__(self, call: FoundCall) -> None:
        self._call = call
        self._name = call.tool
        self._examined = 0

    @cached_property
    def _tool(self) -> bytes:
        return _normalize_text(self._name)

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self._call.parameters.items() if not resembles(name)}

    @cached_property
    def _search_radius_bytes(self) -> int:
        """Return the number of bytes that are searched around the tool's name."""
        return ROOM_BYTES + 2 * len(_normalize_text(json.dumps({self._name: self._arguments}, ensure_ascii=False)))

    @cached_property
    def _parts(self) -> list[bytes]:
        """Return the longest distinctive parts of the arguments, VALUES at most."""
        return sorted({value for value in _iterate_argument_parts(self._arguments) if value}, key=len, reverse=True)[
            :VALUES
        ]

    def has_match(self, text: str) -> bool:
        """Return whether the text contains the call. It takes some 10 ms for a MB that names the tool."""
        if len(text) <= PIECE_CHARS and not self._may_name(text):
            return False
        size = max(PIECE_CHARS, self._search_radius_bytes)
        if not any(map(self._may_name, _split_at_boundaries(text, size))):
            return False
        behind = b""
        for piece in _split_at_boundaries(text, size):
            data = behind + _normalize_text(piece)
            if self._contains_call(data):
                return True
            behind = data[-self._search_radius_bytes :]
        return False

    def _may_name(self, text: str) -> bool:
        """Return whether the text names the tool, or may name it in another spelling. Most texts do not."""
        if self._name in text or any(mark in text for mark in _SPELLINGS):
            return True
        return not text.isascii() and _UNSEEN.search(text) is not None

    def _contains_call(self, data: bytes) -> bool:
        """Return whether tool name and distinctive arguments are near each other; True beyond EXAMINED_BYTES."""
        if not all(value in data for value in (self._tool, *self._parts)):
            return False
        for key in _TOOL_KEYS:
            at = data.find(key + self._tool)
            while at >= 0:
                around = data[max(0, at - self._search_radius_bytes) : at + self._search_radius_bytes]
                self._examined += len(around) * (1 + len(self._parts))
                if self._examined > EXAMINED_BYTES:
                    return True
                if any(key in around for key in _ARGUMENT_KEYS) and all(value in around for value in self._parts):
                    return True
                at = data.find(key + self._tool, at + 1)
        return False


def _iterate_argument_parts(value: object, name: bytes = b"") -> Iterator[bytes]:
    """Yield the parts that distinguish these arguments from others: each name with its value.

    A fraction has many spellings, so only its name counts.
    """
    match value:
        case dict():
            for key, inner in value.items():
                yield from _iterate_argument_parts(inner, _normalize_text(key) + b":")
        case list() if all(isinstance(inner, str | int) for inner in value):
            yield name + b"[%b]" % b",".join(spelled for inner in value for spelled in _iterate_argument_parts(inner))
        case list():
            for inner in value:
                yield from _iterate_argument_parts(inner)
        case str():
            yield name + _normalize_text(value)
        case bool():
            yield name + (b"true" if value else b"false")
        case int():
            yield name + str(value).encode()
        case _:
            yield name


def _normalize_text(text: str) -> bytes:
    """Return a text without the characters that do not count."""
    if not text.isascii():
        text = _UNSEEN.sub('"', text)
    data = text.encode("utf-8", "replace")
    if b"&" in data:
        data = _ENTITY.sub(_decode_entity, data)
    for _ in range(ESCAPED):
        if b"\\u" in data:
            data = _unescape(data)
    if b"\\" in data:
        data = _WHITE_ESCAPES.sub(b"", data)
    return data.translate(_LOWER, _NOTHING)


def _unescape(data: bytes) -> bytes:
    """Return the data with the characters that escapes stand for.

    It is read as one JSON string: a call for each escape takes ten times as long.
    """
    data = _BACKSLASHES.sub(rb"\\", _WHITE_ESCAPES.sub(b"", data))
    data = data.replace(rb"\"", b"").translate(None, b'"' + _CONTROLS)
    text: str = json.loads(b'"%b"' % _NO_ESCAPE.sub(b"", data))
    return _UNSEEN.sub('"', text).encode("utf-8", "replace")


def _decode_entity(found: re.Match[bytes]) -> bytes:
    name, decimal, code = found.groups()
    if name is not None:
        return _ENTITIES.get(name.lower(), b'"')
    return _UNSEEN.sub('"', chr(int(decimal or b"0") or int(code or b"0", 16))).encode("utf-8", "replace")


def _split_at_boundaries(text: str, size: int) -> Iterator[str]:
    """Yield the text in pieces of about `size` characters, split at boundaries where possible."""
    at = 0
    while at < len(text):
        end = at + size
        if end < len(text):
            end = max(text.rfind(cut, end - _CUT_CHARS, end) + 1 for cut in _CUTS) or end
        yield text[at:end]
        at = end
