"""Messages about the progress of a call, sent to its client one after the other, as far as it keeps up."""

import asyncio
import logging
from typing import Any

log = logging.getLogger("gateway")


class Progress:
    """The messages of one call. `ctx` is the SDK's context of its handler."""

    def __init__(self, ctx: Any) -> None:
        self._session = ctx.session
        self._wants = "progressToken" in ((ctx.params or {}).get("_meta") or {})
        self._sent = 0
        self._next: str | None = None
        self._task: asyncio.Task[None] | None = None

    def tell(self, message: str) -> None:
        """Send a message soon, unless its client wants none. A later one replaces one that is not sent yet."""
        if not self._wants:
            return
        self._next = message
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send())

    def close(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        while self._next is not None:
            message, self._next = self._next, None
            self._sent += 1
            try:
                await self._session.report_progress(float(self._sent), message=message)
            except Exception as error:
                log.debug("a message about progress was not sent: %s", type(error).__name__)
                return
