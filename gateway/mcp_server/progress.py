"""Reports about the progress of a call, sent to its client one after the other, as far as it keeps up.

A server may report as often as it wants. Only some of its reports within a second go on, each the latest one then.

The protocol wants numbers that grow. A server's numbers are sent as it gives them; a report without one that grows
comes a small step behind the last one.
"""

import asyncio
import logging
from math import isfinite
from typing import Any, Final

from gateway.aio.clock import wait_until_set
from gateway.context.call_runs import MESSAGE_CHARS
from gateway.contracts.exchange import CallProgress
from gateway.mcp.server_text import format_one_line

log = logging.getLogger("gateway")

#: The step from one report to the next, where the server counts nothing.
_STEP: Final = 0.001
#: From one report to the next.
PAUSE_S: Final = 0.1
#: The result of a call waits no longer for its last report.
_LAST_S: Final = 5.0


class ProgressReporter:
    """The reports of one call. `ctx` is the SDK's context of its handler."""

    def __init__(self, ctx: Any, *, pause_s: float = PAUSE_S) -> None:
        self._session = ctx.session
        self._wants = "progressToken" in ((ctx.params or {}).get("_meta") or {})
        self._pause_s = pause_s
        self._sent = 0.0
        self._ending = asyncio.Event()
        self._next: CallProgress | None = None
        self._task: asyncio.Task[None] | None = None

    def queue_report(self, progress: CallProgress) -> None:
        """Send a report soon, unless its client wants none. A later one replaces one that is not sent yet."""
        if not self._wants:
            return
        self._next = progress
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_reports())

    async def send_last_report(self) -> None:
        """Send the last report now, if it is not sent yet: the result comes next."""
        self._ending.set()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=_LAST_S)

    def close(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _send_reports(self) -> None:
        """Send the latest report, with growing numbers and pauses, until none is left."""
        while self._next is not None:
            told, self._next = self._next, None
            number, total = told.progress, told.total
            grows = number is not None and isfinite(number) and number > self._sent
            self._sent = number if number is not None and grows else round(self._sent + _STEP, 3)
            if total is not None and not isfinite(total):
                total = None
            try:
                await self._session.report_progress(self._sent, total, _format_message(told))
            except Exception as error:
                log.debug("a report about progress was not sent: %s", type(error).__name__)
                return
            await wait_until_set(self._ending, self._pause_s)


def _format_message(told: CallProgress) -> str | None:
    """Return a message on one line: a client may show it among the gateway's own."""
    return format_one_line(told.message, MESSAGE_CHARS) or None
