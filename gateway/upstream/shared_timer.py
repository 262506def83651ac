"""Waits of one length, with one timer for all of them.

Nearly all end before they are over, and a timer for each costs more than an entry in a table.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol


class Waiter(Protocol):
    """Something that waits. It is hashed by its identity."""

    def on_timeout(self) -> None: ...


class Waits:
    """Calls `on_timeout` of each waiter `wait_s` seconds after it began, in their order.

    Used on one event loop only.
    """

    __slots__ = ("_due_s", "_timer", "_wait_s")

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._due_s: OrderedDict[Waiter, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None  # for the first, or for one that ended before

    def begin(self, waiter: Waiter) -> None:
        """Begin the wait of a waiter that has none."""
        loop = asyncio.get_running_loop()
        self._due_s[waiter] = loop.time() + self._wait_s
        if self._timer is None:
            self._timer = loop.call_later(self._wait_s, self._call_due, loop)

    def end(self, waiter: Waiter) -> None:
        """End a wait before it is over. Idempotent."""
        self._due_s.pop(waiter, None)

    def _call_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notify the waiters whose wait is over, and set the timer for the next one."""
        now_s = loop.time()
        try:
            while self._due_s:
                waiter, due_s = next(iter(self._due_s.items()))
                if due_s > now_s:
                    break
                del self._due_s[waiter]
                waiter.on_timeout()
        finally:
            self._timer = None
            if self._due_s:
                left_s = next(iter(self._due_s.values())) - now_s
                self._timer = loop.call_later(left_s, self._call_due, loop)
