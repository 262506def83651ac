"""The time that a run may take: model calls and tools, but not a person's thinking."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import Clock

T = TypeVar("T")


class TimeBudget:
    """The time budget of one run: `limit_s` seconds. `expiry` makes the error for the time when they are over."""

    def __init__(self, limit_s: float, *, clock: Clock, expiry: Callable[[], GatewayError]) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._ends_s = clock.monotonic() + limit_s
        self.expiry = expiry
        self._timer: asyncio.TimerHandle | None = None
        self._expired: Callable[[], None] = _do_nothing
        self._paused_s: float | None = None
        self._limits: set[asyncio.Timeout] = set()  # of what runs `run_within`

    @property
    def left_s(self) -> float:
        return self._ends_s - (self._clock.monotonic() if self._paused_s is None else self._paused_s)

    @property
    def spent_s(self) -> float:
        return self._limit_s - self.left_s

    def restore(self, spent_s: float) -> None:
        """Set the time that was spent before, perhaps by another process."""
        self._ends_s = self._clock.monotonic() + self._limit_s - spent_s

    def start(self, expired: Callable[[], None]) -> None:
        """Start the timer: `expired` is called when the time is over."""
        self._expired = expired
        self._timer = asyncio.get_running_loop().call_later(max(self.left_s, 0.0), self._expire)

    def stop(self) -> None:
        """Stop the timer: `expired` is not called any more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._expired = None, _do_nothing

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock of the budget during a wait for a person."""
        expired = self._expired
        self.stop()
        self._paused_s = self._clock.monotonic()
        try:
            yield
        finally:
            self._ends_s += self._clock.monotonic() - self._paused_s
            self._paused_s = None
            self.start(expired)

    async def run_within(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises the error of `expiry` when the time is over, and cancels `work`."""
        # The timer that runs ends it: each call of the model would otherwise set a second one.
        limit = asyncio.timeout(max(self.left_s, 0.0) if self._timer is None else None)
        try:
            async with limit:
                self._limits.add(limit)
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.expiry() from None
        finally:
            self._limits.discard(limit)

    def interrupt(self) -> None:
        """End each await of `run_within` now, as if the time were over."""
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0.0)

    def _expire(self) -> None:
        self._timer = None
        self.interrupt()
        self._expired()


def _do_nothing() -> None:
    """Do nothing: no timer has been started."""


def build_timeout_error(limit_s: float, run_id: str) -> GatewayError:
    """Return the error of a run whose time is over."""
    return GatewayError("agent_timeout", f"The run took longer than {limit_s:g} s and was stopped (run {run_id}).")
