"""Logs exchanges with an upstream that failed: the first of each cause at once, further ones together, once a minute.

So an operator reads which upstream fails and why without an access log, and one that is down cannot fill the disk.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.upstream.endpoint import Endpoint

log = logging.getLogger("gateway")

#: Codes of errors that an upstream is at fault for.
UPSTREAMS_FAULT: Final = frozenset(("upstream_error", "upstream_timeout", "upstream_refused"))
#: Seconds in which failures of one cause share a line.
EVERY_S: Final = 60.0
#: So many causes have lines of their own at a time: what an upstream writes may be a part of one, and new each time.
MOST_CAUSES: Final = 16
_OTHERS: Final = "several other causes"


@dataclass(slots=True)
class _CauseState:
    """One cause: until when further failures are only counted, how many were, and the last one's id."""

    until_s: float
    more: int = 0
    last_id: str | None = None


class Failures:
    """The failures of one upstream. `clock` is monotonic, in seconds."""

    def __init__(self, endpoint: Endpoint, *, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._seen: dict[str, _CauseState] = {}

    def record_failure(self, cause: str, *, request_id: str | None = None) -> None:
        """Log a failure, or count it for the next line. `cause` is a sentence that names the upstream.

        `request_id` None: the client has the head of the upstream's answer, and so no id of the gateway.
        """
        now_s = self._clock()
        if cause not in self._seen and len(self._seen) >= MOST_CAUSES:
            cause = _OTHERS
        seen = self._seen.get(cause)
        if seen is not None and now_s < seen.until_s:
            seen.more += 1
            seen.last_id = request_id
            return
        if seen is not None and seen.more:
            self._log_failure(cause, seen.last_id, more=seen.more)
        self._seen[cause] = _CauseState(now_s + EVERY_S)
        self._log_failure(cause, request_id)

    def log_suppressed(self) -> None:
        """Log how many failures had no line of their own in the last minute. To be called often."""
        if not self._seen:
            return
        now_s = self._clock()
        for cause, seen in [(cause, seen) for cause, seen in self._seen.items() if now_s >= seen.until_s]:
            del self._seen[cause]
            if seen.more:
                self._log_failure(cause, seen.last_id, more=seen.more)
                self._seen[cause] = _CauseState(now_s + EVERY_S)

    def flush(self) -> None:
        """Log how many failures had no line of their own yet."""
        seen, self._seen = self._seen, {}
        for cause, one in seen.items():
            if one.more:
                self._log_failure(cause, one.last_id, more=one.more)

    def _log_failure(self, cause: str, request_id: str | None, *, more: int | None = None) -> None:
        """Log a failure; `more` counts failures without a line of their own."""
        address = f"{self._endpoint.host}:{self._endpoint.port}"
        facts = {"upstream": self._endpoint.name, "address": address, "cause": cause}
        log.warning("upstream failed", extra={"facts": {**facts, "request_id": request_id, "more": more}})
