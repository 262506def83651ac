"""The text of events that differ from each other only in their text, as nearly all do, without parsing each. No I/O.

Two events in a row that are alike around their text show its place. The parser proves it once, with another text in
that place. A text with escapes is parsed alone. An event that differs elsewhere is parsed whole.
"""

import re
from collections.abc import Callable
from typing import Final

import orjson

#: A text up to its closing quotation mark, which is not part of it.
_KEY = re.compile(rb'"content":\s?"([^"\\]*+(?:\\.[^"\\]*+)*+)')
#: The text that is parsed in the place of an event's own.
_PROBE: Final = "x"
#: So many events that are not alike, and the answer is no longer looked at.
_TRIES: Final = 16


class TextEvents:
    """The events of one answer. `parse` returns the text of an event with nothing else, else None."""

    __slots__ = ("_around", "_behind", "_parse", "_seen", "_start", "_tries", "_width")

    def __init__(self, parse: Callable[[bytes], str | None]) -> None:
        self._parse = parse
        self._start = self._behind = b""
        self._width = 0  # of what is around a text; 0: it is not known yet
        self._around = self._seen = b"", b""
        self._tries = _TRIES

    def text_of(self, data: bytes) -> str | None:
        """Return the result of `parse` without parsing, or None if the event must be parsed."""
        if not self._width or len(data) < self._width:
            return None
        if not (data.startswith(self._start) and data.endswith(self._behind)):
            return None
        written = data[len(self._start) : len(data) - len(self._behind)]
        try:
            text = written.decode()
            if text.isprintable() and '"' not in text and "\\" not in text:
                return text
        except UnicodeDecodeError:
            return None
        return _unescaped(written)

    def learn(self, data: bytes, text: str) -> None:
        """Learn from an event that was parsed, and its text."""
        if not self._tries or (key := _KEY.search(data)) is None:
            return
        around = data[: key.start(1)], data[key.end(1) :]
        if around == self._around or _unescaped(key[1]) != text:  # known, or another one's content
            return
        self._tries -= 1
        if around == self._seen and self._parse(_PROBE.encode().join(around)) == _PROBE:
            self._start, self._behind = self._around = around
            self._width, self._tries = sum(map(len, around)), _TRIES
        self._seen = around


def _unescaped(written: bytes) -> str | None:
    """Return the text between two quotation marks, or None if it ends before or is invalid."""
    try:
        text: str = orjson.loads(b'"%b"' % written)
    except ValueError:
        return None
    return text
