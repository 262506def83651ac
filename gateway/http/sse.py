"""Server-sent events: from bytes, however they arrive, to the data of each event, and back.

Follows the HTML standard ("Server-sent events", parsing an event stream) as far as model streams use it: events of
`data:` lines, comments and other fields skipped, LF, CRLF or CR as line end, one BOM at the start.
"""

import re

#: Longest event taken from an upstream.
EVENT_LIMIT_BYTES = 16 << 20
_END = re.compile(rb"\n\n|\r\n\r\n|\r\r|\n\r\n|\r\n\n")
_LINE = re.compile(rb"\r\n|\n|\r")
#: The beginning of an event that what comes next is added to, so that whole events are found in the quicker way.
_SHORT_BYTES = 2048
_CR = ord("\r")


class EventError(ValueError):
    """One event of the stream is too large."""


class EventReader:
    """Reads an event stream. Linear in what it is fed; `held` is at most one unfinished event."""

    __slots__ = ("_begun", "_searched", "held")

    def __init__(self) -> None:
        self.held = bytearray()
        self._searched = 0  # `held` has no end before this place
        self._begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of each event that is whole by now. Raises EventError."""
        if self.held and len(self.held) <= _SHORT_BYTES:
            data = bytes(self.held) + data
            self.held.clear()
            self._searched = 0
        if not self._begun:
            if len(data) < 3 and b"\xef\xbb\xbf".startswith(data):
                self.held += data
                return []
            self._begun = True
            data = data.removeprefix(b"\xef\xbb\xbf")
        if not self.held and data.startswith(b"data: ") and (end := data.rfind(b"\n\n")) > 0:
            whole = data if end == len(data) - 2 else data[: end + 2]
            if _CR not in whole:
                events = whole[6:-2].split(b"\n\ndata: ")
                if whole.count(b"\n") == 2 * len(events):  # nothing but events of one line
                    return events if whole is data else events + self._take_events(data[end + 2 :])
        if not self.held and data.startswith(b"event: ") and (end := data.rfind(b"\n\n")) > 0:
            named = _split_named_events(data[:end])
            if named is not None:
                return named if end == len(data) - 2 else named + self._take_events(data[end + 2 :])
        return self._take_events(data)

    def _take_events(self, data: bytes) -> list[bytes]:
        """Take the whole events out of the held bytes, and return their data. Raises EventError."""
        held = self.held
        held += data
        events: list[bytes] = []
        start = 0
        for end in _END.finditer(held, self._searched):
            block = held[start : end.start()]
            start = end.end()
            lines = [line for line in _LINE.split(block) if line.startswith(b"data")]
            values = [_read_value(line) for line in lines if line[4:5] in (b"", b":")]
            if values:
                events.append(b"\n".join(values))
        del held[:start]
        self._searched = max(len(held) - 3, 0)
        if len(held) > EVENT_LIMIT_BYTES:
            raise EventError("an event is too large")
        return events


def _split_named_events(data: bytes) -> list[bytes] | None:
    """Return the data of events that are a name and one line of data; None: others are among them."""
    blocks = data.split(b"\n\n")
    gaps = len(blocks) - 1
    if _CR in data or data.count(b"\n") != 3 * gaps + 1 or data.count(b"\n\nevent: ") != gaps:
        return None
    try:
        return [block[block.index(b"\ndata: ") + 7 :] for block in blocks]
    except ValueError:
        return None


def _read_value(line: bytes | bytearray) -> bytes:
    return bytes(line[5:]).removeprefix(b" ")


def format_event(data: bytes) -> bytes:
    """Return `data` as one event; it must have no line end (JSON has none)."""
    return b"data: " + data + b"\n\n"
