"""The bound of a server's output that is not a message: a little does no harm, a flood ends the connection."""

import time
from collections.abc import Callable
from typing import Final

#: Of one stream in one minute.
LINES: Final = 100_000
MIB: Final = 256
_MINUTE_S: Final = 60.0


class Noise:
    """The count of input that is not a message, in one stream. `monotonic` is a clock in seconds."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._lines = self._bytes = 0

    def add(self, *, lines: int = 0, size_bytes: int = 0) -> None:
        """Count so many lines and bytes; negative bytes turned out to be a message."""
        now_s = self._monotonic()
        if now_s - self._began_s >= _MINUTE_S:
            self._began_s, self._lines, self._bytes = now_s, 0, 0
        self._lines += lines
        self._bytes += size_bytes

    @property
    def excess(self) -> str | None:
        """Return the reason why the server is to be ended; None: there is none."""
        if self._lines > LINES:
            return f"it wrote more than {LINES:,} lines within a minute that are no messages"
        if self._bytes > MIB << 20:
            return f"it wrote more than {MIB} MiB within a minute that are no messages"
        return None
