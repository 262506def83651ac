"""Work that goes on for as long as a process does: an unexpected error does not end it.

Keys that were revoked elsewhere are still refused, budgets still read and leases still renewed, whatever one look met.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

log = logging.getLogger("gateway")

#: Work that failed begins again after so long, in seconds.
PAUSE_S: Final = 1.0


async def supervise(work: Callable[[], Awaitable[None]], *, pause_s: float = PAUSE_S) -> None:
    """Do work until it returns or is cancelled. It begins again after an error, which is logged."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("work in the background failed, and begins again in %g s", pause_s)
            await asyncio.sleep(pause_s)
        else:
            return
