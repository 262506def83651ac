"""Log lines about unreadable answers of models: the reason, never the answer, and only so many a minute."""

import logging
from dataclasses import dataclass

log = logging.getLogger("gateway")

#: A model that cannot write calls must not fill the log.
LINES, EVERY_S = 20, 60.0


@dataclass(slots=True)
class MalformedLog:
    """The number of lines that one configuration has logged in the current minute."""

    _since_s: float = float("-inf")
    _lines: int = 0

    def report(self, reason: str, *, run_id: str, chain: str, now_s: float) -> None:
        """Log the reason why an answer of this run was dropped. `now_s` is monotonic."""
        if now_s - self._since_s >= EVERY_S:
            if self._lines > LINES:
                log.warning("%d more answers of models were malformed", self._lines - LINES)
            self._since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= LINES:
            log.warning("run %s (chain %s): a malformed answer of the model is dropped: %s", run_id, chain, reason)
