"""Requests with a wrong key, or with one outside its networks: all are counted.

The log has the first ones, then one line a minute with their number.

So an operator sees which clients try keys, and such a client cannot fill the disk.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import Metric

from gateway.contracts.errors import GatewayError
from gateway.lanes.passthrough.access_record import format_address
from gateway.telemetry.metrics import build_counter

log = logging.getLogger("gateway")

#: So many are logged one by one, after a minute without any.
LINES: Final = 5
EVERY_S: Final = 60.0
_PATH_CHARS: Final = 200


class WrongKeys:
    """The wrong keys of one worker. `clock` is monotonic, in seconds."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = self._lines = self._more = 0
        self._due_s = float("-inf")

    def record_refusal(self, error: GatewayError, *, peer: object, method: str, path: str) -> None:
        """Count and log a request that was answered with `error`, if its key was the reason.

        `peer` is the client's address, as asyncio names it; `path` comes without its query.
        """
        if error.code == "network_not_allowed":
            what = "a key was refused outside its networks"
        elif error.code == "invalid_api_key":
            what = "a wrong key was refused"
        else:
            return
        self._count += 1
        if self._lines == LINES:
            self._more += 1
            return
        self._lines += 1
        self._due_s = self._clock() + EVERY_S
        log.warning("%s: %s %s, from %s", what, method, path[:_PATH_CHARS], format_address(peer))

    def sweep(self) -> None:
        """Log once a minute how many requests had no line of their own; called often."""
        if self._lines and self._clock() >= self._due_s:
            if not self._more:
                self._lines = 0
            self.close()
            self._due_s = self._clock() + EVERY_S

    def close(self) -> None:
        """Log that number now."""
        if self._more:
            log.warning("%d more requests had a wrong key (gateway_wrong_keys_total counts all)", self._more)
            self._more = 0

    def collect_families(self) -> Iterator[Metric]:
        """Yield what was counted, for a scrape."""
        yield build_counter(
            "gateway_wrong_keys", "Requests refused for a wrong key, or for one outside its networks", self._count
        )
