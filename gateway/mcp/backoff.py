"""The wait before a server is started again."""

import random
from collections.abc import Callable

_JITTER = 0.25  # of the wait, either way: servers that fell together do not all come back together


class Backoff:
    """Waits that double from `first_s` to `longest_s`; the first one again after `steady_s` without a failure."""

    def __init__(
        self,
        *,
        first_s: float = 0.5,
        longest_s: float = 30.0,
        steady_s: float = 60.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._steady_s = steady_s
        self._chance = chance
        self._wait_s = first_s

    def choose_wait_s(self, *, up_s: float) -> float:
        """Return the wait after a failure, in seconds; `up_s`: how long the server ran well before."""
        if up_s >= self._steady_s:
            self._wait_s = self._first_s
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, self._longest_s)
        return wait_s * (1 - _JITTER + 2 * _JITTER * self._chance())
