"""The text of events that differ from each other only in their text, as nearly all do, without parsing each. No I/O.

The first event shows the place of its text, and later two in a row that are alike around theirs. The parser proves it
once, with another text in that place. A text with escapes is parsed alone. An event that differs elsewhere is parsed
whole.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import orjson

#: A text up to its closing quotation mark, which is not part of it, in chat completions and in Messages.
CHAT_TEXT: Final = re.compile(rb'"content":\s?"([^"\\]*+(?:\\.[^"\\]*+)*+)')
MESSAGES_TEXT: Final = re.compile(rb'"text":\s?"([^"\\]*+(?:\\.[^"\\]*+)*+)')
#: The text that is parsed in the place of an event's own.
_PROBE: Final = "x"
#: So many events that are not alike, and the answer is no longer looked at.
_TRIES: Final = 16
#: What is in front of a text and behind it, and the lengths of both.
_Place: TypeAlias = tuple[bytes | tuple[()], bytes, int, int]
#: Nothing begins with one of no texts.
_NOWHERE: Final[_Place] = ((), b"", 0, 0)


class TextEvents:
    """The events of one answer. `parse` returns the text of an event with nothing else, else None.

    `key` finds the text, and `line` is what a stream has in front of the data of such an event.
    """

    __slots__ = ("_around", "_bare", "_framed", "_key", "_line", "_parse", "_seen", "_tries")

    def __init__(
        self,
        parse: Callable[[bytes], str | None],
        *,
        key: re.Pattern[bytes] = CHAT_TEXT,
        line: bytes = b"data: ",
    ) -> None:
        self._parse = parse
        self._key = key
        self._line = line
        self._around = b"", b""
        self._bare = self._framed = _NOWHERE
        self._seen: tuple[bytes, bytes] | None = None
        self._tries = _TRIES

    def find_text(self, data: bytes, *, framed: bool = False) -> str | None:
        """Return the result of `parse` without parsing, or None if the event must be parsed.

        `framed`: the data is that of a stream, its line in front and an empty line behind. Several events are None.
        """
        start, behind, begins, ends = self._framed if framed else self._bare
        if not (data.startswith(start) and data.endswith(behind)):
            return None
        written = data[begins:-ends]
        if not written:  # also where the end of `start` is the beginning of `behind`
            return "" if len(data) == begins + ends else None
        try:
            text = written.decode()
            if text.isprintable() and '"' not in text and "\\" not in text:
                return text
        except UnicodeDecodeError:
            return None
        return _decode_string(written)

    def learn_shape(self, data: bytes, text: str) -> None:
        """Learn from an event that was parsed, and its text."""
        if (
            not self._tries or text == _PROBE or (key := self._key.search(data)) is None
        ):  # itself, a probe proves nothing
            return
        around = data[: key.start(1)], data[key.end(1) :]
        if around == self._around or _decode_string(key[1]) != text:  # known, or another one's content
            return
        self._tries -= 1
        if self._seen in (None, around) and self._parse(_PROBE.encode().join(around)) == _PROBE:
            self._around, self._tries = around, _TRIES
            self._bare = _build_place(*around)
            self._framed = _NOWHERE if b"\n" in data else _build_place(self._line + around[0], around[1] + b"\n\n")
        self._seen = around


def _build_place(start: bytes, behind: bytes) -> _Place:
    return start, behind, len(start), len(behind)


def _decode_string(written: bytes) -> str | None:
    """Return the text between two quotation marks, or None if it ends before or is invalid."""
    try:
        text: str = orjson.loads(b'"%b"' % written)
    except ValueError:
        return None
    return text
